"""Workers that start while a stopped process keeps the writers' lock."""

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.workers import Place, Process, now_ns, wait_until
from tests.unit.stores.test_upgrade import make_old_file

SECONDS = 30.0
# A stop takes about a second; the store's last wait, for nobody, took five more.
PROMPT_SECONDS = 3 * 1.0
ALONE: tuple[str, ...] = ()
SUPERVISED = ("--processes", "1")


@pytest.fixture
def stopper(place: Place) -> Process:
    """A process that stands still inside a write transaction."""
    place.enqueue("nothing", ())
    stopper = place.run("tests.e2e.stopper")
    wait_until(stopper.is_stopped, SECONDS, "a writer stands still")
    return stopper


def stalled(worker: Process) -> list[dict[str, Any]]:
    return worker.events("store.stalled")


def ended_promptly(worker: Process) -> int:
    """SIGTERM, and its exit code; how long that took is printed."""
    told = now_ns()
    worker.send(signal.SIGTERM)
    code = worker.ended(SECONDS)
    seconds = (now_ns() - told) / 1e9
    print(f"ended {seconds:.1f} s after SIGTERM (bound {PROMPT_SECONDS:g} s)")
    assert seconds < PROMPT_SECONDS, worker.log
    return code


@pytest.mark.proves("M112")
@pytest.mark.parametrize("how", [ALONE, SUPERVISED], ids=["alone", "supervised"])
def test_it_names_who_keeps_it_waiting_and_hears_a_stop(
    place: Place, stopper: Process, how: tuple[str, ...]
) -> None:
    worker = place.begin_worker(*how)
    (told,) = wait_until(lambda: stalled(worker), SECONDS, "it tells of the stall")
    assert told["pid"] == stopper.pid
    assert told["seconds"] < 10
    assert not worker.events("worker.started")
    assert ended_promptly(worker) == 0
    assert len(stalled(worker)) == 1
    stopper.go_on()
    assert stopper.ended() == 0
    worker = place.worker()  # nothing was left locked
    assert not stalled(worker)


@pytest.mark.parametrize("how", [ALONE, SUPERVISED], ids=["alone", "supervised"])
def test_it_goes_on_when_the_lock_is_free(
    place: Place, stopper: Process, how: tuple[str, ...]
) -> None:
    worker = place.begin_worker(*how)
    wait_until(lambda: stalled(worker), SECONDS, "it tells of the stall")
    stopper.go_on()
    place.started(worker)
    place.wait_for("effect", 1)


def test_it_says_so_too_while_it_waits_to_migrate(place: Place) -> None:
    """Then it has not even opened its store."""
    make_old_file(place.path)
    folder = Path(f"{place.path}-durio")
    folder.mkdir(mode=0o700)
    (folder / "writer.lock").write_bytes(b"4711".ljust(12))
    with place.writer_lock():
        worker = place.begin_worker()
        (told,) = wait_until(lambda: stalled(worker), SECONDS, "it tells of the stall")
        assert told["pid"] == 4711
        assert ended_promptly(worker) == 0
    assert place.select("select max(number) from migration") == [(1,)]
    place.worker()
