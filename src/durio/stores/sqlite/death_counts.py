"""Counting the dead: once for every death, by queue, task and type of error.

Deaths are rare: a job that does not die pays nothing. Each has a number that only grows,
by which a bulk act knows the dead it was counted for from those who died later.
"""

from durio.model.names import namespace_of
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteTransaction

NEXT_DEATH_NUMBER = statement("next_death_number")
NUMBER_DEATH = statement("number_death")
ADD_TO_DEATH_COUNT = statement("add_to_death_count")
INSERT_DEATH_COUNT = statement("insert_death_count")
COUNT_DEATH_ROWS = statement("count_death_rows")

KINDS_MAX = 10_000
OTHER = "other"
TYPE_CHARS_MAX = 200


def count_death(tx: SqliteTransaction, job_id: bytes, lane: str, task: str) -> None:
    """A job has just become dead, with its errors and its reason in place."""
    error_type = tx.db.value(NUMBER_DEATH, (job_id, next_death(tx)))
    kind = (lane, task, str(error_type)[:TYPE_CHARS_MAX])
    if not tx.db.rows(ADD_TO_DEATH_COUNT, kind):
        add_kind(tx, kind)


def next_death(tx: SqliteTransaction) -> int:
    """The number of a death."""
    return tx.db.value(NEXT_DEATH_NUMBER)


def add_kind(tx: SqliteTransaction, kind: tuple[str, str, str]) -> None:
    """A kind that was never seen: beyond the bound, one that says less."""
    lane, task, _ = kind
    kinds = tx.db.value(COUNT_DEATH_ROWS)
    if kinds > KINDS_MAX:
        kind = (lane, task, OTHER)
    if kinds > 2 * KINDS_MAX:
        kind = (f"{namespace_of(lane)}:{OTHER}", OTHER, OTHER)
    if not tx.db.rows(ADD_TO_DEATH_COUNT, kind):
        tx.db.rows(INSERT_DEATH_COUNT, kind)
