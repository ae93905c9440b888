"""Triggers that refuse changes of a file whose jobs go to another store.

They apply to every process that has the file open, whatever release it runs, even in a
transaction of its own, and even after the mover was killed.
"""

import re

from durio.stores.sqlite.database import Database
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.translate import refusal_text

CREATE_FREEZE_TRIGGER = statement("create_freeze_trigger")
FIND_FREEZE_TRIGGERS = statement("find_freeze_triggers")

COPIED = (
    *("job", "uniq", "queue", "tally", "audit", "doc", "protocol"),
    *("record", "log", "entry", "waits", "gate", "gated", "ticket"),
)
# By trigger event: the name of the row that it is about.
TRIGGER_ROWS = {"after insert": "new", "before update": "old", "before delete": "old"}
TRIGGER = re.compile(r"durio_move_\w+")


def refuse_all_changes(db: Database, to: str) -> None:
    """Refuse changes of all tables with jobs; triggers that exist stay."""
    for table in COPIED:
        for change in TRIGGER_ROWS:
            refuse_changes(db, table, change, to)


def refuse_changes(db: Database, table: str, change: str, to: str) -> None:
    """Create a trigger that refuses the change with a message about the new store."""
    row = TRIGGER_ROWS[change]
    text = "'" + refusal_text(to).replace("'", "''") + "'"
    filled = {
        "name": f"durio_move_{table}_{change.split()[1]}",
        "when": change,
        "table": table,
        "unless": f"when {row}.kind <> 'move'" if table == "doc" else "",
        "text": text,
    }
    sql = CREATE_FREEZE_TRIGGER
    for name, value in filled.items():
        sql = sql.replace(f"{{{name}}}", value)
    db.rows(sql)


def accept_changes(db: Database) -> None:
    """Drop all of these triggers."""
    for (name,) in db.rows(FIND_FREEZE_TRIGGERS):
        if TRIGGER.fullmatch(name):
            db.rows(f"drop trigger {name}")
