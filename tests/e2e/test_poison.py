"""A job that kills its worker, every time: it dies alone."""

import json

import pytest

from durio.model.job import DEAD, DONE
from tests.e2e.workers import Place, wait_until

HARMLESS = 19
LOSSES = 3


@pytest.mark.proves("M110")
def test_innocent_neighbours_live(place: Place) -> None:
    """One poison and nineteen others in one process, which is restarted each time."""
    place.settings = {"worker": {"concurrency": HARMLESS + 1, "life_seconds": 0.5}}
    (poison,) = place.enqueue("poison", (0.2,))
    innocent = place.enqueue("nap", *[(0.5,)] * HARMLESS)
    crashes = 0
    worker = place.worker()

    def is_over() -> bool:
        nonlocal crashes, worker
        if worker.exit_code is not None:
            assert worker.exit_code == -9, worker.log
            crashes += 1
            worker = place.begin_worker()
        rows = place.rows()
        return all(row.state >= DONE for row in rows.values())

    wait_until(is_over, 60, "everything is over")
    rows = place.rows()
    assert {rows[job].state for job in innocent} == {DONE}
    assert rows[poison].state == DEAD
    assert rows[poison].reason == "worker_lost"
    assert crashes == LOSSES
    told = rows[poison].errors
    assert [error["type"] for error in told] == ["WorkerLost"] * LOSSES, json.dumps(
        told
    )
    ledger = place.ledger
    starts = ledger.by_job("start")
    assert [line.attempt for line in starts[poison]] == [1, 2, 3]
    # At its last chance the poison ran alone: whoever was claimed beside it, unstarted,
    # was neither charged nor convicted.
    last = starts[poison][-1]
    assert not [
        line
        for line in ledger.of("effect", pid=last.pid)
        if line.mono_ns > last.mono_ns
    ]
    assert {rows[job].losses for job in innocent} <= {0, 1, 2}
    wait_until(lambda: place.ledger.jobs("dead") == {poison}, 30, "the hook is told")
    assert len(place.ledger.of("dead")) == 1
    ends = place.ledger.by_job("accepted")
    assert all(len(lines) == 1 for lines in ends.values())
