"""Keys of plans: one plan per key, for a time or while it runs."""

import asyncio
from typing import Any

import pytest

from durio import App, Permanent, chain, group
from durio.client.plan_retry import resume_plans
from durio.errors import InvalidOption, InvalidPlan, KeyConflict, WrongState
from durio.keys import replace, while_active, while_waiting, window
from durio.model.ids import id_bytes
from durio.plans import PlanState
from tests.unit.app.app_harness import virtual, working

QUICK = {"worker": {"poll_seconds": 1}}


class Shop:
    def __init__(self, app: App) -> None:
        self.calls = 0

        @app.task(name="add")
        async def add(a: int, b: int = 1) -> int:
            self.calls += 1
            return a + b

        @app.task(name="later")
        async def later(x: int) -> int:
            await app.clock.sleep(100)
            return x

        @app.task(name="boom", retry=0)
        async def boom(x: int) -> int:
            raise Permanent(f"no {x}")

        self.add, self.later, self.boom = add, later, boom

    def chain(self, first: int = 1) -> Any:
        return chain(self.add.s(first), self.add.s(5))


@virtual(settings=QUICK)
async def test_a_window_gives_the_same_plan(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        unique = window("90s")
        plan = shop.chain().options(key="invoice:7", unique=unique)
        first = await plan.enqueue()
        assert first.created
        second = await plan.enqueue()
        assert (second, second.created) == (first, False)
        assert await second.result(timeout=60) == 7
        third = await plan.enqueue()
        assert (third, third.created) == (first, False)
        assert await third.result(timeout=60) == 7
        assert shop.calls == 2
        # The window is 24 h if nothing is said.
        with pytest.raises(KeyConflict, match=f"plan {first.id} has the key"):
            await shop.chain(2).options(key="invoice:7").enqueue()
        with pytest.raises(KeyConflict):  # another shape
            await group(shop.add.s(1)).options(key="invoice:7").enqueue()
        assert (await shop.chain(2).options(key="invoice:8").enqueue()).created
        await app.clock.sleep(90)
        assert (await plan.enqueue()).created


@virtual(settings=QUICK)
async def test_while_active_is_free_after_the_end(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        plan: Any = chain(shop.later.s(1), shop.add.s(1))
        plan = plan.options(key="k", unique=while_active)
        first = await plan.enqueue()
        other: Any = chain(shop.add.s(9), shop.add.s(1))
        same = await other.options(key="k", unique=while_active).enqueue()
        assert (same, same.created, same.same_args) == (first, False, False)
        assert (await plan.enqueue()).same_args
        assert await first.result(timeout=600) == 2
        again = await plan.enqueue()
        assert again.created
        assert again != first
        await again.cancel()
        await app.clock.sleep(10)
        failing: Any = chain(shop.boom.s(1), shop.add.s(1))
        failing = failing.options(key="k", unique=while_active)
        failed = await failing.enqueue()
        await app.clock.sleep(10)
        assert (await failed.status()).state is PlanState.FAILED
        assert (await plan.enqueue()).created


@virtual(settings=QUICK)
async def test_a_plan_is_not_retried_while_another_has_its_key(app: App) -> None:
    shop, store = Shop(app), await app.store()
    async with working(app):
        failing: Any = chain(shop.boom.s(1), shop.add.s(1))
        failed = await failing.options(key="k", unique=while_active).enqueue()
        await app.clock.sleep(10)
        newer: Any = chain(shop.later.s(1), shop.add.s(1))
        newer = await newer.options(key="k", unique=while_active).enqueue()
        assert newer.created
        with pytest.raises(WrongState, match=f"plan {newer.id} has its key"):
            await failed.retry()
        dead = id_bytes((await failed.status()).failed_node or "")
        (answer,) = (await resume_plans(store, [dead], app.clock, "ann")).values()
        assert answer.text == (
            f"runs alone: plan {newer.id} has the key of plan {failed.id}"
        )
        assert await newer.result(timeout=600) == 2
        assert await failed.retry() == 2


@virtual(settings=QUICK)
async def test_a_retried_plan_takes_its_key_again(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        plan: Any = chain(shop.later.s(1), shop.add.s(1))
        plan = plan.options(key="k", unique=while_active)
        first = await plan.enqueue()
        await first.cancel()
        await app.clock.sleep(10)
        second = await plan.enqueue()
        assert second.created
        with pytest.raises(WrongState, match=f"plan {second.id} has its key"):
            await first.retry()
        assert await second.result(timeout=600) == 2
        await first.retry()
        assert await plan.enqueue() == first
        assert await first.result(timeout=600) == 2


@virtual(settings=QUICK)
async def test_a_large_plan_with_a_key(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        plan = group(shop.add.s(n) for n in range(1500)).options(key="large")
        first = await plan.enqueue()
        assert (await plan.enqueue()) == first
        assert sum(await first.result(timeout=600)) == sum(range(1500)) + 1500


@virtual(settings=QUICK)
async def test_enqueues_at_once_store_one_plan(app: App) -> None:
    shop = Shop(app)
    async with working(app):
        for unique in (while_active, window("1h")):
            plan = shop.chain().options(key=f"k{unique.name}", unique=unique)
            handles = await asyncio.gather(*(plan.enqueue() for _ in range(10)))
            assert len({handle.id for handle in handles}) == 1
            assert [handle.created for handle in handles].count(True) == 1


@virtual(settings=QUICK)
async def test_other_policies_are_refused(app: App) -> None:
    shop = Shop(app)
    for unique in (replace, while_waiting):
        with pytest.raises(InvalidOption, match="a plan cannot have unique="):
            shop.chain().options(key="k", unique=unique)


@virtual(settings=QUICK)
async def test_keys_are_deleted_with_their_plans(app: App) -> None:
    shop = Shop(app)
    store = await app.store()
    async with working(app):
        plan = shop.chain().options(key="k", unique=while_active)
        assert await (await plan.enqueue()).result(timeout=60) == 7
        await app.clock.sleep(10)  # the leader marks it as done
    await app.clock.sleep(8 * 86400)
    async with working(app):
        await app.clock.sleep(60)
        assert await store.list_records(f"plan_key:{app.name}") == []
        assert await store.list_records(f"plan:{app.name}") == []


@virtual(settings=QUICK)
async def test_a_plan_is_refused_for_the_key_of_a_node(app: App) -> None:
    shop = Shop(app)
    keyed = shop.add.options(key="one", unique=while_active)
    with pytest.raises(InvalidPlan, match=r"node 0 \(.*add\) and node 2 .* 'one'"):
        await (keyed.s(1) | shop.add.s(1) | keyed.s(1)).enqueue()
    store = await app.store()
    assert await store.list_records(f"plan:{app.name}") == []
    holder = await keyed.enqueue(1)
    text = rf"job {holder.id} has the key 'one' of node 1 \({app.name}.add\)"
    with pytest.raises(KeyConflict, match=text) as refused:
        await (shop.add.s(1) | keyed.s(1)).enqueue()
    assert refused.value.values["key"] == "one"
    assert await store.list_records(f"plan:{app.name}") == []


@virtual(settings=QUICK)
async def test_a_node_whose_key_is_taken_keeps_its_plan_failed(app: App) -> None:
    shop = Shop(app)
    boom = shop.boom.options(key="one", unique=while_active)
    async with working(app):
        handle = await (boom.s(1) | shop.add.s(1)).enqueue()
        await app.clock.sleep(10)
        later = shop.boom.options(key="one", unique=while_active, delay="50s")
        await later.enqueue(2)
        with pytest.raises(WrongState, match="was not retried"):
            await handle.retry()
        assert (await handle.status()).state is PlanState.FAILED
        await app.clock.sleep(120)
        assert await handle.retry() == 1  # the other node waits again already
