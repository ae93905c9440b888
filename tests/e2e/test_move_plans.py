"""`durio move` and plans: those that are done move, others are refused before anything changes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from durio import App, Permanent
from durio.errors import OperatingError, StoreMoved
from durio.plans import PlanState, chord
from durio.ports.move import MoveMark
from tests.conformance.postgres import ScratchSchema
from tests.e2e.moving import mover

SECONDS = 20


def shop(url: str) -> tuple[App, Any]:
    """An App, and a plan that works if its argument is positive."""
    app = App(url, name="shop", settings={"log": {"level": "error"}})

    @app.task(name="add", retry=0)
    async def add(n: int) -> int:
        if n < 0:
            raise Permanent(str(n))
        return n + 1

    @app.task(name="total")
    async def total(values: list[int]) -> int:
        return sum(values)

    return app, lambda n: chord([add.s(n), add.s(1)], total.s())


async def refused(source: str, target: str) -> None:
    """The move, and a look at it before, say why not; the file stays in use."""
    async with mover(source, target) as moving:
        with pytest.raises(OperatingError, match="of plans cannot be moved"):
            await moving.check(await moving.status())
        with pytest.raises(OperatingError, match="of plans cannot be moved"):
            await moving.move(drain_seconds=SECONDS, by="ann")
        with pytest.raises(OperatingError, match="of plans cannot be moved"):
            await moving.source.drain(mark_of(moving), by="ann")
        assert await moving.source.mark() is None


def mark_of(moving: Any) -> MoveMark:
    return MoveMark("a" * 32, moving.to, "draining")


def test_plans_are_not_torn_apart(tmp_path: Path, grounds: ScratchSchema) -> None:
    source = f"sqlite:///{tmp_path}/jobs.db"

    async def story() -> str:
        app, plan = shop(source)
        async with app:
            waiting = await plan(1).enqueue()
            await refused(source, grounds.url)
            async with app.worker():
                assert await waiting.result(timeout=SECONDS) == 4
                failed = await plan(-1).enqueue()
                while not (await failed.status()).ready:
                    await app.clock.sleep(0.02)
            await refused(source, grounds.url)
            store: Any = await app.store()
            await store.context.writer.write(
                lambda tx: tx.db.rows("delete from job where state <> 4")
            )
            async with mover(source, grounds.url) as moving:
                await moving.source.drain(mark_of(moving), by="ann")
                with pytest.raises(StoreMoved):
                    await plan(1).enqueue()
                await moving.move(drain_seconds=SECONDS, by="ann")
        return waiting.id

    done = asyncio.run(story())

    async def afterwards() -> None:
        app, plan = shop(grounds.url)
        async with app, app.worker():
            there = await app.plan(done)
            assert (await there.status()).state is PlanState.DONE
            assert await there.result(timeout=SECONDS) == 4
            assert await (await plan(5).enqueue()).result(timeout=SECONDS) == 8

    asyncio.run(afterwards())
