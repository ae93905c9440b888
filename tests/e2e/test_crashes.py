"""Jobs that end their own process, or try to: what dies, and who pays for it.

In a child only the job itself is charged, for nobody else ran there. On the loop and in a
thread the whole worker dies with its neighbours; the job that did it is found by running it
alone. What is merely raised, however fatal it looks, is an error like any other.
"""

from collections.abc import Iterator
from itertools import product

import pytest

from durio.model.job import DEAD, DONE
from durio.model.transitions import LOST_MAX
from tests.conftest import Require
from tests.e2e.child_jobs import GROUP
from tests.e2e.child_place import ChildPlace
from tests.e2e.memory_group import WHAT, memory_group
from tests.e2e.workers import Row, wait_until

CRASHES = {
    "exit": "exit code 1",
    "null": "killed by SIGSEGV",
    "oom": "killed by SIGKILL: perhaps out of memory",
}
EXIT_CODES = {"exit": 1, "null": -11, "oom": -9}
RAISED = {
    "sys.exit": "SystemExit",
    "KeyboardInterrupt": "KeyboardInterrupt",
    "CancelledError": "CancelledError",
}
HARMLESS = 6


@pytest.fixture(params=sorted(CRASHES))
def how(
    request: pytest.FixtureRequest, require: Require, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A way to crash; the memory limit only where the kernel keeps one."""
    if request.param != "oom":
        yield request.param
        return
    with memory_group() as group:
        require.kernel(group, WHAT)
        monkeypatch.setenv(GROUP, str(group))
        yield "oom"


@pytest.mark.proves("M110")
@pytest.mark.parametrize("task", ["in_a_child", "on_the_loop_of_a_child"])
def test_a_crash_in_a_child_charges_that_job_alone(
    child_place: ChildPlace, how: str, task: str
) -> None:
    place = child_place
    worker = place.worker(children=2)
    (guilty,) = place.enqueue(task, (how,))
    innocent = place.enqueue("work", *[(0.2,)] * HARMLESS)
    innocent += place.enqueue("nap", *[(0.2,)] * HARMLESS)
    rows = place.wait_final([guilty, *innocent], 60)
    check_dead_by_crash(rows[guilty])
    for error in rows[guilty].errors:
        assert error["type"] == "ChildLost"
        assert error["message"].endswith(f" died: {CRASHES[how]}")
    if how == "null":
        assert "child_jobs.py" in rows[guilty].errors[0]["traceback"]
    if task == "in_a_child":
        assert rows[guilty].errors[0]["logs"] == [f"WARNING about to end by {how}"]
    starts = place.ledger.by_job("start")
    assert [line.attempt for line in starts[guilty]] == [1, 2, 3]
    assert len({line.pid for line in starts[guilty]}) == LOST_MAX
    # Nobody else was charged, or ran twice.
    assert {rows[job].state for job in innocent} == {DONE}
    assert {(r.retried, r.losses) for r in rows_of(rows, innocent)} == {(0, 0)}
    assert {len(starts[job]) for job in innocent} == {1}
    assert worker.exit_code is None
    wait_until(lambda: place.ledger.jobs("dead") == {guilty}, 30, "the hook is told")
    assert len(place.ledger.of("dead")) == 1


@pytest.mark.proves("M110")
@pytest.mark.parametrize("task", ["in_a_thread", "on_the_loop"])
def test_a_crash_of_the_worker_convicts_that_job_alone(
    child_place: ChildPlace, how: str, task: str
) -> None:
    """The worker is started anew each time, as a supervisor would."""
    place = child_place
    place.settings = {"worker": {"life_seconds": 0.3, "children": 1}}
    innocent = place.enqueue("nap", *[(0.1,)] * HARMLESS)
    innocent += place.enqueue("work", *[(0.1,)] * HARMLESS)
    (guilty,) = place.enqueue(task, (how,))
    worker, crashes = place.worker(), 0

    def is_over() -> bool:
        nonlocal worker, crashes
        if worker.exit_code is not None:
            assert worker.exit_code == EXIT_CODES[how], worker.log
            crashes += 1
            worker = place.begin_worker()
        return all(row.state >= DONE for row in place.rows().values())

    wait_until(is_over, 90, "everything is over")
    rows = place.rows()
    check_dead_by_crash(rows[guilty])
    assert crashes == LOST_MAX
    assert {rows[job].state for job in innocent} == {DONE}
    # They died with their worker, which is not their fault: no retry is used up.
    assert {rows[job].retried for job in innocent} == {0}
    assert max(rows[job].losses for job in innocent) < LOST_MAX
    wait_until(lambda: place.ledger.jobs("dead") == {guilty}, 30, "the hook is told")
    assert len(place.ledger.of("dead")) == 1


def test_what_is_merely_raised_is_an_error_like_any_other(
    child_place: ChildPlace,
) -> None:
    """sys.exit, KeyboardInterrupt, CancelledError: in a child, a thread, on the loop."""
    place = child_place
    worker = place.worker(children=1)
    tasks = ("in_a_child", "on_the_loop_of_a_child", "in_a_thread", "on_the_loop")
    guilty = {
        place.enqueue(task, (how,))[0]: error
        for task, (how, error) in product(tasks, RAISED.items())
    }
    innocent = place.enqueue("nap", *[(0.1,)] * HARMLESS)
    innocent += place.enqueue("work", *[(0.1,)] * HARMLESS)
    rows = place.wait_final([*guilty, *innocent], 60)
    for job, error in guilty.items():
        row = rows[job]
        assert (row.state, row.reason) == (DEAD, "exhausted")
        assert (row.retried, row.losses) == (1, 0)
        assert [told["type"] for told in row.errors] == [error, error]
    assert {(r.state, r.retried, r.losses) for r in rows_of(rows, innocent)} == {
        (DONE, 0, 0)
    }
    assert worker.exit_code is None
    assert len(place.child_pids(worker)) == 1, "no child was lost"
    wait_until(lambda: place.ledger.jobs("dead") == set(guilty), 30, "hooks are told")
    assert len(place.ledger.of("dead")) == len(guilty)


def check_dead_by_crash(row: Row) -> None:
    assert (row.state, row.reason) == (DEAD, "worker_lost")
    # The third loss is its end, and no longer counted.
    assert (row.retried, row.losses, row.lost) == (0, LOST_MAX - 1, LOST_MAX - 1)
    assert len(row.errors) == LOST_MAX


def rows_of(rows: dict[str, Row], ids: list[str]) -> list[Row]:
    return [rows[job] for job in ids]
