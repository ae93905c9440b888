"""Changes of a stored schedule: what stays, and from when a new rule counts."""

from typing import Any

import pytest
from msgspec.structs import replace

from durio import Cron
from durio.model.schedule import Definition, Pause, ScheduleRecord, TickRun
from durio.model.schedule_change import merged, new_record, redefined, resumed
from durio.model.schedule_rule import Rule

NOW = 1_800_000_000.0
LINK = {"task": "shop.work"}
RUN = TickRun("01a3185c-7710-76f0-8390-e2067675ec28")


def definition(every: float = 60.0, **choices: Any) -> Definition:
    rule = {
        name: choices.pop(name)
        for name in ("start", "end", "fixed_delay", "at")
        if name in choices
    }
    if "at" not in rule:
        rule["every"] = every
    return Definition(link=LINK, rule=Rule(**rule), **choices)


def schedule(every: float = 60.0, **choices: Any) -> ScheduleRecord:
    return new_record(definition(every, **choices), NOW, is_manual=True)


def paused(record: ScheduleRecord) -> ScheduleRecord:
    return replace(record, pause=Pause("ann", NOW))


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
    assert after.ticks[-1] == (NOW + 2, None, "changed")
    assert redefined(schedule(), definition(100.0), NOW).skipped_count == 0


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
