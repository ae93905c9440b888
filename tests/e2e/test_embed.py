"""A worker inside another program, for real: a file, signals, threads, a blocked loop."""

import json
import signal

import pytest

from durio.model.job import DONE, READY
from tests.e2e.workers import Place, Process, wait_until

SECONDS = 30.0
JOBS = 4

every_loop = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


def host(place: Place, loop: str = "asyncio", **settings: float) -> Process:
    """A program with a worker inside, once that has a lease."""
    process = place.run("tests.e2e.embedding_program", loop, **settings)
    place.started(process)
    return process


def check_uncharged(place: Place, ids: list[str], *, again: Process) -> None:
    """All done in the end, and every attempt was the first."""
    rows = place.check_all_done(ids, SECONDS, killed=(again,))
    assert {(row.retried, row.losses) for row in rows.values()} == {(0, 0)}


@pytest.mark.proves("M8", "M115")
@every_loop
def test_jobs_of_a_file_run_in_one_process_and_sigterm_drains(
    place: Place, loop: str
) -> None:
    ids = place.enqueue("held", *[()] * JOBS)
    ids += place.enqueue("held_in_a_thread", *[()] * JOBS)
    process = host(place, loop)
    place.wait_for("start", len(ids))
    process.send(signal.SIGTERM)
    wait_until(lambda: process.events("worker.stopping"), SECONDS, "it drains")
    place.open_gate()
    assert process.ended() == 0
    check_uncharged(place, ids, again=process)
    assert {line.pid for line in place.ledger.of("start")} == {process.pid}
    assert place.select("select count(*) from worker") == [(0,)]


@every_loop
def test_one_ctrl_c_drains(place: Place, loop: str) -> None:
    ids = place.enqueue("held", *[()] * JOBS)
    process = host(place, loop)
    place.wait_for("start", JOBS)
    process.send(signal.SIGINT)
    wait_until(lambda: process.events("worker.stopping"), SECONDS, "it drains")
    place.open_gate()
    process.ended()
    assert {row.state for row in place.rows().values()} == {DONE}
    check_uncharged(place, ids, again=process)


@every_loop
@pytest.mark.parametrize("task", ["held", "held_in_a_thread"])
def test_a_second_ctrl_c_gives_everything_back_at_once(
    place: Place, task: str, loop: str
) -> None:
    """KeyboardInterrupt goes through the loop; every task of it is cancelled."""
    ids = place.enqueue(task, *[()] * JOBS)
    process = host(place, loop)
    place.wait_for("start", JOBS)
    process.send(signal.SIGINT)
    wait_until(lambda: process.events("worker.stopping"), SECONDS, "it drains")
    process.send(signal.SIGINT)
    process.ended()
    rows = place.rows()
    assert {rows[job].state for job in ids} == {READY}
    assert place.select("select count(*) from worker") == [(0,)]
    place.open_gate()
    place.worker()
    check_uncharged(place, ids, again=process)


@pytest.mark.proves("M103")
def test_a_blocked_loop_never_ends_its_host(place: Place) -> None:
    """The guilty attempt times out, its neighbours go back, and the program lives on."""
    neighbours = place.enqueue("held", *[()] * JOBS)
    process = host(place)
    place.wait_for("start", JOBS)
    (guilty,) = place.enqueue("block_until_open", ())
    wait_until(lambda: process.events("worker.stuck"), SECONDS, "it is told")
    wait_until(lambda: place.rows()[guilty].retried == 1, SECONDS, "it is charged")
    other = place.worker("-q", "default")
    wait_until(
        lambda: place.ledger.jobs("start", pid=other.pid) == set(neighbours),
        SECONDS,
        "the neighbours run elsewhere meanwhile",
    )
    (told,) = process.events("worker.stuck")  # once, however long it lasts
    assert "block_until_open" in told["stack"]
    assert process.exit_code is None
    place.open_gate()
    rows = place.check_all_done([guilty, *neighbours], SECONDS, killed=(process,))
    assert [error["type"] for error in rows[guilty].errors] == ["HardTimeLimit"]
    assert {(rows[job].retried, rows[job].losses) for job in neighbours} == {(0, 0)}
    # The same program serves on, under a new name.
    other.send(signal.SIGTERM)
    assert other.ended() == 0
    (more,) = place.enqueue("nothing", ())
    wait_until(lambda: place.rows()[more].state == DONE, SECONDS, "one more job")
    process.send(signal.SIGTERM)
    assert process.ended() == 0


def test_a_dead_host_is_a_dead_worker(place: Place) -> None:
    ids = place.enqueue("held", *[()] * JOBS)
    victim = host(place)
    place.wait_for("start", JOBS)
    host(place, "uvloop")
    victim.kill()
    place.open_gate()
    rows = place.check_all_done(ids, 15, killed=(victim,))
    assert {row.losses for row in rows.values()} == {1}


SCRIPT = """
import asyncio, json, os, sys
from durio import App

app = App(name="e2e", settings={"worker": {"children": 1}})

@app.task(process=True)
def work() -> int:
    return os.getpid()

@app.task(process=True, retry=0)
def crash() -> None:
    os._exit(9)

@app.task(retry=0)
async def leave() -> None:
    sys.exit(3)

@app.task(retry=0)
async def interrupt() -> None:
    raise KeyboardInterrupt

async def main() -> dict[str, str | None]:
    async with app.worker() as worker:
        assert await (await work.enqueue()).result(timeout=60) != os.getpid()
        jobs = [await task.enqueue() for task in (crash, leave, interrupt)]
        await worker.drained(timeout=60)
        told = [await job.status() for job in jobs]
    return {status.task: status.reason for status in told}

if __name__ == "__main__":
    for _ in range(2):  # a program may begin anew
        print(json.dumps(asyncio.run(main())))
"""


def test_no_task_ends_the_script_it_runs_in(place: Place) -> None:
    """Also when its process, or the interpreter, is asked to end; children included."""
    script = place.run_script(SCRIPT)
    assert script.ended(120) == 0, script.log
    lines = [line for line in script.log.splitlines() if line[:1] == "{"]
    ends = {
        "e2e.crash": "worker_lost",
        "e2e.leave": "exhausted",
        "e2e.interrupt": "exhausted",
    }
    assert [json.loads(line) for line in lines] == [ends, ends], script.log
