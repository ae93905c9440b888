"""Upkeep of the store: promote, rescue, prune, tidy.

Calls are idempotent, and each does a limited amount of work. Two leaders at the same time
share the work: each skips rows that the other has locked.
"""

from collections.abc import Sequence
from functools import partial
from math import inf

from durio.model.job import READY, attempt_number
from durio.model.names import namespace_span
from durio.model.outcome import KeepRule, Outcome, OutcomeKind, RescuedJob
from durio.ports.upkeep import (
    DeadOnThisHost,
    ExpiredLeases,
    OneWorker,
    Orphans,
    Promoted,
    Rescued,
    RescueScope,
)
from durio.stores.job_rules import lost_outcome, rescued_job
from durio.stores.postgres.bounds import (
    changed_soft_marks,
    count_entered,
    recount_unfinished,
    write_soft_marks,
)
from durio.stores.postgres.context import PostgresCapability, PostgresContext
from durio.stores.postgres.driver import Row
from durio.stores.postgres.exit import leave_running, lock_bounded
from durio.stores.postgres.finished_jobs import maintain_partitions, prune_rows
from durio.stores.postgres.gates import prune_gates
from durio.stores.postgres.keys import free_unused_keys
from durio.stores.postgres.lease import (
    DELETE_WORKERS,
    LOCK_WORKERS,
    find_held,
    lock_held,
)
from durio.stores.postgres.life_sockets import is_dead
from durio.stores.postgres.logs import write_entries
from durio.stores.postgres.statements import statement
from durio.stores.postgres.task_connection import end_task_transactions
from durio.stores.postgres.transaction import PostgresTransaction
from durio.stores.postgres.vacuum import vacuum_tables

PROMOTE = statement("promote_due_jobs")
ANYWHERE = ""  # stands for all lanes
NEXT_DUE = statement("next_due_anywhere")
KEEP_DONE = statement("keep_done")
FIND_LOST = statement("find_lost_workers")
FIND_LOCAL = statement("find_local_workers")
FIND_ORPHANS = statement("find_orphaned_jobs")
LOCK_ORPHANS = statement("lock_orphaned_jobs")


class PostgresUpkeep(PostgresCapability):
    async def promote(self, limit: int) -> Promoted:
        context = self.context
        return await context.connections.write(
            lambda tx: promote_due(tx, context, limit)
        )

    async def rescue(self, limit: int, scope: RescueScope) -> Rescued:
        context = self.context
        match scope:
            case DeadOnThisHost(namespace):
                dead = await dead_on_this_host(context, namespace)
                if not dead:
                    return Rescued([], [])
                return await context.connections.write(
                    lambda tx: rescue_workers(tx, context, dead, limit)
                )
            case Orphans():
                return await context.connections.write(
                    lambda tx: rescue_orphans(tx, context, limit)
                )
            case OneWorker(worker):
                return await context.connections.write(
                    lambda tx: rescue_workers(tx, context, [worker], limit)
                )
            case ExpiredLeases(namespace):
                return await context.connections.write(
                    lambda tx: rescue_expired(tx, context, namespace, limit)
                )

    async def keep_done(self, ids: Sequence[bytes], keep: KeepRule | None) -> None:
        retention = self.context.retention

        async def work(tx: PostgresTransaction) -> None:
            seconds, count, bucket = keep or KeepRule(retention.done_seconds)
            kept = (await tx.now() + seconds, None if count is None else bucket, count)
            await tx.rows(KEEP_DONE, sorted(ids), *kept)

        await self.context.connections.write(work)

    async def prune(self, limit: int, *, dead_count: int) -> int:
        context = self.context
        await vacuum_tables(context)
        await free_unused_keys(context)
        went = await maintain_partitions(context)
        await context.connections.write(lambda tx: prune_gates(tx, context, limit))
        return went + await context.connections.write(
            lambda tx: prune_rows(
                tx,
                limit,
                dead_count,
                drops_days=bool(context.process.partitions.may_change),
            )
        )

    async def measure(self, soft_max: int, *, namespace: str) -> None:
        span = namespace_span(namespace)
        await count_entered(self.context, span)
        changes = await self.context.connections.read_many(
            lambda reading: changed_soft_marks(reading, soft_max, span)
        )
        if changes:
            await self.context.connections.write(
                lambda tx: write_soft_marks(tx, changes)
            )
        await recount_unfinished(self.context, span)

    async def tidy(self) -> None:
        """Vacuum lane tables that are full of old row versions."""
        await vacuum_tables(self.context)


# --- promote


async def promote_due(
    tx: PostgresTransaction, context: PostgresContext, limit: int
) -> Promoted:
    """Promote the oldest due jobs of all lanes; each lane is read through its index."""
    looks, count = context.process.leader_due_watermarks, 0
    began = context.clock.monotonic()
    (age,) = looks.ages([ANYWHERE])
    for lane, rank, lowest, jobs, entering in await tx.rows(
        PROMOTE, limit, tx.injected, age
    ):
        count += jobs
        tx.gates.entering += entering or ()
        tx.wake(lane)
        tx.after_commit.append(
            partial(context.process.watermarks.lower, lane, rank, lowest)
        )
    await write_entries(tx, context)
    left = await tx.value(NEXT_DUE, tx.injected, age)
    if left == inf:  # blocked jobs only
        left = None
    looks.record_scan([age], context.clock.monotonic() - began)
    if left is None or left > 0:
        looks.record_empty([ANYWHERE], began)
    return Promoted(count, None if left is None else max(0.0, left))


# --- rescue


async def dead_on_this_host(
    context: PostgresContext, namespace: str | None
) -> list[int]:
    here = context.process.life_sockets.here()
    if here is None:
        return []
    rows = await context.connections.read(FIND_LOCAL, here, namespace)
    return [worker for worker, name in rows if is_dead(name)]


async def rescue_expired(
    tx: PostgresTransaction,
    context: PostgresContext,
    namespace: str | None,
    limit: int,
) -> Rescued:
    rows = await tx.rows(FIND_LOST, context.process.lease_time.now(), namespace)
    return await rescue_workers(tx, context, [worker for (worker,) in rows], limit)


async def rescue_workers(
    tx: PostgresTransaction,
    context: PostgresContext,
    workers: Sequence[int],
    limit: int,
) -> Rescued:
    """Take back at most `limit` jobs; a worker's row is deleted with its last job."""
    if not workers:
        return Rescued([], [])
    rows = await tx.rows(LOCK_WORKERS, workers)  # another rescuer may have been quicker
    ours = sorted(worker for (worker,) in rows)
    if not ours:
        return Rescued([], [])
    await end_task_transactions(tx, context.location.schema, ours)
    held = await find_held(tx, ours, limit + 1)
    if len(held) > limit:
        last, _ = held[limit]
        emptied = [worker for worker in ours if worker < last]
    else:
        emptied = ours
    left = await leave_as_lost(tx, context, await lock_held(tx, ours, held[:limit]))
    if emptied:
        await tx.rows(DELETE_WORKERS, emptied)
    for worker in emptied:
        tx.after_commit.append(partial(context.process.life_sockets.end, worker))
    return Rescued(emptied, left, more=len(held) > limit)


async def leave_as_lost(
    tx: PostgresTransaction, context: PostgresContext, held: Sequence[Row]
) -> list[RescuedJob]:
    if not held:
        return []
    now = await tx.now()
    workers: list[int] = []
    outcomes: list[Outcome] = []
    attempts: list[int] = []
    for job_id, claim_no, retried, losses, worker in held:
        attempt = attempt_number(retried, losses)
        workers.append(worker)
        outcomes.append(lost_outcome(job_id, claim_no, worker, attempt, now))
        attempts.append(attempt)
    return await leave_by_rescue(tx, context, workers, outcomes, attempts)


async def leave_by_rescue(
    tx: PostgresTransaction,
    context: PostgresContext,
    workers: Sequence[int],
    outcomes: Sequence[Outcome],
    attempts: Sequence[int],
) -> list[RescuedJob]:
    ways = await leave_running(tx, workers, outcomes)
    left: list[RescuedJob] = []
    for outcome, passed, attempt, worker in zip(
        outcomes, ways, attempts, workers, strict=True
    ):
        way_out = None if passed is None else passed[:3]
        left.append(rescued_job(outcome.id, way_out, attempt, worker))
        if passed is not None and passed.state == READY:
            lower = context.process.watermarks.lower
            tx.after_commit.append(partial(lower, passed.lane, passed.rank, outcome.id))
    await write_entries(tx, context)
    return left


async def rescue_orphans(
    tx: PostgresTransaction, context: PostgresContext, limit: int
) -> Rescued:
    """Take back jobs without a worker row; their attempts count no loss."""
    found = [job_id for (job_id,) in await tx.rows(FIND_ORPHANS, limit + 1)]
    ids = found[:limit]
    if not ids:
        return Rescued([], [])
    await lock_bounded(tx, ids)
    rows = await tx.rows(LOCK_ORPHANS, ids)
    outcomes = [Outcome(row[0], row[1], OutcomeKind.RELEASE) for row in rows]
    attempts = [attempt_number(row[2], row[3]) for row in rows]
    workers = [row[4] for row in rows]
    left = (
        await leave_by_rescue(tx, context, workers, outcomes, attempts) if rows else []
    )
    return Rescued([], left, more=len(found) > limit)
