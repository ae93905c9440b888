"""When a schedule is due: ticks forward and back are the same numbers."""

import math
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durio.errors import InvalidSchedule
from durio.model.schedule_rule import Rule, midnight

START = datetime(2027, 1, 15, 8, tzinfo=UTC).timestamp()
HOUR, DAY = 3600.0, 86400.0
INTERVALS = st.sampled_from([0.1, 0.3, 1.0, 7.7, 60.0, 3600.0, 86400.0, 100_000.1])
ANCHORS = st.floats(START, START + 1000.0)


@given(INTERVALS, ANCHORS, st.integers(0, 1_000_000))
def test_ticks_of_an_interval_are_the_same_from_both_sides(
    every: float, anchor: float, count: int
) -> None:
    """Each has its job by its number: another last digit would be another job."""
    rule = Rule(every=every, anchor=anchor)
    tick = anchor + count * every
    following = rule.after(tick)
    assert following is not None
    assert following == anchor + (count + 1) * every
    assert rule.latest(following, tick) == following
    assert rule.latest(math.nextafter(following, 0.0), 0.0) == tick
    assert rule.after(math.nextafter(following, 0.0)) == following


@given(INTERVALS, ANCHORS, st.floats(-1e6, 1e7))
def test_the_next_tick_is_the_first_after_a_time(
    every: float, anchor: float, since: float
) -> None:
    rule, moment = Rule(every=every, anchor=anchor), START + since
    following, before = rule.after(moment), rule.latest(moment, -math.inf)
    assert following is not None
    assert before is not None
    assert before <= moment < following
    assert following - before == pytest.approx(every, abs=1e-5)


def test_an_anchor_beyond_all_times_has_no_ticks() -> None:
    """A damaged record must not keep a scheduler busy."""
    rule = Rule(every=0.1, anchor=1e300)
    assert rule.after(START) is None
    assert rule.latest(START, START - 1) is None


def test_a_one_shot_has_one_tick() -> None:
    rule = Rule(at=START)
    assert rule.after(START - 1) == START
    assert rule.after(START) is None
    assert rule.latest(START, START - 1) == START
    assert rule.latest(START - 1, 0.0) is None
    assert rule.latest(START, START) is None
    assert rule.interval_seconds(START - 1) == math.inf
    assert rule.interval_seconds(START) == math.inf


@pytest.mark.parametrize(
    "rule", [Rule(cron="0 * * * *"), Rule(every=HOUR, anchor=START)], ids=str
)
def test_start_and_end_are_ticks_if_the_rule_has_them(rule: Rule) -> None:
    bound: dict[str, Any] = {"start": START + HOUR, "end": START + 3 * HOUR}
    kind: dict[str, Any] = {"cron": rule.cron, "every": rule.every}
    bounded = Rule(**kind, **bound, anchor=rule.anchor)
    assert bounded.after(START - DAY) == START + HOUR
    assert bounded.after(START + 2.5 * HOUR) == START + 3 * HOUR
    assert bounded.after(START + 3 * HOUR) is None
    assert bounded.latest(START + DAY, 0.0) == START + 3 * HOUR
    assert bounded.latest(START + HOUR - 1, 0.0) is None


def test_excluded_dates_are_skipped_in_both_directions() -> None:
    """In Sydney, where 16 January begins at 13:00 in UTC."""
    rule = Rule(
        cron="0 */6 * * *", tz="Australia/Sydney", exclude=("2027-01-17", "2027-01-18")
    )
    last = datetime(2027, 1, 16, 18, tzinfo=UTC).timestamp() - 11 * HOUR
    following = rule.after(last)
    assert following is not None
    assert following == midnight(date(2027, 1, 19), "Australia/Sydney")
    assert rule.latest(following - 1, 0.0) == last
    assert rule.after(following) == following + 6 * HOUR
    assert Rule(at=START, exclude=("2027-01-15",)).after(0.0) is None
    assert Rule(at=START, exclude=("2027-01-15",)).latest(START, 0.0) is None


def test_a_tick_at_midnight_after_an_excluded_date() -> None:
    for rule in (
        Rule(every=HOUR, anchor=START, exclude=("2027-01-15",)),
        Rule(cron="0 * * * *", exclude=("2027-01-15",)),
    ):
        assert rule.after(START) == START + 16 * HOUR
        assert rule.latest(START + 15 * HOUR, 0.0) == START - 9 * HOUR


def test_the_tick_of_a_fixed_delay_follows_the_end_of_a_run() -> None:
    rule = Rule(every=60.0, fixed_delay=True, end=START + DAY)
    assert rule.after_end(START) == START + 60
    assert rule.after_end(START + DAY) is None
    later = Rule(every=60.0, fixed_delay=True, start=START + HOUR)
    assert later.after_end(START) == START + HOUR
    free = Rule(every=60.0, fixed_delay=True, exclude=("2027-01-15", "2027-01-16"))
    assert free.after_end(START) == midnight(date(2027, 1, 17), "UTC")


@pytest.mark.parametrize(
    ("rule", "seconds"),
    [
        (Rule(every=5.0), 60.0),
        (Rule(every=600.0), 600.0),
        (Rule(cron="0 * * * *"), HOUR),
        (Rule(cron="0 0 1 * *"), DAY),
        (Rule(at=START), 60.0),
        (Rule(cron="0 * * * *", end=START), 60.0),
    ],
)
def test_when_a_tick_is_missed(rule: Rule, seconds: float) -> None:
    """After one interval, but not before a minute, and not later than a day."""
    assert rule.missed_seconds(START) == seconds


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (
            Rule(cron="0 2 * * *", tz="Europe/Paris"),
            "At 02:00 every day (Europe/Paris)",
        ),
        (Rule(every=300.0), "Every 5 min"),
        (
            Rule(every=300.0, fixed_delay=True),
            "Every 5 min after the end of the run before",
        ),
        (
            Rule(at=START, tz="Asia/Tokyo", exclude=("2030-12-25",)),
            "Once, at 2027-01-15 17:00:00+09:00, except on 2030-12-25",
        ),
    ],
)
def test_a_rule_in_words(rule: Rule, text: str) -> None:
    assert rule.describe() == text


def test_a_preview_notes_daylight_saving() -> None:
    before = datetime(2027, 3, 26, 12, tzinfo=UTC).timestamp()
    rule = Rule(cron="30 2 * * *", tz="Europe/Paris", exclude=("2027-03-27",))
    first, second = rule.preview(before, 2)
    assert first.at.isoformat() == "2027-03-28T03:00:00+02:00"
    assert first.note == "clocks go forward: 02:30 does not exist, runs at 03:00"
    assert (second.at.day, second.note) == (29, None)


def test_a_preview_ends_with_the_schedule() -> None:
    times = [
        run.at
        for run in Rule(every=HOUR, anchor=START, end=START + 7201).preview(START, 9)
    ]
    assert [time.hour for time in times] == [9, 10]
    assert Rule(at=START).preview(START, 5) == []


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Rule(), "it has 0 of cron, every and at"),
        (Rule(every=5.0, at=START), "it has 2 of cron"),
        (Rule(every=5.0, tz="Mars"), "no time zone 'Mars'"),
        (Rule(cron="0 2"), "2 fields"),
    ],
)
def test_a_rule_that_cannot_be_computed(rule: Rule, words: str) -> None:
    with pytest.raises(InvalidSchedule, match=words):
        rule.check()
