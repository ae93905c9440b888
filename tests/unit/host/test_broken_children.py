"""What becomes of a job whose child was broken by the one before it, or by itself."""

from pathlib import Path

import pytest

from durio.host import child_pool
from durio.host.child import ChildState
from durio.host.child_pool import ChildProcessPool
from durio.host.clock import HostClock
from durio.model.errors import ChildFailed
from durio.model.outcome import OutcomeKind
from tests.unit.host.test_children import (
    BOUND_SECONDS,
    CLAIM,
    RecordingSender,
    give_up_soon,
    ignore_error,
    in_work,
    opened_to_fail,
    run_one,
    setup_of,
    with_child_pool,
)

pytestmark = pytest.mark.slow  # real processes, servers or seconds

TOGETHER = 3
# It leaves its dependencies slowly, so there is time to begin one job more.
BREAKING = """
import asyncio, os
from contextlib import asynccontextmanager
from durio import App
@asynccontextmanager
async def desk():
    try:
        yield 7
    finally:
        await asyncio.sleep(1)
app = App(name="e2e", deps=desk)
@app.task(process=True)
def work() -> int:
    with open(os.path.join(os.path.dirname(__file__), "runs"), "a") as runs:
        runs.write("run ")
    return os.getpid()
@app.task(process=True)
async def stop() -> int:
    asyncio.get_running_loop().stop()
    return os.getpid()
@app.task(process=True)
async def trap() -> int:
    asyncio.get_running_loop().call_later(0.2, asyncio.get_running_loop().stop)
    return os.getpid()
left_behind = []
@app.task(process=True)
async def leave_behind() -> int:
    left_behind.append(asyncio.get_running_loop().stop)
    return os.getpid()
@app.task(process=True)
async def meet() -> int:
    for each in left_behind:
        asyncio.get_running_loop().call_soon(each)
        await asyncio.sleep(600)
    return os.getpid()
@app.task(process=True)
def die() -> None:
    os._exit(9)
"""
# Each is ready, and ends soon after that, with a job or without.
ENDING = """
import asyncio, os
from contextlib import asynccontextmanager
from durio import App
@asynccontextmanager
async def desk():
    loop = asyncio.get_running_loop()
    loop.call_later(0.3, {ends})
    yield 7
app = App(name="e2e", deps=desk)
@app.task(process=True)
async def work() -> None: ...
"""


def test_a_broken_child_begins_nothing_and_gives_its_next_job_back(tmp_path: Path):
    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        stopping, innocent = RecordingSender(), RecordingSender()
        nursery.send(CLAIM._replace(task="e2e.stop"), stopping)
        nursery.send(CLAIM, innocent)
        await innocent.over.wait()
        assert stopping.told == ["begun", "finished"]
        assert innocent.told == ["begun", "returned", "begun", "finished"]
        assert stopping.outcome is not None
        assert innocent.outcome is not None
        assert stopping.outcome.result != innocent.outcome.result, "another child"

    with_child_pool(setup_of(tmp_path, BREAKING), body)
    assert (tmp_path / "runs").read_text() == "run ", "it ran once"


def test_a_child_that_breaks_while_it_is_idle_takes_no_job(tmp_path: Path):
    """Though it is still there, and leaves slowly."""

    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        trapping, innocent = RecordingSender(), RecordingSender()
        nursery.send(CLAIM._replace(task="e2e.trap"), trapping)
        await trapping.over.wait()
        while nursery.vitals().count == 1:  # until another is started beside it
            await HostClock().sleep(0.01)
        nursery.send(CLAIM, innocent)
        await innocent.over.wait()
        assert trapping.told == innocent.told == ["begun", "finished"]
        assert trapping.outcome is not None
        assert innocent.outcome is not None
        assert trapping.outcome.result != innocent.outcome.result, "another child"

    with_child_pool(setup_of(tmp_path, BREAKING), body)
    assert (tmp_path / "runs").read_text() == "run ", "it ran once"


def test_a_job_whose_loop_another_stopped_is_lost_with_its_child(tmp_path: Path):
    """Nobody knows whose fault it is: it is charged, and not found guilty."""

    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        guilty, met, again = RecordingSender(), RecordingSender(), RecordingSender()
        nursery.send(CLAIM._replace(task="e2e.leave_behind"), guilty)
        await guilty.over.wait()
        nursery.send(CLAIM._replace(task="e2e.meet"), met)
        await met.over.wait()
        assert met.told == ["begun", "finished"]
        assert met.outcome is not None
        assert (met.outcome.kind, met.outcome.killed_process) == (
            OutcomeKind.LOST,
            False,
        )
        assert b"ChildLost" in (met.outcome.error or b"")
        nursery.send(CLAIM._replace(task="e2e.meet"), again)
        await again.over.wait()
        assert again.outcome is not None
        assert again.outcome.kind == OutcomeKind.DONE

    with_child_pool(setup_of(tmp_path, BREAKING), body)


@pytest.mark.proves("M112")
def test_the_last_chance_of_a_job_is_in_a_child_of_its_own(tmp_path: Path):
    """So a loss that convicts is its own doing, and those before it left nothing."""

    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        first, last, dies, others = (
            RecordingSender(),
            RecordingSender(),
            RecordingSender(),
            RecordingSender(),
        )
        nursery.send(CLAIM, first)
        await first.over.wait()
        nursery.send(CLAIM._replace(lost=2), last)
        nursery.send(CLAIM, others)
        await last.over.wait()
        await others.over.wait()
        assert first.outcome is not None
        assert last.outcome is not None
        assert first.outcome.result != last.outcome.result, "another child"
        nursery.send(CLAIM._replace(lost=2, task="e2e.die"), dies)
        await dies.over.wait()
        assert dies.was_first

    with_child_pool(setup_of(tmp_path, BREAKING), body)


def test_a_crash_after_others_is_charged_and_convicts_nobody(tmp_path: Path):
    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        first, dies = RecordingSender(), RecordingSender()
        nursery.send(CLAIM, first)
        await first.over.wait()
        nursery.send(CLAIM._replace(task="e2e.die"), dies)
        await dies.over.wait()
        assert dies.was_first is False

    with_child_pool(setup_of(tmp_path, BREAKING), body)


def test_children_that_die_together_are_one_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Of an OOM kill of the whole group, say: the next try may be well."""
    monkeypatch.setattr(child_pool, "FAILURES_MAX", 2)

    async def body(nursery: ChildProcessPool) -> None:
        told: list[object] = []
        await nursery.open(ahead=True, broken=told.append)
        while nursery.vitals().count < TOGETHER or any(
            child.state is ChildState.STARTING for child in nursery._children
        ):
            await HostClock().sleep(0.01)
        killed = list(nursery._children)
        for child in killed:
            child.process.kill()
        while any(child in nursery._children for child in killed):
            await HostClock().sleep(0.01)
        nursery.send(CLAIM, teller := RecordingSender())
        await teller.over.wait()
        assert teller.told == ["begun", "finished"]
        assert told == []

    with_child_pool(setup_of(tmp_path, BREAKING), body, count=TOGETHER)


@pytest.mark.parametrize("ends", ["loop.stop", "os._exit, 3"])
def test_children_that_end_as_soon_as_they_are_ready_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
):
    give_up_soon(monkeypatch)

    async def body(nursery: ChildProcessPool) -> None:
        given_up = await opened_to_fail(nursery, ahead=True)
        error = await given_up
        assert isinstance(error, ChildFailed)
        assert "ended" in error.what
        assert error.cure

    with_child_pool(setup_of(tmp_path, ENDING.format(ends=ends)), body)


def test_a_child_that_ends_at_once_is_begun_anew_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(child_pool, "BACKOFF_FIRST", BOUND_SECONDS)

    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        while nursery.vitals().count:
            await HostClock().sleep(0.01)
        errand = nursery.send(CLAIM, teller := RecordingSender())
        assert nursery.vitals().count == 0
        assert teller.told == []
        assert errand.withdraw()

    with_child_pool(setup_of(tmp_path, ENDING.format(ends="os._exit, 3")), body)


def test_a_child_that_lasts_may_end_before_its_first_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(child_pool, "FAILURES_MAX", 1)
    monkeypatch.setattr(child_pool, "HEALTHY_SECONDS", 0.0)

    async def body(nursery: ChildProcessPool) -> None:
        given_up = list[object]()
        await nursery.open(ahead=True, broken=given_up.append)
        seen = set[int]()
        while len(seen) < 3:
            seen |= {child.pid for child in nursery._children}
            await HostClock().sleep(0.01)
        assert given_up == []

    with_child_pool(setup_of(tmp_path, ENDING.format(ends="os._exit, 3")), body)


@pytest.mark.parametrize("task", ["stop", "trap", "die"])
def test_children_that_had_a_job_may_end_as_often_as_they_like(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
):
    """That is the job's affair, and what it is charged has a bound of its own."""
    monkeypatch.setattr(child_pool, "FAILURES_MAX", 1)

    async def body(nursery: ChildProcessPool) -> None:
        given_up = list[object]()
        await nursery.open(ahead=True, broken=given_up.append)
        for _ in range(2):
            teller, old = RecordingSender(), set(nursery._children)
            nursery.send(CLAIM._replace(task=f"e2e.{task}"), teller)
            await teller.over.wait()
            while old & set(nursery._children):
                await HostClock().sleep(0.01)
        assert given_up == []

    with_child_pool(setup_of(tmp_path, BREAKING), body)


@pytest.mark.parametrize("way", ["SHUT_RDWR", "SHUT_WR", "SHUT_RD"])
def test_a_child_whose_line_was_shut_down_is_not_called_short_of_memory(
    tmp_path: Path, way: str
):
    shutting = in_work(f"""
import socket, sys, time
line = socket.socket(fileno=os.dup(int(sys.argv[1])))
line.shutdown(socket.{way})
time.sleep(99)
""")

    async def body(nursery: ChildProcessPool) -> None:
        await nursery.open(ahead=True, broken=ignore_error)
        for _ in range(2):
            begun, how = (await run_one(nursery)).told
            assert begun == "begun"
            assert "its connection to the worker is closed" in how
            assert "memory" not in how

    with_child_pool(setup_of(tmp_path, shutting), body)
