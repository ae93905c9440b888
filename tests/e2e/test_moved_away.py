"""Whoever wakes up on a file whose jobs have moved hears where they went, and ends."""

import json
import os
import signal

import pytest

from tests.conformance.postgres import ScratchSchema
from tests.e2e.workers import Place, Process, is_stopped, wait_until

LATE_SECONDS = 40.0
EXIT_STORE = 3


@pytest.fixture
def target(grounds: ScratchSchema) -> str:
    return grounds.url


def moved(place: Place, target: str) -> None:
    move = place.run("durio", "move", place.url, target, "--yes", "--json")
    assert move.ended(LATE_SECONDS) == 0, move.log


def log_of_moved_exit(process: Process) -> str:
    """The last words of a process that has ended for this reason."""
    assert process.ended(LATE_SECONDS) == EXIT_STORE, process.log
    assert "its jobs are moving, or have moved, to postgresql://" in process.log
    assert "DURIO_URL=postgresql://" in process.log, "and what to do"
    return process.log


def test_a_worker_that_slept_over_a_move_ends(place: Place, target: str) -> None:
    """Its lease is over, its jobs are others', and there is none to be had here."""
    place.look_like_several_hosts()
    place.enqueue("held", ())
    worker = place.worker()
    place.wait_for("start", 1)
    with place.writer_lock():
        worker.stop()
    moved(place, target)
    worker.go_on()
    assert "[store_moved]" in log_of_moved_exit(worker)
    assert worker.events("worker.fenced")
    assert not worker.events("store.failed"), "it did not ask a second time"


def test_a_worker_that_wakes_up_to_due_jobs_ends(place: Place, target: str) -> None:
    """The first thing that it tries to write is a job that has become due meanwhile."""
    place.look_like_several_hosts()
    later = ("enqueue", "nothing", "--delay", "1s", "--name", "e2e")
    assert place.run("durio", *later).ended() == 0
    worker = place.worker()
    with place.writer_lock():
        worker.stop()
    moved(place, target)
    worker.go_on()
    assert "[store_moved]" in log_of_moved_exit(worker)


def test_a_supervisor_whose_workers_slept_over_it_ends(
    place: Place, target: str
) -> None:
    place.look_like_several_hosts()
    workers = place.begin_worker("--processes", "2")
    wait_until(
        lambda: len(workers.events("worker.started")) == 2, LATE_SECONDS, "two workers"
    )
    members = workers.children()
    workers.stop()  # first: one that hears nothing of its workers kills them
    with place.writer_lock():
        for pid in members:
            os.kill(pid, signal.SIGSTOP)
            wait_until(lambda pid=pid: is_stopped(pid), LATE_SECONDS, "it stands still")
    moved(place, target)
    for pid in members:
        os.kill(pid, signal.SIGCONT)
    workers.go_on()
    assert "[store_moved]" in log_of_moved_exit(workers)
    assert len(workers.events("process.started")) == 2, "nobody was started again"


def test_whoever_waits_for_a_job_is_told_when_it_has_moved(
    place: Place, target: str
) -> None:
    place.enqueue("nothing", ())
    asked = ("durio", "enqueue", "nothing", "--wait", "--name", "e2e", "--json")
    waiter = place.run(*asked)
    wait_until(lambda: len(place.rows()) == 2, LATE_SECONDS, "it waits")
    moved(place, target)
    error = json.loads(log_of_moved_exit(waiter).splitlines()[-1])["error"]
    assert error["code"] == "store_moved"


@pytest.mark.parametrize("processes", [(), ("--processes", "2")])
def test_a_worker_that_comes_too_late_is_told(
    place: Place, target: str, processes: tuple[str, ...]
) -> None:
    place.enqueue("nothing", ())
    moved(place, target)
    late = place.begin_worker(*processes)
    assert "[store_moved]" in log_of_moved_exit(late)


def test_a_command_that_would_change_it_is_told(place: Place, target: str) -> None:
    place.enqueue("nothing", ())
    moved(place, target)
    asked = [
        place.run("durio", *words, "--name", "e2e", "--json")
        for words in (
            ("enqueue", "nothing"),
            ("queues", "pause", "default"),
            ("queues", "purge", "default", "--yes"),
            ("queues", "drain", "default"),
        )
    ]
    for command in asked:
        error = json.loads(log_of_moved_exit(command).splitlines()[-1])["error"]
        assert error["code"] == "store_moved"
        assert "Use that store" in error["cure"]
