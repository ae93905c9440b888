"""Signals, blocked loops and forks: how a worker ends, or does not."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from durio.model.job import DONE, READY, RUNNING
from tests.e2e.workers import Place, Process, now_ns, seeded, wait_until

SECONDS = 30.0
JOBS = 4
CUT_SHORT = 143


@pytest.mark.proves("M118")
def test_sigterm_drains(place: Place) -> None:
    ids = place.enqueue("held", *[()] * JOBS)
    worker = place.worker(concurrency=2)
    place.wait_for("start", 2)
    worker.send(signal.SIGTERM)
    wait_until(lambda: worker.events("worker.stopping"), SECONDS, "it drains")
    place.open_gate()
    assert worker.ended() == 0
    rows = place.rows()
    started = place.ledger.jobs("start")
    assert {rows[job].state for job in started} == {DONE}
    assert {rows[job].state for job in set(ids) - started} == {READY}
    place.worker()
    check_uncharged(place, ids)


@pytest.mark.proves("M118")
@pytest.mark.parametrize("task", ["held", "held_in_a_thread", "held_and_deaf"])
@pytest.mark.parametrize("how", ["grace is over", "second signal"])
def test_sigterm_gives_back_what_still_runs(place: Place, task: str, how: str) -> None:
    ids = place.enqueue(task, *[()] * JOBS)
    grace = 0.2 if how == "grace is over" else 60
    worker = place.worker(concurrency=2, grace_seconds=grace)
    place.wait_for("start", 2)
    worker.send(signal.SIGTERM)
    if how == "second signal":
        wait_until(lambda: worker.events("worker.stopping"), SECONDS, "it drains")
        worker.send(signal.SIGTERM)
    assert worker.ended() == CUT_SHORT
    assert {row.state for row in place.rows().values()} == {READY}
    assert not place.ledger.of("effect")
    place.open_gate()
    place.worker()
    check_uncharged(place, ids, again=(worker,))


@pytest.mark.proves("M118")
def test_sigint_drains_too(place: Place) -> None:
    ids = place.enqueue("held", *[()] * JOBS)
    worker = place.worker()
    place.wait_for("start", JOBS)
    worker.send(signal.SIGINT)
    place.open_gate()
    assert worker.ended() == 0
    check_uncharged(place, ids)


PHASES: dict[str, Callable[[Place, Process], object]] = {
    "at once": lambda _place, _worker: True,
    "driver loaded": lambda _place, worker: "apsw" in worker.maps(),
    "registered": lambda place, _worker: place.select("select id from worker"),
    "claimed": lambda place, _worker: place.count(RUNNING) or place.count(DONE),
    "in the middle of jobs": lambda place, _worker: place.ledger.of("start"),
    "in the middle of finishes": lambda place, _worker: place.ledger.of("effect"),
}


@pytest.mark.proves("M118")
@pytest.mark.parametrize("signals", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize("phase", PHASES)
def test_sigterm_at_every_phase(place: Place, phase: str, signals: int) -> None:
    """Whenever it comes: it ends, and nothing is lost or charged."""
    ids = place.enqueue("nap", *[(0.05,)] * (10 * JOBS))
    worker = place.begin_worker(concurrency=JOBS)
    wait_until(lambda: PHASES[phase](place, worker), SECONDS, phase)
    worker.send(signal.SIGTERM)
    if signals > 1:
        # Two at the same moment are one to the kernel: again, until it is gone.
        wait_until(lambda: insist(worker), SECONDS, "it ends")
    # Before it has a handler, and anything to lose, a signal is simply fatal.
    early = {-signal.SIGTERM} if phase in {"at once", "driver loaded"} else set()
    cut_short = {CUT_SHORT} if signals > 1 else set()
    assert worker.ended() in {0} | early | cut_short, worker.log
    assert not place.count(RUNNING)
    place.worker()
    check_uncharged(place, ids, again=(worker,) if signals > 1 else ())


def insist(process: Process) -> bool:
    """Send one more signal, unless it has ended."""
    if process.exit_code is None:
        process.send(signal.SIGTERM)
    return process.exit_code is not None


@pytest.mark.proves("M118")
def test_sighup_drains_a_worker_without_a_supervisor(place: Place) -> None:
    """Somebody closed the terminal, or thinks that there is a supervisor."""
    ids = place.enqueue("held", *[()] * JOBS)
    worker = place.worker()
    place.wait_for("start", JOBS)
    worker.send(signal.SIGHUP)
    wait_until(lambda: worker.events("worker.stopping"), SECONDS, "it drains")
    place.open_gate()
    assert worker.ended() == 0
    check_uncharged(place, ids)


@pytest.mark.proves("M118")
def test_sigterm_at_full_speed(place: Place) -> None:
    """In the middle of claims and commits: no job is lost, or run a second time."""
    chance, ids = seeded(), []
    for _ in range(3):
        # So many that even a quick worker has some left when the signal comes.
        ids += place.enqueue_many("nothing", 3000)
        # Counted before the worker starts: all may be done when it says that it works.
        more = len(place.ledger.of("effect")) + chance.randrange(1, 500)
        worker = place.worker()
        wait_until(
            lambda more=more: len(place.ledger.of("effect")) >= more, SECONDS, "at work"
        )
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0, worker.log
    place.worker()
    check_uncharged(place, ids)
    assert len(place.ledger.of("start")) == len(ids)


def check_uncharged(
    place: Place, ids: list[str], *, again: tuple[Process, ...] = ()
) -> None:
    """All done, and every attempt was the first."""
    rows = place.check_all_done(ids, SECONDS, killed=again)
    assert {(row.retried, row.losses) for row in rows.values()} == {(0, 0)}
    assert {line.attempt for line in place.ledger.of("start")} == {1}


@pytest.mark.proves("M111", "M114")
def test_renewal_outlives_a_blocked_loop(place: Place) -> None:
    """A task blocks the loop for two leases, under its hard limit: nothing is lost."""
    place.settings = {
        "worker": {
            "lease_seconds": 1.5,
            "heartbeat_seconds": 0.4,
            "rescue_seconds": 0.3,
        }
    }
    ids = place.enqueue("block", (3.0,)) + place.enqueue("nap", (0.1,))
    worker = place.worker()
    place.wait_for("start", 1)
    other = place.worker()  # who would take the jobs if the lease ended
    rows = place.check_all_done(ids, SECONDS)
    assert {row.losses for row in rows.values()} == {0}
    assert not other.events("worker.rescued")
    assert not worker.events("worker.fenced")
    (told,) = worker.events("loop.blocked")
    assert told["task"] == "e2e.block"
    assert "in block\n" in told["stack"].splitlines(keepends=True)[0]
    assert "time.sleep(seconds)" in told["stack"]
    assert "durio/worker" not in told["stack"]


@pytest.mark.proves("M103", "M114")
def test_blocking_past_the_hard_limit_ends_the_process(place: Place) -> None:
    """Exit 70: the guilty attempt has timed out, its neighbours are not charged."""
    neighbours = place.enqueue("held", *[()] * JOBS)
    worker = place.worker()
    place.wait_for("start", JOBS)
    (guilty,) = place.enqueue("block_past_limit", ())
    assert worker.ended() == 70
    (told,) = worker.events("loop.blocked")
    assert told["task"] == "e2e.block_past_limit"
    place.open_gate()
    place.worker()
    rows = place.check_all_done([guilty, *neighbours], SECONDS, killed=(worker,))
    assert (rows[guilty].retried, rows[guilty].losses) == (1, 0)
    assert [error["type"] for error in rows[guilty].errors] == ["HardTimeLimit"]
    assert {(rows[job].retried, rows[job].losses) for job in neighbours} == {(0, 0)}


@pytest.mark.proves("M110")
def test_forked_child_hides_no_death(place: Place) -> None:
    """A task forks without exec; the child lives on, but its parent's death is seen."""
    ids = place.enqueue("fork", ())
    victim = place.worker()
    place.wait_for("child", 1)
    place.worker()
    victim.kill()
    killed_ns = now_ns()
    place.open_gate()
    rows = place.check_all_done(ids, 15, killed=(victim,))
    seen = place.seconds_to_run_again(victim, killed_ns)
    print(f"run again {seen:.1f} s after the kill, a forked child alive (bound 15 s)")
    assert [row.losses for row in rows.values()] == [1]


@pytest.mark.proves("M118")
@pytest.mark.parametrize("when", ["at work", "at the start"])
def test_sigterm_is_heard_while_somebody_keeps_the_writers_lock(
    place: Place, when: str
) -> None:
    """A stopped process or a debugger may keep it for ever: a stop does not wait."""
    place.enqueue("nothing", ())
    if when == "at work":
        worker = place.worker()
        place.wait_for("effect", 1)
        with place.writer_lock():
            worker.send(signal.SIGTERM)
            assert worker.ended(60) in (0, CUT_SHORT)
    else:
        with place.writer_lock():
            worker = place.begin_worker()
            wait_until(lambda: has_threads(worker), SECONDS, "it opens its store")
            worker.send(signal.SIGTERM)
            assert worker.ended(60) in (0, CUT_SHORT)


def has_threads(process: Process) -> bool:
    """Whether it has begun to write: the writer is its first thread."""
    return len(list(Path(f"/proc/{process.pid}/task").glob("*"))) > 1
