"""Bounded queues: which jobs may enter, and how many wait there.

Most queues have no guard. A transaction queries the index of guarded queues once, finds it
empty, and has no further cost. Under a bound, `depth` is the exact number of waiting jobs:
every change that makes a job wait, or ends its wait, updates it in the same transaction.
Only an enqueue needs room. A job that was accepted once always enters again, by a retry, a
rescue or an operator's action.

A queue without a bound has the soft bound. The leader counts the queue about once a second
and marks it if it is above. Enqueues obey the mark while a worker is alive, because one of
the workers leads and can clear it.
"""

from collections import Counter
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager

from durio.model.job import NewJob
from durio.model.names import namespace_of
from durio.ports.control import AS_IN_CODE, NO_BOUND
from durio.ports.enqueue import Full
from durio.stores.job_rules import new_bounds
from durio.stores.sqlite.database import Database
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteGuard, SqliteTransaction

HAS_GUARDED_QUEUE = statement("has_guarded_queue")
READ_GUARD = statement("read_guard")
CHANGE_DEPTH = statement("change_depth")
COUNT_DEPTH = statement("count_depth")
READ_BOUND = statement("read_bound")
DECLARE_BOUND = statement("declare_bound")
OVERRIDE_BOUND = statement("override_bound")
HAS_FEW_JOBS = statement("has_few_jobs")
READ_MARKED_QUEUES = statement("read_marked_queues")
READ_SOFT_QUEUES = statement("read_soft_queues")
COUNT_WAITING = statement("count_waiting")
MARK_OVER = statement("mark_over")
HAS_WORKERS = statement("has_workers")


class SqliteNoRoom(Exception):
    """An enqueue does not fit; the code that began it undoes what it has written."""

    def __init__(self, full: Full) -> None:
        super().__init__(full)
        self.full = full


# --- entering and leaving


def guard_of(tx: SqliteTransaction, lane: str) -> SqliteGuard | None:
    """Return the guard of a lane; None if it has none.

    Guards are read once per transaction. If no lane has a guard, that is one query in
    total.
    """
    guards = tx.guards
    if guards is None:
        guards = tx.guards = {}
        tx.has_guards = bool(tx.db.rows(HAS_GUARDED_QUEUE))
    if not tx.has_guards:
        return None
    if lane not in guards:
        rows = tx.db.rows(READ_GUARD, (lane,))
        guards[lane] = SqliteGuard(*rows[0]) if rows else None
    return guards[lane]


def forget_guards(tx: SqliteTransaction) -> None:
    """Read guards again, after a change of the queue table or a rollback."""
    tx.guards = None


def add_to_depth(tx: SqliteTransaction, lane: str, jobs: int = 1) -> None:
    """Count jobs that now wait in this lane, without checking for room."""
    guard = guard_of(tx, lane)
    if guard is not None and guard.limit is not None and jobs:
        guard.depth += jobs
        tx.db.rows(CHANGE_DEPTH, (lane, jobs))


def subtract_from_depth(tx: SqliteTransaction, lane: str, jobs: int = 1) -> None:
    add_to_depth(tx, lane, -jobs)


def refusal_of(tx: SqliteTransaction, lane: str, jobs: int) -> Full | None:
    """Return why this number of new jobs may not enter; None if they may."""
    guard = guard_of(tx, lane)
    if guard is None or jobs <= 0:
        return None
    if guard.refuses is not None:
        return guard.refuses
    if guard.is_closed:
        return closed_refusal(tx, lane)
    if guard.limit is not None:
        fits = guard.depth + jobs <= guard.limit
        return None if fits else Full(lane, guard.depth, guard.limit)
    return soft_bound_refusal(tx, lane, guard) if guard.soft_limit else None


def refusal_for_jobs(tx: SqliteTransaction, jobs: Collection[NewJob]) -> Full | None:
    """Return why these jobs may not enter if all of them are new; None if they may.

    A bound does not refuse a job that waits for a log.
    """
    starting = Counter({job.lane: 0 for job in jobs})
    starting.update(job.lane for job in jobs if job.wait is None)
    for lane, count in starting.items():
        full = refusal_of(tx, lane, count) if count else closed_refusal(tx, lane)
        if full is not None:
            return full
    return None


def closed_refusal(tx: SqliteTransaction, lane: str) -> Full | None:
    """Return why a closed lane accepts no jobs; None if it is not closed."""
    guard = guard_of(tx, lane)
    if guard is None or not guard.is_closed:
        return None
    return Full(lane, guard.depth, guard.limit or 0, is_closed=True)


def soft_bound_refusal(
    tx: SqliteTransaction, lane: str, guard: SqliteGuard
) -> Full | None:
    """Obey the mark while a live worker can clear it; otherwise clear it here."""
    if tx.db.rows(HAS_WORKERS, (namespace_of(lane), tx.boot, tx.monotonic_seconds)):
        return Full(lane, guard.depth, guard.soft_limit, is_soft=True)
    clear_soft_mark(tx, lane)
    return None


def enter_lane(tx: SqliteTransaction, lane: str, jobs: int = 1) -> None:
    """Count new jobs into this lane; raise SqliteNoRoom if they do not fit."""
    full = refusal_of(tx, lane, jobs)
    if full is not None and not (
        tx.enters_closed if full.is_closed else tx.enters_full
    ):
        raise SqliteNoRoom(full)
    if full is not None:
        tx.full_queues.append(full)
    add_to_depth(tx, lane, jobs)


def enter_lane_blocked(tx: SqliteTransaction, lane: str, jobs: int) -> None:
    """Count new jobs that wait for logs; only a closed lane refuses them."""
    full = closed_refusal(tx, lane)
    if full is not None and not tx.enters_closed:
        raise SqliteNoRoom(full)
    add_to_depth(tx, lane, jobs)


@contextmanager
def undo_if_full(tx: SqliteTransaction) -> Generator[None, None, None]:
    """Undo what the block has written if it raises SqliteNoRoom."""
    tx.db.rows("savepoint entering")
    try:
        yield
    except SqliteNoRoom as no_room:
        tx.db.rows("rollback to entering")
        tx.db.rows("release entering")
        refused = [g.refuses for g in (tx.guards or {}).values() if g and g.refuses]
        forget_guards(tx)
        # First come, first served: no later call of this enqueue takes the room that
        # was too small for an earlier one.
        for full in (no_room.full, *refused):
            guard = guard_of(tx, full.lane)
            if guard is not None:
                guard.refuses = full
        raise
    tx.db.rows("release entering")


def clear_refusals(tx: SqliteTransaction) -> None:
    """Clear the refusals at the end of an enqueue; the next one depends on the depth alone."""
    for guard in (tx.guards or {}).values():
        if guard is not None:
            guard.refuses = None


# --- bounds


def changed_bounds(
    db: Database, maxsizes: Mapping[str, int | None], *, is_default: bool
) -> dict[str, int | None]:
    """Return the bounds that differ from the stored ones."""
    found = {lane: db.rows(READ_BOUND, (lane,)) for lane in maxsizes}
    stored = {lane: rows[0] for lane, rows in found.items() if rows}
    return new_bounds(stored, maxsizes, is_default=is_default)


def declare_bounds(
    tx: SqliteTransaction, maxsizes: Mapping[str, int | None], *, is_default: bool
) -> None:
    """Store the bounds that the code declares; an operator's bound overrides them."""
    for lane, maxsize in changed_bounds(tx.db, maxsizes, is_default=is_default).items():
        mark = is_default and maxsize is not None
        tx.db.rows(DECLARE_BOUND, (lane, maxsize, mark))
        tx.new_lanes.add(lane)
        count_depth(tx, lane)


def set_manual_bound(tx: SqliteTransaction, lane: str, maxsize: int) -> None:
    """Set an operator's bound, which overrides the code's.

    NO_BOUND: the queue has no bound. AS_IN_CODE: the code's bound holds again.
    """
    by_hand = None if maxsize == AS_IN_CODE else max(maxsize, NO_BOUND)
    tx.db.rows(OVERRIDE_BOUND, (lane, by_hand))
    tx.new_lanes.add(lane)
    clear_soft_mark(tx, lane)
    count_depth(tx, lane)


def count_depth(tx: SqliteTransaction, lane: str) -> None:
    """Count the waiting jobs again, because another bound may hold now."""
    forget_guards(tx)
    guard = guard_of(tx, lane)
    if guard is not None and guard.limit is not None:
        tx.db.rows(COUNT_DEPTH, (lane,))
        forget_guards(tx)


# --- the soft bound


def changed_soft_marks(
    db: Database, soft_max: int, span: tuple[str, str]
) -> list[tuple[str, int, int]]:
    """Return (lane, mark, depth) of each queue whose mark is out of date.

    Counts at most `soft_max` jobs of each state per queue.
    """
    if not soft_max or db.value(HAS_FEW_JOBS, (soft_max,)):
        # No queue can be above the soft bound, so only old marks are cleared.
        return [(lane, 0, 0) for (lane,) in db.rows(READ_MARKED_QUEUES, span)]
    found: list[tuple[str, int, int]] = []
    for lane, mark in db.rows(READ_SOFT_QUEUES, span):
        depth = db.value(COUNT_WAITING, (lane, soft_max))
        seen = soft_max if depth >= soft_max else 0
        if seen != mark:
            found.append((lane, seen, depth))
    return found


def clear_soft_mark(tx: SqliteTransaction, lane: str) -> None:
    """Clear the mark; the leader counts the queue again within a second."""
    guard = guard_of(tx, lane)
    if guard is not None and guard.soft_limit:
        tx.db.rows(MARK_OVER, (lane, 0, guard.depth))
        forget_guards(tx)


def write_soft_marks(
    tx: SqliteTransaction, changes: list[tuple[str, int, int]]
) -> None:
    """Set or clear marks, except in queues that have got a bound of their own."""
    for lane, mark, depth in changes:
        guard = guard_of(tx, lane)
        if guard is None or guard.limit is None:
            tx.db.rows(MARK_OVER, (lane, mark, depth))
    forget_guards(tx)
