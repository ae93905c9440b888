"""Hands on queues and dead letters while real workers run: `durio queues`, `durio dead`."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from durio.model.job import CANCELLED, DEAD, DONE, READY, RUNNING
from tests.e2e.workers import ROOT, START_SECONDS, Place, Process, now_ns, wait_until

SECONDS = 30.0
PROMISED_SECONDS = 1.0  # until a change has reached every worker
SLOTS = 8
NAME = ("--name", "e2e")
Durio = Callable[..., Any]


@pytest.fixture
def durio(place: Place) -> Durio:
    """Run a command to its end; its JSON."""

    def run(*args: str, code: int = 0) -> Any:
        ran = subprocess.run(
            [sys.executable, "-m", "durio", *args, *NAME, "--json"],
            cwd=ROOT,
            env=place.environ({}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
        assert ran.returncode == code, ran.stdout + ran.stderr
        return json.loads(ran.stdout)

    return run


def queue_row(durio: Durio) -> dict[str, Any]:
    (row,) = durio("queues", "ls")["queues"]
    return row


def test_pause_reaches_what_a_worker_holds_ahead(place: Place, durio: Durio) -> None:
    """After short jobs it holds many ahead; the slow ones among them must not start."""
    place.worker(concurrency=SLOTS)
    short = place.enqueue_many("nothing", 1500)
    slow = place.enqueue("nap", *[(0.8,)] * 40)

    def held_ahead() -> set[str]:
        running = {job for job, row in place.rows().items() if row.state == RUNNING}
        return running & set(slow) - place.ledger.jobs("start")

    ahead = wait_until(held_ahead, SECONDS, "slow jobs are held ahead")
    (paused,) = durio("queues", "pause", "default")["queues"]
    began = now_ns()
    assert (paused["paused"], paused["workers"]) == (True, 1)
    late_ns = began + int(3 * PROMISED_SECONDS * 1e9)
    # What has not started is given back, and is nobody's.
    wait_until(lambda: not place.count(RUNNING), SECONDS, "all is given back")
    wait_until(lambda: now_ns() > late_ns, SECONDS, "three times the promise is over")
    after = [line.mono_ns for line in place.ledger.of("start") if line.mono_ns > began]
    seen = (max(after, default=began) - began) / 1e9
    returned = ahead - place.ledger.jobs("start")
    print(
        f"{len(ahead)} held ahead, {len(returned)} given back; {len(after)} starts "
        f"after the pause, the last {seen:.3f} s after it"
    )
    assert max(after, default=began) <= late_ns
    assert returned, "all that was held ahead has started all the same"
    rows = place.rows()
    assert {rows[job].state for job in returned} == {READY}

    durio("queues", "resume", "default")
    rows = place.check_all_done(short + slow, SECONDS)
    assert {(row.retried, row.losses) for row in rows.values()} == {(0, 0)}


def test_drain_waits_for_the_last_job_and_stays_closed(
    place: Place, durio: Durio
) -> None:
    place.worker(concurrency=2)
    ids = place.enqueue("held", *[()] * 3)
    place.wait_for("start", 2)
    drain = place.run("durio", "queues", "drain", "default", *NAME)
    wait_until(lambda: "draining: " in drain.log, SECONDS, "it tells how far it is")
    assert queue_row(durio)["closed"] is True
    error = durio("enqueue", "held", code=75)["error"]
    assert error["code"] == "queue_closed"
    assert drain.exit_code is None, "jobs still run"
    place.open_gate()
    assert drain.ended() == 0, drain.log
    assert "default is empty and stays closed; durio queues resume default" in drain.log
    assert {row.state for row in place.rows().values()} == {DONE}
    durio("queues", "resume", "default")
    place.check_all_done(ids + place.enqueue("nap", (0.01,)), SECONDS)


def test_drain_that_is_interrupted_says_that_it_stays_closed(
    place: Place, durio: Durio
) -> None:
    place.enqueue("held", ())
    drain = place.run("durio", "queues", "drain", "default", *NAME)
    wait_until(lambda: "draining: " in drain.log, SECONDS, "it tells how far it is")
    drain.send(signal.SIGINT)
    assert drain.ended() == 130, drain.log
    told = "default stays closed; open it with: durio queues resume default"
    assert told in drain.log
    assert queue_row(durio)["closed"] is True


def test_purge_leaves_what_runs(place: Place, durio: Durio) -> None:
    place.worker(concurrency=2, prefetch=0)
    ids = place.enqueue("held", *[()] * 6)
    place.wait_for("start", 2)
    running = place.ledger.jobs("start")
    answer = durio("queues", "purge", "default", "--yes")
    assert answer["done"] == len(ids) - len(running)
    place.open_gate()
    rows = place.wait_final(ids, SECONDS)
    assert {job for job in ids if rows[job].state == DONE} == running
    assert sum(row.state == CANCELLED for row in rows.values()) == answer["done"]


# --- hooks of dead letters


def deaths(place: Place) -> list[tuple[str, int]]:
    return [(line.job, line.attempt) for line in place.ledger.of("dead")]


@pytest.mark.proves("M85")
def test_dead_hook_fires_once_for_each_death(place: Place, durio: Durio) -> None:
    place.worker()
    (job,) = place.enqueue("refused", ())
    wait_until(lambda: deaths(place) == [(job, 1)], SECONDS, "the hook is told")
    durio("dead", "retry", job, "--by", "ann")
    wait_until(lambda: len(deaths(place)) == 2, SECONDS, "the second death is told")
    place.wait_final([job], SECONDS)
    assert place.rows()[job].state == DEAD
    # A worker that comes later finds nothing to tell again.
    place.worker()
    marker = place.enqueue("nothing", *[()] * 20)
    place.wait_final(marker, SECONDS)
    assert len(deaths(place)) == 2
    (total,) = durio("dead", "totals")["jobs_dead_lettered_total"]
    assert total["value"] == 2


def test_dead_hook_fires_once_when_a_worker_is_killed_in_between(
    place: Place, durio: Durio
) -> None:
    """Dead, retried, killed while it runs again, dead by the rescue's worker."""
    first = place.worker()
    (job,) = place.enqueue("refused_late", ())
    place.wait_for("start", 1)
    place.open_gate(only=first)
    wait_until(lambda: len(deaths(place)) == 1, SECONDS, "the first death is told")
    first.kill()
    held = place.worker()
    durio("dead", "retry", job)
    wait_until(lambda: starts(place, job) == 2, SECONDS, "it runs again")
    held.kill()
    last = place.worker()
    wait_until(lambda: starts(place, job) == 3, SECONDS, "it is rescued")
    assert len(deaths(place)) == 1
    place.open_gate(only=last)
    wait_until(lambda: len(deaths(place)) == 2, SECONDS, "the second death is told")
    assert place.wait_final([job], SECONDS)[job].state == DEAD
    check_reported_once(place, last)
    assert [told for told, _ in deaths(place)].count(job) == 2


def starts(place: Place, job: str) -> int:
    return sum(line.job == job for line in place.ledger.of("start"))


def check_reported_once(place: Place, worker: Process) -> None:
    """Hooks run one after another: behind that of another death it would be there."""
    (other,) = place.enqueue("refused", ())
    told = lambda: place.ledger.jobs("dead", pid=worker.pid) >= {other}  # noqa: E731
    wait_until(told, SECONDS, "a later death is told")


@pytest.mark.proves("M85")
def test_bulk_retry_beside_a_worker_meets_each_letter_once(
    place: Place, durio: Durio
) -> None:
    """They die again while the bulk goes on: what died after the count is left alone."""
    place.worker()
    jobs = place.enqueue_many("refused", 1201)
    place.wait_final(jobs, SECONDS)
    answer = durio("dead", "retry", "--all", "--yes")
    assert answer == {
        "counted": 1201,
        "done": 1201,
        "held": 0,
        "alone": 0,
        "dry_run": False,
    }
    wait_until(lambda: len(deaths(place)) == 2 * len(jobs), SECONDS, "all died again")
    assert {len(lines) for lines in place.ledger.by_job("start").values()} == {2}
    assert {len(lines) for lines in place.ledger.by_job("dead").values()} == {2}
    assert place.count(DEAD) == len(jobs)


# --- at a terminal


@pytest.mark.parametrize(("answer", "is_done"), [(b"y\n", True), (b"n\n", False)])
def test_person_at_a_terminal_is_asked(
    place: Place, answer: bytes, *, is_done: bool
) -> None:
    place.worker()
    jobs = place.enqueue("refused", *[()] * 3)
    place.wait_final(jobs, SECONDS)
    mine, theirs = pty.openpty()
    command = subprocess.Popen(
        [sys.executable, "-m", "durio", "dead", "discard", "--all", *NAME],
        cwd=ROOT,
        env=place.environ({}),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    try:
        os.write(mine, answer)
        out, err = command.communicate(timeout=START_SECONDS)
    finally:
        command.kill()
        os.close(mine)
    assert b"3 dead letters will be deleted for good." in err
    assert command.returncode == (0 if is_done else 1)
    assert (b"nothing was changed" in err) is not is_done
    assert (out == b"3 dead letters deleted\n") is is_done
    assert len(place.rows()) == (0 if is_done else 3)
