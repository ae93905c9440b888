"""Changes of a stored schedule: what stays, and from when a new rule counts."""

from typing import Any

import pytest
from msgspec.structs import replace

from durio import Cron
from durio.model import schedule_change
from durio.model.schedule import Definition, Pause, ScheduleRecord, TickNote, TickRun
from durio.model.schedule_change import (
    AHEAD_SECONDS,
    ScheduleChange,
    is_set_ahead,
    merged,
    new_record,
    with_manual_run,
)
from durio.model.schedule_rule import Rule
from durio.model.schedule_tick import SkippedTicks

NOW = 1_800_000_000.0
LINK = {"task": "shop.work"}
RUN = TickRun("01a3185c-7710-76f0-8390-e2067675ec28")


def definition(every: float = 60.0, **choices: Any) -> Definition:
    rule = {
        name: choices.pop(name)
        for name in ("start", "end", "fixed_delay", "at", "exclude", "tz")
        if name in choices
    }
    if "at" not in rule:
        rule["every"] = every
    return Definition(link=LINK, rule=Rule(**rule), **choices)


def schedule(every: float = 60.0, **choices: Any) -> ScheduleRecord:
    return new_record(definition(every, **choices), NOW, is_manual=True)


def paused(record: ScheduleRecord, at: float = NOW) -> ScheduleRecord:
    return replace(record, pause=Pause("ann", at))


def redefined(record: ScheduleRecord, other: Definition, now: float) -> ScheduleRecord:
    return schedule_change.redefined(record, other, now).record


def resumed(record: ScheduleRecord, now: float) -> ScheduleRecord:
    return schedule_change.resumed(record, now).record


def test_an_interval_counts_from_its_creation_or_start() -> None:
    assert schedule().next_at == NOW + 60
    late = schedule(start=NOW + 90)
    assert (late.next_at, late.definition.rule.anchor) == (NOW + 90, NOW + 90)
    running = schedule(start=NOW - 50)
    assert running.next_at == NOW + 10


def test_the_origin_of_a_new_schedule() -> None:
    manual = schedule()
    code = new_record(definition(), NOW, is_manual=False)
    assert (manual.origin, manual.code) == ("manual", None)
    assert (code.origin, code.code) == ("code", definition())


def test_a_definition_is_the_same_whatever_its_anchor() -> None:
    stored = schedule().definition
    assert stored != definition()
    assert stored.is_same_as(definition())
    assert not stored.is_same_as(definition(61.0))
    assert not stored.is_same_as(definition(overlap="allow"))


def test_a_changed_rule_counts_from_now() -> None:
    record = replace(schedule(overlap="queue_all"), waiting=(NOW + 1, NOW + 2))
    after = redefined(record, definition(100.0, overlap="queue_all"), NOW + 30)
    assert after.next_at == NOW + 130
    assert (after.waiting, after.skipped_count) == ((), 2)
    assert after.ticks[-1] == TickNote(NOW + 2, None, "changed")
    assert redefined(schedule(), definition(100.0), NOW).skipped_count == 0


def test_another_end_keeps_the_times_of_an_interval() -> None:
    """Also other dates and another zone; another start does not."""
    record, later = schedule(3600.0), NOW + 1800
    for choices in (
        {"end": NOW + 90_000},
        {"exclude": ("2027-01-20",)},
        {"tz": "Europe/Paris"},
    ):
        changed = redefined(record, definition(3600.0, **choices), later)
        assert changed.next_at == NOW + 3600, choices
    assert redefined(record, definition(1800.0), later).next_at == NOW + 3600
    moved = redefined(record, definition(3600.0, start=NOW + 1900), later)
    assert moved.next_at == NOW + 1900
    once = redefined(record, definition(3600.0, fixed_delay=True), later)
    assert once.next_at == later + 3600


def test_another_end_keeps_the_tick_of_a_fixed_delay() -> None:
    record, end = schedule(3600.0, fixed_delay=True), NOW + 7300
    other = definition(3600.0, fixed_delay=True, end=end)
    assert redefined(record, other, NOW + 1800).next_at == NOW + 3600
    assert redefined(record, other, NOW + 3700).next_at == NOW + 7300
    assert redefined(record, other, NOW + 3701).next_at is None
    going = replace(record, next_at=None, live=(RUN,))
    assert redefined(going, other, NOW + 1800).next_at is None
    ending = definition(3600.0, fixed_delay=True, end=NOW + 3599)
    assert redefined(record, ending, NOW + 1800).next_at is None


def test_other_choices_keep_the_next_tick_and_what_waits() -> None:
    record = replace(schedule(overlap="queue_all"), waiting=(NOW + 1,))
    after = redefined(record, definition(overlap="allow"), NOW + 30)
    assert (after.next_at, after.waiting) == (NOW + 60, (NOW + 1,))


def test_more_runs_let_an_ended_schedule_go_on() -> None:
    ended = replace(schedule(max_runs=1), run_count=1, next_at=None)
    assert redefined(ended, definition(max_runs=1), NOW + 90).next_at is None
    assert redefined(ended, definition(max_runs=2), NOW + 90).next_at == NOW + 120
    assert redefined(ended, definition(), NOW + 90).next_at == NOW + 120
    assert redefined(ended, definition(100.0, max_runs=1), NOW).next_at is None
    assert redefined(ended, definition(100.0, max_runs=2), NOW).next_at == NOW + 100


def test_a_fixed_delay_waits_for_its_run_also_after_a_change() -> None:
    record = schedule(fixed_delay=True)
    going = replace(record, next_at=None, live=(RUN,))
    same = redefined(going, definition(fixed_delay=True, max_runs=5), NOW + 90)
    assert same.next_at is None
    other = redefined(going, definition(100.0, fixed_delay=True), NOW + 90)
    assert other.next_at == NOW + 190


def test_a_one_shot_that_ran_does_not_run_again() -> None:
    record = replace(schedule(at=NOW + 5), next_at=None, run_count=1)
    assert redefined(record, definition(at=NOW + 5, overlap="allow"), NOW + 9).is_over
    again = redefined(record, definition(at=NOW + 50), NOW + 9)
    assert again.next_at == NOW + 50


def test_a_resume_makes_no_tick_of_the_pause() -> None:
    record = schedule()
    assert resumed(record, NOW + 500) is record, "it is not paused"
    assert resumed(paused(record), NOW + 10).next_at == NOW + 60
    assert resumed(paused(record), NOW + 60).next_at == NOW + 120
    assert resumed(paused(record), NOW + 500).next_at == NOW + 540
    assert resumed(paused(record), NOW + 500).pause is None


def test_a_resume_after_the_end() -> None:
    assert resumed(paused(schedule(at=NOW + 5)), NOW + 9).is_over
    assert resumed(paused(schedule(end=NOW + 90)), NOW + 90).is_over
    ended = replace(schedule(max_runs=1), run_count=1, next_at=None)
    assert resumed(paused(ended), NOW + 90).is_over


def test_a_resume_of_a_fixed_delay() -> None:
    """Its run goes on, or ended in the pause, or failed and caused the pause."""
    record = schedule(fixed_delay=True)
    assert resumed(paused(record), NOW + 500).next_at == NOW + 560
    going = replace(record, next_at=None, live=(RUN,))
    assert resumed(paused(going), NOW + 500).next_at is None
    failed = replace(record, next_at=None, live=())
    assert resumed(paused(failed), NOW + 500).next_at == NOW + 560


# --- ticks that were due, and that no scheduler has handled


def lost(change: ScheduleChange) -> tuple[Any, ...]:
    """Return what a change has skipped, and check that the schedule counts it."""
    count = sum(some.ticks for some in change.skipped)
    assert change.record.skipped_count == count
    return (*change.skipped, change.late_seconds)


@pytest.mark.parametrize(("pause_at", "count"), [(None, 3), (NOW + 150, 2), (NOW, 0)])
def test_a_changed_rule_skips_late_ticks(pause_at: float | None, count: int) -> None:
    """Of a schedule that is paused, only those from before the pause were late."""
    record = schedule(overlap="queue_all", catchup="all")
    until = NOW + 200
    if pause_at is not None:
        record, until = paused(record, pause_at), pause_at
    change = schedule_change.redefined(record, definition(100.0), NOW + 200)
    assert change.record.next_at == NOW + 300
    if not count:
        assert lost(change) == (0.0,)
        return
    skipped = SkippedTicks("changed", NOW + 60, NOW + 60 * count, count)
    assert lost(change) == (skipped, until - NOW - 60)
    waiting = replace(record, waiting=(NOW + 10, NOW + 20))
    change = schedule_change.redefined(waiting, definition(100.0), NOW + 200)
    skipped = SkippedTicks("changed", NOW + 10, NOW + 60 * count, count + 2)
    assert lost(change) == (skipped, until - NOW - 60)


def test_a_fixed_delay_has_one_late_tick() -> None:
    record = schedule(fixed_delay=True)
    change = schedule_change.redefined(record, definition(), NOW + 500)
    assert lost(change) == (SkippedTicks("changed", NOW + 60, NOW + 60, 1), 440)


def test_a_resume_skips_ticks_from_before_the_pause() -> None:
    record = replace(schedule(catchup="all"), waiting=(NOW,))
    change = schedule_change.resumed(paused(record, NOW + 130), NOW + 500)
    assert lost(change) == (SkippedTicks("paused", NOW + 60, NOW + 120, 2), 70)
    assert change.record.next_at == NOW + 540
    assert change.record.waiting == (NOW,), "it waits for a run, and not for the clock"


def test_a_pause_after_that_of_the_leader() -> None:
    """Ticks until the first pause are skipped; a pause by people is kept."""
    leaders = Pause("durio", NOW + 70, is_undeclared=True)
    record = replace(schedule(), pause=leaders)
    people = Pause("ann", NOW + 500)
    change = schedule_change.paused(record, people)
    assert lost(change) == (SkippedTicks("paused", NOW + 60, NOW + 60, 1), 10)
    assert change.record.pause == people
    again = schedule_change.paused(change.record, Pause("bob", NOW + 600))
    assert again == ScheduleChange(change.record)
    assert schedule_change.resumed(change.record, NOW + 700).skipped == ()


def test_a_declaration_after_the_pause_of_the_leader() -> None:
    """Late ticks and ticks that waited are skipped for two reasons."""
    record = new_record(definition(overlap="queue_all"), NOW, is_manual=False)
    leaders = Pause("durio", NOW + 70, is_undeclared=True)
    stored = replace(record, pause=leaders, waiting=(NOW,))
    change = schedule_change.with_declaration(stored, definition(100.0), NOW + 500)
    late = SkippedTicks("paused", NOW + 60, NOW + 60, 1)
    assert lost(change) == (late, SkippedTicks("changed", NOW, NOW, 1), 10)
    assert (change.record.next_at, change.record.pause) == (NOW + 600, None)


def test_the_last_run_by_people_skips_late_ticks() -> None:
    record = schedule(max_runs=1)
    change = with_manual_run(record, NOW + 130, RUN)
    assert lost(change) == (SkippedTicks("max_runs", NOW + 60, NOW + 120, 2), 70)
    assert change.record.is_over


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"overlap": "allow"}, {"overlap": "allow"}),
        ({"every": 5}, {"every": 5}),
        (
            {"cron": "0 2 * * *"},
            {"cron": "0 2 * * *", "every": None, "fixed_delay": False},
        ),
        ({"at": 7}, {"at": 7, "every": None, "fixed_delay": False}),
        ({"every": 5, "fixed_delay": False}, {"every": 5, "fixed_delay": False}),
        ({"cron": None}, {"cron": None}),
    ],
)
def test_what_is_not_given_stays(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = {"cron": None, "every": 60.0, "at": None, "tz": "Asia/Tokyo"}
    before |= {"fixed_delay": True, "overlap": "skip"}
    assert merged(dict(before), given) == {**before, **expected}


def test_a_cron_has_its_own_zone() -> None:
    before = {"cron": "0 9 * * *", "every": None, "at": None, "tz": "Asia/Tokyo"}
    cron = Cron("0 2 * * *", tz="Europe/Paris")
    assert merged(before, {"cron": cron})["tz"] is None


def test_overlap_follows_the_catchup_unless_it_was_chosen() -> None:
    before: dict[str, Any] = {"overlap": "skip", "catchup": "latest"}
    assert "overlap" not in merged({**before}, {"catchup": "all"})
    chosen = {**before, "overlap": "allow"}
    assert merged(chosen, {"catchup": "all"})["overlap"] == "allow"


# --- a clock that was ahead

YEARS = 10 * 365 * 86400.0


@pytest.mark.parametrize(
    ("rule", "expected"),
    [({"every": 60.0}, 60.0), ({"every": 60.0, "fixed_delay": True}, 60.0)],
)
def test_a_clock_that_was_years_ahead(rule: dict[str, Any], expected: float) -> None:
    """Pause and resume give a schedule its next tick after now."""
    ahead = NOW + YEARS
    record = replace(
        schedule(**rule),
        next_at=ahead + 60,
        ticks=(TickNote(NOW), TickNote(ahead)),
    )
    assert is_set_ahead(record, NOW)
    assert not is_set_ahead(record, ahead)
    after = resumed(paused(record), NOW)
    assert after.next_at == NOW + expected
    assert after.ticks == (TickNote(NOW),)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [({"end": NOW + YEARS}, NOW + 60), ({"at": NOW + YEARS}, NOW + YEARS)],
)
def test_a_clock_that_was_ahead_may_have_ended_a_schedule(
    rule: dict[str, Any], expected: float
) -> None:
    """Pause and resume give it the ticks that it still has."""
    last = TickNote(NOW + YEARS)
    record = replace(schedule(**rule), next_at=None, ticks=(TickNote(NOW), last))
    assert is_set_ahead(record, NOW)
    assert resumed(paused(record), NOW).next_at == expected
    assert not is_set_ahead(record, NOW + YEARS), "it has ended at its time"
    assert not is_set_ahead(replace(record, ticks=(TickNote(NOW),)), NOW)
    spent = replace(record.definition, max_runs=2)
    assert not is_set_ahead(replace(record, definition=spent, run_count=2), NOW)
    delayed = replace(schedule(fixed_delay=True), next_at=None, live=(RUN,))
    assert not is_set_ahead(replace(delayed, ticks=(last,)), NOW), "a run goes on"


def test_a_clock_that_was_a_little_ahead_repeats_no_tick() -> None:
    ahead = NOW + AHEAD_SECONDS - 60
    record = replace(schedule(), next_at=ahead + 60, ticks=(TickNote(ahead),))
    assert not is_set_ahead(record, NOW)
    assert resumed(paused(record), NOW) == record


def test_a_rare_tick_is_not_set_ahead() -> None:
    yearly = schedule(YEARS / 10)
    assert not is_set_ahead(yearly, NOW)
    assert not is_set_ahead(schedule(at=NOW + YEARS), NOW)
    ending = replace(schedule(end=NOW + 120), next_at=NOW + YEARS)
    assert not is_set_ahead(ending, NOW), "the rule has no tick so late"
