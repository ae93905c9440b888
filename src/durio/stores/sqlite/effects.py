"""Write the effects of an outcome or an action, in the transaction that records it."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from durio.model.effects import Effects
from durio.ports.conflicts import Conflict, EffectsRefused
from durio.stores.commit_rules import check_jobs
from durio.stores.sqlite.bounds import forget_guards
from durio.stores.sqlite.enqueue import insert_into_full
from durio.stores.sqlite.gate_upkeep import change_gates, pass_changed
from durio.stores.sqlite.logs import extend_waits, write_appends
from durio.stores.sqlite.records import check_versions, write_puts
from durio.stores.sqlite.write_session import SqliteTransaction

T = TypeVar("T")


def write_effects(tx: SqliteTransaction, effects: Effects) -> None:
    """Write all effects; EffectsRefused undoes them and what they belong to.

    Full and closed queues accept the jobs, because they continue accepted work.
    """
    check_versions(tx, effects.puts)
    change_gates(tx, effects.gates)
    if effects.jobs:
        tx.enters_closed = True
        try:
            enqueued = insert_into_full(tx, effects.jobs)
        finally:
            tx.enters_closed = False
        check_jobs(effects.jobs, enqueued, all_new=True)
    write_puts(tx, effects.puts)
    write_log_effects(tx, effects)
    pass_changed(tx, effects.gates)


def write_log_effects(tx: SqliteTransaction, effects: Effects) -> None:
    """Extend waits before entries are appended that might end them."""
    extend_waits(tx, effects.extends)
    write_appends(tx, effects.appends)


def with_effects(
    tx: SqliteTransaction,
    effects: Effects | None,
    write: Callable[[], T],
    conflicts: list[Conflict],
) -> T | None:
    """Write something and its effects, unless `write` returns nothing.

    If a condition of the effects does not hold, nothing is written: the conflict is added to
    `conflicts`, and the result is None.
    """
    if effects is None:
        return write()
    try:
        with undone_on_error(tx):
            answer = write()
            if answer:
                write_effects(tx, effects)
            return answer
    except EffectsRefused as refused:
        conflicts.append(refused.conflict)
        return None


@contextmanager
def undone_on_error(tx: SqliteTransaction) -> Generator[None, None, None]:
    """Undo what the block has written if it raises EffectsRefused."""
    tx.db.rows("savepoint effects")
    try:
        yield
    except EffectsRefused:
        tx.db.rows("rollback to effects")
        tx.db.rows("release effects")
        forget_guards(tx)
        raise
    tx.db.rows("release effects")
