"""Mistakes of tasks that change their plan: the job is dead, and nothing else is stored."""

from collections.abc import Callable
from typing import Any

import pytest

from durio import App, Context, Retry
from durio.errors import JobDead, UsageError
from durio.keys import while_active
from durio.model.plan_change import change_kind
from durio.model.plan_record import plan_kind
from durio.plans import chain, group
from durio.worker import plan_changes
from tests.bad_input.refusals import declined
from tests.unit.app.app_harness import MEMORY, records, virtual, working

QUICK = {"worker": {"poll_seconds": 1}}


class Shop:
    """A task that asks its plan for something, and one that does not."""

    def __init__(self, app: App) -> None:
        self.asks: Callable[[Context], Any] = lambda _: None

        @app.task(name="add")
        async def add(a: int, b: int = 1) -> int:
            return a + b

        @app.task(name="ask", retry=Retry(0))
        async def ask(ctx: Context) -> Any:
            return self.asks(ctx)

        self.app, self.add, self.ask = app, add, ask

    async def refuses(self, link: Any, *words: str) -> None:
        """Run a plan with `ask`, or that job alone: it is dead, and nothing else changes."""
        store = await self.app.store()
        async with working(self.app):
            handle = await link.enqueue()
            before = len(await records(self.app))
            plans = await store.list_records(plan_kind(self.app.name))
            with pytest.raises(JobDead) as dead:
                await handle.result(timeout=60)
            await self.app.clock.sleep(60)  # the leader handles the failure
        for word in words:
            assert word in str(dead.value)
        assert len(await records(self.app)) == before
        after = await store.list_records(plan_kind(self.app.name))
        assert [plan.name for plan in after] == [plan.name for plan in plans]
        assert await store.list_records(change_kind(self.app.name)) == []


Asks = Callable[[Shop, Context], Any]
other_app = App(MEMORY, name="bank")


@other_app.task(name="pay")
async def pay() -> int:
    return 1


# --- ctx.add


@virtual(settings=QUICK)
async def test_a_member_is_added_outside_a_plan(app: App) -> None:
    shop = Shop(app)
    shop.asks = lambda ctx: ctx.add(shop.add.s(1))
    await shop.refuses(shop.ask.s(), "the job is in no plan")


@virtual(settings=QUICK)
async def test_a_member_is_added_outside_a_group(app: App) -> None:
    shop = Shop(app)
    shop.asks = lambda ctx: ctx.add(shop.add.s(1))
    await shop.refuses(chain(shop.ask.s(), shop.add.s()), "the job is in no group")


ADDED: dict[str, tuple[Callable[[Shop], list[Any]], list[str]]] = {
    "a plan": (
        lambda shop: [shop.add.s(1), shop.add.s(1) | shop.add.s()],
        ["ctx.add takes signatures"],
    ),
    "a task": (
        lambda shop: [shop.add.s(1), shop.add],
        ["the task add, without its arguments"],
    ),
    "a member without its argument": (
        lambda shop: [shop.add.s(1), shop.add.s()],
        ["needs the argument 'a'", "no result is before it"],
    ),
    "an argument that is no JSON": (
        lambda shop: [shop.add.s(1), shop.add.s(object())],  # type: ignore[arg-type]
        ["app.add", "object"],
    ),
    "a member of another App": (
        lambda shop: [shop.add.s(1), pay.s()],
        ["two Apps: bank.pay"],
    ),
    "too many members": (
        lambda shop: [shop.add.s(1)] * 501,
        ["500 members at most"],
    ),
}


@pytest.mark.parametrize("name", ADDED)
@virtual(settings=QUICK)
async def test_a_member_is_refused(app: App, name: str) -> None:
    shop, (members, words) = Shop(app), ADDED[name]
    shop.asks = lambda ctx: ctx.add(*members(shop))
    await shop.refuses(group(shop.ask.s()), *words)


@virtual(settings=QUICK)
async def test_a_member_is_added_before_too_many_followers(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_changes, "FOLLOWERS_MAX", 2)
    shop = Shop(app)
    shop.asks = lambda ctx: ctx.add(shop.add.s(1))
    followers = group([shop.add.si(1)] * 3)
    await shop.refuses(group(shop.ask.s()) | followers, "3 jobs follow the group")


@virtual(settings=QUICK)
async def test_a_key_of_a_member_is_taken(app: App) -> None:
    shop = Shop(app)
    keyed = shop.add.options(key="k", unique=while_active)
    await keyed.options(delay="1h").enqueue(0)
    shop.asks = lambda ctx: ctx.add(shop.add.s(1), keyed.s(1))
    await shop.refuses(group(shop.ask.s()), "has the key 'k'")


# --- ctx.replace


def not_returned(shop: Shop, ctx: Context) -> int:
    ctx.replace(shop.add.s(1))
    return 5


def called_twice(shop: Shop, ctx: Context) -> int:
    ctx.replace(shop.add.s(1))
    return ctx.replace(shop.add.s(2))


REPLACED: dict[str, tuple[Asks, list[str]]] = {
    "a plan that is not returned": (not_returned, ["returned another value"]),
    "a second plan": (called_twice, ["called twice"]),
    "a plan without ctx.replace": (
        lambda shop, _: shop.add.s(1) | shop.add.s(),
        ["returned a plan", "ctx.replace"],
    ),
    "a task": (
        lambda shop, ctx: ctx.replace(shop.add),  # type: ignore[arg-type]
        ["the task add, without its arguments"],
    ),
    "a first node without its argument": (
        lambda shop, ctx: ctx.replace(shop.add.s()),
        ["needs the argument 'a'", "first node"],
    ),
    "a plan of another App": (
        lambda _, ctx: ctx.replace(pay.s()),
        ["two Apps: bank.pay"],
    ),
    "a task whose queue is not known": (
        lambda shop, ctx: ctx.replace(shop.app.s("app.elsewhere", 1)),
        ["no code of the task", "options(queue="],
    ),
    "a plan with a key": (
        lambda shop, ctx: ctx.replace(chain(shop.add.s(1)).options(key="k")),
        ["cannot have its own key"],
    ),
}


@pytest.mark.parametrize("name", REPLACED)
@virtual(settings=QUICK)
async def test_a_replacement_is_refused(app: App, name: str) -> None:
    shop, (asks, words) = Shop(app), REPLACED[name]
    shop.asks = lambda ctx: asks(shop, ctx)
    await shop.refuses(shop.ask.s(), *words)


@virtual(settings=QUICK)
async def test_a_replacement_is_awaited(app: App) -> None:
    shop = Shop(app)

    @app.task(name="awaits", retry=Retry(0))
    async def awaits(ctx: Context) -> Any:
        return await ctx.replace(shop.add.s(1))

    await shop.refuses(awaits.s(), "awaits ctx.replace()", "without await")


@virtual(settings=QUICK)
async def test_a_task_replaces_itself_for_ever(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plans in the row that were stored before fail with the last one."""
    monkeypatch.setattr(plan_changes, "REPLACED_IN_A_ROW_MAX", 3)
    shop = Shop(app)
    shop.asks = lambda ctx: ctx.replace(shop.ask.s())
    store = await app.store()
    async with working(app):
        handle = await chain(shop.ask.s(), shop.add.s()).enqueue()
        with pytest.raises(JobDead, match="4 plans in a row") as dead:
            await handle.result(timeout=60)
        await app.clock.sleep(60)
        assert dead.value.reason == "plan_refused"
        plans = await store.list_records(plan_kind(app.name))
        states = [(await (await app.plan(p.name)).status()).state for p in plans]
    assert states == ["failed"] * 4
    assert len(await records(app)) == 2 + 3


@virtual
async def test_a_plain_call_has_no_plan(app: App) -> None:
    shop = Shop(app)
    for asks in (
        lambda ctx: ctx.replace(shop.add.s(1)),
        lambda ctx: ctx.add(shop.add.s(1)),
    ):
        shop.asks = asks
        with declined(UsageError, "a plain call has no job"):
            await shop.ask()
    assert await records(app) == []


@pytest.mark.parametrize(
    "ask",
    [
        lambda shop, ctx: ctx.replace(shop.add.s(1)),
        lambda shop, ctx: ctx.add(shop.add.s(1)),
    ],
    ids=["replace", "add"],
)
@virtual(settings=QUICK)
async def test_a_call_of_a_chunk_changes_the_plan(app: App, ask: Asks) -> None:
    shop = Shop(app)

    @app.task(name="row", retry=Retry(0))
    async def row(ctx: Context, n: int) -> Any:
        return ask(shop, ctx) or n

    words = "a job of several calls cannot change its plan"
    await shop.refuses(row.chunks([(1,), (2,)], 2), words)
