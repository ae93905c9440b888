"""Gates: jobs enter, pass, and give places back; see model/gate.py.

A job before a gate is stored as blocked: it has a row in `gate_queue`, and one in `sched`,
due at infinity. A job that has passed its gates is in `ready` under a ticket.

A transaction collects what it does at gates in `tx.gates`. `pass_gates` does all of it in one
call at the end of the transaction, because gates are locked last, after logs and in the order
of their names. No transaction waits for a gate that another one has locked: what belongs to it
is stored in `gate_deferred`, and whoever locks the gate next, or `settle`, goes on. Changes of
gates wait, briefly.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from durio.model.gate import (
    FINAL,
    IDLE_SECONDS,
    KEEP,
    PASSED_MAX,
    Gate,
    GateChange,
    changed,
    held_at,
    kept_places,
)
from durio.model.ties import load_ties
from durio.ports.browse import GateRow
from durio.ports.records import is_storable, names_from
from durio.stores.postgres.context import PostgresContext
from durio.stores.postgres.ended_waits import WaitsEnded, decode_ended
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

PASS_GATES = statement("pass_gates")
DEFER_GATES = statement("defer_gates")
SETTLE_GATES = statement("settle_gates")
START_JOBS = statement("start_jobs")
CREATE_GATES = statement("create_gate")
LOCK_GATES = statement("lock_gates")
FIND_GATES_TO_CHANGE = statement("find_gates_to_change")
WRITE_GATES = statement("write_gate")
READ_GATES = statement("read_gates")
PRUNE_GATES = statement("prune_gates")

CHANGED_MAX = 1000  # gates of one change by prefix


def give_back(
    tx: PostgresTransaction,
    ties: str | None,
    held: int | None,
    *,
    keeps_final: bool = False,
) -> None:
    """Collect the places that a job gives back; the caller changes its row."""
    if held and ties is not None:
        gates = load_ties(ties).gates
        kept = kept_places(gates, held, FINAL) if keeps_final else 0
        tx.gates.places.update(held_at(gates, held & ~kept))


def jobs_with_gates(
    rows: Iterable[tuple[bytes, str | None]], *, except_ids: Collection[bytes]
) -> list[bytes]:
    """Return the jobs that have gates by their ties."""
    return [
        job_id
        for job_id, ties in rows
        if ties is not None and job_id not in except_ids and load_ties(ties).gates
    ]


async def start_jobs(tx: PostgresTransaction, ids: Collection[bytes]) -> None:
    """Give back what claimed jobs hold until their start; nearly always nothing."""
    if ids:
        await tx.rows(START_JOBS, list(ids))
        tx.gates.is_deferred = True


async def enter_gates(tx: PostgresTransaction) -> None:
    """Let jobs enter now: this transaction claims jobs, and would find them ready."""
    if tx.gates.entering:
        await tx.rows(DEFER_GATES, tx.gates.entering, [], [])
        tx.gates.entering = []
        tx.gates.is_deferred = True


async def pass_gates(tx: PostgresTransaction) -> WaitsEnded | None:
    """Change gates, then let jobs enter and pass."""
    work = tx.gates
    if not work:
        return None
    tx.gates = type(work)()
    found = Counter(work.places)
    if tx.may_be_long:
        values = (work.entering, list(found), list(found.values()))
        await tx.rows(DEFER_GATES, *values)
        return None
    tx.gates.counts, looks = await change_gates(tx, work.changes)
    found.update(dict.fromkeys(looks, 0))
    values = (work.entering, list(found), list(found.values()))
    return decode_ended(await tx.value(PASS_GATES, *values, PASSED_MAX, tx.injected))


# --- changes


async def change_gates(
    tx: PostgresTransaction, changes: Sequence[GateChange]
) -> tuple[list[int], list[str]]:
    """Change gates; return how many for each change, and the names of exact ones."""
    if not changes:
        return [], []
    now = await tx.now()
    makes = [each.name for each in changes if makes_row(each)]
    if makes:
        await tx.rows(CREATE_GATES, makes, now)
    named = [await names_of(tx, change) for change in changes]
    rows = await tx.rows(LOCK_GATES, sorted({name for some in named for name in some}))
    stored = {row[0]: Gate(*row[1:]) for row in rows}
    counts: list[int] = []
    for change, names in zip(changes, named, strict=True):
        there = [name for name in names if name in stored]
        stored |= {name: changed(stored[name], change, now) for name in there}
        counts.append(len(there))
    await tx.rows(
        WRITE_GATES,
        list(stored),
        [gate.cap for gate in stored.values()],
        [gate.rate for gate in stored.values()],
        [gate.burst for gate in stored.values()],
        [gate.tokens for gate in stored.values()],
        [gate.until for gate in stored.values()],
        now,
    )
    exact = [change.name for change in changes if not change.is_prefix]
    return counts, [name for name in exact if name in stored]


def makes_row(change: GateChange) -> bool:
    """Whether the change creates a gate that does not exist."""
    after = changed(Gate(), change, 0.0)
    is_set = not after.is_unlimited or after.until is not None
    return is_set and not change.is_prefix


async def names_of(tx: PostgresTransaction, change: GateChange) -> list[str]:
    if not change.is_prefix:
        return [change.name]
    rows = await tx.rows(
        FIND_GATES_TO_CHANGE,
        *names_from(change.name),
        change.drop,
        change.cap != KEEP,
        change.cap,
        change.rate != KEEP,
        change.rate,
        change.burst != KEEP,
        1.0 if change.burst is None else change.burst,
        CHANGED_MAX,
    )
    return [name for (name,) in rows]


# --- upkeep and reading


async def settle_gates(context: PostgresContext, limit: int) -> WaitsEnded:
    """Let jobs pass gates that are due, or that other transactions have left."""
    rows = await context.connections.write_one(
        SETTLE_GATES, limit, context.connections.now
    )
    return decode_ended(rows[0][0])


async def prune_gates(
    tx: PostgresTransaction, context: PostgresContext, limit: int
) -> None:
    """Delete gates without a use, some names in each call."""
    process = context.process
    process.gates_pruned_to = (
        await tx.value(
            PRUNE_GATES,
            process.gates_pruned_to,
            max(limit, CHANGED_MAX),
            await tx.now(),
            IDLE_SECONDS,
        )
        or ""
    )


async def read_gates(
    context: PostgresContext, prefix: str, limit: int
) -> list[GateRow]:
    if prefix and not is_storable(prefix):
        return []
    rows = await context.connections.read(
        READ_GATES, *names_from(prefix), max(0, limit), context.connections.now
    )
    return [GateRow(*row) for row in rows]
