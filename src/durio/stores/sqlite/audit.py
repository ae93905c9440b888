"""Writes operators' actions to the audit log, in the transaction of the action itself."""

from collections.abc import Mapping, Sequence

from durio.ports.control import Acted, Action, AuditEntry, AuditNote
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteTransaction

INSERT_AUDIT = statement("insert_audit")
ADD_TO_AUDIT = statement("add_to_audit")
PRUNE_AUDIT = statement("prune_audit")

AUDIT_LINES_MAX = 10_000


def write_audit_line(
    tx: SqliteTransaction, entry: AuditEntry, *, add_to_line: int | None = None
) -> int:
    """Write one line and return its number.

    A later step of a bulk action passes the number of the action's line as `add_to_line`,
    and its jobs are added to that line. If the line has been pruned, the step gets a line
    of its own.
    """
    if add_to_line is not None:
        rows = tx.db.rows(ADD_TO_AUDIT, (add_to_line, tx.now, entry.jobs))
        if rows:
            return add_to_line
    return tx.db.value(INSERT_AUDIT, (tx.now, *entry.cut()))


def write_audit_note(
    tx: SqliteTransaction,
    note: AuditNote,
    action: Action,
    acted: Sequence[Acted],
    lanes: Mapping[bytes, str],
) -> int | None:
    """Write all lines of a note; return the number of the line that later calls add to."""
    line = note.line
    for entry in note.entries(action, acted, lanes):
        line = write_audit_line(tx, entry, add_to_line=note.line)
    return line if note.target else None


def prune_audit(tx: SqliteTransaction, limit: int) -> None:
    """Keep only the newest AUDIT_LINES_MAX lines; delete at most `limit` per call."""
    tx.db.rows(PRUNE_AUDIT, (AUDIT_LINES_MAX, limit))
