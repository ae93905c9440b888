"""Breakers: when they open, what their probes decide, what people force."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from durio import Retry
from durio.errors import BreakerOpen, InvalidName, InvalidOption, Permanent
from durio.limits import Breaker
from durio.model.breaker import (
    AT_ONCE,
    CHANGES_MAX,
    GATE_SECONDS,
    LOOK_SECONDS,
    BreakerRecord,
    BreakerRule,
    ForcedState,
    after_look,
    after_probe,
    breaker_put,
    closed,
    due_after_change,
    due_after_look,
    forced_closed,
    forced_open,
    gate_of,
    half_opened,
    load_breaker,
    new_breaker,
    opened,
    reset,
    totals,
    with_calls,
    with_probe,
    with_rule,
    without_probe,
)
from durio.model.breaker_rule import declared_breakers, failed_call, unknown_breaker
from durio.model.error_rules import NO_RULES, error_rules
from durio.model.gate import GateChange

NOW = 1_000.0
ANN = ForcedState(by="ann", at=NOW, reason="maintenance")


def rule(**numbers: Any) -> BreakerRule:
    return Breaker("smtp", **numbers).rule


def fresh(**numbers: Any) -> BreakerRecord:
    return new_breaker(rule(**numbers), NOW)


def counted(record: BreakerRecord, calls: int, failures: int, at: float = NOW) -> Any:
    return with_calls(record, calls, failures, "E: no" if failures else "", at)


def half_open(**numbers: Any) -> BreakerRecord:
    return half_opened(opened(fresh(**numbers), NOW, "test"), NOW + 30)


# --- counting


@pytest.mark.parametrize(
    ("numbers", "calls", "failures", "opens"),
    [
        ({}, 10, 5, True),
        ({}, 10, 4, False),
        ({}, 9, 9, False),
        ({"failure_rate": 1}, 10, 9, False),
        ({"failure_rate": 0.1, "calls_min": 1}, 1, 1, True),
        ({"failures": 3}, 100, 3, True),
        ({"failures": 3}, 3, 2, False),
        ({"failures": 3, "failure_rate": 0.5}, 3, 3, True),
        ({"failures": 30, "failure_rate": 0.5}, 10, 5, True),
    ],
)
def test_opens_on_a_rate_or_a_count(
    numbers: dict[str, Any], calls: int, failures: int, opens: object
) -> None:
    after = counted(fresh(**numbers), calls, failures)
    assert (after.state == "open") is opens
    if opens:
        assert after.until is None
        assert f"{failures} of {calls} call" in after.changes[-1].why
        assert after.counts == ()


def test_calls_are_forgotten_after_the_window() -> None:
    record = counted(fresh(failures=3, window="60s"), 10, 2)
    assert totals(record, NOW + 50) == (10, 2)
    assert totals(record, NOW + 60) == (0, 0)
    assert counted(record, 1, 1, NOW + 50).state == "open"
    later = counted(record, 1, 1, NOW + 60)
    assert later.state == "closed"
    assert len(later.counts) == 1


def test_counts_of_workers_with_other_clocks_add_up() -> None:
    record = counted(counted(fresh(), 3, 1, NOW + 20), 4, 1, NOW)
    assert totals(record, NOW) == totals(record, NOW + 20) == (7, 2)
    assert counted(record, 1, 0, NOW).counts[0][1:] == (5, 1)


def test_the_last_error_is_kept() -> None:
    record = counted(counted(fresh(), 2, 1), 1, 0)
    assert record.last_error == "E: no"


# --- periods and probes


def test_a_probe_decides() -> None:
    record = half_open()
    assert (record.state, record.period, record.until) == ("half_open", 2, None)
    one = with_probe(record, "a", NOW)
    assert one is not None
    two = with_probe(one, "b", NOW)
    assert two is not None
    assert set(two.probes) == {"a", "b"}
    assert with_probe(two, "c", NOW) is None
    assert with_probe(two, "a", NOW) == two  # its worker died, and it runs again
    good = after_probe(two, "a", None, NOW + 40)
    assert (good.state, good.period, good.probes) == ("closed", 3, {})
    bad = after_probe(two, "b", "E: no", NOW + 40)
    assert (bad.state, bad.until, bad.last_error) == ("open", None, "E: no")
    assert "job b failed" in bad.changes[-1].why


def test_other_calls_decide_nothing() -> None:
    record = half_open()
    assert after_probe(record, "a", None, NOW) == record
    shut = opened(record, NOW, "test")
    assert after_probe(shut, "a", None, NOW) == shut


def test_a_probe_without_a_result_makes_room() -> None:
    record = with_probe(half_open(probes=1), "a", NOW)
    assert record is not None
    assert with_probe(record, "b", NOW) is None
    assert with_probe(without_probe(record, "a"), "b", NOW) is not None


def test_the_leader_removes_probes_that_do_not_run() -> None:
    record = with_probe(half_open(), "a", NOW)
    assert record is not None
    record = with_probe(record, "b", NOW)
    assert record is not None
    assert set(after_look(record, {"a"}, NOW).probes) == {"a"}
    assert after_look(record, {"a", "b"}, NOW) == record
    shut = opened(fresh(), NOW, "test")
    # The store's clock may differ from that of the worker which opened it.
    seen = after_look(shut, (), NOW + 500)
    assert (seen.state, seen.until, seen.period) == ("open", NOW + 530, 1)
    assert after_look(seen, (), NOW + 529) == seen
    assert after_look(seen, (), NOW + 530).state == "half_open"


def test_the_last_changes_are_kept() -> None:
    record = fresh()
    for number in range(CHANGES_MAX + 5):
        record = closed(opened(record, NOW + number, "test"), NOW + number, "test")
    assert len(record.changes) == CHANGES_MAX
    assert record.changes[-1].at == NOW + number
    assert record.period == 2 * (CHANGES_MAX + 5)


def test_a_newer_declaration_keeps_the_state() -> None:
    record = counted(fresh(), 4, 1)
    assert with_rule(record, rule(failures=9)).counts == record.counts
    assert with_rule(record, rule(window="2m")).counts == ()


# --- by hand


def test_forced_open_stays_open() -> None:
    record = forced_open(fresh(), ANN)
    assert (record.state, record.until, record.forced) == ("open", None, ANN)
    assert (record.changes[-1].by, record.changes[-1].why) == (
        "ann",
        "by hand: maintenance",
    )
    assert after_look(record, (), NOW + 1e6) == record
    again = forced_open(record, replace(ANN, by="bob", reason=None))
    assert again.period == record.period


def test_forced_closed_never_opens() -> None:
    record = forced_closed(opened(fresh(), NOW, "test"), ANN)
    assert record.state == "closed"
    assert counted(record, 100, 100).state == "closed"


def test_a_reset_gives_the_breaker_back_to_itself() -> None:
    record = reset(forced_open(fresh(), ANN), ANN)
    assert (record.state, record.forced) == ("closed", None)
    assert record.changes[-1].by == "ann"
    assert counted(record, 10, 10).state == "open"
    same = reset(counted(forced_closed(fresh(), ANN), 5, 5), ANN)
    assert (same.period, same.forced, same.counts) == (0, None, ())
    without = forced_open(fresh(), ForcedState(by="ann", at=NOW))
    assert without.changes[-1].why == "by hand"


# --- the record and the gate


def test_the_gate_follows_the_state() -> None:
    gate = "0b:shop/smtp"
    record = fresh()
    assert gate_of("shop", "smtp", record) == GateChange(gate, drop=True)
    shut = opened(record, NOW, "test")
    assert gate_of("shop", "smtp", shut) == GateChange(gate, cap=0)
    half = half_open(probes=1)
    assert gate_of("shop", "smtp", half) == GateChange(gate, cap=1)
    assert gate_of("shop", "smtp", forced_open(record, ANN)).cap == 0


def test_the_record_is_due_when_the_leader_has_work() -> None:
    shut = opened(fresh(), NOW, "test")
    assert due_after_change(None, fresh(), 5.0) is None
    assert due_after_change(fresh(), shut, None) == AT_ONCE
    assert due_after_change(shut, forced_open(shut, ANN), 5.0) == 5.0
    assert due_after_change(shut, closed(shut, NOW, "test"), 5.0) is None
    assert due_after_look(fresh(), NOW) is None
    assert due_after_look(after_look(shut, (), NOW), NOW) == NOW + 30
    assert due_after_look(half_open(), NOW) == NOW + LOOK_SECONDS
    assert due_after_look(forced_open(fresh(), ANN), NOW) == NOW + GATE_SECONDS
    long = after_look(opened(fresh(open_for="1h"), NOW, "test"), (), NOW)
    assert due_after_look(long, NOW) == NOW + GATE_SECONDS


def test_a_record_is_read_as_it_was_written() -> None:
    record = with_probe(half_open(), "a", NOW)
    assert record is not None
    put = breaker_put("shop", "smtp", record, 7, NOW)
    assert put.body is not None
    assert load_breaker(put.body) == record
    assert load_breaker(b"[]") is None
    assert msgspec.json.decode(put.body)["state"] == "half_open"


# --- what is a failure


class Odd(Exception): ...


class Answered(Exception):
    def __init__(self, status: int) -> None:
        self.status_code = status
        self.headers: dict[str, str] = {}


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (ConnectionRefusedError(), True),
        (TimeoutError(), True),
        (Odd(), None),
        (ValueError("bad address"), None),
        (InvalidOption("x"), None),
        (Permanent("x"), None),
        (Retry(2), None),
        (ExceptionGroup("all", [Odd(), TimeoutError()]), True),
        (ExceptionGroup("all", [Odd()]), None),
        (Answered(500), True),
        (Answered(429), True),
        (Answered(404), False),
    ],
)
def test_failures_are_errors_of_the_dependency(
    error: BaseException, failed: object
) -> None:
    assert failed_call(error, (), NO_RULES, NOW) is failed


def test_a_chosen_end_is_judged_by_its_cause() -> None:
    chosen = Permanent("gave up")
    chosen.__cause__ = TimeoutError()
    assert failed_call(chosen, (), NO_RULES, NOW) is True


def test_classes_and_rules_are_added() -> None:
    assert failed_call(Odd(), (Odd,), NO_RULES, NOW) is True
    assert failed_call(Odd(), (), error_rules({Odd: "retry"}), NOW) is True
    rules = error_rules({TimeoutError: "dead"})
    assert failed_call(TimeoutError(), (), rules, NOW) is None


# --- bad input


@pytest.mark.parametrize(
    "numbers",
    [
        {"failure_rate": 0},
        {"failure_rate": 1.5},
        {"failure_rate": True},
        {"failure_rate": "half"},
        {"failures": 0},
        {"failures": 2.5},
        {"failures": True},
        {"calls_min": 0},
        {"window": 0},
        {"window": "2d"},
        {"window": "soon"},
        {"open_for": "10ms"},
        {"open_for": -1},
        {"probes": 0},
        {"probes": 3},
        {"on": "Timeout"},
        {"on": (ValueError, int)},
    ],
)
def test_wrong_numbers_are_refused(numbers: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        Breaker("smtp", **numbers)


def test_wrong_names_are_refused() -> None:
    with pytest.raises(InvalidName):
        Breaker("no spaces")
    with pytest.raises(InvalidOption, match="61 characters"):
        Breaker("x" * 61)


def test_an_app_has_each_breaker_once() -> None:
    one: Any = Breaker("smtp")
    assert declared_breakers(one) == declared_breakers([one]) == {"smtp": one}
    with pytest.raises(InvalidOption, match="declared twice"):
        declared_breakers([one, Breaker("smtp", failures=2)])
    with pytest.raises(InvalidOption, match="cannot hold 'smtp'"):
        declared_breakers("smtp")


def test_an_unknown_breaker_has_a_suggestion() -> None:
    assert "Did you mean 'smtp'?" in unknown_breaker("stmp", ["smtp"]).cure
    assert unknown_breaker(5, ["smtp"]).what == "no breaker 5 is declared"


def test_a_breaker_describes_itself() -> None:
    assert repr(Breaker("smtp")) == (
        "Breaker('smtp', opens when 50% of at least 10 calls failed within 60 s)"
    )
    both = Breaker("smtp", failures=1, failure_rate=0.1)
    assert "10% of at least 10 calls or 1 call failed" in repr(both)
    assert "opens when 5 calls failed" in repr(Breaker("smtp", failures=5))


def test_an_open_breaker_says_so() -> None:
    error = BreakerOpen("smtp", 20.0, " until 12:00")
    assert str(error) == "breaker smtp is open until 12:00"
    assert (error.name, error.delay_seconds) == ("smtp", 20.0)
