"""A task that ends in an exception is noticed, although a world collects no garbage."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.simulation.world import PRUNE_MIN, Node, World


@pytest.fixture
def world() -> Iterator[World]:
    world = World(1)
    yield world
    world.close()


async def fails() -> None:
    raise ZeroDivisionError("planted")


def unretrieved_after(world: World, seconds: float) -> list[str]:
    world.run(world.director.clock.sleep(seconds))
    return [repr(context["exception"]) for _, context in world.unretrieved_errors()]


def test_main_of_a_process_that_dies(world: World):
    async def main(node: Node) -> None:
        await node.clock.sleep(1)
        await fails()

    node = world.start("a", main)
    assert unretrieved_after(world, 2) == ["ZeroDivisionError('planted')"]
    world.kill(node)
    assert world.unretrieved_errors()[0][0] == "a", "also when the process is dead"


def test_task_that_nobody_asks_is_kept_among_many(world: World):
    async def main(node: Node) -> None:
        asyncio.get_running_loop().create_task(fails())
        for _ in range(3 * PRUNE_MIN):
            await asyncio.get_running_loop().create_task(node.clock.sleep(0.01))

    world.start("a", main)
    assert unretrieved_after(world, 60) == ["ZeroDivisionError('planted')"]


def test_error_that_somebody_hears_is_nobody_s_business(world: World):
    async def main(node: Node) -> None:
        task = asyncio.get_running_loop().create_task(fails())
        await node.clock.sleep(1)
        with pytest.raises(ZeroDivisionError):
            await task
        asyncio.get_running_loop().create_task(node.clock.sleep(9)).cancel()

    world.start("a", main)
    assert unretrieved_after(world, 5) == []


def test_killed_before_it_could_hear(world: World):
    async def main(_node: Node) -> None:
        task = asyncio.get_running_loop().create_task(fails())
        task.add_done_callback(lambda task: task.exception())
        node.main.call_soon(world.kill, node)  # between the end and the callback
        await asyncio.get_running_loop().create_future()

    node = world.start("a", main)
    assert unretrieved_after(world, 5) == []
