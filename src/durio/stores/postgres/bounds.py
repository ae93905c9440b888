"""Bounded queues: their depths, and where their bounds come from.

Most queues have no guard: the statement of a plain enqueue or claim finds that in an empty
index, at no further cost. The row of a guarded queue is locked by name before anything
else, so the transaction that holds the lock knows the exact depth. Every transition into
and out of waiting changes the depth in the same transaction. A caller's transaction may
last long, so it locks no queue: it records the jobs that it adds, and the next transaction
that holds the lock counts them. Only an enqueue needs room (admission.py). A job that was
accepted once always enters again, by a retry, a rescue or an operator's action.

When a bound is set, transactions that have not seen it may be open. So the bound is
committed first, and the depth is counted when all of these transactions have ended
(`recount`). Until then the row is marked as uncounted. If the process that set the bound
dies in between, the depth is counted by the next process that declares its bounds, or by
the leader. A caller's transaction with a fixed snapshot may never see a new bound. It
records what it adds for every queue, and the leader removes the records of queues without a
bound.

A queue without a bound has the soft bound: the leader checks it about once a second and
sets a mark. Enqueues obey the mark while the namespace has workers, because one of them is
the leader.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from durio.ports.control import AS_IN_CODE, NO_BOUND
from durio.stores.job_rules import new_bounds
from durio.stores.postgres.caller_checks import RowReader
from durio.stores.postgres.context import PostgresContext
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction, ReadTransaction

LOCK = statement("lock_guard")
READ_GUARDS = statement("read_guard")
RECORD_ENTERED = statement("record_entered")
FIND_ENTERED = statement("find_entered_lanes")
COUNT_ENTERED = statement("count_entered")
CHANGE_DEPTH = statement("change_depth")
COUNT = statement("count_depth")
READ = statement("read_bound")
DECLARE = statement("declare_bound")
SET_MANUAL_BOUND = statement("override_bound")
FIND_OPEN_TRANSACTIONS = statement("find_open_transactions")
HAS_WORKERS = statement("has_workers")
IS_SMALL = statement("has_few_jobs")
READ_UNCOUNTED = statement("read_uncounted_queues")
READ_SOFT_MARKED = statement("read_marked_queues")
READ_SOFT = statement("read_soft_queues")
COUNT_WAITING = statement("count_waiting")
WRITE_SOFT_MARKS = statement("mark_over")
CLEAR_SOFT_MARK = statement("clear_mark")

# Values of the mark column for a queue with a bound of its own.
COUNTED, UNCOUNTED = 0, -1
# How long to wait for transactions that have not seen a new bound. Most end within
# milliseconds. If one lasts longer, such as a caller's transaction, the leader counts again
# when it has ended.
SHORT_SECONDS = 0.05
RECOUNT_PAUSES_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(slots=True)
class PostgresGuard:
    """The bound and depth of a queue, as an enqueue reads them."""

    limit: int | None  # None: no bound of its own
    depth: int  # waiting jobs; exact only under a bound
    soft_limit: int  # the soft bound, if the queue exceeds it; else 0
    is_closed: bool


# --- entering and leaving


async def lock_guards(
    tx: PostgresTransaction, lanes: Iterable[str]
) -> dict[str, PostgresGuard]:
    """Lock the guards of these lanes; lanes without one are left out.

    Call this before any other lock: a transaction that locks rows of lanes first can
    deadlock with one that keeps the order.
    """
    rows = await tx.rows(LOCK, sorted(set(lanes)))
    guards = {name: PostgresGuard(*others) for name, *others, _ in rows}
    entered = [row[0] for row in rows if row[-1]]
    if entered:  # a new statement, to see commits that the lock waited for
        for name, depth in await tx.rows(COUNT_ENTERED, entered):
            guards[name].depth = depth
    return guards


async def read_guards(
    tx: PostgresTransaction, lanes: Iterable[str]
) -> dict[str, PostgresGuard]:
    """Read the guards without locks, for a caller's transaction: it may last."""
    rows = await tx.rows(READ_GUARDS, sorted(set(lanes)))
    return {name: PostgresGuard(*others) for name, *others in rows}


async def record_entered(tx: RowReader, changes: Mapping[str, int]) -> None:
    """Record jobs of a caller's transaction; the next lock holder counts them."""
    changes = {lane: jobs for lane, jobs in changes.items() if jobs}
    if changes:
        await tx.rows(RECORD_ENTERED, list(changes), list(changes.values()))


async def count_entered(context: PostgresContext, span: tuple[str, str]) -> None:
    """Count recorded jobs of queues that no other transaction locks; for the leader."""
    lanes = [lane for (lane,) in await context.connections.read(FIND_ENTERED, *span)]

    async def work(tx: PostgresTransaction) -> None:
        await lock_guards(tx, lanes)
        await tx.rows(COUNT_ENTERED, lanes)  # records of lanes without a bound

    if lanes:
        await context.connections.write(work)


async def change_depths(tx: PostgresTransaction, changes: Mapping[str, int]) -> None:
    """Add these numbers to the depths of lanes; lanes without a bound are skipped."""
    changes = {lane: jobs for lane, jobs in changes.items() if jobs}
    if changes:
        lanes = sorted(changes)
        await tx.rows(CHANGE_DEPTH, lanes, [changes[lane] for lane in lanes])


# --- bounds


async def declare_bounds(
    context: PostgresContext, maxsizes: Mapping[str, int | None], *, is_default: bool
) -> None:
    """Store the code's bounds where they changed; keep a bound that an operator has set."""
    rows = await context.connections.read(READ, sorted(maxsizes))
    stored = {name: (maxsize, by_default) for name, maxsize, by_default, _ in rows}
    news = new_bounds(stored, maxsizes, is_default=is_default)
    lanes = sorted(news)

    async def work(tx: PostgresTransaction) -> None:
        await tx.rows(DECLARE, lanes, [news[lane] for lane in lanes], is_default)
        tx.after_commit.append(lambda: context.known_lanes.update(lanes))
        await count_depths(tx, lanes, UNCOUNTED)

    if news:
        await context.connections.write(work)
    unsettled = {name for name, _, _, is_unsettled in rows if is_unsettled}
    if unsettled or news:
        await recount(context, unsettled | news.keys())


async def set_manual_bound(tx: PostgresTransaction, lane: str, maxsize: int) -> None:
    """Set a bound that overrides the code.

    NO_BOUND removes the limit, AS_IN_CODE restores the code's bound. The caller must call
    `recount` after the commit.
    """
    by_hand = None if maxsize == AS_IN_CODE else max(maxsize, NO_BOUND)
    await tx.rows(SET_MANUAL_BOUND, lane, by_hand)
    await clear_soft_mark(tx, lane)
    await count_depths(tx, [lane], UNCOUNTED)


async def count_depths(
    tx: PostgresTransaction, lanes: Collection[str], mark: int
) -> None:
    if await lock_guards(tx, lanes):
        # A new statement, to see what was committed before this lock was taken.
        await tx.rows(COUNT, sorted(lanes), mark)


async def recount(context: PostgresContext, lanes: Collection[str]) -> None:
    """Correct the depths of these lanes after their bounds were committed.

    Transactions that read the queues before the commit may have seen no bound, and then do
    not count their jobs. When all of them have ended, every transaction that changes a
    depth holds the lock of its row. While one of them is open, the row stays marked as
    uncounted.
    """
    old = await open_transactions(context)
    for pause in RECOUNT_PAUSES_SECONDS:
        if not old:
            break
        await context.clock.sleep(pause)
        old &= await open_transactions(context)
    mark = UNCOUNTED if old else COUNTED
    await context.connections.write(lambda tx: count_depths(tx, lanes, mark))


async def open_transactions(context: PostgresContext) -> set[str]:
    rows = await context.connections.read(FIND_OPEN_TRANSACTIONS)
    return {transaction for (transaction,) in rows}


async def recount_unfinished(context: PostgresContext, span: tuple[str, str]) -> None:
    """Recount uncounted bounds of this span, unless older transactions are open."""
    lanes = [lane for (lane,) in await context.connections.read(READ_UNCOUNTED, *span)]
    if not lanes:
        return
    old = await open_transactions(context)
    if old:
        await context.clock.sleep(SHORT_SECONDS)
        old &= await open_transactions(context)
    if not old:
        await context.connections.write(lambda tx: count_depths(tx, lanes, COUNTED))


# --- the soft bound


async def namespaces_with_workers(
    tx: PostgresTransaction, namespaces: Collection[str], lease_time: float | None
) -> set[str]:
    """Return the namespaces that have workers: only there does a leader clear marks."""
    if not namespaces:
        return set()
    rows = await tx.rows(HAS_WORKERS, sorted(namespaces), lease_time)
    return {namespace for (namespace,) in rows}


async def changed_soft_marks(
    reading: ReadTransaction, soft_max: int, span: tuple[str, str]
) -> list[tuple[str, int, int]]:
    """Return (lane, mark, depth) for lanes whose stored mark is wrong, at bounded cost."""
    if not soft_max or await reading.value(IS_SMALL, soft_max):
        # No queue can exceed the soft bound, so only old marks are cleared.
        return [(lane, 0, 0) for (lane,) in await reading.rows(READ_SOFT_MARKED, *span)]
    rows = await reading.rows(READ_SOFT, *span)
    marks: dict[str, int] = {row[0]: row[1] for row in rows}
    found: list[tuple[str, int, int]] = []
    for lane, depth in await reading.rows(COUNT_WAITING, list(marks), soft_max):
        seen = soft_max if depth >= soft_max else 0
        if seen != marks[lane]:
            found.append((lane, seen, depth))
    return found


async def write_soft_marks(
    tx: PostgresTransaction, changes: Sequence[tuple[str, int, int]]
) -> None:
    """Set or clear marks, except in queues that have got a bound of their own."""
    if changes:
        lanes, marks, depths = (list(column) for column in zip(*changes, strict=True))
        await tx.rows(WRITE_SOFT_MARKS, lanes, marks, depths)


async def clear_soft_mark(tx: PostgresTransaction, *lanes: str) -> None:
    """Clear the mark of queues that changed; the leader checks again within a second."""
    if lanes:
        await tx.rows(CLEAR_SOFT_MARK, sorted(lanes))
