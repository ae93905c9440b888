"""Children that a task has broken: its neighbours pay nothing, and the truth is told."""

import pytest

from durio.model.job import DEAD, DONE
from tests.e2e.child_place import ChildPlace
from tests.e2e.workers import START_SECONDS, wait_until

PAIRS = 6


@pytest.mark.parametrize(
    ("how", "end", "runs"),
    [("stop", DEAD, 3), ("stop and return", DONE, 1), ("cancel all", DEAD, 3)],
)
def test_the_next_job_is_not_charged_for_a_broken_child(
    child_place: ChildPlace, how: str, end: int, runs: int
) -> None:
    """It runs once, in a child that is well; who breaks its own is lost with that."""
    breaking, innocent = list[str](), list[str]()
    for _ in range(PAIRS):
        breaking += child_place.enqueue("break_child", (how,))
        innocent += child_place.enqueue("work", (0.0,))
    worker = child_place.worker(children=1)
    rows = child_place.wait_final(breaking + innocent, START_SECONDS)
    ends = {(rows[job].state, rows[job].losses) for job in innocent}
    assert ends == {(DONE, 0)}
    ends = {(rows[job].state, rows[job].retried) for job in breaking}
    assert ends == {(end, 0)}
    starts = child_place.ledger.by_job("start")
    assert {len(starts[job]) for job in innocent} == {1}
    assert {len(starts[job]) for job in breaking} == {runs}
    pids = {line.pid for job in breaking for line in starts[job]}
    assert len(pids) == PAIRS * runs
    assert worker.events("child.died") == []
    # The worker reports why a child ended after the store has the job's end.
    reports = PAIRS * runs
    wait_until(
        lambda: len(worker.events("child.failed")) >= reports,
        START_SECONDS,
        "why each child ended",
    )
    assert len(worker.events("child.failed")) == reports


def test_a_job_whose_loop_one_before_it_stopped_runs_again(
    child_place: ChildPlace,
) -> None:
    """It is charged a loss, and none of its retries: it has none."""
    worker = child_place.worker(children=1)
    guilty = child_place.enqueue("leave_a_trap", ())
    child_place.wait_final(guilty, START_SECONDS)
    (met,) = child_place.enqueue("meet_the_trap", ())
    row = child_place.wait_final([met], START_SECONDS)[met]
    assert (row.state, row.losses, row.retried) == (DONE, 1, 0)
    (error,) = row.errors
    assert error["type"] == "ChildLost"
    assert "event loop" in error["message"]
    assert worker.events("child.died") == []


def test_a_line_that_a_task_shut_down_is_not_called_a_want_of_memory(
    child_place: ChildPlace,
) -> None:
    worker = child_place.worker(children=1)
    (shutting,) = child_place.enqueue("shut_all_lines", ())
    innocent = child_place.enqueue("work", *[(0.0,)] * 3)
    rows = child_place.wait_final([shutting, *innocent], START_SECONDS)
    assert (rows[shutting].state, rows[shutting].reason) == (DEAD, "worker_lost")
    told = [error["message"] for error in rows[shutting].errors]
    told += [event["how"] for event in worker.events("child.died")]
    assert len(told) == 2 * 3
    assert all("its connection to the worker is closed" in how for how in told), told
    assert not any("memory" in how for how in told), told
    assert {(rows[job].state, rows[job].losses) for job in innocent} == {(DONE, 0)}
