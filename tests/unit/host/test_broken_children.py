"""What becomes of a job whose child was broken by the one before it, or by itself."""

from pathlib import Path

import pytest

from durio.host.children import ProcessNursery
from durio.host.clock import HostClock
from tests.unit.host.test_children import (
    CLAIM,
    Teller,
    in_work,
    nobody,
    run_one,
    setup_of,
    with_nursery,
)

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
"""


def test_a_broken_child_begins_nothing_and_gives_its_next_job_back(tmp_path: Path):
    async def body(nursery: ProcessNursery) -> None:
        await nursery.open(ahead=True, broken=nobody)
        stopping, innocent = Teller(), Teller()
        nursery.send(CLAIM._replace(task="e2e.stop"), stopping)
        nursery.send(CLAIM, innocent)
        await innocent.over.wait()
        assert stopping.told == ["begun", "finished"]
        assert innocent.told == ["begun", "returned", "begun", "finished"]
        assert stopping.outcome is not None
        assert innocent.outcome is not None
        assert stopping.outcome.result != innocent.outcome.result, "another child"

    with_nursery(setup_of(tmp_path, BREAKING), body)
    assert (tmp_path / "runs").read_text() == "run ", "it ran once"


def test_a_child_that_breaks_while_it_is_idle_takes_no_job(tmp_path: Path):
    """Though it is still there, and leaves slowly."""

    async def body(nursery: ProcessNursery) -> None:
        await nursery.open(ahead=True, broken=nobody)
        trapping, innocent = Teller(), Teller()
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

    with_nursery(setup_of(tmp_path, BREAKING), body)
    assert (tmp_path / "runs").read_text() == "run ", "it ran once"


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

    async def body(nursery: ProcessNursery) -> None:
        await nursery.open(ahead=True, broken=nobody)
        for _ in range(2):
            begun, how = (await run_one(nursery)).told
            assert begun == "begun"
            assert "its line to the worker is closed" in how
            assert "memory" not in how

    with_nursery(setup_of(tmp_path, shutting), body)
