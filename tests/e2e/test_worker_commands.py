"""Workers that are asked through the store: stacks, reports, drains; and `durio tail`."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from durio.model.job import DONE
from tests.e2e.child_place import ChildPlace
from tests.e2e.workers import ROOT, Place, Process, wait_until

# Twice the heartbeat of these workers, three times over.
ANSWER_SECONDS = 30.0
QUICK = {"heartbeat_seconds": 1}


def ask(place: Place, *args: str, code: int = 0) -> dict[str, Any]:
    """One command to its end; its JSON answer."""
    command = place.run("durio", *args, "--store", place.url, "--json")
    assert command.ended(ANSWER_SECONDS) == code, command.log
    return json.loads(command.log.splitlines()[-1])


def answer(place: Place, *args: str) -> dict[str, Any]:
    (worker,) = ask(place, "workers", *args)["workers"]
    assert worker["ok"], worker
    return worker["answer"]


def listener_files(place: Place) -> list[Path]:
    return list(Path(f"{place.path}-durio").glob("*.ear"))


def begin_tail(place: Place, *args: str) -> Process:
    tail = place.run("durio", "tail", "--store", place.url, *args)
    wait_until(lambda: listener_files(place), ANSWER_SECONDS, "somebody listens")
    return tail


def test_stack_of_a_worker_whose_loop_is_blocked(place: Place) -> None:
    place.worker(**QUICK)
    place.enqueue("block", (25.0,))
    place.wait_for("start", 1)
    told = answer(place, "stack")
    assert told["loop_lag_seconds"] is None
    (attempt,) = told["attempts"]
    assert attempt["task"] == "e2e.block"
    assert attempt["where"] == "loop"
    assert "time.sleep(seconds)" in attempt["stack"]
    assert "/durio/worker/" not in attempt["stack"]
    assert attempt["stack"].endswith(" frames of asyncio and Durio)\n")
    assert any(thread["name"] == "durio-aside" for thread in told["threads"])


@pytest.mark.proves("L35")
def test_report_and_drain(place: Place) -> None:
    worker = place.worker(**QUICK)
    (job,) = place.enqueue("held", ())
    place.wait_for("start", 1)
    (listed,) = wait_until(
        lambda: [
            row
            for row in ask(place, "workers", "ls")["workers"]
            if row["rss_bytes"] is not None
        ],
        ANSWER_SECONDS,
        "the worker has told how it is",
    )
    assert (listed["pid"], listed["running"]) == (worker.pid, 1)
    assert listed["rss_bytes"] > 2**20
    report = answer(place, "show", listed["name"])
    (active,) = report["active"]
    assert (active["job_id"], active["task"]) == (job, "e2e.held")
    assert active["progress"]["message"] == str(worker.pid)
    assert "e2e.nap" in report["registered"]
    told = answer(place, "drain", str(listed["id"]))
    assert (told["draining"], told["running"]) == (True, 1)
    place.open_gate()
    assert worker.ended() == 0
    assert place.rows()[job].state == DONE
    assert ask(place, "workers", "ls")["workers"] == []


def test_the_first_signal_after_a_drain_keeps_the_grace(place: Place) -> None:
    worker = place.worker(**QUICK)
    (job,) = place.enqueue("held", ())
    place.wait_for("start", 1)
    told = answer(place, "drain", "--all", "--yes")
    worker.send(signal.SIGTERM)
    # Its loop has turned since the signal when it has answered.
    report = answer(place, "show", told["name"])
    assert [active["job_id"] for active in report["active"]] == [job]
    place.open_gate()
    assert worker.ended() == 0
    assert place.rows()[job].state == DONE


def test_stack_of_a_child(child_place: ChildPlace) -> None:
    child_place.worker(**QUICK, children=1)
    child_place.enqueue("held_child", ())
    child_place.wait_for("start", 1)
    told = answer(child_place, "stack")
    (attempt,) = told["attempts"]
    assert attempt["where"] == "child"
    assert any("child_jobs.py" in child["stack"] for child in told["children"])


def test_a_worker_that_stands_still_does_not_answer(place: Place) -> None:
    worker = place.worker(**QUICK)
    with place.writer_lock():  # so it is not inside a transaction, in everybody's way
        worker.stop()
    told = ask(place, "workers", "stack", "--timeout", "0.5", code=7)
    (stopped,) = told["workers"]
    assert (stopped["ok"], stopped["name"].endswith(f"/{worker.pid}")) == (False, True)
    worker.go_on()
    assert answer(place, "stack")["worker"] == stopped["id"]


def test_tail_hears_every_process(place: Place) -> None:
    """Both workers, also what they do not log, and the program that enqueues."""
    first, second = place.worker(), place.worker()
    tail = begin_tail(place, "--json", "--event", "job.*")

    told = {"job.enqueued", "job.started", "job.done"}

    def has_heard_all() -> bool:
        place.enqueue_many("nothing", 20)
        events = tail.records()
        names = {event.get("process", "").rpartition("/")[2] for event in events}
        both = {str(first.pid), str(second.pid)} <= names
        return both and told <= {event["event"] for event in events}

    wait_until(has_heard_all, ANSWER_SECONDS, "both workers are heard")
    kinds = {event["event"] for event in tail.records()}
    assert not first.events("job.started")
    assert kinds <= told | {"live.missed"}
    assert {event["task"] for event in tail.records() if "task" in event} == {
        "e2e.nothing"
    }


def test_tail_ends_well_with_an_interrupt(place: Place) -> None:
    place.enqueue("nothing", ())
    tail = begin_tail(place)
    tail.send(signal.SIGINT)
    assert tail.ended() == 0
    assert "Traceback" not in tail.log
    assert not listener_files(place)


def test_full_disk_under_the_output_is_told_in_one_line(place: Place) -> None:
    place.enqueue("nothing", ())
    for args in (["jobs", "ls"], ["jobs", "ls", "--json"], ["--help"]):
        with Path("/dev/full").open("wb") as full:
            ended = subprocess.run(
                [sys.executable, "-m", "durio", *args],
                cwd=ROOT,
                env=place.environ({}),
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                timeout=60,
            )
        assert ended.returncode == 1
        assert ended.stderr.startswith("error: standard output cannot be written"), args
        assert "output_failed" in ended.stderr
        assert "Traceback" not in ended.stderr
