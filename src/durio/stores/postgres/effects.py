"""Write the effects of an outcome or an action, in the transaction that records it.

Locks are taken in the order of every transaction: records and guarded queues first, before
the rows of the jobs themselves (`lock_for_effects`). Keys, new records and waits are locked
later, in no common order when several outcomes have effects. So a statement waits for them
only for milliseconds; then the whole call begins again.
"""

from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager

from durio.model.effects import Effects
from durio.ports.conflicts import EffectsRefused
from durio.stores.commit_rules import check_jobs
from durio.stores.postgres.admission import StaleRead
from durio.stores.postgres.bounds import lock_guards
from durio.stores.postgres.context import PostgresContext
from durio.stores.postgres.driver import BRIEF_WAIT
from durio.stores.postgres.enqueue_locked import enqueue_jobs
from durio.stores.postgres.keys import holder_lanes, keys_to_pin
from durio.stores.postgres.logs import collect_appends, extend_waits
from durio.stores.postgres.records import check_versions, lock_records, write_puts
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

FIND_LANES = statement("find_lanes")

SAVEPOINT, RELEASE_SAVEPOINT = "savepoint effects", "release savepoint effects"
BRIEFLY = f"; set local lock_timeout = '{BRIEF_WAIT}'"
ROLLBACK_SAVEPOINT = f"rollback to savepoint effects; {RELEASE_SAVEPOINT}"


async def lock_for_effects(
    tx: PostgresTransaction,
    effects: Sequence[Effects],
    ids: Collection[bytes],
    lanes: Iterable[str],
) -> None:
    """Lock records, and the guarded queues of these jobs, lanes and effects.

    In a transaction that may be long nothing is locked before the outcome.
    """
    if tx.may_be_long:
        return
    puts = [put for each in effects for put in each.puts]
    if puts:
        await lock_records(tx, puts)
    jobs = [job for each in effects for job in each.jobs]
    named = {*lanes, *(job.lane for job in jobs)}
    named |= await holder_lanes(tx, keys_to_pin(jobs, in_caller_tx=False))
    named |= {lane for (lane,) in await tx.rows(FIND_LANES, list(ids))}
    await lock_guards(tx, named)


async def write_effects(
    tx: PostgresTransaction, context: PostgresContext, effects: Effects
) -> None:
    """Write all effects; raise EffectsRefused or StaleRead after part of them.

    Full and closed queues accept the jobs, because they continue accepted work. Entries are
    written by `write_entries`.
    """
    new = await check_versions(tx, effects.puts, has_jobs=True)
    if effects.jobs:
        enqueued = await enqueue_jobs(
            context,
            tx,
            effects.jobs,
            (len(effects.jobs),),
            again=False,
            enters_full=True,
            enters_closed=True,
        )
        check_jobs(effects.jobs, enqueued, all_new=True)
    if await write_puts(tx, effects.puts, new) is None:
        raise StaleRead
    await extend_waits(tx, effects.extends)
    collect_appends(tx, effects.appends)
    tx.gates.changes += effects.gates


@asynccontextmanager
async def undone_if_refused(tx: PostgresTransaction) -> AsyncGenerator[None]:
    """Undo what the block has written and collected if it raises EffectsRefused."""
    kept = (
        list(tx.entries),
        tx.gates.copy(),
        list(tx.freed),
        list(tx.before_commit),
        list(tx.after_commit),
        dict(tx.woken_lanes),
        set(tx.woken_workers),
    )
    await tx.run(SAVEPOINT if tx.may_be_long else SAVEPOINT + BRIEFLY)
    try:
        yield
    except EffectsRefused:
        await tx.run(ROLLBACK_SAVEPOINT)
        (
            tx.entries,
            tx.gates,
            tx.freed,
            tx.before_commit,
            tx.after_commit,
            tx.woken_lanes,
            tx.woken_workers,
        ) = kept
        raise
    # Later statements wait as briefly: records that were created are locked out of order.
    await tx.run(RELEASE_SAVEPOINT)
