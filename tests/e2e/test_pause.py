"""Workers that stand still (SIGSTOP) past their lease: what comes late is refused."""

from typing import Any

import pytest

from tests.e2e.workers import Place, Process, wait_until

SECONDS = 30.0
JOBS = 4
QUICK = {
    "lease_seconds": 2,
    "heartbeat_seconds": 0.5,
    "rescue_seconds": 0.5,
    "leader_seconds": 1,
}


@pytest.mark.proves("M112")
@pytest.mark.parametrize("task", ["held", "held_in_a_thread"])
def test_stopped_past_its_lease_and_continued(place: Place, task: str) -> None:
    place.settings = {"worker": QUICK}
    ids = place.enqueue(task, *[()] * JOBS)
    zombie = place.worker(concurrency=JOBS)
    place.wait_for("start", JOBS)
    with place.writer_lock():  # so it is not inside a transaction
        zombie.stop()
    other = place.worker()
    place.wait_for_attempt(2, JOBS)
    # The zombie ends its attempts while the others still run.
    place.open_gate(only=zombie)
    zombie.go_on()
    wait_until(lambda: reported_lease_loss(zombie), SECONDS, "the zombie logs its loss")
    check_nothing_was_taken(place, ids, zombie)
    place.open_gate()
    rows = place.wait_final(ids, SECONDS)
    assert {row.result for row in rows.values()} == {other.pid}
    # It is a worker again, under another name.
    other.kill()
    more = place.enqueue("nap", (0.1,))
    rows = place.check_all_done(ids + more, SECONDS, killed=(zombie,))
    assert rows[more[0]].result == zombie.pid
    check_nothing_was_taken(place, ids, zombie)


@pytest.mark.proves("M112")
def test_worker_that_never_hears_of_its_end(place: Place) -> None:
    """Its lease is over and it does not know: the store alone refuses what it says."""
    place.look_like_several_hosts()
    ids = place.enqueue("held", *[()] * JOBS)
    zombie = place.run("tests.e2e.runner", "deaf", concurrency=JOBS)
    place.wait_for("start", JOBS)
    other = place.worker()
    place.wait_for_attempt(2, JOBS)
    place.open_gate(only=zombie)
    wait_until(lambda: len(fenced(zombie)) == JOBS, SECONDS, "each end is refused")
    assert {row["job_id"] for row in fenced(zombie)} == set(ids)
    check_nothing_was_taken(place, ids, zombie)
    place.open_gate()
    rows = place.check_all_done(ids, SECONDS, killed=(zombie,))
    assert {row.result for row in rows.values()} == {other.pid}


def check_nothing_was_taken(place: Place, ids: list[str], zombie: Process) -> None:
    """Neither progress, nor a result, nor an end; and the zombie was not told so."""
    rows = place.rows()
    for job in ids:
        assert rows[job].losses == 1
        assert rows[job].result != zombie.pid
        assert not shows(rows[job].progress, zombie)
    assert not place.ledger.jobs("accepted", pid=zombie.pid) & set(ids)


def fenced(zombie: Process) -> list[dict[str, Any]]:
    """The ends that were refused, once each; notes of progress have no length."""
    return [row for row in zombie.events("job.fenced") if row["duration_ms"] > 0]


def shows(progress: Any, process: Process) -> bool:
    return progress is not None and progress["message"] == str(process.pid)


def reported_lease_loss(zombie: Process) -> bool:
    return bool(zombie.events("worker.fenced") or zombie.events("job.fenced"))


@pytest.mark.proves("M112")
@pytest.mark.parametrize("lease", ["within the lease", "past the lease"])
def test_stopped_writer_is_named(place: Place, lease: str) -> None:
    """Stopped inside a transaction: others name it, keep their outcomes, and go on."""
    seconds = 30 if lease == "within the lease" else 2
    place.settings = {"worker": {**QUICK, "lease_seconds": seconds}}
    ids = place.enqueue("held", *[()] * JOBS)
    workers = [place.worker(concurrency=2), place.worker(concurrency=2)]
    place.wait_for("start", JOBS)
    stopper = place.run("tests.e2e.stopper")
    wait_until(stopper.is_stopped, SECONDS, "a writer stands still")
    place.open_gate()
    place.wait_for("effect", JOBS)
    for worker in workers:
        wait_until(lambda w=worker: names(w, stopper), SECONDS, "its pid is told")
    if lease == "past the lease":
        for worker in workers:
            wait_until(
                lambda w=worker: stalled_seconds(w) > 2 * seconds, SECONDS, "leases end"
            )
    assert not place.ledger.of("accepted"), "nobody could write"
    stopper.go_on()
    assert stopper.ended() == 0
    # No job ran twice: whoever had an outcome kept it.
    rows = place.check_all_done(ids, SECONDS)
    assert {row.losses for row in rows.values()} == {0}
    more = place.enqueue("nap", *[(0.1,)] * JOBS)
    place.check_all_done(ids + more, SECONDS)


def names(worker: Process, stopper: Process) -> bool:
    return any(row["pid"] == stopper.pid for row in worker.events("store.stalled"))


def stalled_seconds(worker: Process) -> float:
    return max((row["seconds"] for row in worker.events("store.stalled")), default=0.0)
