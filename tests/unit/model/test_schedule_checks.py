"""What users say about a schedule becomes its definition, and back."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from durio import Cron
from durio.errors import InvalidSchedule
from durio.model.schedule import Definition
from durio.model.schedule_checks import (
    aware,
    check_schedule_name,
    choices_of,
    definition_of,
    rule_of,
)
from durio.model.schedule_rule import Rule

NOW = 1_800_000_000.0
LINK = {"task": "shop.work"}
PARIS = ZoneInfo("Europe/Paris")


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"cron": "0 2 * * *"}, Rule(cron="0 2 * * *")),
        ({"cron": " @daily "}, Rule(cron="0 0 * * *")),
        ({"cron": "@every 5m"}, Rule(every=300.0)),
        ({"cron": " @EVERY  90s "}, Rule(every=90.0)),
        ({"every": timedelta(minutes=5)}, Rule(every=300.0)),
        ({"every": 0.1}, Rule(every=0.1)),
        ({"every": "5m", "fixed_delay": True}, Rule(every=300.0, fixed_delay=True)),
        ({"cron": "0 2 * * *", "tz": PARIS}, Rule(cron="0 2 * * *", tz="Europe/Paris")),
        (
            {"cron": Cron("0 2 * * *", tz="Asia/Tokyo")},
            Rule(cron="0 2 * * *", tz="Asia/Tokyo"),
        ),
        (
            {"cron": Cron("0 2 * * *", tz="Asia/Tokyo"), "tz": "Asia/Tokyo"},
            Rule(cron="0 2 * * *", tz="Asia/Tokyo"),
        ),
        (
            {"at": datetime(2027, 1, 15, 9, 30, tzinfo=PARIS)},
            Rule(at=NOW + 1800),
        ),
        (
            {"every": "1h", "exclude": date(2030, 12, 25)},
            Rule(every=3600.0, exclude=("2030-12-25",)),
        ),
        (
            {
                "every": "1h",
                "exclude": ["2030-12-26", datetime(2030, 12, 25, 8, tzinfo=UTC)],
            },
            Rule(every=3600.0, exclude=("2030-12-25", "2030-12-26")),
        ),
        (
            {"every": "1h", "exclude": "20301225"},
            Rule(every=3600.0, exclude=("2030-12-25",)),
        ),
    ],
)
def test_rules(given: dict[str, Any], rule: Rule) -> None:
    assert rule_of(given, NOW) == rule
    assert rule_of(given, None) == rule


def test_defaults() -> None:
    definition = definition_of(LINK, {"every": "5m"}, NOW)
    assert definition == Definition(link=LINK, rule=Rule(every=300.0))
    assert (definition.overlap, definition.catchup) == ("skip", "latest")
    assert (definition.catchup_window, definition.catchup_max) == (86400.0, 100)


def test_all_late_ticks_wait_for_each_other_by_default() -> None:
    given: dict[str, Any] = {"every": "5m", "catchup": "all"}
    assert definition_of(LINK, given, NOW).overlap == "queue_all"
    assert definition_of(LINK, {**given, "overlap": "skip"}, NOW).overlap == "skip"


@pytest.mark.parametrize(
    "given",
    [
        {"every": "5m", "jitter": "299s"},
        {"cron": "0 2 * * *", "jitter": "23h"},
        {"cron": "0 9,10 * * *", "jitter": "59m"},
        {"cron": "0 0 29 2 *", "jitter": "1000d"},
        {"cron": "* * * * * *", "jitter": 0.9},
        {"at": datetime(2030, 1, 1, tzinfo=UTC), "jitter": "30d"},
    ],
)
def test_jitter_below_the_intervals(given: dict[str, Any]) -> None:
    assert definition_of(LINK, given, NOW).jitter > 0
    assert definition_of(LINK, given, None).jitter > 0


@pytest.mark.parametrize(
    "given",
    [
        {"every": "5m", "jitter": "5m"},
        {"cron": "0 9,10 * * *", "jitter": "1h"},
        {"cron": "0 0 1,15,16 * *", "jitter": "1d"},
        {"cron": "0 8-17 * * MON-FRI", "exclude": ["2027-01-15"], "jitter": "1h"},
    ],
)
def test_jitter_of_an_interval(given: dict[str, Any]) -> None:
    """Also of one that comes later than the next."""
    with pytest.raises(InvalidSchedule, match="is not shorter than the interval of"):
        definition_of(LINK, given, NOW)


def test_choices_give_the_definition_they_come_from() -> None:
    """So a change keeps what it does not name."""
    given: dict[str, Any] = {
        "cron": "*/5 * * * *",
        "tz": "Europe/Paris",
        # It occurs twice: the second time.
        "start": datetime(2027, 10, 31, 2, 30, fold=1, tzinfo=PARIS),
        "end": datetime(2030, 1, 1, 0, 0, 0, 123456, tzinfo=UTC),
        "exclude": ["2028-12-25"],
        "overlap": "cancel_previous",
        "catchup": "all",
        "catchup_window": "2h",
        "catchup_max": 7,
        "jitter": "30s",
        "max_runs": 9,
        "pause_on_failure": True,
    }
    definition = definition_of(LINK, given, NOW)
    assert definition_of(LINK, choices_of(definition), NOW) == definition
    assert (
        definition.rule.start == datetime(2027, 10, 31, 1, 30, tzinfo=UTC).timestamp()
    )
    for rule in ({"every": "5m", "fixed_delay": True}, {"at": given["end"]}):
        other = definition_of(LINK, rule, NOW)
        assert definition_of(LINK, choices_of(other), NOW) == other


def test_times_have_a_zone_and_exist() -> None:
    assert aware("at", datetime(2027, 1, 15, 8, tzinfo=UTC)) == NOW
    twice = datetime(2027, 10, 31, 2, 30, tzinfo=PARIS)
    assert aware("at", twice.replace(fold=1)) - aware("at", twice) == 3600
    with pytest.raises(InvalidSchedule, match="daylight saving skips"):
        aware("at", datetime(2027, 3, 28, 2, 30, tzinfo=PARIS))
    in_new_york = datetime(1969, 12, 31, 19, tzinfo=ZoneInfo("America/New_York"))
    assert aware("start", in_new_york) == 0.0  # a choice of full hours
    for year in (1968, 9002):
        with pytest.raises(InvalidSchedule, match=f"at is in the year {year}"):
            aware("at", datetime(year, 6, 1, tzinfo=UTC))


def test_names() -> None:
    for name in ("a", "A_b.c:d-9", "x" * 128):
        assert check_schedule_name(name) == name
