"""Polling: 30 s after news, doubled while nothing happens, at most 5 minutes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durio.errors import InvalidOption
from durio.limits import Poll
from durio.model.decision import DecisionInputs, decide
from durio.model.outcome import OutcomeKind
from durio.model.retry import Retry, Snooze

NOW = datetime(2026, 1, 31, 9, 0, tzinfo=UTC)


def delay(snooze: Snooze, *, snoozed: int, now: datetime = NOW) -> float:
    counts = DecisionInputs(0, snoozed, now=now.timestamp())
    decision = decide(snooze, Retry(5), counts)
    assert decision.kind is OutcomeKind.SNOOZE
    assert not decision.keeps_error
    return decision.delay_seconds


@pytest.mark.proves("M160", "L20")
def test_without_news_the_delay_doubles_with_each_look() -> None:
    looks = [delay(Poll().again(), snoozed=n) for n in (0, 1, 2, 3, 4, 5, 9_999)]
    assert looks == [30, 60, 120, 240, 300, 300, 300]


@pytest.mark.proves("M160", "L20")
def test_after_news_it_begins_anew_and_doubles_to_the_same_numbers() -> None:
    poll, now, looks = Poll(active="30s", idle_max="5m"), NOW, list[float]()
    for n in range(700, 706):
        looks.append(delay(poll.again(NOW), snoozed=n, now=now))
        now += timedelta(seconds=looks[-1])
    assert looks == [30, 60, 120, 240, 300, 300]


def test_news_of_the_future_are_news() -> None:
    assert delay(Poll().again(NOW + timedelta(days=1)), snoozed=5) == 30


def test_other_numbers() -> None:
    poll = Poll(active=1, idle_max=timedelta(seconds=3))
    assert [delay(poll.again(), snoozed=n) for n in (0, 1, 2)] == [1, 2, 3]
    assert repr(poll) == "Poll(1, 3)"


@pytest.mark.parametrize(
    "given",
    [
        {"active": 0},
        {"active": "6m"},
        {"idle_max": 0},
        {"idle_max": 29},
        {"active": "often"},
        {"active": -1},
        {"idle_max": None},
    ],
    ids=str,
)
def test_bad_numbers_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        Poll(**given)


@pytest.mark.parametrize("when", [datetime(2026, 1, 31), 5, "now"])  # noqa: DTZ001
def test_a_time_without_a_zone_is_refused(when: Any) -> None:
    with pytest.raises(InvalidOption, match="active_at"):
        Poll().again(when)
