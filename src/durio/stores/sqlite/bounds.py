"""Bounded queues: who may enter, and how many wait there.

Most queues have no guard: a transaction asks the index of guarded queues once, finds it
empty, and pays nothing more. Under a bound `depth` counts the waiting jobs, exactly: every
way into and out of waiting tells of itself, in the same transaction. Only an enqueue asks
for room; a job that was accepted once (a retry, a rescue, an operator's hand) just enters.

A queue without a bound has the soft one: the leader looks at it about once a second and
leaves a mark, which enqueues obey as long as there are workers, one of which leads.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from durio.model.names import namespace_of
from durio.ports.control import AS_IN_CODE, NO_BOUND
from durio.ports.enqueue import Full
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
    """This enqueue does not fit: whoever began it undoes what it has written."""

    def __init__(self, full: Full) -> None:
        super().__init__(full)
        self.full = full


# --- entering and leaving


def guard_of(tx: SqliteTransaction, lane: str) -> SqliteGuard | None:
    """The guard of a lane, if it has one: asked once, and mostly for all lanes at once."""
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
    """After a change of the queue table, or a rollback: ask again."""
    tx.guards = None


def add_to_depth(tx: SqliteTransaction, lane: str, jobs: int = 1) -> None:
    """So many jobs have begun to wait in this lane; nobody asks whether they may."""
    guard = guard_of(tx, lane)
    if guard is not None and guard.limit is not None and jobs:
        guard.depth += jobs
        tx.db.rows(CHANGE_DEPTH, (lane, jobs))


def subtract_from_depth(tx: SqliteTransaction, lane: str, jobs: int = 1) -> None:
    """So many jobs wait there no longer."""
    add_to_depth(tx, lane, -jobs)


def refusal_of(tx: SqliteTransaction, lane: str, jobs: int) -> Full | None:
    """Why so many new jobs may not enter; None: they may."""
    guard = guard_of(tx, lane)
    if guard is None or jobs <= 0:
        return None
    if guard.refuses is not None:
        return guard.refuses
    if guard.is_closed:
        return Full(lane, guard.depth, guard.limit or 0, is_closed=True)
    if guard.limit is not None:
        fits = guard.depth + jobs <= guard.limit
        return None if fits else Full(lane, guard.depth, guard.limit)
    return soft_bound_refusal(tx, lane, guard) if guard.soft_limit else None


def soft_bound_refusal(
    tx: SqliteTransaction, lane: str, guard: SqliteGuard
) -> Full | None:
    """A mark is obeyed while somebody may take it again; an old one goes here."""
    if tx.db.rows(HAS_WORKERS, (namespace_of(lane), tx.boot, tx.monotonic_seconds)):
        return Full(lane, guard.depth, guard.soft_limit, is_soft=True)
    clear_soft_mark(tx, lane)
    return None


def enter_lane(tx: SqliteTransaction, lane: str, jobs: int = 1) -> None:
    """New jobs wait in this lane, if there is room for them."""
    full = refusal_of(tx, lane, jobs)
    if full is not None and tx.in_caller_tx and not full.is_closed:
        # To refuse would mean to hold the queue's row until the caller commits.
        tx.full_queues.append(full)
    elif full is not None:
        raise SqliteNoRoom(full)
    add_to_depth(tx, lane, jobs)


@contextmanager
def undo_if_full(tx: SqliteTransaction) -> Generator[None, None, None]:
    """Undo what was written inside when there is no room for it."""
    tx.db.rows("savepoint entering")
    try:
        yield
    except SqliteNoRoom as no_room:
        tx.db.rows("rollback to entering")
        tx.db.rows("release entering")
        refused = [g.refuses for g in (tx.guards or {}).values() if g and g.refuses]
        forget_guards(tx)
        # First come, first served: nobody behind takes the room that is too small.
        for full in (no_room.full, *refused):
            guard = guard_of(tx, full.lane)
            if guard is not None:
                guard.refuses = full
        raise
    tx.db.rows("release entering")


def clear_refusals(tx: SqliteTransaction) -> None:
    """The enqueue is over: the next one is judged by the depth alone."""
    for guard in (tx.guards or {}).values():
        if guard is not None:
            guard.refuses = None


# --- bounds


def changed_bounds(
    db: Database, maxsizes: Mapping[str, int | None], *, is_default: bool
) -> dict[str, int | None]:
    """The bounds that the store does not have like that; a default yields to others."""
    news: dict[str, int | None] = {}
    for lane, maxsize in maxsizes.items():
        rows = db.rows(READ_BOUND, (lane,))
        stored, stored_is_default = rows[0] if rows else (None, 0)
        is_chosen = stored is not None and not stored_is_default
        if is_default and is_chosen:
            continue
        if stored != maxsize or (is_chosen == is_default and maxsize is not None):
            news[lane] = maxsize
    return news


def declare_bounds(
    tx: SqliteTransaction, maxsizes: Mapping[str, int | None], *, is_default: bool
) -> None:
    """What the code says; what was set by hand stays, and beats it."""
    for lane, maxsize in changed_bounds(tx.db, maxsizes, is_default=is_default).items():
        mark = is_default and maxsize is not None
        tx.db.rows(DECLARE_BOUND, (lane, maxsize, mark))
        tx.new_lanes.add(lane)
        count_depth(tx, lane)


def set_manual_bound(tx: SqliteTransaction, lane: str, maxsize: int) -> None:
    """A bound that beats the code; NO_BOUND is none, AS_IN_CODE takes it back."""
    by_hand = None if maxsize == AS_IN_CODE else max(maxsize, NO_BOUND)
    tx.db.rows(OVERRIDE_BOUND, (lane, by_hand))
    tx.new_lanes.add(lane)
    clear_soft_mark(tx, lane)
    count_depth(tx, lane)


def count_depth(tx: SqliteTransaction, lane: str) -> None:
    """Another bound may hold from here on: its depth begins true."""
    forget_guards(tx)
    guard = guard_of(tx, lane)
    if guard is not None and guard.limit is not None:
        tx.db.rows(COUNT_DEPTH, (lane,))
        forget_guards(tx)


# --- the soft bound


def changed_soft_marks(
    db: Database, soft_max: int, span: tuple[str, str]
) -> list[tuple[str, int, int]]:
    """(lane, mark, depth) where the mark is not what a look finds; bounded in cost."""
    if not soft_max or db.value(HAS_FEW_JOBS, (soft_max,)):
        # Nothing can be beyond it: only old marks have to go.
        return [(lane, 0, 0) for (lane,) in db.rows(READ_MARKED_QUEUES, span)]
    found: list[tuple[str, int, int]] = []
    for lane, mark in db.rows(READ_SOFT_QUEUES, span):
        depth = db.value(COUNT_WAITING, (lane, soft_max))
        seen = soft_max if depth >= soft_max else 0
        if seen != mark:
            found.append((lane, seen, depth))
    return found


def clear_soft_mark(tx: SqliteTransaction, lane: str) -> None:
    """A hand has changed what waits here: whoever leads looks again within a second."""
    guard = guard_of(tx, lane)
    if guard is not None and guard.soft_limit:
        tx.db.rows(MARK_OVER, (lane, 0, guard.depth))
        forget_guards(tx)


def write_soft_marks(
    tx: SqliteTransaction, changes: list[tuple[str, int, int]]
) -> None:
    """Leave or take marks, unless the queue has got a bound meanwhile."""
    for lane, mark, depth in changes:
        guard = guard_of(tx, lane)
        if guard is None or guard.limit is None:
            tx.db.rows(MARK_OVER, (lane, mark, depth))
    forget_guards(tx)
