"""Gates: how many jobs may hold a place, and how many may pass in a time.

A gate is a stored row. A job stands before it until the gate lets it pass: there is a free
place (`cap`), there are tokens (`rate`, `burst`), and the gate is not closed (`until`). The
functions here decide; a store calls them, or does the same in SQL.

The tokens may be below zero: a job whose cost is above the burst passes when the bucket is
full, and takes its whole cost. So the rate holds also when the burst was changed.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from durio.model.errors import InvalidName, UsageError

GATES_MAX = 4  # gates of one job
GATE_NAME_BYTES_MAX = 128
PASSED_MAX = 1000  # jobs that one gate lets pass in a transaction; upkeep goes on
IDLE_SECONDS = 3600.0  # after this time without use, upkeep deletes a gate
KEEP = -1  # in a GateChange: leave this value as it is
TICK_SECONDS = 1e-6  # clocks are not more exact; a token is there so much earlier

# How long a job keeps its place; see GateSpec.
ATTEMPT, START, FINAL = 0, 1, 2


class GateSpec(NamedTuple):
    """A gate that a job has to pass, and what its row gets if there is none yet.

    A row that has neither a cap nor a rate gets those of the next job that arrives. A spec
    without both makes no row: the gate is open while no row exists.

    `held_until` says when the job gives its place back. ATTEMPT: at every end, and when it
    is scheduled again (a retry, snooze or release with a delay); a job that goes straight
    back to its queue keeps its place. START: when a worker claims it. FINAL: when it ends.
    """

    name: str
    cap: int | None = None  # places
    rate: float | None = None  # tokens per second
    burst: float | None = None  # the most tokens; None: 1
    held_until: int = ATTEMPT
    cost: float = 1.0  # tokens that the job takes

    @property
    def makes_row(self) -> bool:
        return self.cap is not None or self.rate is not None


class GateChange(NamedTuple):
    """A change of one gate, or of all gates whose names have a prefix.

    A gate without a row gets one, if the change gives it a cap, a rate or a time. A change
    by prefix concerns the rows that exist and that it makes different, at most 1,000 of
    them in the order of their names.

    The change is made before any job of the same transaction passes the gate. Tokens are
    counted at the old rate until now.
    """

    name: str
    is_prefix: bool = False
    cap: int | None = KEEP  # None: unlimited; 0: no job passes
    rate: float | None = KEEP  # None: unlimited
    burst: float | None = KEEP  # None: 1; a new rate begins with a full bucket
    # Closed for so long, from now by the store's clock; None: open.
    until_seconds: float | None = KEEP
    add: float = 0.0  # tokens to add, or below zero to take
    # Forget cap, rate and time: jobs pass freely, and the next one that arrives with a cap
    # or a rate sets them anew.
    drop: bool = False


class Gate(NamedTuple):
    """A stored gate."""

    cap: int | None = None
    used: int = 0  # places that are held
    rate: float | None = None
    burst: float = 1.0
    tokens: float = 1.0  # at the time `at`
    at: float = 0.0
    until: float | None = None  # closed before this time

    @property
    def is_unlimited(self) -> bool:
        return self.cap is None and self.rate is None


class GateDecision(NamedTuple):
    """How many of the waiting jobs pass, and the gate after that."""

    count: int  # pyright: ignore[reportIncompatibleMethodOverride]
    gate: Gate
    # When upkeep has to look again, because jobs are left that time alone lets pass.
    due: float | None


def new_gate(spec: GateSpec, now: float) -> Gate:
    """Return the gate that the first job makes: empty, with a full bucket."""
    return configured(Gate(at=now), spec, now)


def configured(gate: Gate, spec: GateSpec, now: float) -> Gate:
    """Return the gate with the limits of an arriving job, if it has none of its own."""
    if not gate.is_unlimited or not spec.makes_row:
        return gate
    burst = burst_of(spec)
    return gate._replace(
        cap=spec.cap, rate=spec.rate, burst=burst, tokens=burst, at=now
    )


def burst_of(spec: GateSpec) -> float:
    return 1.0 if spec.burst is None else spec.burst


def refilled(gate: Gate, now: float) -> Gate:
    """Return the gate with the tokens of this time."""
    if gate.rate is None:
        return gate._replace(at=now)
    tokens = gate.tokens + max(0.0, now - gate.at) * gate.rate
    return gate._replace(tokens=min(gate.burst, tokens), at=now)


def changed(gate: Gate, change: GateChange, now: float) -> Gate:
    """Return the gate after a change."""
    gate = refilled(gate, now)
    if change.drop:
        return gate._replace(cap=None, rate=None, until=None)
    cap = gate.cap if change.cap == KEEP else change.cap
    rate = gate.rate if change.rate == KEEP else change.rate
    burst = gate.burst if change.burst == KEEP else change.burst
    burst = 1.0 if burst is None else burst
    tokens = burst if gate.rate is None else min(burst, gate.tokens + change.add)
    until = gate.until
    if change.until_seconds != KEEP:
        until = None if change.until_seconds is None else now + change.until_seconds
    return gate._replace(
        cap=cap, rate=rate, burst=burst, tokens=tokens, at=now, until=until
    )


def is_closed(gate: Gate, now: float) -> bool:
    return gate.until is not None and gate.until > now


def room(gate: Gate, now: float, limit: int = PASSED_MAX) -> int:
    """Return how many waiting jobs to look at: no more than these may pass."""
    if is_closed(gate, now):
        return 0
    return limit if gate.cap is None else max(0, min(limit, gate.cap - gate.used))


def admit(
    gate: Gate, costs: Sequence[float], now: float, limit: int = PASSED_MAX
) -> GateDecision:
    """Let the first jobs pass whose costs these are, in their order.

    `costs` should have one more than `room` allows, so that `due` can tell whether any job
    is left.
    """
    gate = refilled(gate, now)
    places = room(gate, now, limit)
    count, tokens = 0, gate.tokens
    for cost in costs[:places]:
        if gate.rate is not None:
            if seconds_until(gate, tokens, cost) > TICK_SECONDS:
                break
            tokens -= cost
        count += 1
    used = gate.used + (count if gate.cap is not None else 0)
    after = gate._replace(used=used, tokens=tokens)
    if count == len(costs):
        return GateDecision(count, after, None)
    return GateDecision(count, after, due_at(after, costs[count], now))


def due_at(gate: Gate, cost: float, now: float) -> float | None:
    """Return when the next job may pass; None: when a job gives its place back."""
    if is_closed(gate, now):
        return gate.until
    if gate.cap is not None and gate.used >= gate.cap:
        return None
    if gate.rate is None:
        return now
    return now + seconds_until(gate, gate.tokens, cost)


def seconds_until(gate: Gate, tokens: float, cost: float) -> float:
    """Return the time until a job of this cost may pass."""
    missing = min(cost, gate.burst) - tokens
    if missing <= 0.0:
        return 0.0
    return missing / gate.rate if gate.rate else math.inf


def is_idle(gate: Gate, now: float) -> bool:
    """Whether a gate without waiting jobs may be deleted: a new one would do the same."""
    if gate.used or is_closed(gate, now):
        return False
    if gate.is_unlimited:
        return True
    return now - gate.at >= IDLE_SECONDS and refilled(gate, now).tokens >= gate.burst


# --- the places of a job


def first_gate(gates: Sequence[GateSpec], held: int, after: str = "") -> int | None:
    """Return the number of the next gate to pass, by name; None if there is none.

    A gate whose place the job holds is passed already.
    """
    found: int | None = None
    for number, spec in enumerate(gates):
        is_left = spec.name > after and not held & 1 << number
        if is_left and (found is None or spec.name < gates[found].name):
            found = number
    return found


def kept_places(gates: Sequence[GateSpec], held: int, *lengths: int) -> int:
    """Return the bits of the places that are held at least as long as one of these."""
    return sum(
        held & 1 << number
        for number, spec in enumerate(gates)
        if spec.held_until in lengths
    )


def held_at(gates: Sequence[GateSpec], held: int) -> list[str]:
    """Return the names of the gates whose places have these bits."""
    return [spec.name for number, spec in enumerate(gates) if held & 1 << number]


# --- bad input


def check_gates(gates: Sequence[GateSpec]) -> None:
    """Refuse gates that no store can keep."""
    if len(gates) > GATES_MAX:
        raise UsageError(
            f"a job has {len(gates)} gates",
            cure=f"A job passes at most {GATES_MAX}.",
        )
    names = [spec.name for spec in gates]
    if names != sorted(set(names)):
        raise UsageError(
            f"the gates {names} are not in the order of their names",
            cure="Give each gate once, sorted by name.",
        )
    for spec in gates:
        check_gate_name(spec.name)
        check_spec(spec)


def check_gate_changes(changes: Sequence[GateChange]) -> None:
    """Refuse changes that no store can make."""
    names = [change.name for change in changes]
    if len(set(names)) < len(names):
        raise UsageError(
            f"the gates {sorted(names)} are changed twice in one transaction",
            cure="Change each gate once.",
        )
    for change in changes:
        check_gate_name(change.name)
        check_change(change)


def check_change(change: GateChange) -> None:
    name, until = change.name, change.until_seconds
    if change.cap is not None and change.cap < 0 and change.cap != KEEP:
        raise bad_gate(name, "cap", change.cap, "Use 0 or more.")
    for field in ("rate", "burst"):
        value = getattr(change, field)
        if value not in (None, KEEP) and not 0.0 < value < math.inf:
            raise bad_gate(name, field, value, "Use a finite number above 0.")
    if until not in (None, KEEP) and not 0.0 <= until < math.inf:
        raise bad_gate(name, "until_seconds", until, "Use a finite number, 0 or more.")
    if not math.isfinite(change.add):
        raise bad_gate(name, "add", change.add, "Use a finite number.")
    if change.is_prefix and (change.add or until not in (None, KEEP)):
        raise bad_gate(
            name,
            "add" if change.add else "until_seconds",
            change.add or until,
            "Only one gate can have it, not all gates with a prefix.",
        )


def check_gate_name(name: str) -> None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= GATE_NAME_BYTES_MAX or "\0" in name:
        raise InvalidName(
            f"{name[:80]!r} cannot name a gate",
            cure=f"Use 1 to {GATE_NAME_BYTES_MAX} bytes of valid text without NUL.",
        )


def check_spec(spec: GateSpec) -> None:
    if spec.cap is not None and spec.cap < 1:
        raise bad_gate(spec.name, "cap", spec.cap, "Use 1 or more.")
    for field in ("rate", "burst"):
        value = getattr(spec, field)
        if value is not None and not 0.0 < value < math.inf:
            raise bad_gate(spec.name, field, value, "Use a finite number above 0.")
    if spec.held_until not in (ATTEMPT, START, FINAL):
        raise bad_gate(spec.name, "held_until", spec.held_until, "Use 0, 1 or 2.")
    if not 0.0 <= spec.cost < math.inf:
        raise bad_gate(spec.name, "cost", spec.cost, "Use a finite number, 0 or more.")
    if spec.rate is not None and spec.cost > burst_of(spec):
        raise bad_gate(
            spec.name,
            "cost",
            spec.cost,
            f"It is above the burst ({burst_of(spec)}): the job could never pass.",
        )


def bad_gate(name: str, field: str, value: object, cure: str) -> UsageError:
    return UsageError(f"the gate {name!r} cannot have {field}={value!r}", cure=cure)
