"""Change gates, let jobs pass whose time has come, delete gates without use, show them."""

from collections.abc import Sequence

from durio.model.gate import PASSED_MAX, Gate, GateChange, changed, is_idle, refilled
from durio.ports.browse import GateRow
from durio.ports.commit import ROWS_MAX
from durio.ports.upkeep import Settled
from durio.stores.sqlite.database import Database
from durio.stores.sqlite.gates import (
    Passing,
    StoredGate,
    queue,
    read_gate,
    write_gate,
)
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteTransaction

FIND_GATES = statement("find_gates")
READ_GATES = statement("read_gates")
FIND_DUE_GATES = statement("find_due_gates")
NEXT_DUE_GATE = statement("next_due_gate")
FIND_UNUSED_GATES = statement("find_unused_gates")
DELETE_GATE = statement("delete_gate")

END = "\U0010ffff"  # after all names with the same beginning


# --- changes


def change_gates(
    tx: SqliteTransaction, changes: Sequence[GateChange]
) -> tuple[int, ...]:
    """Change gates; return how many each change has changed. No job passes yet."""
    return tuple(
        change_by_prefix(tx, change) if change.is_prefix else change_one(tx, change)
        for change in changes
    )


def change_one(tx: SqliteTransaction, change: GateChange) -> int:
    stored = read_gate(tx, change.name)
    gate = changed(Gate() if stored is None else stored.gate, change, tx.now)
    if stored is None and gate.is_unlimited and gate.until is None:
        return 0
    write_changed(tx, change.name, gate)
    return 1


def change_by_prefix(tx: SqliteTransaction, change: GateChange) -> int:
    """Change the next gates that become different."""
    count, first = 0, change.name
    while count < ROWS_MAX:
        span = (first, change.name + END, ROWS_MAX)
        names = [name for (name,) in tx.db.rows(FIND_GATES, span)]
        for name in names[: ROWS_MAX - count]:
            stored = read_gate(tx, name)
            if stored is None:
                continue
            gate = changed(stored.gate, change, tx.now)
            if gate != refilled(stored.gate, tx.now):
                write_changed(tx, name, gate)
                count += 1
        if len(names) < ROWS_MAX:
            break
        first = names[-1] + "\0"
    return count


def write_changed(tx: SqliteTransaction, name: str, gate: Gate) -> None:
    """Write a gate that `pass_changed` looks at, or upkeep."""
    write_gate(tx, name, StoredGate(gate, tx.now))


def pass_changed(tx: SqliteTransaction, changes: Sequence[GateChange]) -> None:
    """Let jobs pass gates that were changed by name; upkeep does so for the others."""
    passing = Passing(tx)
    for change in changes:
        if not change.is_prefix:
            passing.look_at(change.name)
    passing.run()
    queue(tx, passing.ready)


# --- upkeep


def settle_gates(tx: SqliteTransaction, limit: int) -> Settled:
    """Let jobs pass the gates whose time has come, at most `limit`."""
    count = 0
    for (name,) in tx.db.rows(FIND_DUE_GATES, (tx.now, limit)):
        passing = Passing(tx)
        passing.look_at(name)
        count += passing.run(min(PASSED_MAX, max(0, limit - count)))
        queue(tx, passing.ready)
    return Settled(count, seconds_until_due(tx.db, tx.now))


def seconds_until_due(db: Database, now: float) -> float | None:
    due = db.value(NEXT_DUE_GATE)
    return None if due is None else max(0.0, due - now)


def prune_gates(tx: SqliteTransaction, limit: int) -> None:
    """Delete gates without use, at most `limit`."""
    after = ""
    while limit > 0:
        rows = tx.db.rows(FIND_UNUSED_GATES, (after, ROWS_MAX))
        for name, *fields in rows:
            if limit > 0 and is_idle(Gate(*fields), tx.now):
                tx.db.rows(DELETE_GATE, (name,))
                limit -= 1
        if len(rows) < ROWS_MAX:
            return
        after = rows[-1][0]


# --- reading


def read_gates(db: Database, prefix: str, limit: int, now: float) -> list[GateRow]:
    found: list[GateRow] = []
    for name, *fields, waiting in db.rows(READ_GATES, (prefix, prefix + END, limit)):
        gate = refilled(Gate(*fields), now)
        shown = (gate.cap, gate.used, gate.rate, gate.burst, gate.tokens, gate.until)
        found.append(GateRow(name, *shown, waiting))
    return found
