"""A planted bug is found, replayed with the same result, and shrunk to what it needs.

The bug is a finish without its fence. In the world, workers pause for two leases while
they hold jobs, go on, and report outcomes of jobs that they have lost.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from durio.stores.sqlite import finish
from durio.testing.clock import STARTED_SECONDS
from tests.simulation.__main__ import make_small
from tests.simulation.account import Account, examine
from tests.simulation.checks import Violation
from tests.simulation.nemesis import Fault
from tests.simulation.shrink import Kept, Shrinker, drawn, read
from tests.simulation.workload import Wish

FENCE = re.compile(r"(job\.)?claim_no = \?2 and \+?(job\.)?worker = \?3")
NO_FENCE = "?2 = ?2 and ?3 = ?3"
KNOBS = {
    "seconds": 40.0,
    "lease_seconds": 6.0,
    "concurrency": 2,
    "prefetch": 0,
    "old_workers": 0,
    "is_calm": False,
}
PLAYS_MAX = 14


def zombies() -> Kept:
    """Three workers pause repeatedly; the wrong clock of the fourth is not needed."""
    began = STARTED_SECONDS
    pauses = [
        Fault(began + 4 + 14 * turn + 2 * k, "pause", f"worker-{k}", 12.0, 0.5)
        for turn in range(2)
        for k in range(3)
    ]
    skews = [Fault(began + 2 + 8 * n, "skew", "worker-3", 0.0, 0.6) for n in range(4)]
    return Kept(
        seed=1,
        invariant="I4",
        showed=[],
        commit="",
        knobs=KNOBS,
        faults=sorted([*pauses, *skews], key=lambda fault: fault.at),
        wishes=[
            Wish(n, began + 1 + 3 * n, "plain", seconds=8.0, priority=5)
            for n in range(8)
        ],
    )


@pytest.fixture
def no_fence(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    for name in ("FINISH_PACKED", "FINISH_DONE", "FINISH_WITHOUT_TRACE"):
        fenced: str = getattr(finish, name)
        planted, count = FENCE.subn(NO_FENCE, fenced)
        assert count == 1
        monkeypatch.setattr(finish, name, planted)
    yield monkeypatch
    monkeypatch.undo()


def what_it_told(account: Account) -> tuple[str, list[str], list[str]]:
    return account.digest, [str(one) for one in account.violations], account.stories


def test_planted_bug_fails_the_same_way_again(no_fence: pytest.MonkeyPatch):
    first, second = zombies().play(), zombies().play()
    assert "I4" in first.broken
    assert what_it_told(first) == what_it_told(second)
    story = first.stories[0]
    assert "! worker-" in story, "the fault is part of the story"
    assert "kind=pause" in story
    assert "claim_no=2" in story
    no_fence.undo()
    assert zombies().play().broken == [], "without the bug the same world holds"


def test_kept_world_is_the_world_of_its_seed():
    """With the outages of the service behind the breaker, which are no faults."""
    kept = drawn(1, "I4", "")
    assert kept.knobs["outages"]
    assert kept.play().digest == examine(1).digest


def test_shrinker_keeps_the_failure_and_drops_the_rest(
    no_fence: pytest.MonkeyPatch, tmp_path: Path
):
    whole, notes = zombies(), []
    shrinker = Shrinker(
        zombies(),
        is_over=lambda: shrinker.plays > PLAYS_MAX,
        show=notes.append,
    )
    kept = shrinker.run()
    assert kept is not None
    assert len(kept.faults) <= 2, kept.faults
    assert len(kept.wishes) <= 2, kept.wishes
    assert {fault.kind for fault in kept.faults} == {"pause"}
    assert set(kept.faults) <= set(whole.faults)
    assert len(notes) == shrinker.plays, "each world is shown"
    read_again = read(kept.write(tmp_path))
    assert read_again == kept
    replayed = read_again.play()
    assert [str(v) for v in replayed.violations if v.invariant == "I4"] == kept.showed
    no_fence.undo()
    assert read_again.play().broken == []


def test_command_keeps_what_it_shrank(
    no_fence: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    no_fence.setattr("tests.simulation.__main__.drawn", lambda *_: zombies())
    account = Account(seed=1, violations=[Violation("I4", 0, "")])
    make_small(account, seconds=1e-6, keep=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["seed_1_I4.json"]
    told = capsys.readouterr().out
    assert "10 faults and 8 jobs are enough, found in 1 worlds" in told
    assert "I4: an end of claim" in told


def test_nothing_to_shrink_where_nothing_is_broken():
    shrinker = Shrinker(zombies(), is_over=lambda: False, show=lambda _: None)
    assert shrinker.run() is None
    assert shrinker.plays == 1


def test_world_that_cannot_be_played_is_a_finding(monkeypatch: pytest.MonkeyPatch):
    def broken(_self: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("tests.simulation.scenario.Scenario.play", broken)
    account = examine(7)
    assert account.broken == ["world"]
    assert "planted" in str(account.violations[0])
    assert "Traceback" in account.stories[0]
