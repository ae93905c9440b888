"""Queues by hand: pause, resume, close, open, bound, and moving what waits."""

from durio.model.names import namespace_of
from durio.ports.control import AS_IN_CODE, QueueChange, Stepped
from durio.stores.postgres.audit import write_down
from durio.stores.postgres.bounds import (
    bound_by_hand,
    change_depths,
    lock_guards,
    take_mark,
)
from durio.stores.postgres.hands import STEP_MAX, counted
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import Transaction

MAKE_LANES = statement("control_make_lanes")
LOCK_QUEUE = statement("control_lock_queue")
CHANGE_QUEUE = statement("control_change_queue")
FIND_WORKERS = statement("control_find_workers")
MOVE_READY = statement("control_move_ready")
MOVE_SCHEDULED = statement("control_move_sched")
COUNT_HELD = statement("control_count_held")


async def change_queue(
    tx: Transaction, lane: str, change: QueueChange, by: str
) -> None:
    """The change, and who made it; what was so already is no change.

    A bound has to be settled after the commit: see bounds.py.
    """
    await tx.rows(MAKE_LANES, [lane])
    news = await news_in(tx, lane, change)
    if (news.paused, news.closed) != (None, None):
        await tx.rows(CHANGE_QUEUE, lane, news.paused, news.closed)
    if change.maxsize is not None:
        await bound_by_hand(tx, lane, change.maxsize)
    if change.paused is not None:
        await tell_workers(tx, lane, paused=change.paused)
    for verb, target in news.in_words(lane):
        await write_down(tx, namespace_of(lane), by, verb, target)


async def tell_workers(tx: Transaction, lane: str, *, paused: bool) -> None:
    """Every worker of the namespace, so that it asks at once."""
    for (worker,) in await tx.rows(FIND_WORKERS, namespace_of(lane)):
        tx.ring_worker(worker)
    if not paused:
        tx.ring(lane)


async def news_in(tx: Transaction, lane: str, change: QueueChange) -> QueueChange:
    """The part of a change that is not so yet; of two at once, the second sees the first."""
    paused, closed, bound = (await tx.rows(LOCK_QUEUE, lane))[0]
    return QueueChange(
        None if change.paused == paused else change.paused,
        None if change.closed == closed else change.closed,
        None
        if change.maxsize == (AS_IN_CODE if bound is None else bound)
        else change.maxsize,
    )


async def move(
    tx: Transaction, lane: str, to: str, limit: int, by: str, line: int | None
) -> tuple[Stepped, int | None]:
    """Ready jobs first, in order, then those that are not due.

    Jobs that somebody else has hold of are passed by: they are being claimed, or ended; or
    it is a transaction that lasts. What is held at the end is told.
    """
    if lane == to:
        return Stepped(0, more=False), line
    guards = await lock_guards(tx, [lane, to])
    jobs = len(await tx.rows(MOVE_READY, lane, to, limit))
    if jobs:
        tx.ring(to)
    if jobs < limit:
        jobs += len(await tx.rows(MOVE_SCHEDULED, lane, to, limit - jobs))
    if jobs:
        await tx.rows(MAKE_LANES, [to])
        await change_depths(tx, counted(guards, {lane: -jobs, to: jobs}))
        if lane in guards and guards[lane].soft_limit:
            await take_mark(tx, lane)
        target = f"{lane} to {to}"
        namespace = namespace_of(lane)
        line = await write_down(tx, namespace, by, "move", target, jobs, step_of=line)
    if jobs == limit:
        return Stepped(jobs, more=True), line
    held = await tx.value(COUNT_HELD, lane, STEP_MAX)
    return Stepped(jobs, more=False, held=held), line
