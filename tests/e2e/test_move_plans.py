"""`durio move` carries plans: what has happened stays, and the rest happens in the new store.

The file is left half-way: its worker serves only the queue `default`, and the jobs in `later`
run after the move.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from durio import App, Context, Permanent, chain, chord, group
from durio.app import move
from durio.app.move import MoveFailed, Mover
from durio.errors import (
    JobCancelled,
    JobDead,
    KeyConflict,
    PlanNotFound,
    StoreMoved,
    WorkersTooOld,
)
from durio.keys import window
from durio.maintenance.plans import PlanKeeper
from durio.model.effects import Append, Effects, NewEntry
from durio.model.job import NewJob
from durio.model.logs import Wait
from durio.plans import Collected, PlanFailure, PlanJob, PlanState
from durio.stores.postgres import import_rows
from tests.conformance.postgres import ScratchSchema
from tests.conformance.scene import info
from tests.e2e.moving import Died, Steps, die_here, mover, with_fault
from tests.e2e.workers import Place

SECONDS = 20
LONG = 5000  # characters of a result that is too long for an entry
SETTINGS = {"log": {"level": "error"}, "worker": {"leader_seconds": 1}}
COUNT_ROWS = """
select (select count(*) from {schema}.record) + (select count(*) from {schema}.log)
  + (select count(*) from {schema}.entry) + (select count(*) from {schema}.waits)
  + (select count(*) from {schema}.job) + (select count(*) from {schema}.sched)
  + (select count(*) from {schema}.ready) + (select count(*) from {schema}.kept)
"""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move, "BATCH", 12)
    monkeypatch.setattr(import_rows, "PLACED_MAX", 10)
    monkeypatch.setattr(import_rows, "PLACED_ENTRIES_MAX", 5)


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
        app = self.app = App(self.url, name="shop", settings=SETTINGS)

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


async def half_way(shop: Shop, members: int) -> dict[str, PlanJob[Any]]:
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
            group((add if n % 2 else later(add)).s(n) for n in range(members))
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


def keyed(shop: Shop, n: int = 1) -> Any:
    plan = later(shop.add).s(n) | shop.add.s()
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
    "cancelled": 4,
    "keyed": 3,
}


async def finish(shop: Shop, ids: dict[str, str], members: int = 10) -> None:
    """Run all plans to their ends, and check each."""
    app = shop.app
    plans = {name: await app.plan(plan_id) for name, plan_id in ids.items()}
    assert (await plans["failed"].status()).state is PlanState.FAILED
    assert (await plans["done"].status()).state is PlanState.DONE
    assert not (again := await keyed(shop).enqueue()).created
    assert again.id == ids["keyed"]
    other = keyed(shop, 2)
    with pytest.raises(KeyConflict):
        await other.enqueue()
    with pytest.raises(JobCancelled):
        await plans["cancelled"].result(timeout=SECONDS)
    shop.is_broken = False
    await plans["failed"].retry()
    await plans["cancelled"].retry()
    async with app.worker() as worker:
        for name, value in VALUES.items():
            assert await plans[name].result(timeout=SECONDS) == value, name
        large = await plans["large"].result(timeout=SECONDS)
        assert large == sum(range(1, members + 1))
        await worker.drained(SECONDS)
        with pytest.raises(JobDead) as caught:
            await plans["failing"].result(timeout=SECONDS)
        assert caught.value.reason == "cancelled"
    last = (await plans["delayed"].status()).counts
    assert last == {"done": 2, "scheduled": 1}
    assert [(f.plan, f.error_type) for f in shop.failures] == [
        (ids["failing"], "JobCancelled")
    ]


async def prepared(source: str, members: int = 10) -> dict[str, str]:
    shop = Shop(source)
    async with shop.app:
        plans = await half_way(shop, members)
    assert len(shop.failures) == 1
    return {name: plan.id for name, plan in plans.items()}


async def moved(source: str, target: str, **parts: Any) -> Any:
    async with mover(source, target, **parts) as moving:
        return await moving.move(drain_seconds=SECONDS, by="ann")


async def ended(target: str, ids: dict[str, str], members: int = 10) -> None:
    shop = Shop(target)
    async with shop.app:
        await finish(shop, ids, members)


@dataclass
class Before:
    """A store of a move, with something that happens before its calls."""

    store: Any
    call: Callable[[str], Awaitable[object]]

    def __getattr__(self, name: str) -> Any:
        async def called(*args: Any, **named: Any) -> Any:
            await self.call(name)
            return await getattr(self.store, name)(*args, **named)

        return called


def test_every_plan_goes_on(
    source: str, grounds: ScratchSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move, "BATCH", 100)

    async def story() -> None:
        ids = await prepared(source, members=1000)
        verdict = await moved(source, grounds.url)
        assert verdict.differences == []
        assert verdict.rows["entry"] > 500
        app = Shop(source).app
        async with app:
            with pytest.raises(StoreMoved):
                await (await app.plan(ids["chain"])).result(timeout=SECONDS)
        await ended(grounds.url, ids, members=1000)

    asyncio.run(story())


def test_a_leader_there_finds_no_part_of_a_plan(
    source: str, grounds: ScratchSchema
) -> None:
    """It looks before every step of the mover; plans appear when all their jobs are there."""

    async def story() -> None:
        ids = await prepared(source)
        there = Shop(grounds.url).app
        store = await there.store()
        keeper = PlanKeeper(store, there.clock, there.emit, there.name, 3600.0)

        async with there, mover(source, grounds.url) as moving:

            async def turn(verb: str) -> None:
                keeper.deletes_at = 0.0
                await keeper.turn()
                if verb not in ("place_rows", "open"):
                    with pytest.raises(PlanNotFound):
                        await (await there.plan(ids["chain"])).status()

            moving.target = Before(moving.target, turn)
            await moving.move(drain_seconds=SECONDS, by="ann")
        await ended(grounds.url, ids)

    asyncio.run(story())


def test_a_store_that_has_had_plans_of_this_app(
    source: str, grounds: ScratchSchema
) -> None:
    """Its logs of failures and ends, and the leader's positions in them, go on."""

    async def story() -> None:
        ids = await prepared(source)
        there = Shop(grounds.url)
        async with there.app as app:
            async with app.worker() as worker:
                await (there.broken.s(1) | there.add.s()).enqueue()
                await (there.add.s(1) | there.add.s()).enqueue()
                await worker.drained(SECONDS)
            store: Any = await app.store()
            assert (await store.log_lengths(["pf:shop"])) == {"pf:shop": 1}
            for emptied in ("truncate {schema}.kept", "truncate {schema}.hist"):
                await store.context.connections.write_one(emptied)
        await moved(source, grounds.url)
        await ended(grounds.url, ids)

    asyncio.run(story())


def test_jobs_whose_wait_is_over_are_let_go_there(
    source: str, grounds: ScratchSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One transaction of the file lets 1,000 jobs go; the rest is left to its upkeep."""
    monkeypatch.setattr(move, "BATCH", 1000)

    async def story() -> None:
        async with Shop(source).app as app:
            store, wait = await app.store(), Wait("j:shop/1", 0)
            for count in (900, 101):
                ids = [app.clock.new_id() for _ in range(count)]
                make = partial(NewJob, lane="shop:default", rank=4, task="shop.add")
                jobs = [make(i, payload=b"[[1],{}]", wait=wait) for i in ids]
                await store.commit(Effects(jobs))
            await store.commit(Effects(appends=[Append("j:shop/1", [NewEntry(b"")])]))
            assert await app.jobs(state="blocked").count() == 1
        async with mover(source, grounds.url) as moving:

            async def settle(_verb: str) -> None:
                await moving.target_store.settle(10)

            moving.target = Before(moving.target, settle)
            await moving.move(drain_seconds=SECONDS, by="ann")
        async with Shop(grounds.url).app as app:
            await (await app.store()).settle(10)
            assert await app.jobs(state="blocked").count() == 0
            assert await app.jobs(state="ready").count() == 1001

    asyncio.run(story())


# --- dying on the way


def test_plans_arrive_after_a_death_at_each_step(
    source: str, grounds: ScratchSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move, "BATCH", 25)

    async def story() -> None:
        ids = await prepared(source)
        deaths, fatal, is_over = 0, 12, False
        while not is_over:
            try:
                await moved(source, grounds.url, steps=Steps(fatal, die_here))
                is_over = True
            except Died:
                deaths, fatal = deaths + 1, fatal + 1
        assert deaths > 20
        await ended(grounds.url, ids)

    asyncio.run(story())


def test_plans_arrive_after_a_fault_at_each_statement(
    source: str, grounds: ScratchSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move, "BATCH", 40)

    async def story() -> None:
        ids = await prepared(source)
        nth, is_over = 0, False
        while not is_over:
            nth += 1
            async with mover(source, grounds.url) as moving:
                is_over = await with_fault(moving, nth)
        assert nth > 10
        await ended(grounds.url, ids)

    asyncio.run(story())


def test_a_killed_mover_is_followed_by_the_next(
    place: Place, grounds: ScratchSchema
) -> None:
    ids = asyncio.run(prepared(place.url))
    for fatal in (14, 30):
        place.run("tests.e2e.moving", place.url, grounds.url, str(fatal)).ended(SECONDS)
    asyncio.run(moved(place.url, grounds.url))
    asyncio.run(ended(grounds.url, ids))


def test_a_move_that_is_taken_back_leaves_no_plans(
    source: str, grounds: ScratchSchema
) -> None:
    async def story() -> None:
        ids = await prepared(source)
        for fatal in (12, 20, 30, 45):
            with pytest.raises(Died):
                await moved(source, grounds.url, steps=Steps(fatal, die_here))
            async with mover(source, grounds.url) as moving:
                await moving.back_out(by="ann")
                assert await rows_in(moving) == 0
        await ended(source, ids)

    asyncio.run(story())


async def rows_in(moving: Mover) -> int:
    store: Any = moving.target_store
    ((rows,),) = await store.context.connections.read(COUNT_ROWS)
    return rows


async def enqueued(source: str) -> str:
    shop = Shop(source)
    async with shop.app:
        return (await (shop.add.s(1) | shop.add.s()).enqueue()).id


async def check_result(url: str, plan: str) -> None:
    async with Shop(url).app as app, app.worker():
        assert await (await app.plan(plan)).result(timeout=SECONDS) == 3


def test_a_move_that_shows_plans_is_not_taken_back(
    source: str, grounds: ScratchSchema
) -> None:
    async def story() -> None:
        plan = await enqueued(source)

        async def die_late(verb: str) -> None:
            if verb == "open":
                raise Died

        async with mover(source, grounds.url) as moving:
            moving.target = Before(moving.target, die_late)
            with suppress(Died):
                await moving.move(drain_seconds=SECONDS, by="ann")
        async with mover(source, grounds.url) as moving:
            with pytest.raises(MoveFailed, match="cannot be undone"):
                await moving.back_out(by="ann")
            await moving.move(drain_seconds=SECONDS, by="ann")
        await check_result(grounds.url, plan)

    asyncio.run(story())


# --- workers there


def test_workers_there_must_know_plans(source: str, grounds: ScratchSchema) -> None:
    """Nothing changes while an older one runs; afterwards none can register."""

    async def story() -> None:
        plan = await enqueued(source)
        async with mover(source, grounds.url) as moving:
            store: Any = moving.target_store
            worker = await store.register(info("shop"), 60.0)
            write = store.context.connections.write_one
            await write("update {schema}.worker set protocol = 0")
            with pytest.raises(WorkersTooOld, match="an older version of Durio run: "):
                await moving.move(drain_seconds=SECONDS, by="ann")
            assert await moving.source.mark() is None
            await store.leave(worker)
            await moving.move(drain_seconds=SECONDS, by="ann")
            rows = await store.context.connections.read(
                "select namespace, required from {schema}.protocol"
            )
            assert [tuple(row) for row in rows] == [("shop", 1)]
        await check_result(grounds.url, plan)

    asyncio.run(story())
