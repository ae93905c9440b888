"""Many first jobs at once tell the store of their bounds once."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import pytest

from durio.client.bounds import Bounds, BoundsDeclarer
from durio.ports.enqueue import Full
from durio.ports.store import Store

A, B = "shop:a", "shop:b"
SECONDS = 20


class RecordingStore:
    """A store that answers each declaration when it is let."""

    def __init__(self) -> None:
        self.calls: list[dict[str, int | None]] = []
        self.answers: list[asyncio.Future[None]] = []

    async def declare(
        self, maxsizes: Mapping[str, int | None], *, is_default: bool = False
    ) -> None:
        assert is_default == (A not in maxsizes)
        self.calls.append(dict(maxsizes))
        self.answers.append(asyncio.get_running_loop().create_future())
        await self.answers[-1]

    async def answer(self) -> None:
        """All that have asked; and let everybody go as far as they can."""
        for answer in self.answers:
            if not answer.done():
                answer.set_result(None)
        await until_all_wait()


def made() -> tuple[RecordingStore, Bounds, BoundsDeclarer]:
    told, bounds = RecordingStore(), Bounds(0.0)
    bounds.maxsizes[A] = 3
    return told, bounds, BoundsDeclarer(cast("Store", told), bounds)


async def tried(declared: BoundsDeclarer, lane: str) -> bool:
    try:
        await declared.declare({lane})
    except ConnectionError:
        return False
    return True


@asynccontextmanager
async def begun(
    declared: BoundsDeclarer, *lanes: str
) -> AsyncGenerator[list["asyncio.Task[bool]"]]:
    """So many callers at once, who are through when this block is."""
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
        callers = [group.create_task(tried(declared, lane)) for lane in lanes]
        await until_all_wait()
        yield callers


async def until_all_wait() -> None:
    for _ in range(5):
        await asyncio.sleep(0)  # noqa: TID251 - a turn, no time passes


def test_the_first_tells_for_all() -> None:
    async def story() -> None:
        told, bounds, declared = made()
        bounds.default = 100
        async with begun(declared, *[A, B] * 20):
            assert told.calls == [{A: 3}]
            await told.answer()
            assert told.calls == [{A: 3}, {B: 100}]
            await told.answer()
        await declared.declare({A, B})
        assert len(told.calls) == 2

    asyncio.run(story())


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
def test_the_others_try_themselves_where_it(how: str) -> None:
    async def story() -> None:
        told, _, declared = made()
        async with begun(declared, A, A, A, A) as (first, *others):
            if how == "fails":
                told.answers[0].set_exception(ConnectionError())
            else:
                first.cancel()
            await until_all_wait()
            assert told.calls == [{A: 3}] * 4
            await told.answer()
        assert first.cancelled() or not first.result()
        assert all(caller.result() for caller in others)

    asyncio.run(story())


def test_one_that_gives_up_waiting_harms_nobody() -> None:
    async def story() -> None:
        told, _, declared = made()
        async with begun(declared, A, A, A) as (_first, second, _third):
            second.cancel()
            await told.answer()
        assert told.calls == [{A: 3}]

    asyncio.run(story())


def test_what_changes_meanwhile_is_told_too() -> None:
    async def story() -> None:
        told, bounds, declared = made()
        async with begun(declared, A, A):
            bounds.maxsizes[A] = 4
            await told.answer()
            await told.answer()
        assert told.calls == [{A: 3}, {A: 4}]

    asyncio.run(story())


ORIGINS = {
    "the code": (Full(A, 3, 3), "app.queue('a', maxsize=3) in this code"),
    "an operator": (Full(A, 2, 2), "`durio queues limit`, or by the code of another"),
    "an operator, undeclared": (Full(B, 2, 2), "`durio queues limit`, or by the code"),
    "a default": (Full(B, 9, 9), "the setting queue.embedded_max"),
    "the soft bound": (Full(B, 9, 9, is_soft=True), "the setting queue.soft_max"),
}


@pytest.mark.parametrize("who", ORIGINS)
def test_who_set_a_bound(who: str) -> None:
    _, bounds, _ = made()
    bounds.default = 9
    full, text = ORIGINS[who]
    assert bounds.origin_of(full).startswith(text)
