"""`durio move` carries plans: what has happened stays, and the rest happens in the new store.

The file is left half-way: its worker serves only the queue `default`, and the jobs in `later`
run after the move.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from durio import App, Context, Permanent, chain, chord, group
from durio.app import move
from durio.errors import JobCancelled, JobDead, KeyConflict, WorkersTooOld
from durio.keys import window
from durio.maintenance.plans import PlanKeeper
from durio.plans import Collected, PlanFailure, PlanJob, PlanState
from durio.stores.postgres import import_rows
from tests.conformance.postgres import ScratchSchema
from tests.e2e.moving import Died, Steps, die_here, mover

SECONDS = 20
LONG = 5000  # characters of a result that is too long for an entry


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move, "BATCH", 7)
    monkeypatch.setattr(import_rows, "PLACED_MAX", 5)
    monkeypatch.setattr(import_rows, "PLACED_ENTRIES_MAX", 3)


@pytest.fixture
def source(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@dataclass
class Shop:
    """An App with tasks, and what its error handlers were told."""

    url: str
    failures: list[PlanFailure] = field(default_factory=list[PlanFailure])
    is_broken: bool = True
    app: App = field(init=False)

    def __post_init__(self) -> None:
        app = self.app = App(
            self.url, name="shop", settings={"log": {"level": "error"}}
        )

        @app.task(name="add")
        async def add(n: int, more: int = 1) -> int:
            return n + more

        @app.task(name="long", retention="1m")
        async def long(letter: str) -> str:
            return letter * LONG

        @app.task(name="total")
        async def total(values: list[int]) -> int:
            return sum(values)

        @app.task(name="joined")
        async def joined(values: list[str]) -> list[str]:
            return [f"{value[0]}{len(value)}" for value in values]

        @app.task(name="broken", retry=0)
        async def broken(n: int) -> int:
            if self.is_broken:
                raise Permanent(f"no {n}")
            return n

        @app.task(name="grow")
        async def grow(ctx: Context, n: int) -> int:
            if n < 3:
                ctx.add(later(grow).s(n + 1))
            return n

        @app.task(name="instead")
        async def instead(ctx: Context, n: int) -> int:
            return ctx.replace(group(add.s(n), later(add).s(n)) | total.s())

        @app.task(name="tell")
        async def tell(failure: PlanFailure) -> None:
            self.failures.append(failure)

        @app.task(name="count")
        async def count(values: Collected[int]) -> list[int]:
            return [values.succeeded, values.failed]

        self.add, self.long, self.total, self.joined = add, long, total, joined
        self.broken, self.grow, self.instead = broken, grow, instead
        self.tell, self.count = tell, count


def later(task: Any) -> Any:
    return task.options(queue="later")


async def half_way(shop: Shop) -> dict[str, PlanJob[Any]]:
    """Enqueue plans of every kind, and run them as far as their queue is served."""
    add, long, broken = shop.add, shop.long, shop.broken
    plans: dict[str, PlanJob[Any]] = {
        "done": await (add.s(1) | add.s()).enqueue(),
        "chain": await (add.s(1) | later(add).s() | add.s()).enqueue(),
        "chord": await chord([add.s(1), later(add).s(2)], shop.total.s()).enqueue(),
        "long": await chord(
            [long.s("a"), later(long).s("b")], shop.joined.s()
        ).enqueue(),
        "delayed": await chain(
            add.s(1), later(add).s(), add.options(delay="1h").s()
        ).enqueue(),
        "failed": await (broken.s(1) | add.s()).on_error(shop.tell.s()).enqueue(),
        "collected": await (
            group(broken.s(1), later(add).s(1), on_error="collect") | shop.count.s()
        ).enqueue(),
        "replaced": await (shop.instead.s(1) | add.s()).enqueue(),
        "added": await (group(shop.grow.s(1)) | shop.total.s()).enqueue(),
        "cancelled": await (add.s(1) | later(add).s() | add.s()).enqueue(),
        "keyed": await keyed(shop).enqueue(),
        "large": await (
            group((add if n % 2 else later(add)).s(n) for n in range(1000))
            | shop.total.s()
        ).enqueue(),
        "failing": await (later(add).s(1) | add.s()).on_error(shop.tell.s()).enqueue(),
    }
    async with shop.app.worker(queues=["default"]) as worker:
        await worker.drained(SECONDS)
    await plans["cancelled"].cancel()
    # A failure that no leader of the file has seen.
    first = (await plans["failing"].status()).parents[0]
    await (await shop.app.job(first)).cancel()
    assert (await plans["failing"].status()).state is PlanState.RUNNING
    return plans


def keyed(shop: Shop) -> Any:
    plan = later(shop.add).s(1) | shop.add.s()
    return plan.options(key="once", unique=window("24h"))


VALUES = {
    "done": 3,
    "chain": 4,
    "chord": 5,
    "long": [f"a{LONG}", f"b{LONG}"],
    "failed": 2,
    "collected": [1, 1],
    "replaced": 5,
    "added": 6,
    "keyed": 3,
    "large": sum(range(1, 1001)),
}


async def finish(shop: Shop, ids: dict[str, str]) -> None:
    """Run all plans to their ends, and check each."""
    app = shop.app
    plans = {name: await app.plan(plan_id) for name, plan_id in ids.items()}
    assert (await plans["failed"].status()).state is PlanState.FAILED
    assert (await plans["done"].status()).state is PlanState.DONE
    assert not (again := await keyed(shop).enqueue()).created
    assert again.id == ids["keyed"]
    with pytest.raises(KeyConflict):
        other = shop.add.s(2) | shop.add.s()
        await other.options(key="once", unique=window("24h")).enqueue()
    shop.is_broken = False
    await plans["failed"].retry()
    async with app.worker() as worker:
        for name, value in VALUES.items():
            assert await plans[name].result(timeout=SECONDS) == value, name
        await worker.drained(SECONDS)
        with pytest.raises(JobCancelled):
            await plans["cancelled"].result(timeout=SECONDS)
        with pytest.raises(JobDead) as caught:
            await plans["failing"].result(timeout=SECONDS)
        assert caught.value.reason == "cancelled"
    last = (await plans["delayed"].status()).counts
    assert last == {"done": 2, "scheduled": 1}
    assert [(f.plan, f.error_type) for f in shop.failures] == [
        (ids["failing"], "JobCancelled")
    ]
    await plans["cancelled"].retry()
    async with app.worker():
        assert await plans["cancelled"].result(timeout=SECONDS) == 4


async def prepared(source: str) -> dict[str, str]:
    shop = Shop(source)
    async with shop.app:
        plans = await half_way(shop)
    assert len(shop.failures) == 1
    return {name: plan.id for name, plan in plans.items()}


async def moved(source: str, target: str, **parts: Any) -> Any:
    async with mover(source, target, **parts) as moving:
        return await moving.move(drain_seconds=SECONDS, by="ann")


def test_every_plan_goes_on(source: str, grounds: ScratchSchema) -> None:
    async def story() -> None:
        ids = await prepared(source)
        verdict = await moved(source, grounds.url)
        assert min(verdict.rows.values()) > 12
        assert verdict.differences == []
        shop = Shop(grounds.url)
        async with shop.app:
            await finish(shop, ids)

    asyncio.run(story())
