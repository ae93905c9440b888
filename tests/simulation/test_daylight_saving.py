"""Clocks change while schedulers have faults; `tests.simulation.daylight_saving` has a week."""

import pytest

from tests.simulation.daylight_saving import expected_ticks, play, stories

HOURS = 2.5


@pytest.mark.proves("M162")
@pytest.mark.parametrize(("tz", "direction", "change"), [*stories()])
def test_each_tick_has_one_job_while_clocks_change(
    tz: str, direction: str, change: str
):
    scene, violations = play(tz, change, HOURS / 24, seed=len(tz + direction))
    assert not violations, violations[0]
    assert scene.ticks > 40
    assert scene.faults.total() > 20


def test_a_missing_tick_is_found():
    """A tick that no walk through real time finds, or that has no job, is a violation."""
    scene, _ = play("Europe/Paris", "2027-03-28 01:00", HOURS / 24, seed=1)
    line = next(one for one in scene.ledger.entries if one.what == "tick")
    scene.ledger.entries.remove(line)
    (violation,) = scene.judge()
    assert "has 0 jobs" in str(violation)
    scene.ledger.entries += [line, line]
    (violation,) = scene.judge()
    assert "has 2 jobs" in str(violation)


def test_expected_ticks_are_in_the_period():
    due = expected_ticks("*/10 * * * *", "Europe/Paris", 1000.0, 4600.0)
    assert len(due) == 6
