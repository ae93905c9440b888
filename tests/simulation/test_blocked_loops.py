"""Loops that are blocked from outside while jobs wait for their tasks to start.

Trips to the store take 50 to 150 ms, so that the block can begin during such a wait.
"""

from durio.testing.clock import STARTED_SECONDS
from tests.simulation.control_checks import EXIT_BLOCKED, IDLE_BLOCK_SECONDS
from tests.simulation.nemesis import Fault
from tests.simulation.scenario import WORKERS, Played, play
from tests.simulation.workload import HARD_SECONDS, Wish

KNOBS = {
    "seconds": 60.0,
    "lease_seconds": 30.0,
    "concurrency": 2,
    "prefetch": 0,
    "old_workers": 0,
    "is_calm": False,
    "trip_seconds": 0.1,
    "outages": [],
}
JOB_AT, LAST_AT = 5.0, 120.0


def blocked(kind: str, at: float, seconds: float) -> Played:
    """Block all workers from this time, with a job of this kind."""
    wishes = [
        Wish(0, STARTED_SECONDS + JOB_AT, kind, seconds=1.0),
        Wish(1, STARTED_SECONDS + LAST_AT, "plain"),  # the world lasts until then
    ]
    blocks = [
        Fault(STARTED_SECONDS + at, "block", f"worker-{n}", seconds, 0.5)
        for n in range(WORKERS)
    ]
    return play(1, faults=blocks, wishes=wishes, knobs=KNOBS)


def holder(played: Played, at: float) -> str:
    """Return the process that has claimed the job and not started its task."""
    about = [e for e in played.ledger.about(0) if e.at < STARTED_SECONDS + at]
    assert "start" not in [entry.what for entry in about]
    (claim,) = (entry for entry in about if entry.what == "claim")
    return claim.node


def ends(played: Played, at: float) -> dict[str, float]:
    """Return the processes that ended themselves, and how long after the block."""
    faults = played.ledger.disturbances
    exits = [one for one in faults if one.kind == EXIT_BLOCKED]
    return {one.node: one.began - STARTED_SECONDS - at for one in exits}


def test_job_that_waits_for_its_breaker_runs():
    """A worker that ends itself after the job's hard limit has a reason."""
    at = 5.8
    played = blocked("behind", at, seconds=2 * HARD_SECONDS)
    told = ends(played, at)
    assert [*told] == [holder(played, at)], "the others run no job"
    assert HARD_SECONDS - 1 < told[holder(played, at)] < HARD_SECONDS + 1
    assert played.violations == []


def test_job_that_waits_for_its_batch_does_not_run():
    """Its worker ends itself when one without jobs does: the wait has no time limit."""
    at = 5.6
    played = blocked("batch", at, seconds=IDLE_BLOCK_SECONDS + 20)
    told = ends(played, at)
    assert holder(played, at) in told
    assert len(told) == WORKERS
    assert all(abs(took - IDLE_BLOCK_SECONDS) < 1 for took in told.values())
    assert played.violations == []
