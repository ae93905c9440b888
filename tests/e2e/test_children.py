"""Tasks in child processes: stopped whatever they do, reused, and gone with their worker."""

import asyncio
import os
import signal

import pytest

from durio import App
from durio.model.job import CANCELLED, DEAD, DONE, READY, RUNNING
from tests.e2e import child_jobs
from tests.e2e.child_jobs import is_alive
from tests.e2e.child_place import ChildPlace
from tests.e2e.workers import START_SECONDS, Row, now_ns, wait_until

AGAIN_SECONDS = 2.0  # from the death of a child to the next start of its job

# --- time limits


@pytest.mark.proves("M103", "M107")
@pytest.mark.parametrize("task", ["spin", "spin_on_its_loop", "hold_the_interpreter"])
def test_an_endless_loop_is_gone_at_the_hard_limit(
    child_place: ChildPlace, task: str
) -> None:
    place = child_place
    worker = place.worker(children=2)
    (endless,) = place.enqueue(task, ())
    neighbours = place.enqueue("work", *[(0.01,)] * 5) + place.enqueue("nap", (0.01,))
    rows = place.wait_final([endless, *neighbours], START_SECONDS)
    assert rows[endless].state == DEAD
    assert rows[endless].reason == "exhausted"
    assert [error["type"] for error in rows[endless].errors] == ["HardTimeLimit"]
    place.wait_gone(place.pids_of([endless]))
    assert {rows[job].state for job in neighbours} == {DONE}
    assert {charges(rows[job]) for job in neighbours} == {(0, 0)}
    # Another child has taken its place.
    (again,) = place.enqueue("work", (0.01,))
    assert place.wait_final([again], START_SECONDS)[again].state == DONE
    assert worker.exit_code is None


@pytest.mark.proves("M103", "M108")
@pytest.mark.parametrize("task", ["tidy_async", "tidy_sync"])
def test_the_soft_limit_is_raised_inside_and_leaves_time(
    child_place: ChildPlace, task: str
) -> None:
    child_place.worker(children=1)
    (job,) = child_place.enqueue(task, ())
    row = child_place.wait_final([job], START_SECONDS)[job]
    assert (row.state, row.result) == (DONE, "tidied")


@pytest.mark.proves("M103")
def test_what_a_task_started_goes_with_its_child(child_place: ChildPlace) -> None:
    child_place.worker(children=1)
    (job,) = child_place.enqueue("with_helpers", ())
    row = child_place.wait_final([job], START_SECONDS)[job]
    assert (row.state, row.errors[0]["type"]) == (DEAD, "HardTimeLimit")
    child_place.wait_gone(child_place.pids_of([job]) | child_place.helpers())
    assert len(child_place.helpers()) == 2


def test_limits_count_from_the_moment_a_child_has_the_job(
    child_place: ChildPlace,
) -> None:
    """One child, twenty jobs in line: together far over the limit of each."""
    child_place.worker(children=1)
    ids = enqueue_with(child_place, "work", 0.1, timeout=(0.8, 1.0), jobs=20)
    rows = child_place.wait_final(ids, START_SECONDS)
    assert {rows[job].state for job in ids} == {DONE}
    assert {charges(rows[job]) for job in ids} == {(0, 0)}


# --- cancels


@pytest.mark.parametrize("task", ["hear_cancel", "see_cancel"])
def test_a_cancel_reaches_the_task(child_place: ChildPlace, task: str) -> None:
    child_place.worker(children=1)
    (job,) = child_place.enqueue(task, ())
    child_place.wait_for("start", 1)
    cancel(child_place, job)
    row = child_place.wait_final([job], START_SECONDS)[job]
    assert (row.state, row.losses) == (CANCELLED, 0)
    assert child_place.ledger.jobs("heard") == {job}
    # It ended by itself, so its child serves on.
    (again,) = child_place.enqueue("where", ())
    pid = child_place.wait_final([again], START_SECONDS)[again].result[0]
    assert {pid} == child_place.pids_of([job])
    wait_until(
        lambda: child_place.ledger.jobs("cancelled") == {job}, 30, "the hook is told"
    )


def test_a_child_that_ignores_everything_is_killed(child_place: ChildPlace) -> None:
    child_place.worker(children=1)
    (job,) = child_place.enqueue("deaf", ())
    child_place.wait_for("start", 1)
    (pid,) = child_place.pids_of([job])
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(pid, each)
    cancel(child_place, job)
    row = child_place.wait_final([job], START_SECONDS)[job]
    assert (row.state, row.losses, row.errors) == (CANCELLED, 0, None)
    child_place.wait_gone({pid})


def test_a_job_in_line_is_cancelled_at_once(child_place: ChildPlace) -> None:
    child_place.worker(children=1)
    (first,) = child_place.enqueue("held_child", ())
    child_place.wait_for("start", 1)
    (second,) = child_place.enqueue("held_child", ())
    wait_until(
        lambda: child_place.rows()[second].state == RUNNING, 30, "the second is claimed"
    )
    cancel(child_place, second)
    assert child_place.wait_final([second], START_SECONDS)[second].state == CANCELLED
    assert child_place.ledger.jobs("start") == {first}
    child_place.open_gate()
    assert child_place.wait_final([first], START_SECONDS)[first].state == DONE


# --- the end of a worker


@pytest.mark.parametrize("task", ["held_child", "hold_on"])
def test_a_killed_worker_leaves_no_child_behind(
    child_place: ChildPlace, task: str
) -> None:
    """Also when C code holds the child's interpreter, and with what a task started."""
    worker = child_place.worker(children=2)
    (job,) = child_place.enqueue(task, ())
    child_place.wait_for("start", 1)
    wait_until(lambda: len(child_place.child_pids(worker)) == 2, 30, "both are ready")
    pids = child_place.child_pids(worker) | child_place.helpers()
    assert child_place.pids_of([job]) <= pids
    assert all(map(is_alive, pids))
    began = now_ns()
    worker.kill()
    child_place.wait_gone(pids)
    print(f"gone {(now_ns() - began) / 1e9:.3f} s after the kill")


def test_a_stop_gives_back_what_does_not_end(child_place: ChildPlace) -> None:
    """Running and in line: uncharged, and no process stays."""
    worker = child_place.worker("--grace", "0.5", children=1)
    ids = child_place.enqueue("deaf", (), ())
    child_place.wait_for("start", 1)
    pids = child_place.child_pids(worker)
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    child_place.wait_gone(pids)
    rows = child_place.rows()
    assert {rows[job].state for job in ids} == {READY}
    assert {(rows[job].losses, rows[job].retried) for job in ids} == {(0, 0)}


def test_a_stop_lets_a_child_finish(child_place: ChildPlace) -> None:
    """What a service manager sends to all processes does not hurt it either."""
    worker = child_place.worker(children=1)
    running, waiting = child_place.enqueue("held_child", (), ())
    child_place.wait_for("start", 1)
    (pid,) = child_place.child_pids(worker)
    worker.send(signal.SIGTERM)
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: child_place.rows()[waiting].state == READY, 30, "it goes back")
    child_place.open_gate()
    assert worker.ended() == 0
    rows = child_place.rows()
    assert (rows[running].state, rows[running].result) == (DONE, pid)
    assert charges(rows[waiting]) == (0, 0)
    left = [line for line in child_place.ledger.of("deps") if line.job == "left"]
    assert pid in {line.pid for line in left}, "the child left its dependencies"


def test_a_fenced_worker_kills_its_children(child_place: ChildPlace) -> None:
    child_place.look_like_several_hosts()
    first = child_place.worker(children=1)
    (job,) = child_place.enqueue("held_child", ())
    child_place.wait_for("start", 1)
    (pid,) = child_place.pids_of([job])
    with child_place.writer_lock():  # so it is not inside a transaction
        first.stop()
    child_place.worker(children=1)
    child_place.wait_for_attempt(2, 1)
    first.go_on()
    child_place.wait_gone({pid})
    child_place.open_gate()
    row = child_place.wait_final([job], START_SECONDS)[job]
    assert (row.state, row.losses) == (DONE, 1)
    assert row.result != pid


# --- the pool


def test_the_job_of_a_killed_child_runs_again_at_once(child_place: ChildPlace) -> None:
    """By hand, as the kernel does it when memory is short."""
    worker = child_place.worker(children=1)
    (job,) = child_place.enqueue("held_child", ())
    child_place.wait_for("start", 1)
    (pid,) = child_place.pids_of([job])
    began = now_ns()
    os.kill(pid, signal.SIGKILL)
    child_place.wait_for_attempt(2, 1)
    seconds = (child_place.ledger.of("start")[-1].mono_ns - began) / 1e9
    print(f"ran again {seconds:.3f} s after its child was killed")
    assert seconds < 3 * AGAIN_SECONDS
    child_place.open_gate()
    row = child_place.wait_final([job], START_SECONDS)[job]
    assert (row.state, row.losses, row.retried) == (DONE, 1, 0)
    assert [told["how"] for told in worker.events("child.died")] == [
        "killed by SIGKILL: perhaps out of memory"
    ]


def test_children_are_reused(child_place: ChildPlace) -> None:
    worker = child_place.worker(children=2)
    ids = child_place.enqueue("where", *[()] * 200)
    rows = child_place.wait_final(ids, START_SECONDS)
    wheres = [rows[job].result for job in ids]
    pids = {pid for pid, _, _ in wheres}
    assert len(pids) == 2
    assert pids == child_place.child_pids(worker)
    # A group of its own: Ctrl-C in the terminal is the worker's business.
    assert {group for _, group, _ in wheres} == pids
    assert {parent for _, _, parent in wheres} == {worker.pid}


@pytest.mark.proves("L10")
def test_a_child_is_replaced_after_its_share_of_jobs(child_place: ChildPlace) -> None:
    child_place.worker(children=2, child_jobs=5)
    ids = child_place.enqueue("where", *[()] * 30)
    rows = child_place.wait_final(ids, START_SECONDS)
    pids = [rows[job].result[0] for job in ids]
    shares = {pid: pids.count(pid) for pid in pids}
    assert len(shares) >= 6
    assert max(shares.values()) <= 5
    assert {charges(rows[job]) for job in ids} == {(0, 0)}


def test_a_child_is_replaced_above_its_share_of_memory(child_place: ChildPlace) -> None:
    child_place.worker(children=1, child_rss_bytes=150 << 20)
    ids = child_place.enqueue("swell", *[(64,)] * 6)
    rows = child_place.wait_final(ids, START_SECONDS)
    pids = [rows[job].result for job in ids]
    assert {rows[job].state for job in ids} == {DONE}
    assert max(pids.count(pid) for pid in pids) <= 2
    child_place.wait_gone(set(pids[:2]))


def test_dependencies_are_entered_once_in_every_child(child_place: ChildPlace) -> None:
    worker = child_place.worker(children=2)
    ids = child_place.enqueue("work", *[(0.01,)] * 20)
    rows = child_place.wait_final(ids, START_SECONDS)
    desks = {rows[job].result for job in ids}
    assert desks <= {f"desk of {pid}" for pid in child_place.child_pids(worker)}
    entered = [line.pid for line in child_place.ledger.of("deps")]
    assert len(entered) == len(set(entered))


def test_a_task_in_a_child_may_enqueue(child_place: ChildPlace) -> None:
    child_place.worker(children=1)
    (job,) = child_place.enqueue("ask_for_more", (1,))
    more = child_place.wait_final([job], START_SECONDS)[job].result
    assert child_place.wait_final(more, START_SECONDS)[more[0]].state == DONE


@pytest.mark.proves("M72")
def test_answers_of_http_are_judged_in_the_child(child_place: ChildPlace) -> None:
    child_place.worker(children=1)
    missing, busy = child_place.enqueue("call", (404,), (429,))
    rows = child_place.wait_final([missing, busy], START_SECONDS)
    assert (rows[missing].state, rows[missing].reason) == (DEAD, "permanent")
    (error,) = rows[missing].errors
    assert error["decision"] == "dead at once: HTTP 404"
    assert (rows[busy].state, rows[busy].result) == (DONE, "done")
    assert charges(rows[busy]) == (0, 0)
    (error,) = rows[busy].errors
    assert error["decision"] == "snoozed for 1 s: HTTP 429 with Retry-After"


def test_progress_is_stored_on_the_way(child_place: ChildPlace) -> None:
    child_place.worker(children=1)
    (job,) = child_place.enqueue("held_child", ())
    told = wait_until(
        lambda: child_place.rows()[job].progress, 30, "progress is stored"
    )
    assert told == {"done": 3, "total": 7, "message": "on the way", "state": None}


def test_logs_come_out_of_the_worker_with_their_job(child_place: ChildPlace) -> None:
    worker = child_place.worker(children=1)
    (job,) = child_place.enqueue("tell", (60,))
    row = child_place.wait_final([job], START_SECONDS)[job]
    told = [line for line in worker.records() if line.get("logger") == "shop"]
    assert [line["message"] for line in told[:60]] == [f"line {n}" for n in range(60)]
    assert {line["job_id"] for line in told} == {job}
    assert {line["task"] for line in told} == {"e2e.tell"}
    assert {line["shelf"] for line in told[:60]} == {7}
    assert "KeyError: 'shelf'" in told[60]["traceback"]
    (error,) = row.errors
    assert (error["type"], error["message"]) == ("ValueError", "told everything")
    assert error["logs"][-2:] == ["INFO line 59", "ERROR no such shelf"]
    assert len(error["logs"]) == 50


# --- programs without a command line

SCRIPT = """
import asyncio, os
from durio import App, Context

app = App()

@app.task(process=True)
def where(ctx: Context) -> list[int]:
    print("in", __name__)
    return [os.getpid(), os.getppid()]

async def main() -> None:
    async with app, app.worker():
        job = await where.enqueue()
        child, parent = await job.result(timeout=60)
        assert parent == os.getpid() != child
        print("ran in a child")

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_a_script_finds_its_own_tasks_again(child_place: ChildPlace) -> None:
    script = child_place.run_script(SCRIPT)
    assert script.ended() == 0, script.log
    assert "ran in a child" in script.log
    assert "in __durio_main__" in script.log


def test_a_script_without_a_guard_is_told_so(child_place: ChildPlace) -> None:
    """Its children must not enqueue and work as it does."""
    bare = SCRIPT.replace('if __name__ == "__main__":', "if True:")
    script = child_place.run_script(bare)
    assert script.ended() == 1, script.log
    assert 'Move that code below: if __name__ == "__main__":' in script.log
    assert child_place.rows() == {}


def test_a_child_that_cannot_load_the_app_ends_the_worker(
    child_place: ChildPlace,
) -> None:
    """The user's own traceback, and the exit code of a failed import."""
    (child_place.folder / "broken.py").write_text(
        "import sys\nfrom durio import App\n"
        "app = App()\n"
        "@app.task(process=True)\n"
        "def work() -> None: ...\n"
        "if 'durio.app.child' in sys.orig_argv:\n"
        "    raise RuntimeError('not in here')\n"
    )
    worker = child_place.run_in_folder("durio", "worker", "broken:app")
    assert worker.ended() == 4
    assert "RuntimeError: not in here" in worker.log
    assert "broken.py" in worker.log
    assert "durio/app/child.py" not in worker.log
    assert "worker.started" not in worker.log


def test_a_child_runs_jobs_that_are_stored_under_an_old_name(
    child_place: ChildPlace,
) -> None:
    """The code that stored it had another name for the task."""
    old = App(child_place.url, name=child_jobs.app.name)
    before = old.task(name="work_before")(work_before)
    job = before.enqueue_sync(0.01).id
    old.run_sync(old.close())
    child_place.worker(children=1)
    assert child_place.wait_final([job], START_SECONDS)[job].state == DONE
    assert child_place.pids_of([job])


def work_before(seconds: float) -> str: ...


def charges(row: Row) -> tuple[int, int]:
    """Retries and losses: (0, 0) is a job that simply ran."""
    return row.retried, row.losses


def cancel(place: ChildPlace, job: str) -> None:
    async def ask() -> None:
        async with place.app() as app:
            await (await app.job(job)).cancel()

    asyncio.run(ask())


def enqueue_with(
    place: ChildPlace, task: str, *args: object, jobs: int, **options: object
) -> list[str]:
    """Jobs of one task with options of their own."""

    async def ask() -> list[str]:
        async with place.app():
            configured = getattr(child_jobs, task).options(**options)
            made = await configured.enqueue_many([args] * jobs)
            return [job.id for job in made]

    return asyncio.run(ask())
