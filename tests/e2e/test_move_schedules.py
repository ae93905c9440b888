"""`durio move` carries schedules: ticks go on in the new store, and none is made twice."""

import asyncio
from pathlib import Path

from durio import App
from durio.app.worker_builder import make_worker
from durio.client.tick_maker import ClientTickMaker
from durio.maintenance.ticker import Ticker
from durio.schedules import Schedule
from tests.conformance.postgres import ScratchSchema
from tests.e2e.moving import mover

SECONDS = 20
SETTINGS = {"log": {"level": "error"}}


def shop(url: str) -> App:
    app = App(url, name="shop", settings=SETTINGS)

    @app.task(name="digest")
    async def digest(user: int) -> int:
        return user

    app.schedules.declare("nightly", digest, args=(1,), cron="0 2 * * *")
    return app


async def ticked(app: App) -> int:
    """Handle what is due, as a leader does; return the number of jobs."""
    store = await app.store()
    ticker = Ticker(store, app.clock, app.emit, app.name, ClientTickMaker(app))
    await ticker.turn()
    return await app.jobs(task="digest").count()


def test_schedules_go_on_in_the_new_store(
    tmp_path: Path, grounds: ScratchSchema
) -> None:
    source = f"sqlite:///{tmp_path}/jobs.db"

    async def before() -> dict[str, Schedule]:
        async with shop(source) as app:
            await make_worker(app)  # declares
            schedules = app.schedules
            await schedules.create("user-42", "digest", args=(42,), every="100ms")
            await schedules.create("later", "digest", args=(3,), cron="0 9 * * *")
            await schedules.pause("later", "the mail server is down")
            while await ticked(app) == 0:
                await app.clock.sleep(0.05)
            return {one.name: one for one in await schedules.list()}

    async def story() -> None:
        known = await before()
        async with mover(source, grounds.url) as moving:
            verdict = await moving.move(drain_seconds=SECONDS, by="ann")
        assert verdict.differences == []
        async with shop(grounds.url) as app:
            await make_worker(app)  # declares the same again
            found = {one.name: one for one in await app.schedules.list()}
            assert found.keys() == known.keys() == {"nightly", "user-42", "later"}
            for name, one in found.items():
                assert one.note == known[name].note
                assert one.next_at == known[name].next_at
                assert one.ticks == known[name].ticks
            assert found["later"].state == "paused"
            assert found["nightly"].origin == "code"
            moved = await app.jobs(task="digest").count()
            # Its job of before still waits, so the first tick here is skipped. The move may
            # end before that tick is due.
            while (await app.schedules.get("user-42")).skipped_count == 0:
                assert await ticked(app) == moved
                await app.clock.sleep(0.05)

    asyncio.run(story())
