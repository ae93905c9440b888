"""Options merge field by field; bad ones are refused where they are written."""

from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any

import pytest

from durio.model.codec import encoder
from durio.model.errors import InvalidName, InvalidOption
from durio.model.job import Priority
from durio.model.keys import (
    KeyPolicy,
    debounce,
    replace,
    while_active,
    while_waiting,
    window,
)
from durio.model.option_values import Keep, check_unique, keep_of
from durio.model.options import (
    CHECKS,
    NO_OPTIONS,
    NO_ROW_OPTIONS,
    OPTIONS,
    TASK_OPTIONS,
    UNSET,
    CallOptions,
    RowOptions,
    row_options,
    stored_options,
)
from durio.model.outcome import KeepRule
from durio.model.retry import Retry
from durio.model.timeout import DEFAULT_LIMITS, TimeLimits


def options(**changes: object) -> CallOptions:
    return NO_OPTIONS.with_changes(changes)


def stored(**changes: object) -> bytes | None:
    return stored_options(options(**changes), "shop.pay", 1000)


def test_every_field_is_in_the_table() -> None:
    assert tuple(OPTIONS) == CallOptions.__struct_fields__
    assert all(option.places and option.default for option in OPTIONS.values())
    assert {*CHECKS, *TASK_OPTIONS} == {*OPTIONS}
    assert "name" not in CHECKS
    assert "delay" not in TASK_OPTIONS


def test_every_stored_option_has_its_field() -> None:
    stored_fields = [option.stored for option in OPTIONS.values() if option.stored]
    others = ["plan", "is_chunk", "tick"]  # no options: plans and ticks
    others += ["expires"]  # stored as a time: see JobBuilder
    others += ["budgets"]  # the gates of its budgets: see client/job_gates.py
    assert sorted([*stored_fields, *others]) == sorted(RowOptions.__struct_fields__)


# What release 0.1 stored. Rows outlive releases: these bytes must not change.
RETRY_ONCE = (
    b'"retry":{"retries":1,"base":60.0,"factor":2,"max_delay":3600.0,"jitter":true,'
    b'"delays":null}'
)
RETRY_TWICE = (
    b'"retry":{"retries":2,"base":1.0,"factor":2,"max_delay":3600.0,"jitter":true,'
    b'"delays":[1.0,2.0]}'
)
STORED_BYTES: list[tuple[dict[str, object], bytes]] = [
    ({"retry": Retry(2, base="1s", delays=(1, "2s"))}, b"{" + RETRY_TWICE + b"}"),
    ({"timeout": 10}, b'{"timeout":[9.0,10.0]}'),
    ({"timeout": None}, b'{"timeout":null}'),
    ({"timeout": (1, 2)}, b'{"timeout":[1.0,2.0]}'),
    ({"meta": {"a": 1}}, b'{"meta":{"a":1}}'),
    ({"retention": Keep(100)}, b'{"keep":[31536000.0,100,"shop.pay"]}'),
    ({"retention": Keep(0)}, b'{"keep":[0.0,null,null]}'),
    ({"retention": "48h"}, b'{"keep":[172800.0,null,null]}'),
    ({"result_ttl": "1m"}, b'{"result_seconds":60.0}'),
    ({"key": "k", "meta": None}, b'{"key":"k"}'),
    (
        {
            "key": "k",
            "result_ttl": 60,
            "retention": Keep(5),
            "meta": {"b": [1]},
            "timeout": 20,
            "retry": 1,
            "queue": "x",
            "delay": 1,
            "priority": 9,
        },
        b"{" + RETRY_ONCE + b',"timeout":[18.0,20.0],"meta":{"b":[1]},'
        b'"keep":[31536000.0,5,"shop.pay"],"result_seconds":60.0,"key":"k"}',
    ),
]


@pytest.mark.parametrize(("given", "expected"), STORED_BYTES, ids=str)
def test_stored_bytes_are_those_of_earlier_releases(
    given: dict[str, object], expected: bytes
) -> None:
    assert stored(**given) == expected
    assert encoder.encode(row_options(expected)) == expected


@pytest.mark.proves("M32", "M48", "M52")
def test_good_ones_are_taken_and_later_ones_win() -> None:
    first = options(
        queue="high",
        priority=Priority.HIGH,
        retry=3,
        timeout=(1, 2),
        delay="5m",
        key="k",
        unique=window("1h"),
        retention="48h",
        result_ttl=60,
    )
    second = first.with_changes({"queue": "low", "key": "l"})
    assert (second.queue, second.priority, second.key) == ("low", 7, "l")
    assert first.queue == "high"
    assert first.with_changes({}) is first
    assert options(at=datetime(2026, 1, 1, tzinfo=UTC)).delay is UNSET
    assert repr(UNSET) == "..."


@pytest.mark.parametrize(
    "bad",
    [
        {"priority": 10},
        {"priority": -1},
        {"priority": True},
        {"priority": "9"},
        {"delay": -1},
        {"delay": None},
        {"at": datetime(2026, 1, 1)},  # noqa: DTZ001 - naive on purpose
        {"at": 5},
        {"timeout": (2, 1)},
        {"retry": -1},
        {"retry": Retry(on=(OSError,))},
        {"retry": Retry(never=(OSError,))},
        {"retention": 100},
        {"retention": -1},
        {"retention": True},
        {"retention": 1.5},
        {"retention": "soon"},
        {"meta": {1: 2}},
        {"meta": [1]},
        {"unique": "window", "key": "k"},
        {"unique": debounce(5)},
        {"unique": window(), "key": None},
        {"delay": 5, "at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"result_ttl": "never"},
    ],
    ids=str,
)
def test_bad_ones_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidOption) as caught:
        options(**bad)
    assert caught.value.cure


@pytest.mark.parametrize("bad", [{"queue": "a b"}, {"key": ""}])
def test_bad_names_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InvalidName):
        options(**bad)


def test_an_unknown_one_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InvalidOption) as caught:
        options(prioritty=3)
    assert "Did you mean 'priority'?" in caught.value.cure


@pytest.mark.proves("M31")
def test_meta_merges() -> None:
    first = options(meta={"a": 1, "b": 1})
    assert first.with_changes({"meta": {"b": 2}}).meta == {"a": 1, "b": 2}
    assert first.with_changes({"meta": None}).meta is None
    assert options(meta=None).with_changes({"meta": {"b": 2}}).meta == {"b": 2}


def test_a_call_without_options_stores_nothing() -> None:
    assert stored() is None
    assert stored(meta={}, key=None, queue="x", priority=3, delay=5) is None
    assert row_options(None) is NO_ROW_OPTIONS


def test_overrides_are_stored_and_read_back() -> None:
    row = row_options(
        stored(
            retry=Retry(2, base="1s", delays=(1, "2s")),
            timeout=10,
            meta={"file": PurePosixPath("/a")},
            retention=Keep(100),
            result_ttl="1m",
            key="k",
        )
    )
    assert row.retry is not None
    policy = Retry(9, never=(KeyError,)).overridden(row.retry)
    assert (policy.retries, policy.never) == (2, (KeyError,))
    assert policy.delay_seconds(5, 1.0) == 2.0
    assert row.limits(DEFAULT_LIMITS) == TimeLimits(9.0, 10.0)
    assert row.meta == {"file": "/a"}
    assert row.keep == (365 * 86400.0, 100, "shop.pay")
    assert (row.result_seconds, row.key) == (60.0, "k")


def test_no_limit_differs_from_no_word_about_it() -> None:
    assert row_options(stored(timeout=None)).limits(DEFAULT_LIMITS) == (None, None)
    assert row_options(stored(key="k")).limits(DEFAULT_LIMITS) == DEFAULT_LIMITS
    assert row_options(stored(retry=0)).retry is not None


@pytest.mark.parametrize("damaged", [b"{", b"[]", b"\xff", b'{"retry":5}'])
def test_damaged_stored_options_are_told(damaged: bytes) -> None:
    with pytest.raises(InvalidOption, match="are damaged"):
        row_options(damaged)


def test_huge_meta_is_refused() -> None:
    with pytest.raises(InvalidOption, match="over the bound of 1000"):
        stored(meta={"a": "x" * 1000})


@pytest.mark.proves("M39", "M41")
def test_retention_is_a_count_or_an_age() -> None:
    assert keep_of("48h", "b") == KeepRule(172800.0)
    assert keep_of(timedelta(hours=1), "b") == KeepRule(3600.0)
    assert keep_of(Keep(100), "b", longest=5.0) == KeepRule(5.0, 100, "b")
    assert keep_of(Keep(0), "b") == KeepRule(0.0)


def test_a_bare_number_is_no_retention_and_both_spellings_are_shown() -> None:
    with pytest.raises(InvalidOption, match="retention cannot be the number 100") as e:
        CallOptions.of_task({"retention": 100})
    assert "Keep(100)" in e.value.cure
    assert '"100s"' in e.value.cure


@pytest.mark.parametrize("number", [1.5, -5], ids=repr)
def test_a_number_that_is_no_count_gets_an_example(number: Any) -> None:
    """A cure must not advise what is refused in its turn."""
    with pytest.raises(InvalidOption, match=f"be the number {number}") as caught:
        CallOptions.of_task({"retention": number})
    assert "Write Keep(100)" in caught.value.cure


@pytest.mark.parametrize("count", [-1, True, 1.5, "5", None], ids=repr)
def test_keep_takes_a_count_only(count: Any) -> None:
    with pytest.raises(InvalidOption, match=f"Keep cannot take {count!r}") as caught:
        Keep(count)
    assert "such as Keep(100)" in caught.value.cure


def test_keeps_are_values() -> None:
    assert {Keep(5): 1}[Keep(5)] == 1
    assert Keep(5) != Keep(6)
    with pytest.raises(AttributeError):
        Keep(5).count = 6  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("policy", [while_waiting, while_active, replace])
def test_policies_without_parameters_have_names(policy: KeyPolicy) -> None:
    assert check_unique(policy.name) is policy
    NO_OPTIONS.with_changes({"key": "k", "unique": policy.name})
    with pytest.raises(InvalidOption, match=f"unique={policy.name} needs a key"):
        NO_OPTIONS.with_changes({"unique": policy.name})


@pytest.mark.parametrize("name", ["window", "debounce", "always", ""])
def test_other_names_are_no_policies(name: str) -> None:
    with pytest.raises(InvalidOption, match="unique cannot be") as caught:
        NO_OPTIONS.with_changes({"key": "k", "unique": name})
    assert "'while_active'" in caught.value.cure


def test_delay_and_at_are_not_for_one_call() -> None:
    with pytest.raises(InvalidOption, match="both given") as caught:
        NO_OPTIONS.with_changes({"delay": 5, "at": datetime(2030, 1, 1, tzinfo=UTC)})
    assert caught.value.cure == "Use either delay= or at=, not both."


CELERY: dict[str, tuple[Any, str]] = {
    "countdown": (60, ".options(delay=60).enqueue(...)"),
    "eta": (datetime(2030, 1, 1, tzinfo=UTC), ".options(at=...).enqueue(...)"),
    "max_retries": (3, "retry=3"),
    "bind": (True, "`ctx: Context` as the first parameter"),
}


@pytest.mark.parametrize("name", CELERY)
def test_options_of_celery_get_the_line_to_write(name: str) -> None:
    value, line = CELERY[name]
    for take in (CallOptions.of_task, NO_OPTIONS.with_changes):
        with pytest.raises(InvalidOption, match=f"no option '{name}'") as caught:
            take({name: value})
        assert line in caught.value.cure
