"""Vacuum the lane tables, and report a transaction that keeps old row versions alive.

Rows in these tables live for seconds. The server's own vacuum runs once a minute at best,
and not at all while all its workers are busy elsewhere. So the leader vacuums a table that
is full of dead row versions. That has no effect while a transaction is old enough to see
them. Then a warning names the transaction.
"""

from typing import Any

from durio.model.errors import StoreError
from durio.model.quantities import format_duration
from durio.stores.postgres.connections import LockWait
from durio.stores.postgres.context import PostgresContext
from durio.stores.postgres.statements import statement

READ_DEAD_ROWS = statement("read_dead_rows")
FIND_OLDEST_SNAPSHOT = statement("find_oldest_snapshot")
VACUUM = "vacuum (skip_locked, index_cleanup on, truncate off) {schema}."

DEAD_MAX = 20_000  # dead row versions in one table
REST_SECONDS = 10.0
REST_FACTOR = 20.0  # vacuum uses at most 5 % of the time
OLD_SECONDS = 60.0  # an open transaction is reported from this age on
WARN_AGAIN_SECONDS = 600.0  # between two reports
LANES = frozenset({"ready", "sched", "run", "waits", "deferred"})


async def vacuum_tables(context: PostgresContext) -> None:
    """Vacuum tables that need it, at most every 10 s.

    While an old transaction keeps vacuum from working, a table is vacuumed at most once a
    minute.
    """
    state, clock = context.process.vacuum, context.clock
    began = clock.monotonic()
    if began < state.next_at:
        return
    state.next_at = began + REST_SECONDS
    rows = await context.connections.read(READ_DEAD_ROWS)
    dirty = [lane for lane, dead, _ in rows if dead >= DEAD_MAX]
    if not dirty:
        return
    state.oldest_seconds = await find_oldest(context)
    may_clean = {lane for lane, _, may in rows if may and lane in LANES}
    # A pooler runs every statement in a transaction, where vacuum cannot run.
    for lane in [] if context.connections.is_pooled else dirty:
        last = state.cleaned_at.get(lane)
        is_pinned = state.oldest_seconds > OLD_SECONDS
        if lane in may_clean and not (
            is_pinned and last is not None and began - last < OLD_SECONDS
        ):
            state.cleaned_at[lane] = began
            await context.connections.write_one(
                VACUUM + lane, lock_wait=LockWait.ONE_TURN
            )
    took = clock.monotonic() - began
    state.next_at = began + max(REST_SECONDS, REST_FACTOR * took)


async def find_oldest(context: PostgresContext) -> float:
    """Return for how many seconds the oldest transaction has kept row versions alive.

    If these are more than OLD_SECONDS, a warning names the transaction.
    """
    try:
        rows = await context.connections.read(FIND_OLDEST_SNAPSHOT)
    except StoreError:
        return 0.0  # this role may lack the right
    if not rows:
        return 0.0
    seconds = float(rows[0][3] or 0.0)
    state, now = context.process.vacuum, context.clock.monotonic()
    is_news = state.warned_at is None or now - state.warned_at >= WARN_AGAIN_SECONDS
    if seconds > OLD_SECONDS and is_news:
        state.warned_at = now
        context.process.warn(oldest_in_words(rows[0], seconds))
    return seconds


def oldest_in_words(row: Any, seconds: float) -> str:
    kind, who, what, _, age = row
    return (
        f"{kind} {who} ({what}) has kept old row versions alive in PostgreSQL for "
        f"{format_duration(seconds)} ({age} transactions): claims get slower until it "
        "ends. End it, or set idle_in_transaction_session_timeout."
    )
