"""Many processes on one file: none lost, none doubled, nobody locked out."""

import pytest

from durio.model.job import DONE
from tests.e2e.workers import Place, now_ns, wait_until

PRODUCERS, WORKERS, JOBS = 4, 4, 20_000
LOCKED = "database is locked"


@pytest.mark.proves("M98", "M110")
def test_four_produce_and_four_work_on_one_file(place: Place) -> None:
    workers = [place.begin_worker() for _ in range(WORKERS)]
    for worker in workers:
        place.started(worker)
    began = now_ns()
    producers = [
        place.run("tests.e2e.producer", "nothing", str(JOBS // PRODUCERS), "50")
        for _ in range(PRODUCERS)
    ]
    assert [producer.ended(90) for producer in producers] == [0] * PRODUCERS
    ids = [line.job for line in place.ledger.of("enq.ok")]
    assert len(set(ids)) == len(ids) == JOBS
    wait_until(lambda: place.count(DONE) == JOBS, 90, f"{JOBS} jobs are done")
    wait_until(lambda: len(place.ledger.of("accepted")) == JOBS, 30, "all are told")
    ends = [line.mono_ns for line in place.ledger.of("effect")]
    print(f"{JOBS / (max(ends) - began) * 1e9:.0f} jobs/s, processes started included")
    rows = place.check_all_done(ids, 30)
    # Nothing went wrong, so nothing was claimed, started or done a second time.
    assert {(row.claim_no, row.losses, row.retried) for row in rows.values()} == {
        (1, 0, 0)
    }
    assert len(ends) == JOBS
    assert len({line.pid for line in place.ledger.of("effect")}) == WORKERS
    assert LOCKED not in place.logs()
    assert all(worker.exit_code is None for worker in workers)
    assert place.check("integrity_check") == ["ok"]


@pytest.mark.proves("M98")
def test_producer_killed_in_the_middle_of_its_enqueues(place: Place) -> None:
    at_once = 20
    for kill in range(1, 4):
        producer = place.run("tests.e2e.producer", "nothing", "100000", str(at_once))
        seen = len(place.ledger.of("enq.ok"))
        wait_until(
            lambda more=seen + 150: len(place.ledger.of("enq.ok")) > more,
            30,
            "it is busy",
        )
        producer.kill()
        ledger, stored = place.ledger, set(place.rows())
        acknowledged = ledger.jobs("enq.ok")
        assert acknowledged <= stored, "acknowledged means on disk"
        assert len(stored - acknowledged) <= at_once * kill, "only what was in flight"
        assert place.check("integrity_check") == ["ok"]
    # What was stored without an answer is a job like any other.
    place.worker()
    place.check_all_done(list(stored), 60)


@pytest.mark.proves("M110")
def test_nobody_sits_on_jobs_behind_slow_ones(place: Place) -> None:
    """A worker used to quick jobs claims ahead; when they turn slow it gives back."""
    quick = place.enqueue_many("nothing", 500)
    used_to_quick = place.worker(concurrency=2)
    place.wait_for("accepted", len(quick))
    slow = place.enqueue("held", (), ())
    wait_until(
        lambda: place.ledger.jobs("start") >= set(slow), 30, "its slots are full"
    )
    more = place.enqueue_many("nothing", 50)
    place.worker()
    wait_until(
        lambda: place.ledger.jobs("effect") >= set(more), 30, "somebody else does them"
    )
    place.open_gate()
    rows = place.check_all_done(quick + slow + more, 30)
    assert {rows[job].result for job in slow} == {used_to_quick.pid}
    assert {(row.retried, row.losses) for row in rows.values()} == {(0, 0)}
