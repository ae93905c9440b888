"""What keeps the store healthy: promote, rescue, prune, tidy. Idempotent and bounded.

Two leaders at once share the work: what one has locked the other passes over.
"""

from collections.abc import Sequence
from functools import partial

from durio.model.errors import InvariantBroken
from durio.model.failure import Failure, encode_failure
from durio.model.job import DEAD, READY, attempt_number
from durio.model.outcome import Kind, Left, Outcome, Reason
from durio.ports.upkeep import Promoted, Rescued
from durio.stores.postgres.blocks import end_blocks
from durio.stores.postgres.bounds import (
    count_entered,
    mark_over,
    marks_to_change,
    settle_others,
)
from durio.stores.postgres.days import keep_days
from durio.stores.postgres.desk import AtDesk, Desk
from durio.stores.postgres.driver import Row
from durio.stores.postgres.filters import prefix_span
from durio.stores.postgres.gate import lock_bounded, pass_gate
from durio.stores.postgres.history import prune
from durio.stores.postgres.lease import (
    DELETE_WORKERS,
    LOCK_WORKERS,
    find_held,
    lock_held,
)
from durio.stores.postgres.life import is_dead
from durio.stores.postgres.orders import close_orders
from durio.stores.postgres.statements import statement
from durio.stores.postgres.stray_keys import sweep_keys
from durio.stores.postgres.transaction import Transaction
from durio.stores.postgres.vacuum import sweep

PROMOTE = statement("upkeep_promote")
ANYWHERE = ""  # in place of a lane
NEXT_DUE = statement("upkeep_next_due")
FIND_LOST = statement("upkeep_find_lost")
FIND_LOCAL = statement("upkeep_find_local")
FIND_ORPHANS = statement("upkeep_find_orphans")
LOCK_ORPHANS = statement("upkeep_lock_orphans")


class PostgresUpkeep(AtDesk):
    """Run by whoever leads; two at once do no harm."""

    async def promote(self, limit: int) -> Promoted:
        """Scheduled -> ready for jobs that are due, oldest first, all namespaces."""
        desk = self.desk
        return await desk.lines.write(lambda tx: promote(tx, desk, limit))

    async def rescue(
        self,
        limit: int,
        *,
        worker: int | None = None,
        namespace: str | None = None,
    ) -> Rescued:
        """Take back the jobs of workers whose lease is over, or of this `worker`."""
        desk = self.desk

        async def work(tx: Transaction) -> Rescued:
            if worker is not None:
                return await rescue_workers(tx, desk, [worker], limit)
            now = desk.local.lease_time.now()
            rows = await tx.rows(FIND_LOST, now, namespace)
            return await rescue_workers(tx, desk, [lost for (lost,) in rows], limit)

        return await desk.lines.write(work)

    async def rescue_here(self, limit: int, *, namespace: str | None = None) -> Rescued:
        """The same for workers whose life mark on this host is gone."""
        desk = self.desk
        here = desk.local.lives.here()
        if here is None:
            return Rescued([], [])
        rows = await desk.lines.read(FIND_LOCAL, here, namespace)
        dead = [worker for worker, name in rows if is_dead(name)]
        if not dead:
            return Rescued([], [])
        return await desk.lines.write(lambda tx: rescue_workers(tx, desk, dead, limit))

    async def rescue_orphans(self, limit: int) -> Rescued:
        """Running jobs whose worker does not exist: back, uncharged."""
        desk = self.desk
        return await desk.lines.write(lambda tx: rescue_orphans(tx, desk, limit))

    async def prune(self, limit: int, *, dead_count: int) -> int:
        """Delete final jobs past their retention, and expired keys; how many went."""
        desk = self.desk
        await sweep(desk)
        await sweep_keys(desk)
        went = await keep_days(desk)
        return went + await desk.lines.write(
            lambda tx: prune(
                tx, limit, dead_count, drops_days=bool(desk.local.days.may_change)
            )
        )

    async def measure(self, soft_max: int, *, namespace: str) -> None:
        """Mark queues beyond the soft bound, and take the mark from those below it."""
        span = prefix_span(f"{namespace}:")
        await count_entered(self.desk, span)
        changes = await self.desk.lines.read_many(
            lambda reading: marks_to_change(reading, soft_max, span)
        )
        if changes:
            await self.desk.lines.write(lambda tx: mark_over(tx, changes))
        await settle_others(self.desk, span)

    async def tidy(self) -> None:
        """Lanes full of old row versions are cleaned."""
        await sweep(self.desk)


# --- promote


async def promote(tx: Transaction, desk: Desk, limit: int) -> Promoted:
    """The oldest due jobs of all lanes; each lane is asked by its index."""
    looks, count = desk.local.due_anywhere, 0
    began = desk.clock.monotonic()
    (age,) = looks.ages([ANYWHERE])
    for lane, rank, lowest, jobs in await tx.rows(PROMOTE, limit, tx.injected, age):
        count += jobs
        tx.ring(lane)
        tx.after_commit.append(partial(desk.local.floors.lower, lane, rank, lowest))
    left = await tx.value(NEXT_DUE, tx.injected, age)
    looks.judge([age], desk.clock.monotonic() - began)
    if left is None or left > 0:
        looks.swept([ANYWHERE], began)
    return Promoted(count, None if left is None else max(0.0, left))


# --- rescue


async def rescue_workers(
    tx: Transaction, desk: Desk, workers: Sequence[int], limit: int
) -> Rescued:
    """Take jobs back, `limit` at most; a worker's row goes with its last job."""
    if not workers:
        return Rescued([], [])
    rows = await tx.rows(LOCK_WORKERS, workers)  # somebody else may have been quicker
    ours = sorted(worker for (worker,) in rows)
    if not ours:
        return Rescued([], [])
    await end_blocks(tx, desk.place.schema, ours)
    held = await find_held(tx, ours, limit + 1)
    if len(held) > limit:
        last, _ = held[limit]
        emptied = [worker for worker in ours if worker < last]
    else:
        emptied = ours
    left = await lose(tx, desk, await lock_held(tx, ours, held[:limit]))
    if emptied:
        await tx.rows(DELETE_WORKERS, emptied)
        await close_orders(tx, emptied)
    for worker in emptied:
        tx.after_commit.append(partial(desk.local.lives.end, worker))
    return Rescued(emptied, left, more=len(held) > limit)


async def lose(tx: Transaction, desk: Desk, held: Sequence[Row]) -> list[Left]:
    """Let jobs out as lost."""
    if not held:
        return []
    now = await tx.now()
    workers: list[int] = []
    outcomes: list[Outcome] = []
    attempts: list[int] = []
    for job_id, claim_no, retried, losses, worker in held:
        attempt = attempt_number(retried, losses)
        error = loss(worker, attempt, now)
        workers.append(worker)
        outcomes.append(Outcome(job_id, claim_no, Kind.LOST, error=error))
        attempts.append(attempt)
    return await let_out(tx, desk, workers, outcomes, attempts)


def loss(worker: int, attempt: int, now: float) -> bytes:
    """The error entry of an attempt that died with its worker."""
    return encode_failure(
        Failure(
            type="WorkerLost",
            message=f"worker {worker} was lost while it held this job",
            attempt=attempt,
            at=now,
            worker=str(worker),
        )
    )


async def let_out(
    tx: Transaction,
    desk: Desk,
    workers: Sequence[int],
    outcomes: Sequence[Outcome],
    attempts: Sequence[int],
) -> list[Left]:
    """Through the gate, and how to tell of it."""
    ways = await pass_gate(tx, workers, outcomes)
    left: list[Left] = []
    for outcome, passed, attempt, worker in zip(
        outcomes, ways, attempts, workers, strict=True
    ):
        if passed is None:
            raise InvariantBroken("a job found running did not leave by the gate")
        state, lane, task, rank = passed
        reason = Reason.WORKER_LOST if state == DEAD else None
        left.append(Left(outcome.id, task, lane, state, reason, attempt, worker))
        if state == READY:
            lower = partial(desk.local.floors.lower, lane, rank, outcome.id)
            tx.after_commit.append(lower)
    return left


async def rescue_orphans(tx: Transaction, desk: Desk, limit: int) -> Rescued:
    """Nobody knows what became of their workers: nobody is charged."""
    found = [job_id for (job_id,) in await tx.rows(FIND_ORPHANS, limit + 1)]
    ids = found[:limit]
    if not ids:
        return Rescued([], [])
    await lock_bounded(tx, ids)
    rows = await tx.rows(LOCK_ORPHANS, ids)
    outcomes = [Outcome(row[0], row[1], Kind.RELEASE) for row in rows]
    attempts = [attempt_number(row[2], row[3]) for row in rows]
    workers = [row[4] for row in rows]
    left = await let_out(tx, desk, workers, outcomes, attempts) if rows else []
    return Rescued([], left, more=len(found) > limit)
