"""The simulated world itself: processes that die, pause, block and disagree on time."""

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from durio.testing.clock import Stuck
from tests.simulation.world import Node, World

Main = Callable[[Node], Coroutine[Any, Any, None]]


@pytest.fixture
def world() -> Iterator[World]:
    world = World(1)
    yield world
    world.close()


def after(world: World, seconds: float, act: Callable[[], object]) -> None:
    world.director.main.call_later(seconds, act)


def pass_time(world: World, seconds: float) -> None:
    world.run(world.director.clock.sleep(seconds))


def ticker(seen: list[float], every: float = 1.0) -> Main:
    async def tick(node: Node) -> None:
        while True:
            seen.append(node.clock.monotonic() - 1000)
            await node.clock.sleep(every)

    return tick


# --- killing


def test_killed_process_runs_no_finally(world: World):
    seen: list[str] = []

    async def main(node: Node) -> None:
        try:
            seen.append("began")
            await node.clock.sleep(10)
            seen.append("went on")
        finally:
            seen.append("finally")

    node = world.start("a", main)
    after(world, 5, lambda: world.kill(node))
    pass_time(world, 100)
    gc.collect()
    assert seen == ["began"]
    assert world.errors == []


def test_dead_stay_in_memory_while_the_world_runs(world: World):
    """The collector would throw GeneratorExit into them, and run their `finally`."""
    seen: list[str] = []

    async def main(node: Node) -> None:
        async def lonely() -> None:
            try:
                await asyncio.get_running_loop().create_future()  # nothing refers to it
            finally:
                seen.append("finally")

        asyncio.get_running_loop().create_task(lonely())
        await node.clock.sleep(1)

    node = world.start("a", main)
    pass_time(world, 5)
    world.kill(node)
    del node
    world.start("a", ticker([]))
    for _ in range(3):
        pass_time(world, 5)
        gc.collect()
    assert seen == []


def test_timers_of_the_dead_never_run(world: World):
    seen: list[str] = []

    async def main(_node: Node) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(1, seen.append, "before")
        loop.call_later(3, seen.append, "after")
        loop.call_soon(seen.append, "soon")

    node = world.start("a", main)
    after(world, 2, lambda: world.kill(node))
    pass_time(world, 10)
    assert seen == ["soon", "before"]


def test_what_was_ready_at_the_kill_never_runs(world: World):
    seen: list[str] = []

    async def main(node: Node) -> None:
        await node.clock.sleep(1)
        asyncio.get_running_loop().call_soon(seen.append, "too late")
        world.kill(node)

    world.start("a", main)
    pass_time(world, 10)
    assert seen == []


def test_new_process_of_a_name_is_another_one(world: World):
    seen: list[tuple[int, float]] = []

    async def main(node: Node) -> None:
        seen.append((node.boot, node.clock.random()))

    world.kill(world.start("a", main))
    pass_time(world, 1)
    world.start("a", main)
    pass_time(world, 1)
    assert [boot for boot, _ in seen] == [1], "the first died before its first line"
    world.kill(world.nodes["a"])
    world.start("a", main)
    pass_time(world, 1)
    assert [boot for boot, _ in seen] == [1, 2]
    assert seen[0][1] != seen[1][1], "each has its own chance"


def test_process_inherits_nothing_from_its_starter(world: World):
    whose: ContextVar[str] = ContextVar("whose", default="nobody's")
    seen: list[str] = []

    async def child(_node: Node) -> None:
        seen.append(whose.get())

    async def parent(_node: Node) -> None:
        whose.set("the parent's")
        world.start("child", child)

    world.start("parent", parent)
    pass_time(world, 1)
    assert seen == ["nobody's"]


# --- stopping and going on


def test_paused_process_stands_still_and_goes_on(world: World):
    seen: list[float] = []
    node = world.start("a", ticker(seen))
    after(world, 2.5, lambda: world.pause(node))
    after(world, 7.25, lambda: world.resume(node))
    pass_time(world, 9)
    assert seen == [0, 1, 2, 7.25, 8.25]


def test_others_run_while_one_is_paused(world: World):
    mine: list[float] = []
    others: list[float] = []
    node = world.start("a", ticker(mine))
    world.start("b", ticker(others))
    world.pause(node)
    pass_time(world, 3.5)
    assert mine == []
    assert others == [0, 1, 2, 3]


def test_paused_process_can_be_killed(world: World):
    seen: list[float] = []
    node = world.start("a", ticker(seen))
    after(world, 1.5, lambda: world.pause(node))
    after(world, 2, lambda: world.kill(node))
    after(world, 3, lambda: world.resume(node))
    pass_time(world, 5)
    assert seen == [0, 1]


def test_timer_that_comes_due_while_paused_waits(world: World):
    """A zombie: its time limit of two seconds fires when it resumes, not before."""
    seen: list[tuple[str, float]] = []

    async def main(node: Node) -> None:
        try:
            async with asyncio.timeout(2):
                await node.clock.sleep(60)
        except TimeoutError:
            seen.append(("timeout", node.clock.monotonic() - 1000))

    node = world.start("a", main)
    after(world, 1, lambda: world.pause(node))
    after(world, 30, lambda: world.resume(node))
    pass_time(world, 40)
    assert seen == [("timeout", 30)]


# --- blocking


def test_blocked_loop_is_seen_from_beside(world: World):
    """As by the watchdog: the main loop is late, and its current task is the cause."""
    seen: list[tuple[float, str | None]] = []
    ticks: list[float] = []

    async def watch(node: Node) -> None:
        while True:
            task = asyncio.current_task(node.main)
            name = task.get_name() if task else None
            seen.append((node.clock.monotonic() - 1000, name))
            await node.clock.sleep(1)

    async def main(node: Node) -> None:
        node.side_loop.create_task(watch(node))
        node.main.create_task(ticker(ticks)(node))
        await node.clock.sleep(2.5)
        await node.block(3)
        await node.clock.sleep(100)

    world.start("a", main)
    pass_time(world, 7.75)
    names = {int(at): name for at, name in seen}
    assert len(seen) == 8, "the loop beside goes on"
    assert [at for at, name in names.items() if name == "a"] == [3, 4, 5]
    assert ticks == [0, 1, 2, 5.5, 6.5, 7.5], "the blocked loop runs nothing"


def test_whoever_blocked_goes_on_first(world: World):
    seen: list[str] = []

    async def main(node: Node) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(1, seen.append, "due meanwhile")
        await node.block(3)
        seen.append("blocker")

    world.start("a", main)
    pass_time(world, 5)
    assert seen == ["blocker", "due meanwhile"]


def test_blocked_process_can_be_killed(world: World):
    seen: list[str] = []

    async def main(node: Node) -> None:
        await node.block(3)
        seen.append("went on")

    node = world.start("a", main)
    after(world, 1, lambda: world.kill(node))
    pass_time(world, 10)
    assert seen == []
    assert world.errors == []


def test_only_tasks_of_processes_can_block(world: World):
    node = world.start("a", ticker([]))
    with pytest.raises(RuntimeError, match="only tasks of a simulated process"):
        asyncio.run(node.block(1))


# --- time


def test_skew_is_one_process_alone(world: World):
    clocks: dict[str, tuple[float, float]] = {}

    async def main(node: Node) -> None:
        await node.clock.sleep(1)
        clocks[node.name] = node.clock.now(), node.clock.monotonic()

    world.start("right", main)
    world.start("wrong", main).skew_seconds = -300
    pass_time(world, 2)
    assert clocks["wrong"][0] == clocks["right"][0] - 300
    assert clocks["wrong"][1] == clocks["right"][1], "monotonic time is not the wall's"


def test_step_of_the_wall_clock_is_everybody_s(world: World):
    node = world.start("a", ticker([]))
    wall, seconds = node.clock.now(), node.clock.monotonic()
    world.step_seconds = 120
    assert (node.clock.now(), node.clock.monotonic()) == (wall + 120, seconds)


def test_time_never_goes_back(world: World):
    seen: list[float] = []

    async def main(node: Node) -> None:
        await node.clock.sleep(5)
        loop = asyncio.get_running_loop()
        loop.call_at(world.seconds - 3, lambda: seen.append(world.seconds - 1000))

    world.start("a", main)
    pass_time(world, 6)
    assert seen == [5]


def test_ids_grow_within_a_process_and_are_its_own(world: World):
    first, second = world.start("a", ticker([])), world.start("b", ticker([]))
    ids = [first.clock.new_id() for _ in range(5000)]
    first.skew_seconds = -300
    ids += [first.clock.new_id() for _ in range(5000)]
    assert ids == sorted(set(ids)), "also when its clock goes back"
    assert not {*ids} & {second.clock.new_id() for _ in range(5000)}


# --- order


def order_of(seed: int) -> list[str]:
    world, seen = World(seed), []

    def main_of(name: str) -> Main:
        async def main(node: Node) -> None:
            for step in range(5):
                asyncio.get_running_loop().call_soon(seen.append, f"{name}{step}")
            await node.clock.sleep(1)

        return main

    for name in "abc":
        world.start(name, main_of(name))
    pass_time(world, 2)
    world.close()
    return seen


def test_order_between_processes_comes_from_the_seed():
    orders = [order_of(seed) for seed in range(10)]
    assert orders == [order_of(seed) for seed in range(10)]
    assert len({tuple(order) for order in orders}) > 5


def test_order_within_a_process_is_first_in_first_out():
    for seed in range(10):
        order = order_of(seed)
        for name in "abc":
            own = [step for step in order if step.startswith(name)]
            assert own == [f"{name}{step}" for step in range(5)]


def test_equal_times_run_in_the_order_of_their_making(world: World):
    seen: list[int] = []

    async def main(_node: Node) -> None:
        for number in range(20):
            asyncio.get_running_loop().call_at(world.seconds + 1, seen.append, number)

    world.start("a", main)
    pass_time(world, 2)
    assert seen == list(range(20))


# --- ends


def test_deadlock_is_told_with_every_stack(world: World):
    async def hang(_node: Node) -> None:
        await asyncio.get_running_loop().create_future()

    async def forgotten(_node: Node) -> None:
        await asyncio.get_running_loop().create_future()

    world.start("a", hang)
    world.kill(world.start("b", forgotten))

    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck, match="simulated deadlock") as told:
        world.run(main())
    assert "[a/main]" in str(told.value)
    assert "hang" in str(told.value)
    assert "forgotten" not in str(told.value), "the dead wait for nothing"


def test_deadlock_of_the_paused_is_one_too(world: World):
    node = world.start("a", ticker([]))
    world.pause(node)

    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck, match="simulated deadlock"):
        world.run(main())


def test_nothing_goes_wrong_unnoticed(world: World):
    async def main(_node: Node) -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)

    world.start("a", main)
    pass_time(world, 1)
    [(name, context)] = world.errors
    assert name == "a"
    assert isinstance(context["exception"], ZeroDivisionError)


def test_closing_is_silent_and_final():
    seen: list[str] = []

    async def main(_node: Node) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            seen.append("finally")
            raise ZeroDivisionError  # no code retrieves it

    world = World(1)
    world.kill(world.start("dead", main))
    world.start("living", main)
    pass_time(world, 1)
    assert seen == []
    world.close()
    assert world.errors == []
    assert gc.isenabled()
