"""Bounded queues: how many wait there, and where their bounds come from.

Most queues have no guard: the statement of a plain enqueue or claim sees that in an empty
index, and pays nothing more. The row of a guarded queue is locked before anything else, by
name, so whoever holds it knows its depth exactly: every way into and out of waiting tells
of itself in the same transaction. A caller's transaction locks no queue, for it may last:
what it brings is noted, and counted by the next one who holds the lock. Only an enqueue
asks for room (admission.py); a job that was accepted once (a retry, a rescue, an operator's
hand) just enters.

A bound begins to hold while others are at work who have not seen it. So it is written and
committed first, and counted when all of these are over (`settle`). Until then the row says
so: should whoever set it die in between, the next process that declares its bounds counts,
or whoever leads. A caller's transaction that sees the store as it was at its beginning may
not see a bound, however late it asks: it notes what it brings wherever that is, and a note
for a queue without a bound goes by the leader.

A queue without a bound has the soft one: the leader looks at it about once a second and
leaves a mark, which enqueues obey as long as there are workers, one of which leads.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from durio.ports.control import AS_IN_CODE, NO_BOUND
from durio.stores.postgres.caller_checks import RowReader
from durio.stores.postgres.context import PostgresContext
from durio.stores.postgres.driver import Row
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

# What stands in place of a mark, under a bound.
COUNTED, UNCOUNTED = 0, -1
# How long a new bound waits for those who have not seen it: mostly milliseconds. Where one
# is longer at work, a caller's transaction perhaps, whoever leads counts again when it is over.
SHORT_SECONDS = 0.05
RECOUNT_PAUSES_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(slots=True)
class PostgresGuard:
    """What a queue asks of an enqueue."""

    limit: int | None  # None: no bound of its own
    depth: int  # waiting jobs; true only under a bound
    soft_limit: int  # the soft bound that it was seen beyond; 0: it is below
    is_closed: bool


# --- entering and leaving


async def lock_guards(
    tx: PostgresTransaction, lanes: Iterable[str]
) -> dict[str, PostgresGuard]:
    """The guards of these lanes, for those that have one, locked.

    Nothing else may be locked before them: whoever takes rows of lanes first and asks here
    later can deadlock with somebody who does it in order.
    """
    rows = await tx.rows(LOCK, sorted(set(lanes)))
    guards = {name: PostgresGuard(*others) for name, *others, _ in rows}
    entered = [row[0] for row in rows if row[-1]]
    if entered:  # a statement of its own: it sees what the lock had to wait for
        for name, depth in await tx.rows(COUNT_ENTERED, entered):
            guards[name].depth = depth
    return guards


async def read_guards(
    tx: PostgresTransaction, lanes: Iterable[str]
) -> dict[str, PostgresGuard]:
    """The same for a caller's own transaction: nobody has to wait until that is over."""
    rows = await tx.rows(READ_GUARDS, sorted(set(lanes)))
    return {name: PostgresGuard(*others) for name, *others in rows}


async def record_entered(tx: RowReader, changes: Mapping[str, int]) -> None:
    """Jobs of such a transaction: counted when it is over, by whoever comes next."""
    changes = {lane: jobs for lane, jobs in changes.items() if jobs}
    if changes:
        await tx.rows(RECORD_ENTERED, list(changes), list(changes.values()))


async def count_entered(context: PostgresContext, span: tuple[str, str]) -> None:
    """Where nobody else comes, the leader does."""
    lanes = [lane for (lane,) in await context.connections.read(FIND_ENTERED, *span)]

    async def work(tx: PostgresTransaction) -> None:
        await lock_guards(tx, lanes)
        await tx.rows(COUNT_ENTERED, lanes)  # those whose bound is gone

    if lanes:
        await context.connections.write(work)


async def change_depths(tx: PostgresTransaction, changes: Mapping[str, int]) -> None:
    """So many jobs more or fewer wait in these lanes; only those with a bound count."""
    changes = {lane: jobs for lane, jobs in changes.items() if jobs}
    if changes:
        lanes = sorted(changes)
        await tx.rows(CHANGE_DEPTH, lanes, [changes[lane] for lane in lanes])


# --- bounds


def changed_bounds(
    rows: Iterable[Row], maxsizes: Mapping[str, int | None], *, is_default: bool
) -> dict[str, int | None]:
    """The bounds that the store does not have like that; a default yields to others."""
    known: dict[str, tuple[int | None, bool]] = {
        name: (maxsize, stored_is_default)
        for name, maxsize, stored_is_default, _is_unsettled in rows
    }
    news: dict[str, int | None] = {}
    for lane, maxsize in maxsizes.items():
        stored, stored_is_default = known.get(lane, (None, False))
        is_chosen = stored is not None and not stored_is_default
        if is_default and is_chosen:
            continue
        if stored != maxsize or (is_chosen == is_default and maxsize is not None):
            news[lane] = maxsize
    return news


async def declare_bounds(
    context: PostgresContext, maxsizes: Mapping[str, int | None], *, is_default: bool
) -> None:
    """What the code says, where that is news; what was set by hand stays, and beats it."""
    rows = await context.connections.read(READ, sorted(maxsizes))
    news = changed_bounds(rows, maxsizes, is_default=is_default)
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
    """A bound that beats the code; NO_BOUND is none, AS_IN_CODE takes it back.

    After the commit its depth has to be settled.
    """
    by_hand = None if maxsize == AS_IN_CODE else max(maxsize, NO_BOUND)
    await tx.rows(SET_MANUAL_BOUND, lane, by_hand)
    await clear_soft_mark(tx, lane)
    await count_depths(tx, [lane], UNCOUNTED)


async def count_depths(
    tx: PostgresTransaction, lanes: Collection[str], mark: int
) -> None:
    """Count what waits in those of these lanes that have a bound."""
    if await lock_guards(tx, lanes):
        # A statement of its own: it sees what was committed before the lock was ours.
        await tx.rows(COUNT, sorted(lanes), mark)


async def recount(context: PostgresContext, lanes: Collection[str]) -> None:
    """Bounds of these lanes were committed: make their depths true.

    Whoever asked the queues before then may have seen no bound, and counts nothing. When
    all of these are over, everybody who changes a depth holds the lock of its row. Where
    one of them lasts the row goes on saying that it is not settled.
    """
    old = {asker for (asker,) in await context.connections.read(FIND_OPEN_TRANSACTIONS)}
    for pause in RECOUNT_PAUSES_SECONDS:
        if not old:
            break
        await context.clock.sleep(pause)
        old &= {
            asker for (asker,) in await context.connections.read(FIND_OPEN_TRANSACTIONS)
        }
    mark = UNCOUNTED if old else COUNTED
    await context.connections.write(lambda tx: count_depths(tx, lanes, mark))


async def recount_unfinished(context: PostgresContext, span: tuple[str, str]) -> None:
    """The same for bounds of this span that somebody has left half-way, if it is time."""
    lanes = [lane for (lane,) in await context.connections.read(READ_UNCOUNTED, *span)]
    if not lanes:
        return
    old = {asker for (asker,) in await context.connections.read(FIND_OPEN_TRANSACTIONS)}
    if old:
        await context.clock.sleep(SHORT_SECONDS)
        old &= {
            asker for (asker,) in await context.connections.read(FIND_OPEN_TRANSACTIONS)
        }
    if not old:
        await context.connections.write(lambda tx: count_depths(tx, lanes, COUNTED))


# --- the soft bound


async def namespaces_with_workers(
    tx: PostgresTransaction, namespaces: Collection[str], lease_time: float | None
) -> set[str]:
    """Those of these Apps in which somebody may take a mark again."""
    if not namespaces:
        return set()
    rows = await tx.rows(HAS_WORKERS, sorted(namespaces), lease_time)
    return {namespace for (namespace,) in rows}


async def changed_soft_marks(
    reading: ReadTransaction, soft_max: int, span: tuple[str, str]
) -> list[tuple[str, int, int]]:
    """(lane, mark, depth) where the mark is not what a look finds; bounded in cost."""
    if not soft_max or await reading.value(IS_SMALL, soft_max):
        # Nothing can be beyond it: only old marks have to go.
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
    """Leave or take marks, unless the queue has got a bound meanwhile."""
    if changes:
        lanes, marks, depths = (list(column) for column in zip(*changes, strict=True))
        await tx.rows(WRITE_SOFT_MARKS, lanes, marks, depths)


async def clear_soft_mark(tx: PostgresTransaction, *lanes: str) -> None:
    """A hand has changed what waits here: whoever leads looks again within a second."""
    if lanes:
        await tx.rows(CLEAR_SOFT_MARK, sorted(lanes))
