"""A call blocks the event loop: who pays for it, and who does not. By the real clock."""

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest

from durio import App, JobStatus, SoftTimeLimit, State
from durio.app.work import make_worker
from durio.host.beside import ThreadAside
from durio.model.settings import merged
from durio.testing.aside import StillMachine
from tests.unit.app.lab import finished, real

QUICK = {"worker": {"block_seconds": 0.2, "poll_seconds": 0.1}}
LIMITS = (0.6, 0.8)
BLOCK_SECONDS = 1.5


async def beside(app: App, machine: StillMachine, **names: Any) -> dict[str, JobStatus]:
    """Run one job of each task in one worker; their statuses."""
    worker = await make_worker(app, aside=ThreadAside(), machine=machine)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        jobs = {name: await task.enqueue() for name, task in names.items()}
        statuses = {name: await finished(job) for name, job in jobs.items()}
        worker.stop()
    return statuses


@pytest.mark.parametrize("inner", ["", "in a task of it"])
@real(settings=QUICK)
async def test_neighbours_do_not_pay_for_a_blocked_loop(app: App, inner: str):
    async def block() -> None:
        time.sleep(BLOCK_SECONDS)

    @app.task(name="blocks", timeout=(20, 30))
    async def blocks() -> None:
        await asyncio.sleep(0.1)
        await (asyncio.create_task(block()) if inner else block())

    @app.task(name="waits", timeout=LIMITS, retry=0)
    async def waits() -> str:
        await asyncio.sleep(0.3)
        return "ended"

    @app.task(name="threaded", timeout=LIMITS, retry=0)
    def threaded() -> str:
        time.sleep(0.3)
        return "ended"

    machine = StillMachine()
    ends = await beside(app, machine, blocks=blocks, waits=waits, threaded=threaded)
    assert {name: status.state for name, status in ends.items()} == {
        "blocks": State.DONE,
        "waits": State.DONE,
        "threaded": State.DONE,
    }
    assert [status.attempt for status in ends.values()] == [1, 1, 1]
    assert machine.ends == []


@real(settings=QUICK)
async def test_the_guilty_is_known_in_a_task_of_it(app: App):
    """It is past its hard limit: the process would end, it alone would be charged."""

    async def block() -> None:
        time.sleep(BLOCK_SECONDS)

    @app.task(name="blocks", timeout=LIMITS, retry=0)
    async def blocks() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(block())

    @app.task(name="waits", timeout=LIMITS, retry=0)
    async def waits() -> str:
        await asyncio.sleep(0.3)
        return "ended"

    told: list[tuple[str, str]] = []
    app.hooks.dead(lambda event: told.append((event.task, event.error_type)))
    machine = StillMachine()
    ends = await beside(app, machine, blocks=blocks, waits=waits)
    assert told == [("app.blocks", "HardTimeLimit")]
    assert (ends["blocks"].state, ends["blocks"].error.type) == (
        State.DEAD,
        "HardTimeLimit",
    )
    assert (ends["waits"].state, ends["waits"].attempt) == (State.DONE, 1)
    assert machine.ends == [70]


@real(settings=QUICK)
async def test_small_blocks_do_not_stretch_a_limit_for_ever(app: App):
    """Each is excused to the others; all of them together only as long again."""

    @app.task(name="stutters", timeout=LIMITS, retry=0)
    async def stutters() -> None:
        while True:
            time.sleep(0.3)
            await asyncio.sleep(0)

    ends = await beside(app, StillMachine(), stutters=stutters)
    assert (ends["stutters"].state, ends["stutters"].reason) == (
        State.DEAD,
        "exhausted",
    )


@real(settings=merged(QUICK, {"worker": {"block_seconds": 0.1}}))
async def test_abandoned_code_that_blocks_ends_the_process(app: App):
    """It is over and charged; whoever runs beside it now has nothing to do with it."""

    @app.task(name="haunts", timeout=(0.1, 0.2), retry=0)
    async def haunts() -> None:
        try:
            while True:
                with suppress(SoftTimeLimit):
                    await asyncio.sleep(60)
        finally:
            time.sleep(BLOCK_SECONDS)

    @app.task(name="waits", timeout=(20, 30), retry=0)
    async def waits() -> str:
        await asyncio.sleep(0.5)
        return "ended"

    machine = StillMachine()
    ends = await beside(app, machine, haunts=haunts, waits=waits)
    assert ends["haunts"].error.type == "HardTimeLimit"
    assert (ends["waits"].state, ends["waits"].attempt) == (State.DONE, 1)
    assert machine.ends == [70]
