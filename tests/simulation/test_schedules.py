"""Schedulers under faults: 10,000 ticks, each with one job.

The seeds of test_simulation.py have schedules, too, with workers that run their jobs. Here
are worlds of schedulers only, which make many more ticks in the same time.
"""

from collections import Counter

import pytest

from tests.conftest import SAID
from tests.simulation.schedule_world import play
from tests.simulation.summary import invariants

TICKS = 10_000
WORLDS_MAX = 40
LOST = {"flaky", "bad_line", "broken", "store_broken", "store_reset", "cut"}
NOT_HERE = {"S4"}  # no job is run, so no run is waited for


@pytest.mark.proves("M159", "M161")
@pytest.mark.timeout(300)
def test_ten_thousand_ticks_with_steps_of_the_clock_lost_replies_and_new_leaders(
    request: pytest.FixtureRequest,
):
    ticks, worlds, leaders = 0, 0, 0
    faults, exercised = Counter[str](), set[str]()
    while ticks < TICKS and worlds < WORLDS_MAX:
        worlds += 1
        scene, violations = play(worlds)
        assert not violations, f"world {worlds}: {violations[0]}"
        ticks += scene.ticks
        leaders += scene.recorder.leaders
        faults += scene.faults
        exercised |= scene.exercised
    lost = sum(count for kind, count in faults.items() if kind in LOST)
    assert ticks >= TICKS
    assert faults["clock_step"] >= worlds
    assert lost >= worlds
    assert leaders >= worlds
    assert faults["kill"] >= worlds
    meant = {name for name in invariants() if name.startswith("S") or name == "I13"}
    assert meant - NOT_HERE <= exercised
    text = (
        f"schedules: {ticks:,} ticks in {worlds} worlds, {faults['clock_step']} steps of "
        f"the clock, {lost} faults of connections, {leaders} changes of the leader"
    )
    request.node.user_properties.append((SAID, text))


def test_same_seed_same_history():
    first, second = play(10)[0], play(10)[0]
    assert first.ledger.digest == second.ledger.digest
    assert first.ticks > 100
