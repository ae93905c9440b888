"""Connections that break under calls: late first tries occur and do no harm."""

from typing import Any

import pytest

from durio.testing.clock import STARTED_SECONDS
from tests.simulation.nemesis import Fault
from tests.simulation.network import SimulatedLink
from tests.simulation.scenario import Played, play
from tests.simulation.workload import Wish

KNOBS = {
    "seconds": 60.0,
    "lease_seconds": 6.0,
    "concurrency": 5,
    "prefetch": 0,
    "old_workers": 0,
    "is_calm": False,
}


def broken_world(seed: int = 1) -> Played:
    """All producers' connections break, and the server restarts now and then."""
    began = STARTED_SECONDS
    faults = [Fault(began, "broken", f"producer-{k}", 50.0, 1.0) for k in range(2)]
    faults += [Fault(began + 5 * n, "store_reset", "*", 0.0, 0.5) for n in range(1, 9)]
    wishes = [
        Wish(n, began + 1 + 0.5 * n, "plain", seconds=0.2, priority=5)
        for n in range(90)
    ]
    return play(seed, faults=faults, wishes=wishes, knobs=KNOBS)


def stored_after_their_end(played: Played) -> int:
    """How many tries of an enqueue arrived after their job was done."""
    ends = {e.n: e.at for e in played.ledger.of("end") if e.fields["kind"] == "done"}
    tries = played.ledger.of("stored")
    return sum(e.n in ends and ends[e.n] < e.at for e in tries)


def test_a_first_try_that_comes_after_the_end_is_known_again() -> None:
    played = broken_world()
    assert played.violations == []
    assert stored_after_their_end(played) >= 3
    assert played.digest == broken_world().digest


def test_a_store_that_would_not_know_it_again_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a store where a finished job leaves no trace that an enqueue looks up."""
    do_late = SimulatedLink._do_late

    def forgetful(
        line: SimulatedLink, method: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        if method == "enqueue":
            new_id = line.node.clock.new_id
            strange = [job._replace(id=new_id()) for job in args[0]]
            args = (strange, *args[1:])
        do_late(line, method, args, options)

    monkeypatch.setattr(SimulatedLink, "_do_late", forgetful)
    assert {one.invariant for one in broken_world().violations} & {"I3", "I6", "I7"}
