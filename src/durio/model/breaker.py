"""Circuit breakers: a dependency that fails is not called for a while, by any worker.

A breaker is one record that all workers of an App share. It is **closed** while calls are
made, **open** while none are made, and **half open** while at most two calls, its probes,
find out whether the dependency works again: the first result of a probe decides. The
functions here decide; `ports/breaker_change.py` writes what they return.

Jobs wait before the gate of the breaker, which changes with the state: no gate while closed,
no place while open, a place for each probe while half open. The gate keeps the jobs back; the
record says exactly which calls are probes, because jobs that were ready before the breaker
opened have no place, and neither has a block inside a task.

The time between two changes of the state is a **period**, and periods are counted. A result
counts only in the period in which its call began.

The open time is measured by the store's clock: the record of a breaker that was opened is due
at once, and the leader, which knows the store's time, writes until when it is open.
"""

from collections.abc import Collection
from typing import Literal

import msgspec
from msgspec.structs import replace

from durio.model.effects import Put
from durio.model.gate import GateChange
from durio.model.quantities import counted, format_duration

BreakerState = Literal["closed", "open", "half_open"]
CLOSED: BreakerState = "closed"
OPEN: BreakerState = "open"
HALF_OPEN: BreakerState = "half_open"

PARTS = 10  # of a window: calls are counted and forgotten by the tenth
CHANGES_MAX = 20  # that the record keeps
LOOK_SECONDS = 5.0  # between two looks of the leader at a half-open breaker
AT_ONCE = 0.0  # a due time that has come on every clock
# The gate of an open breaker is written again: upkeep deletes one that is idle for an hour.
GATE_SECONDS = 1800.0
ERROR_CHARS_MAX = 200


class BreakerRule(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a breaker, as its record has them; see `Breaker`."""

    failure_rate: float | None
    failures: int | None
    calls_min: int
    window_seconds: float
    open_seconds: float
    probes: int

    @property
    def part_seconds(self) -> float:
        return self.window_seconds / PARTS

    def in_words(self) -> str:
        """Return when the breaker opens, for people."""
        conditions: list[str] = []
        if self.failure_rate is not None:
            conditions.append(
                f"{self.failure_rate:.0%} of at least {counted(self.calls_min, 'call')}"
            )
        if self.failures is not None:
            conditions.append(counted(self.failures, "call"))
        window = format_duration(self.window_seconds)
        return f"opens when {' or '.join(conditions)} failed within {window}"


class BreakerChange(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One change of the state."""

    at: float  # seconds since 1970
    before: BreakerState
    state: BreakerState
    why: str
    by: str | None = None  # who made it by hand


class ForcedState(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Who has opened or closed a breaker by hand, and why: it stays so until a reset."""

    by: str
    at: float
    reason: str | None = None


class BreakerRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is stored of a breaker."""

    rule: BreakerRule
    since: float  # when the state began
    state: BreakerState = CLOSED
    period: int = 0  # how many changes there were
    # Open: when it will be half open; None by hand, and before the leader has seen it.
    until: float | None = None
    forced: ForcedState | None = None
    # Of the period: number of the part of a window, calls, failures among them.
    counts: tuple[tuple[int, int, int], ...] = ()
    last_error: str = ""  # of the last failure that was counted
    probes: dict[str, float] = {}  # half open: jobs whose calls decide, and since when
    changes: tuple[BreakerChange, ...] = ()  # oldest first


def new_breaker(rule: BreakerRule, now: float) -> BreakerRecord:
    return BreakerRecord(rule=rule, since=now)


# --- counting


def with_calls(
    record: BreakerRecord, calls: int, failures: int, error: str, now: float
) -> BreakerRecord:
    """Return the record with the calls of one worker; open, if that was too much."""
    part = part_of(record, now)
    new = {number: (n, failed) for number, n, failed in recent(record, now)}
    before = new.get(part, (0, 0))
    new[part] = (before[0] + calls, before[1] + failures)
    rows = tuple((number, *new[number]) for number in sorted(new))
    after = replace(
        record, counts=rows, last_error=error[:ERROR_CHARS_MAX] or record.last_error
    )
    why = None if record.forced is not None else reason_to_open(after, now)
    return after if why is None else opened(after, now, why)


def recent(record: BreakerRecord, now: float) -> list[tuple[int, int, int]]:
    """Return the counts of the last window.

    Workers count by their own clocks, which may differ a little: parts that lie ahead count.
    """
    part = part_of(record, now)
    return [row for row in record.counts if abs(part - row[0]) < PARTS]


def part_of(record: BreakerRecord, now: float) -> int:
    return int(now // record.rule.part_seconds)


def totals(record: BreakerRecord, now: float) -> tuple[int, int]:
    """Return the calls of the last window, and the failures among them."""
    rows = recent(record, now)
    return sum(calls for _, calls, _ in rows), sum(failed for _, _, failed in rows)


def reason_to_open(record: BreakerRecord, now: float) -> str | None:
    """Return why the breaker must open; None if it need not."""
    rule = record.rule
    calls, failures = totals(record, now)
    too_many = rule.failures is not None and failures >= rule.failures
    too_often = (
        rule.failure_rate is not None
        and calls >= rule.calls_min
        and failures >= rule.failure_rate * calls
    )
    if not too_many and not too_often:
        return None
    within = format_duration(rule.window_seconds)
    return f"{failures} of {counted(calls, 'call')} failed within {within}"


# --- changes


def changed_to(
    record: BreakerRecord, state: BreakerState, now: float, why: str
) -> BreakerRecord:
    """Return the record in a new period."""
    by = None if record.forced is None else record.forced.by
    change = BreakerChange(at=now, before=record.state, state=state, why=why, by=by)
    return replace(
        record,
        state=state,
        since=now,
        period=record.period + 1,
        until=None,
        counts=(),
        probes={},
        changes=(*record.changes, change)[-CHANGES_MAX:],
    )


def opened(record: BreakerRecord, now: float, why: str) -> BreakerRecord:
    return changed_to(record, OPEN, now, why)


def half_opened(record: BreakerRecord, now: float) -> BreakerRecord:
    return changed_to(record, HALF_OPEN, now, "its open time is over")


def closed(record: BreakerRecord, now: float, why: str) -> BreakerRecord:
    return changed_to(record, CLOSED, now, why)


def with_rule(record: BreakerRecord, rule: BreakerRule) -> BreakerRecord:
    """Return the record with the numbers of a newer declaration, in the same period."""
    is_same_window = record.rule.window_seconds == rule.window_seconds
    return replace(record, rule=rule, counts=record.counts if is_same_window else ())


# --- probes


def with_probe(record: BreakerRecord, job: str, now: float) -> BreakerRecord | None:
    """Return the half-open record with this job as a probe; None if there is no room."""
    if job in record.probes:
        return record  # its worker died, and the job runs again
    if len(record.probes) >= record.rule.probes:
        return None
    return replace(record, probes={**record.probes, job: now})


def without_probe(record: BreakerRecord, job: str) -> BreakerRecord:
    """Return the record after a probe that had no result: another may follow."""
    return replace(
        record, probes={key: at for key, at in record.probes.items() if key != job}
    )


def after_probe(
    record: BreakerRecord, job: str, error: str | None, now: float
) -> BreakerRecord:
    """Return the record after the result of a call; None as the error is a good one.

    A call that is no probe of this period decides nothing.
    """
    if record.state != HALF_OPEN or job not in record.probes:
        return record
    if error is None:
        return closed(record, now, f"the call of job {job} succeeded")
    error = error[:ERROR_CHARS_MAX]
    after = opened(record, now, f"the call of job {job} failed: {error}")
    return replace(after, last_error=error)


def after_look(
    record: BreakerRecord, running: Collection[str], now: float
) -> BreakerRecord:
    """Return the record after a look of the leader, at this time of the store.

    A probe whose job does not run any more has had no result: its worker was lost, or the
    write of the result failed.
    """
    if record.state == OPEN and record.forced is None:
        if record.until is None:
            return replace(record, until=now + record.rule.open_seconds)
        return record if record.until > now else half_opened(record, now)
    for job in record.probes:
        if job not in running:
            record = without_probe(record, job)
    return record


# --- by hand


def forced_open(record: BreakerRecord, force: ForcedState) -> BreakerRecord:
    """Return the record of a breaker that stays open until a reset."""
    return in_forced_state(record, OPEN, force)


def forced_closed(record: BreakerRecord, force: ForcedState) -> BreakerRecord:
    """Return the record of a breaker that stays closed until a reset, whatever fails."""
    return in_forced_state(record, CLOSED, force)


def in_forced_state(
    record: BreakerRecord, state: BreakerState, force: ForcedState
) -> BreakerRecord:
    why = "by hand" if force.reason is None else f"by hand: {force.reason}"
    record = replace(record, forced=force, until=None)
    return record if record.state == state else changed_to(record, state, force.at, why)


def reset(record: BreakerRecord, force: ForcedState) -> BreakerRecord:
    """Return the record closed and without counts: the breaker works by itself again."""
    if record.state == CLOSED:
        return replace(record, forced=None, counts=())
    after = changed_to(replace(record, forced=force), CLOSED, force.at, "reset by hand")
    return replace(after, forced=None)


# --- as a record and a gate


def breakers_kind(namespace: str) -> str:
    """Return the kind of an App's breakers; each record has its name."""
    return f"breaker:{namespace}"


def breaker_gate(namespace: str, name: str) -> str:
    """Return the name of the gate before which jobs of the breaker wait."""
    return f"0b:{namespace}/{name}"


def load_breaker(body: bytes) -> BreakerRecord | None:
    """Return a stored breaker; None if it cannot be read."""
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError:
        return None


def breaker_put(
    namespace: str, name: str, record: BreakerRecord, version: int, due_at: float | None
) -> Put:
    """Return the write of a breaker over this version; 0: it is new."""
    body = msgspec.json.encode(record)
    return Put(breakers_kind(namespace), name, body, version, due_at)


def due_after_change(
    before: BreakerRecord | None, after: BreakerRecord, due_at: float | None
) -> float | None:
    """Return when the leader has to look, after a change by another process than its own.

    Only the leader knows the store's time.
    """
    if before is not None and before.period == after.period:
        return due_at
    return None if after.state == CLOSED else AT_ONCE


def due_after_look(record: BreakerRecord, now: float) -> float | None:
    """Return when the leader has to look again, by the time of the store."""
    if record.state == OPEN:
        return min(record.until or now + GATE_SECONDS, now + GATE_SECONDS)
    return now + LOOK_SECONDS if record.state == HALF_OPEN else None


def gate_of(namespace: str, name: str, record: BreakerRecord) -> GateChange:
    """Return the change of the gate that the state of the breaker asks for.

    The gate of an open breaker has no places: it does not open by itself when the time is
    over, because only the record says who may be a probe.
    """
    gate = breaker_gate(namespace, name)
    if record.state == CLOSED:
        return GateChange(gate, drop=True)
    if record.state == HALF_OPEN:
        return GateChange(gate, cap=record.rule.probes)
    return GateChange(gate, cap=0)


_decoder = msgspec.json.Decoder(BreakerRecord)
