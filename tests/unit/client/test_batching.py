"""Calls that are made at the same time are written together."""

import asyncio

import pytest

from durio import App
from durio.client.calls import BATCH_BYTES
from durio.model.keys import replace
from tests.unit.app.app_harness import records, virtual
from tests.unit.client.locked_values import start
from tests.unit.client.test_enqueue import echo, faulty


@virtual
async def test_a_batch_has_a_bound_in_bytes(app: App):
    task, store = app.task(echo), faulty(app)
    big = "x" * 900_000
    jobs = await asyncio.gather(*(task.enqueue(1, to=big) for _ in range(20)))
    assert all(job.created for job in jobs)
    sizes = [
        sum(len(job.payload) for job in call.args[0])
        for call in store.calls
        if call.method == "enqueue"
    ]
    assert max(sizes) <= BATCH_BYTES
    assert len(sizes) <= 7


@virtual
async def test_a_call_that_is_cancelled_before_its_turn_is_not_sent(app: App):
    task, store = app.task(echo), faulty(app)
    store.slow("enqueue", seconds=20)
    first = start(task, 1)
    await app.clock.sleep(1)
    late = [start(task, n) for n in range(2, 50)]
    await app.clock.sleep(1)
    for each in late:
        each.cancel()
    await first
    store.heal()
    assert (await task.enqueue(50)).created
    assert len(await records(app)) == 2


def cancel_all_others() -> None:
    """As Ctrl-C does, and a loop that is being closed."""
    here = asyncio.current_task()
    for task in asyncio.all_tasks():
        if task is not here:
            task.cancel()


@virtual
@pytest.mark.parametrize("turns", range(4))
async def test_a_loop_whose_tasks_were_all_cancelled_can_enqueue(app: App, turns: int):
    """Also where the task that sends had not even begun."""
    task = app.task(echo)
    await task.enqueue(0)
    calls = [start(task, n, "k" if n else None) for n in range(3)]
    for _ in range(turns):
        await app.clock.sleep(0)
    cancel_all_others()
    await asyncio.gather(*calls, return_exceptions=True)
    async with asyncio.timeout(5):
        assert (await task.enqueue(7)).created
        assert await task.options(key="k", unique=replace).enqueue(8) is not None
