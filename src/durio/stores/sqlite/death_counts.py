"""Counts of deaths by queue, task and type of error.

Deaths are rare, and a job that does not die costs nothing here. Each death has an
increasing number, so that a bulk action can skip jobs that died after it began.
"""

from durio.stores.job_rules import TYPE_CHARS_MAX, DeathKind, bounded_kind
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteTransaction

NEXT_DEATH_NUMBER = statement("next_death_number")
NUMBER_DEATH = statement("number_death")
ADD_TO_DEATH_COUNT = statement("add_to_death_count")
INSERT_DEATH_COUNT = statement("insert_death_count")
COUNT_DEATH_ROWS = statement("count_death_rows")


def count_death(tx: SqliteTransaction, job_id: bytes, lane: str, task: str) -> None:
    """Number and count a job that has just become dead; its errors are already stored."""
    error_type = tx.db.value(NUMBER_DEATH, (job_id, next_death(tx)))
    kind = (lane, task, str(error_type)[:TYPE_CHARS_MAX])
    if not tx.db.rows(ADD_TO_DEATH_COUNT, kind):
        add_kind(tx, kind)


def next_death(tx: SqliteTransaction) -> int:
    return tx.db.value(NEXT_DEATH_NUMBER)


def add_kind(tx: SqliteTransaction, kind: DeathKind) -> None:
    """Count a new kind; beyond KINDS_MAX kinds, as a less specific one."""
    kind = bounded_kind(kind, tx.db.value(COUNT_DEATH_ROWS))
    if not tx.db.rows(ADD_TO_DEATH_COUNT, kind):
        tx.db.rows(INSERT_DEATH_COUNT, kind)
