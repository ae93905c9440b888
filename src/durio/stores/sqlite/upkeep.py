"""Upkeep of the store: promote, rescue, prune, tidy.

Calls are idempotent, and each does a limited amount of work.
"""

from collections.abc import Sequence

from durio.model.job import attempt_number
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
from durio.stores.sqlite.audit import prune_audit
from durio.stores.sqlite.bounds import changed_soft_marks, write_soft_marks
from durio.stores.sqlite.context import SqliteCapability, SqliteContext
from durio.stores.sqlite.database import OwnDatabase
from durio.stores.sqlite.exit import leave_running
from durio.stores.sqlite.gate_upkeep import prune_gates
from durio.stores.sqlite.gates import enter_tied
from durio.stores.sqlite.lease import release_worker_files
from durio.stores.sqlite.logs import prune_logs
from durio.stores.sqlite.records import prune_records
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.store_files import close_quietly
from durio.stores.sqlite.write_session import SqliteTransaction, shorten_log

NEXT_DUE_ANYWHERE = statement("next_due_anywhere")
READ_BUSY_LANES = statement("read_busy_lanes")
FIND_DUE_JOBS = statement("find_due_jobs")
PROMOTE_JOB = statement("promote_job")
FIND_LOST_WORKERS = statement("find_lost_workers")
FIND_LOCAL_WORKERS = statement("find_local_workers")
MARK_RESCUED = statement("mark_rescued")
FIND_HELD_JOBS = statement("find_held_jobs")
FIND_ORPHANED_JOBS = statement("find_orphaned_jobs")
DELETE_WORKER = statement("delete_worker")
KEEP_DONE = statement("keep_done")
PRUNE_AGED = statement("prune_aged")
PRUNE_DEAD = statement("prune_dead")
NEXT_BUCKET = statement("next_bucket")
PRUNE_BUCKET = statement("prune_bucket")
PRUNE_KEYS = statement("prune_keys")

EVERY_LANE = ("", "\U0010ffff")
FREE_PAGES_MAX = 2000  # given back per tidy


class SqliteUpkeep(SqliteCapability):
    async def promote(self, limit: int) -> Promoted:
        return await self.context.writer.write(lambda tx: promote_due(tx, limit))

    async def rescue(self, limit: int, scope: RescueScope) -> Rescued:
        context = self.context
        match scope:
            case DeadOnThisHost(namespace):
                return await rescue_this_host(context, namespace, limit)
            case Orphans():
                return await context.writer.write(lambda tx: rescue_orphans(tx, limit))
            case OneWorker(worker):
                return await context.writer.write(
                    lambda tx: rescue_workers(tx, context, [worker], limit)
                )
            case ExpiredLeases(namespace):
                return await rescue_expired(context, namespace, limit)

    async def keep_done(self, ids: Sequence[bytes], keep: KeepRule | None) -> None:
        def work(tx: SqliteTransaction) -> None:
            seconds, count, bucket = keep or KeepRule(tx.retention.done_seconds)
            kept = (tx.now + seconds, None if count is None else bucket, count)
            tx.db.changed_by_many(KEEP_DONE, [(job_id, *kept) for job_id in ids])

        await self.context.writer.write(work, rows=len(ids))

    async def prune(self, limit: int, *, dead_count: int) -> int:
        return await self.context.writer.write(
            lambda tx: prune_rows(tx, limit, dead_count)
        )

    async def measure(self, soft_max: int, *, namespace: str) -> None:
        span = namespace_span(namespace)
        changes = await self.context.reader.read(
            lambda db: changed_soft_marks(db, soft_max, span)
        )
        if changes:
            await self.context.writer.write(lambda tx: write_soft_marks(tx, changes))

    async def tidy(self) -> None:
        """Give free pages back to the disk and shorten the log."""

        def work(db: OwnDatabase) -> None:
            db.rows(f"pragma incremental_vacuum({FREE_PAGES_MAX})")
            shorten_log(db)

        await self.context.writer.write_outside(work)


# --- promote


def promote_due(tx: SqliteTransaction, limit: int) -> Promoted:
    """Promote the oldest due jobs of all lanes; each lane is read through its index."""
    due: list[tuple[float, int, str]] = []
    for lane, *_ in tx.db.rows(READ_BUSY_LANES, EVERY_LANE):
        due += tx.db.rows(FIND_DUE_JOBS, (lane, tx.now, limit))
    due.sort()
    del due[limit:]
    enter_tied(tx, tx.db.rows_of_many(PROMOTE_JOB, [(seq,) for _, seq, _ in due]))
    for lane in {lane for _, _, lane in due}:
        tx.wake(lane)
    nearest = tx.db.value(NEXT_DUE_ANYWHERE)
    seconds = None if nearest is None else max(0.0, nearest - tx.now)
    return Promoted(len(due), seconds)


# --- rescue


async def rescue_expired(
    context: SqliteContext, namespace: str | None, limit: int
) -> Rescued:
    """Take back the jobs of workers whose lease had expired when this call was made.

    A lease that expires while this call waits to write may belong to a worker that
    waits to renew it.
    """
    asked = context.clock.monotonic()
    return await context.writer.write(
        lambda tx: rescue_workers(
            tx, context, lost_workers(tx, asked, namespace), limit
        )
    )


async def rescue_this_host(
    context: SqliteContext, namespace: str | None, limit: int
) -> Rescued:
    """Take back the jobs of workers whose life lock on this host is free."""
    lives = context.life_locks
    if lives is None:
        return Rescued([], [])
    boot = context.clock.boot_id()
    local = await context.reader.read(
        lambda db: [row[0] for row in db.rows(FIND_LOCAL_WORKERS, (boot, namespace))]
    )
    # Held until the rescue is committed, so that the dead owner cannot come back.
    seized = {w: lock for w in local if (lock := lives.seize(w)) is not None}
    if not seized:
        return Rescued([], [])
    try:
        return await context.writer.write(
            lambda tx: rescue_workers(tx, context, list(seized), limit)
        )
    finally:
        for lock in seized.values():
            close_quietly(lock)


def lost_workers(
    tx: SqliteTransaction, monotonic_seconds: float, namespace: str | None
) -> list[int]:
    """Return workers whose lease had expired at that time, or whose rescue has begun."""
    rows = tx.db.rows(FIND_LOST_WORKERS, (tx.boot, monotonic_seconds, namespace))
    return [worker for (worker,) in rows]


def rescue_workers(
    tx: SqliteTransaction, context: SqliteContext, workers: Sequence[int], limit: int
) -> Rescued:
    """Take back at most `limit` jobs; a worker's row is deleted with its last job."""
    gone: list[int] = []
    left: list[RescuedJob] = []
    for worker in workers:
        room = limit - len(left)
        held = tx.db.rows(FIND_HELD_JOBS, (worker, room + 1))
        # From here on the worker cannot renew, because it may have lost a job already.
        tx.db.rows(MARK_RESCUED, (worker,))
        left += [leave_as_lost(tx, worker, row) for row in held[:room]]
        if len(held) > room:
            return Rescued(gone, left, more=True)
        gone += [row[0] for row in tx.db.rows(DELETE_WORKER, (worker,))]
        tx.after_commit.append(
            lambda worker=worker: release_worker_files(context, worker)
        )
    return Rescued(gone, left)


def leave_as_lost(
    tx: SqliteTransaction, worker: int, held: tuple[bytes, int, int, int]
) -> RescuedJob:
    job_id, claim_no, retried, losses = held
    attempt = attempt_number(retried, losses)
    outcome = lost_outcome(job_id, claim_no, worker, attempt, tx.now)
    return leave_by_rescue(tx, worker, outcome, attempt)


def leave_by_rescue(
    tx: SqliteTransaction, worker: int, outcome: Outcome, attempt: int
) -> RescuedJob:
    way_out = leave_running(tx, worker, outcome)
    return rescued_job(outcome.id, way_out, attempt, worker)


def rescue_orphans(tx: SqliteTransaction, limit: int) -> Rescued:
    """Take back jobs without a worker row; their attempts count no loss."""
    rows = tx.db.rows(FIND_ORPHANED_JOBS, (limit + 1,))
    left: list[RescuedJob] = []
    for job_id, claim_no, retried, losses, worker in rows[:limit]:
        outcome = Outcome(job_id, claim_no, OutcomeKind.RELEASE)
        left.append(
            leave_by_rescue(tx, worker, outcome, attempt_number(retried, losses))
        )
    return Rescued([], left, more=len(rows) > limit)


# --- prune


def prune_rows(tx: SqliteTransaction, limit: int, dead_count: int) -> int:
    """Delete by age and by count, and keys whose window has ended: at most `limit` rows.

    Old audit lines and expired records are deleted too, but the result does not count them.
    """
    prune_audit(tx, limit)
    prune_records(tx, limit)
    prune_logs(tx, limit)
    prune_gates(tx, limit)
    went = deleted_rows(tx, PRUNE_AGED, (tx.now, limit))
    went += deleted_rows(tx, PRUNE_DEAD, (tx.now, limit - went, dead_count))
    bucket = tx.db.value(NEXT_BUCKET, ("",))
    while bucket is not None and went < limit:
        went += deleted_rows(tx, PRUNE_BUCKET, (bucket, limit - went, tx.now))
        bucket = tx.db.value(NEXT_BUCKET, (bucket,))
    return went + deleted_rows(tx, PRUNE_KEYS, (tx.now, limit - went))


def deleted_rows(tx: SqliteTransaction, sql: str, values: tuple[object, ...]) -> int:
    return len(tx.db.rows(sql, values))
