"""Children that a task has broken: its neighbours pay nothing, and the truth is told."""

import pytest

from durio.model.job import DEAD, DONE
from tests.e2e.child_place import ChildPlace
from tests.e2e.workers import START_SECONDS

PAIRS = 6


@pytest.mark.parametrize(
    ("how", "end"),
    [("stop", DEAD), ("stop and return", DONE), ("cancel all", DEAD)],
)
def test_the_next_job_is_not_charged_for_a_broken_child(
    child_place: ChildPlace, how: str, end: int
) -> None:
    """Each runs once, in a child that is well."""
    breaking, innocent = list[str](), list[str]()
    for _ in range(PAIRS):
        breaking += child_place.enqueue("break_child", (how,))
        innocent += child_place.enqueue("work", (0.0,))
    worker = child_place.worker(children=1)
    rows = child_place.wait_final(breaking + innocent, START_SECONDS)
    ends = {(rows[job].state, rows[job].losses) for job in innocent}
    assert ends == {(DONE, 0)}
    assert {(rows[job].state, rows[job].losses) for job in breaking} == {(end, 0)}
    starts = child_place.ledger.by_job("start")
    assert {len(starts[job]) for job in breaking + innocent} == {1}
    assert len(child_place.pids_of(breaking)) == PAIRS
    assert worker.events("child.died") == []
    assert len(worker.events("child.failed")) == PAIRS, "why each of them ended"


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
    assert all("its line to the worker is closed" in how for how in told), told
    assert not any("memory" in how for how in told), told
    assert {(rows[job].state, rows[job].losses) for job in innocent} == {(DONE, 0)}
