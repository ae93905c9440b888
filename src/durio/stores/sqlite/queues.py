"""Queues by hand: pause, resume, close, open, bound, and moving what waits."""

from durio.model.names import namespace_of
from durio.ports.control import AS_IN_CODE, QueueChange, Stepped
from durio.stores.sqlite.audit import write_down
from durio.stores.sqlite.bounds import (
    bound_by_hand,
    forget_guards,
    note_entered,
    note_left,
    take_mark,
)
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.transaction import Transaction

CHANGE_QUEUE = statement("change_queue")
FIND_BELLS = statement("find_bells")
READ_LANES = statement("read_lanes")
INSERT_QUEUE = statement("insert_queue")
MOVE_READY = statement("move_ready")
MOVE_SCHEDULED = statement("move_scheduled")


def change_queue(tx: Transaction, lane: str, change: QueueChange, by: str) -> None:
    """The change, and who made it; what was so already is no change."""
    news = news_in(tx, lane, change)
    tx.db.rows(CHANGE_QUEUE, (lane, change.paused, change.closed))
    tx.new_lanes.add(lane)
    forget_guards(tx)
    if change.maxsize is not None:
        bound_by_hand(tx, lane, change.maxsize)
    if change.paused is not None:
        tell_workers(tx, lane, paused=change.paused)
    for verb, target in news.in_words(lane):
        write_down(tx, namespace_of(lane), by, verb, target)


def tell_workers(tx: Transaction, lane: str, *, paused: bool) -> None:
    """Every worker of the namespace, so that it asks at once."""
    for worker, _ in tx.db.rows(FIND_BELLS, (namespace_of(lane),)):
        tx.rung_workers.add(worker)
    if not paused:
        tx.ring(lane)


def news_in(tx: Transaction, lane: str, change: QueueChange) -> QueueChange:
    """The part of a change that is not so yet."""
    rows = tx.db.rows(READ_LANES, (lane, f"{lane}\0"))
    _, paused, closed, _, bound, _ = rows[0] if rows else (lane, 0, 0, None, None, 0)
    return QueueChange(
        None if change.paused == bool(paused) else change.paused,
        None if change.closed == bool(closed) else change.closed,
        None
        if change.maxsize == (AS_IN_CODE if bound is None else bound)
        else change.maxsize,
    )


def move(
    tx: Transaction, lane: str, to: str, limit: int, by: str, line: int | None
) -> tuple[Stepped, int | None]:
    """Ready jobs first, in order, then those that are not due."""
    if lane == to:
        return Stepped(0, more=False), line
    jobs = len(tx.db.rows(MOVE_READY, (lane, to, limit)))
    if jobs:
        tx.ring(to)
    if jobs < limit:
        jobs += len(tx.db.rows(MOVE_SCHEDULED, (lane, to, limit - jobs)))
    if jobs:
        tx.db.rows(INSERT_QUEUE, (to,))
        tx.new_lanes.add(to)
        note_left(tx, lane, jobs)
        take_mark(tx, lane)
        note_entered(tx, to, jobs)
        target = f"{lane} to {to}"
        namespace = namespace_of(lane)
        line = write_down(tx, namespace, by, "move", target, jobs, step_of=line)
    return Stepped(jobs, more=jobs == limit), line
