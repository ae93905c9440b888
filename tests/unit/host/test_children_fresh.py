"""Where a job on its last chance gets its fresh child; and where no child can be started."""

import errno
import os
import threading  # noqa: TID251 - what there may be none of
from pathlib import Path
from typing import Any

import pytest

from durio.host import child_pool, child_process
from durio.host.child import ChildState
from durio.host.child_pool import ChildProcessPool
from durio.host.clock import HostClock
from durio.model.errors import ChildFailed
from durio.telemetry.emit import Emitter
from tests.unit.host.test_children import (
    CLAIM,
    MODULE,
    RecordingSender,
    give_up_soon,
    ignore_error,
    opened_to_fail,
    run_one,
    setup_of,
    with_child_pool,
)

pytestmark = pytest.mark.slow  # real processes, servers or seconds

LAST_CHANCE = CLAIM._replace(lost=2)
JOBS_MAX = 10
# Each goes on until the file `go` is there.
WAITING = """
import os, time
from durio import App
app = App(name="e2e")
@app.task(process=True)
def work() -> None:
    while not os.path.exists(os.path.join(os.path.dirname(__file__), "go")):
        time.sleep(0.01)
"""
NO_FILES = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
NO_THREAD = RuntimeError("can't start new thread")


class Crowded:
    """A machine that has no room for another child, until it has."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        self.error: Exception | None = error
        self.refusals = 0
        if isinstance(error, OSError):
            # The last of the descriptors that a child needs.
            self._make = child_process.crash_file
            monkeypatch.setattr(child_process, "crash_file", self._room_or_error)
        else:
            self._make = threading.Thread
            monkeypatch.setattr(threading, "Thread", self._room_or_error)

    def _room_or_error(self, *args: Any, **options: Any) -> Any:
        if self.error is not None:
            self.refusals += 1
            raise self.error
        return self._make(*args, **options)


class Failures(Emitter):
    """Hears of children that did not start."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def __call__(self, name: str, **fields: Any) -> None:
        if name == "child.failed":
            self.told.append(fields["error"])


def open_files() -> list[str]:
    """The descriptors of this process."""
    return sorted(each.name for each in Path("/dev/fd").iterdir())


async def until_one_is(child_pool: ChildProcessPool, state: ChildState) -> None:
    while not any(child.state is state for child in child_pool._children):
        await HostClock().sleep(0.01)


async def warm(child_pool: ChildProcessPool, folder: Path, count: int) -> None:
    """All are ready and have had a job."""
    tellers = [RecordingSender() for _ in range(count)]
    for teller in tellers:
        child_pool.send(CLAIM, teller)
    for teller in tellers:
        while not teller.told:
            await HostClock().sleep(0.01)
    (folder / "go").touch()
    for teller in tellers:
        await teller.over.wait()
    assert [child.jobs_given for child in child_pool._children] == [1] * count


@pytest.mark.proves("M112")
def test_a_spare_takes_the_last_chance_of_a_job(tmp_path: Path):
    """All seats are taken by others, and as long as nobody leaves it has none."""

    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        for _ in range(JOBS_MAX - 1):
            await run_one(nursery)
        await until_one_is(nursery, ChildState.SPARE)
        nursery.send(LAST_CHANCE, last := RecordingSender())
        assert last.told == ["begun"]
        await last.over.wait()
        assert last.told == ["begun", "finished"]
        assert (await run_one(nursery)).told == ["begun", "finished"]

    with_child_pool(setup_of(tmp_path, MODULE), body, jobs_max=JOBS_MAX)


def test_a_spare_takes_it_as_soon_as_a_seat_is_free(tmp_path: Path):
    """However many others wait for that seat."""

    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        (tmp_path / "go").touch()
        for _ in range(JOBS_MAX - 2):
            await run_one(nursery)
        (tmp_path / "go").unlink()
        tellers = [RecordingSender() for _ in range(3)]
        nursery.send(CLAIM, tellers[0])
        await until_one_is(nursery, ChildState.SPARE)
        nursery.send(LAST_CHANCE, tellers[1])
        nursery.send(CLAIM, tellers[2])
        assert [teller.told for teller in tellers] == [["begun"], [], []]
        (tmp_path / "go").touch()
        await tellers[0].over.wait()
        assert tellers[1].told[:1] == ["begun"]
        await tellers[2].over.wait()
        assert tellers[1].told == ["begun", "finished"]

    with_child_pool(setup_of(tmp_path, WAITING), body, jobs_max=JOBS_MAX)


@pytest.mark.parametrize("error", [NO_FILES, NO_THREAD], ids=["files", "threads"])
def test_without_room_for_a_child_nothing_is_lost(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
):
    """The end of one job, whose child is to make way for the last chance of another."""

    async def body(nursery: ChildProcessPool) -> None:
        nursery._emit = (failures := Failures())
        await nursery.open(ahead=True, broken=ignore_error)
        slow, last = RecordingSender(), RecordingSender()
        nursery.send(CLAIM, slow)
        nursery.send(LAST_CHANCE, last)
        crowd = Crowded(monkeypatch, error)
        (tmp_path / "go").touch()
        await slow.over.wait()
        while not crowd.refusals:
            await HostClock().sleep(0.01)
        assert slow.told == ["begun", "finished"]
        assert last.told == []
        crowd.error = None
        await last.over.wait()
        assert last.told == ["begun", "finished"]
        assert failures.told[0] == str(error)

    with_child_pool(setup_of(tmp_path, WAITING), body)


@pytest.mark.parametrize("error", [NO_FILES, NO_THREAD], ids=["files", "threads"])
def test_a_start_without_room_is_said_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
):
    async def body(nursery: ChildProcessPool) -> None:
        crowd = Crowded(monkeypatch, error)
        before = open_files()
        with pytest.raises(ChildFailed) as caught:
            await nursery.open(ahead=True, broken=ignore_error)
        assert str(error) in caught.value.what
        assert "ulimit" in caught.value.cure
        assert open_files() == before
        assert crowd.refusals == 1, "one is enough to know"

    with_child_pool(setup_of(tmp_path, MODULE), body, count=3)


@pytest.mark.parametrize("error", [NO_FILES, NO_THREAD], ids=["files", "threads"])
def test_without_room_for_a_child_a_job_waits_in_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
):
    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=False, broken=ignore_error)
        crowd = Crowded(monkeypatch, error)
        nursery.send(CLAIM, teller := RecordingSender())
        assert crowd.refusals == 1
        crowd.error = None
        await teller.over.wait()
        assert teller.told == ["begun", "finished"]

    with_child_pool(setup_of(tmp_path, MODULE), body)


def test_starts_without_room_are_given_up_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    give_up_soon(monkeypatch)

    async def body(nursery: ChildProcessPool) -> None:
        given_up = await opened_to_fail(nursery, ahead=False)
        crowd = Crowded(monkeypatch, NO_FILES)
        errand = nursery.send(CLAIM, RecordingSender())
        assert isinstance(await given_up, ChildFailed)
        assert crowd.refusals == 3
        assert errand.withdraw()

    with_child_pool(setup_of(tmp_path, MODULE), body)


def test_one_last_chance_costs_the_pool_one_child_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Where none can be started in its place, the others go on for everybody else."""

    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        await warm(nursery, tmp_path, 3)
        old = list(nursery._children)
        crowd = Crowded(monkeypatch, NO_FILES)
        nursery.send(LAST_CHANCE, last := RecordingSender())
        for _ in range(5):
            assert (await run_one(nursery)).told == ["begun", "finished"]
        stayed = [child for child in old if child.state is ChildState.IDLE]
        assert len(stayed) == 2
        assert last.told == []
        crowd.error = None
        await last.over.wait()
        assert set(stayed) < set(nursery._children)

    with_child_pool(setup_of(tmp_path, WAITING), body, count=3)


def test_none_is_sent_away_during_the_pause_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """And when that is over the last chance is not forgotten."""
    monkeypatch.setattr(child_pool, "BACKOFF_FIRST", 600.0)
    monkeypatch.setattr(child_pool, "BACKOFF_LAST", 600.0)

    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        await warm(nursery, tmp_path, 2)
        nursery._back_off(ChildFailed("one more did not start"))
        nursery.send(LAST_CHANCE, last := RecordingSender())
        for _ in range(3):
            assert (await run_one(nursery)).told == ["begun", "finished"]
        assert [child.state for child in nursery._children] == [ChildState.IDLE] * 2
        assert last.told == []
        assert nursery._backoff_timer is not None
        nursery._backoff_timer.cancel()
        nursery._end_backoff()
        await last.over.wait()
        assert last.told == ["begun", "finished"]

    with_child_pool(setup_of(tmp_path, WAITING), body, count=2)
