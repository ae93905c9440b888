"""What a gate lets pass, as arithmetic."""

import pytest

from durio.model.errors import InvalidName, UsageError
from durio.model.gate import (
    ATTEMPT,
    FINAL,
    IDLE_SECONDS,
    START,
    Gate,
    GateChange,
    GateDecision,
    GateSpec,
    admit,
    changed,
    check_gate_changes,
    check_gates,
    configured,
    first_gate,
    held_at,
    is_idle,
    kept_places,
    new_gate,
    refilled,
    room,
)

ONES = (1.0,) * 9
BUCKET = Gate(rate=2.0, burst=4.0, tokens=1.0, at=100.0)


def test_the_first_job_makes_the_gate() -> None:
    assert new_gate(GateSpec("a", cap=3), 9.0) == Gate(cap=3, at=9.0)
    gate = new_gate(GateSpec("a", rate=2.0, burst=5.0), 9.0)
    assert gate == Gate(rate=2.0, burst=5.0, tokens=5.0, at=9.0)
    assert not GateSpec("a").makes_row


def test_a_job_limits_only_a_gate_without_limits() -> None:
    spec = GateSpec("a", cap=3)
    open_gate = Gate(used=2, until=7.0)
    assert configured(open_gate, spec, 9.0) == Gate(3, 2, at=9.0, until=7.0)
    assert configured(open_gate, GateSpec("a"), 9.0) is open_gate
    assert configured(BUCKET, spec, 9.0) is BUCKET


def test_tokens_come_with_time_up_to_the_burst() -> None:
    assert refilled(BUCKET, 101.0).tokens == 3.0
    assert refilled(BUCKET, 900.0).tokens == 4.0
    assert refilled(BUCKET, 90.0) == BUCKET._replace(at=90.0)  # the clock was set back
    assert refilled(Gate(cap=1), 9.0) == Gate(cap=1, at=9.0)


@pytest.mark.parametrize(
    ("gate", "costs", "count", "due"),
    [
        (Gate(cap=3, used=1), ONES, 2, None),
        (Gate(cap=3, used=1), ONES[:2], 2, None),
        (Gate(cap=1, used=4), ONES, 0, None),
        (Gate(), ONES, 9, None),
        (Gate(until=120.0), ONES, 0, 120.0),
        (Gate(until=100.0), ONES, 9, None),
        (Gate(until=120.0), (), 0, None),
        (BUCKET, ONES, 1, 100.5),
        (BUCKET._replace(tokens=-1.0), ONES, 0, 101.0),
        (BUCKET._replace(tokens=1.0 - 1e-6), ONES, 1, 100.5000005),
        (BUCKET._replace(cap=1), ONES, 1, None),
        (BUCKET._replace(cap=2), ONES, 1, 100.5),
        # The first that has to wait holds up those behind it.
        (BUCKET, (3.0, 0.5), 0, 101.0),
        (BUCKET._replace(tokens=4.0), (3.0, 0.5, 1.0), 2, 100.25),
        # A cost above the burst passes with a full bucket, and is taken whole.
        (BUCKET._replace(tokens=4.0), (9.0, 1.0), 1, 103.0),
    ],
)
def test_so_many_pass(
    gate: Gate, costs: tuple[float, ...], count: int, due: float | None
) -> None:
    answer = admit(gate, costs, 100.0)
    assert answer.count == count
    assert answer.due == (None if due is None else pytest.approx(due, abs=1e-9))
    places = count if gate.cap is not None else 0
    tokens = sum(costs[:count]) if gate.rate is not None else 0.0
    assert answer.gate.used == gate.used + places
    assert answer.gate.tokens == pytest.approx(gate.tokens - tokens)
    assert answer.gate.at == 100.0


def test_one_transaction_lets_a_limited_number_pass() -> None:
    assert room(Gate(cap=99), 0.0, 5) == 5
    assert room(Gate(), 0.0) == 1000
    assert room(Gate(cap=3, used=4), 0.0) == 0
    assert admit(Gate(), ONES, 7.0, 5) == GateDecision(5, Gate(at=7.0), 7.0)


def test_a_rate_is_never_exceeded_by_looking_often() -> None:
    """Whenever one looks, tokens are taken once."""
    gate, passed, now = Gate(rate=3.0, at=0.0), 0, 0.0
    while now < 100.0:
        answer = admit(gate, ONES, now)
        passed, gate = passed + answer.count, answer.gate
        assert passed <= 1.0 + 3.0 * now + 1e-4
        assert answer.due is not None
        now = (now + answer.due) / 2 if answer.due - now > 0.01 else answer.due
    assert passed >= 299


def test_a_change_counts_tokens_at_the_old_rate() -> None:
    assert changed(BUCKET, GateChange("a", rate=9.0), 101.0).tokens == 3.0
    assert changed(BUCKET, GateChange("a", burst=2.0), 101.0) == (
        BUCKET._replace(burst=2.0, tokens=2.0, at=101.0)
    )
    assert changed(BUCKET, GateChange("a", burst=None), 100.0).burst == 1.0
    assert changed(BUCKET, GateChange("a", add=-5.0), 101.0).tokens == -2.0
    assert changed(BUCKET, GateChange("a", add=9.0), 101.0).tokens == 4.0
    full = changed(Gate(cap=1), GateChange("a", rate=1.0, burst=7.0, cap=None), 5.0)
    assert full == Gate(rate=1.0, burst=7.0, tokens=7.0, at=5.0)


def test_a_change_closes_opens_and_drops() -> None:
    gate = Gate(cap=2, used=1)
    shut = changed(gate, GateChange("a", until_seconds=30.0, cap=5), 100.0)
    assert shut == Gate(cap=5, used=1, at=100.0, until=130.0)
    assert changed(shut, GateChange("a"), 110.0).until == 130.0
    assert changed(shut, GateChange("a", until_seconds=None), 110.0).until is None
    dropped = changed(shut, GateChange("a", drop=True), 110.0)
    assert dropped == Gate(used=1, at=110.0)
    assert dropped.is_unlimited


@pytest.mark.parametrize(
    ("gate", "now", "idle"),
    [
        (Gate(), 0.0, True),
        (Gate(used=1), 0.0, False),
        (Gate(until=5.0), 0.0, False),
        (Gate(until=5.0), 5.0, True),
        (Gate(cap=1), IDLE_SECONDS - 1.0, False),
        (Gate(cap=1), IDLE_SECONDS, True),
        (Gate(rate=0.001, burst=9.0), IDLE_SECONDS, False),
        (Gate(rate=1.0, burst=9.0), IDLE_SECONDS, True),
    ],
)
def test_a_gate_is_deleted_only_if_a_new_one_does_the_same(
    gate: Gate, now: float, *, idle: bool
) -> None:
    assert is_idle(gate, now) is idle


def test_the_way_through_the_gates() -> None:
    gates = tuple(
        GateSpec(name, 1, held_until=held)
        for name, held in (("a", FINAL), ("b", ATTEMPT), ("c", START))
    )
    assert [first_gate(gates, held) for held in (0, 1, 3, 7)] == [0, 1, 2, None]
    assert first_gate(gates, 0, "a") == 1
    assert first_gate(gates, 0b010, "a") == 2
    assert first_gate(gates, 0, "c") is None
    assert kept_places(gates, 0b111, FINAL) == 0b001
    assert kept_places(gates, 0b111, FINAL, ATTEMPT) == 0b011
    assert kept_places(gates, 0b110, FINAL) == 0
    assert held_at(gates, 0b101) == ["a", "c"]


def test_gates_that_cannot_be_are_refused() -> None:
    check_gates((GateSpec("a", cap=1), GateSpec("b", rate=0.5, burst=2.0, cost=2.0)))
    for gates in (
        [GateSpec(f"{n}") for n in range(5)],
        [GateSpec("b"), GateSpec("a")],
        [GateSpec("a"), GateSpec("a")],
        [GateSpec("a", cap=0)],
        [GateSpec("a", rate=-1.0)],
        [GateSpec("a", burst=float("nan"))],
        [GateSpec("a", held_until=7)],
        [GateSpec("a", cost=float("inf"))],
        [GateSpec("a", rate=1.0, cost=1.5)],
    ):
        with pytest.raises(UsageError):
            check_gates(gates)
    for name in ("", "\ud800", "a\0", "x" * 129):
        with pytest.raises(InvalidName):
            check_gates([GateSpec(name)])


def test_changes_that_cannot_be_are_refused() -> None:
    check_gate_changes(
        [
            GateChange("a", cap=0, rate=None, burst=None, until_seconds=0.0, add=-1.0),
            GateChange("b", is_prefix=True, until_seconds=None, rate=1.0, burst=2.0),
        ]
    )
    for change in (
        GateChange(""),
        GateChange("a", cap=-2),
        GateChange("a", rate=0.0),
        GateChange("a", burst=float("inf")),
        GateChange("a", until_seconds=-2.0),
        GateChange("a", add=float("nan")),
        GateChange("a", is_prefix=True, add=1.0),
        GateChange("a", is_prefix=True, until_seconds=1.0),
    ):
        with pytest.raises(UsageError):
            check_gate_changes([change])
    with pytest.raises(UsageError):
        check_gate_changes([GateChange("a"), GateChange("a", cap=1)])
