"""Routes: a job gets its queue and priority where it is enqueued, by the first rule."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from durio import App, Context, Job, chain, chord, group
from durio.model.job import PRIORITY_MAX
from durio.model.names import queue_of
from durio.queues import TIERS, Queue, Route
from durio.testing.clock import VirtualClock, run_virtual
from tests.unit.app.app_harness import MEMORY, drained, records, virtual, working

Seen = list[tuple[str, dict[str, Any], dict[str, object]]]


@dataclass
class Customer:
    tier: str


def by_urgency(
    _task: str, arguments: Mapping[str, Any], _meta: Mapping[str, object]
) -> Route | None:
    return Route("critical", 9) if arguments.get("urgent") else None


def by_tier(
    _task: str, arguments: Mapping[str, Any], meta: Mapping[str, object]
) -> Route | None:
    customer = arguments.get("customer")
    is_gold = isinstance(customer, Customer) and customer.tier == "gold"
    return Route("high") if is_gold or meta.get("tier") == "gold" else None


def recording(seen: Seen) -> Any:
    def record(task: str, arguments: Any, meta: Any) -> None:
        seen.append((task, dict(arguments), dict(meta)))

    return record


async def places(app: App) -> list[tuple[str, int]]:
    """Queue and priority of every job, the oldest first."""
    found = [(queue_of(r.lane), PRIORITY_MAX - r.rank) for r in await records(app)]
    return found[::-1]


# --- which rule decides


@pytest.mark.proves("M54", "L5")
@virtual(
    queues=TIERS,
    routes=[
        ("mail:bulk*", Route("bulk", 1)),
        ("mail:*", Route("low")),
        ("mail:bulk-now", Route("critical")),
    ],
)
async def test_the_first_glob_that_matches_decides(app: App) -> None:
    async def send() -> None: ...

    for name in ("mail:bulk-now", "mail:one", "other"):
        await app.task(name=name)(send).enqueue()
    assert await places(app) == [("bulk", 1), ("low", 5), ("default", 5)]


@pytest.mark.proves("M54", "M55", "L6")
@virtual(queues=TIERS, routes=[by_urgency, by_tier, ("pay", Route("low"))])
async def test_the_first_router_that_gives_a_route_decides(app: App) -> None:
    @app.task(name="pay")
    async def pay(customer: Customer, *, urgent: bool = False) -> None: ...

    gold, plain = Customer("gold"), Customer("plain")
    await pay.enqueue(gold, urgent=True)
    await pay.enqueue(gold)
    await pay.enqueue(plain)
    await pay.options(meta={"tier": "gold"}).enqueue(plain)
    expected = [("critical", 9), ("high", 5), ("low", 5), ("high", 5)]
    assert await places(app) == expected


# --- precedence

GIVEN: list[dict[str, Any]] = [
    {},
    {"queue": "low"},
    {"priority": 2},
    {"queue": "low", "priority": 2},
]
ROUTES = [None, Route("high"), Route(priority=8), Route("high", 8)]
DECLARED: list[dict[str, Any]] = [{}, {"queue": "bulk", "priority": 1}]


@pytest.mark.parametrize(
    ("call", "route", "declared"), list(product(GIVEN, ROUTES, DECLARED))
)
def test_the_call_wins_over_the_route_and_the_route_over_the_task(
    call: dict[str, Any], route: Route | None, declared: dict[str, Any]
) -> None:
    """Each of queue and priority by itself; the same by every way into the store."""
    of_route = (
        {} if route is None else {"queue": route.queue, "priority": route.priority}
    )
    of_route = {k: v for k, v in of_route.items() if isinstance(v, str | int)}
    expected = {"queue": "default", "priority": 5} | declared | of_route | call

    async def main(clock: VirtualClock) -> None:
        routes = [lambda _task, _arguments, _meta: route]
        async with App(MEMORY, clock=clock, queues=TIERS, routes=routes) as app:

            @app.task(name="pay", **declared)
            async def pay(number: int) -> None: ...

            calls = pay.options(**call)
            await calls.enqueue(1)
            await calls.enqueue_many([(2,), {"number": 3}])
            if "queue" not in call:  # a row cannot have its own queue
                await pay.enqueue_many([calls.s(4)])
            await app.named("pay").options(**call).enqueue(5)
            await chain(calls.s(6), calls.si(7)).enqueue()
            await group(pay.si(8), pay.si(9)).options(**call).enqueue()
            await app.schedules.create("each", calls.s(10), every="1h")
            await app.schedules.run("each")
            found = {
                (queue_of(r.lane), PRIORITY_MAX - r.rank) for r in await records(app)
            }
            jobs = len(await records(app))
        assert jobs == 10 + ("queue" not in call)  # one of them is the join
        assert found == {(expected["queue"], expected["priority"])}

    run_virtual(main)


# --- what a router gets


def recorded(app: App, *others: Any) -> Seen:
    """Give the App a router that notes its calls, and other rules."""
    seen: Seen = []
    app.routes = App(MEMORY, name=app.name, routes=[recording(seen), *others]).routes
    return seen


@virtual(name="shop")
async def test_a_router_gets_typed_arguments_by_name_with_defaults(app: App) -> None:
    seen = recorded(app)

    @app.task(name="pay")
    async def pay(
        customer: Customer, *more: int, note: str = "none", **rest: int
    ) -> None: ...

    row: Any = {"tier": "gold"}  # as JSON has it
    await pay.options(meta={"by": "ann"}).enqueue(row, 1, 2, extra=3)
    gold = {"customer": Customer("gold"), "more": (1, 2), "note": "none", "extra": 3}
    assert seen == [("shop.pay", gold, {"by": "ann"})]


@virtual(name="shop")
async def test_a_router_gets_a_context_never(app: App) -> None:
    seen = recorded(app)

    @app.task(name="pay")
    async def pay(ctx: Context, number: int) -> None: ...

    await pay.enqueue(7)
    assert seen == [("shop.pay", {"number": 7}, {})]


def change(_task: str, arguments: Any, meta: Any) -> None:
    arguments["numbers"].append(9)
    meta["more"] = True


@virtual(routes=[change])
async def test_what_a_router_changes_is_not_stored(app: App) -> None:
    @app.task(name="pay")
    async def pay(numbers: list[int]) -> None: ...

    await pay.options(meta={"by": "ann"}).enqueue([1])
    (record,) = await records(app)
    assert record.payload == b'[[],{"numbers":[1]}]'
    assert record.opts == b'{"meta":{"by":"ann"}}'


@pytest.mark.parametrize("is_published", [True, False])
@virtual(name="shop")
async def test_a_router_gets_untyped_arguments_of_a_task_by_name(
    app: App, *, is_published: bool
) -> None:
    """By the parameters that workers published; without any, the positionals are `args`."""

    @app.task(name="pay")
    async def pay(number: int, to: str = "ann", *rest: int) -> None: ...

    @app.task(name="refund")
    async def refund(number: int, to: str = "ann") -> None: ...

    if is_published:
        await drained(app)
    web = App(MEMORY, name="web")
    web.state = app.state
    seen = recorded(web, ("shop.*", Route("high")))
    await web.enqueue("shop.pay", 1, "bob", 2)
    await web.enqueue("shop.refund", 1, to="bob")
    one: dict[str, Any] = {"args": (1, "bob", 2)}
    two: dict[str, Any] = {"args": (1,), "to": "bob"}
    if is_published:
        one = {"number": 1, "to": "bob", "rest": (2,)}
        two = {"number": 1, "to": "bob"}
    assert [arguments for _, arguments, _ in seen] == [one, two]
    # Queues of another App need no declaration here.
    assert {record.lane for record in await records(app)} == {"shop:high"}


@virtual(name="shop")
async def test_no_router_is_asked_when_the_call_says_everything(app: App) -> None:
    seen = recorded(app)

    @app.task(name="pay")
    async def pay(number: int) -> None: ...

    await pay.options(queue="low", priority=1).enqueue(7)
    await pay.options(queue="low").enqueue(8)
    assert [arguments for _, arguments, _ in seen] == [{"number": 8}]


# --- plans and schedules


@virtual(queues=TIERS, routes=[by_urgency])
async def test_each_node_of_a_plan_has_its_own_route(app: App) -> None:
    @app.task(name="pay")
    async def pay(number: int, *, urgent: bool = False) -> int:
        return number + urgent

    await chain(pay.s(1, urgent=True), pay.s(), pay.s(urgent=True)).enqueue()
    expected = [("critical", 9), ("default", 5), ("critical", 9)]
    assert sorted(await places(app)) == sorted(expected)


@virtual(name="shop")
async def test_a_node_is_routed_without_the_argument_that_is_a_result(app: App) -> None:
    seen = recorded(app)

    @app.task(name="pay")
    async def pay(number: int, *, urgent: bool = False) -> int:
        return number + urgent

    @app.task(name="add")
    async def add(*numbers: int) -> int:
        return sum(numbers)

    @app.task(name="note")
    async def note(failure: Any, to: str) -> None: ...

    await (chain(pay.s(1), pay.s(), add.s(2)).on_error(note.s(to="ann"))).enqueue()
    await add.chunks([(1, 2), (3, 4), (5, 6)], 2).enqueue()
    assert [(task.partition(".")[2], arguments) for task, arguments, _ in seen] == [
        ("note", {"to": "ann"}),
        ("pay", {"number": 1, "urgent": False}),
        ("pay", {"urgent": False}),
        ("add", {"numbers": (2,)}),
        ("add", {"numbers": (1, 2)}),
        ("add", {"numbers": (5, 6)}),
    ]


@virtual(queues=TIERS, routes=[("note", Route("high", 8))])
async def test_an_error_handler_has_its_route(app: App) -> None:
    @app.task(name="fail")
    async def fail() -> None:
        raise ValueError

    @app.task(name="note")
    async def note(failure: Any) -> None: ...

    await chain(fail.options(retry=0).s()).on_error(note.s()).enqueue()
    async with working(app):
        await app.clock.sleep(10)
    assert ("high", 8) in await places(app)


@virtual(queues=TIERS, routes=[("high_*", Route("high")), ("low_*", Route("low", 1))])
async def test_a_join_runs_where_the_members_of_its_group_run(app: App) -> None:
    """A worker that serves only the queue of the members must be able to end the group."""

    @app.task(name="high_one")
    async def high() -> int:
        return 1

    @app.task(name="low_one")
    async def low() -> int:
        return 1

    highs, lows = group(high.si(), high.si()), group(low.si(), low.si())
    await group(chain(highs, group(low.si(), low.si())), chain(lows, highs)).enqueue()
    joins = {
        (queue_of(record.lane), PRIORITY_MAX - record.rank)
        for record in await records(app)
        if record.task == "app.~join"
    }
    assert joins == {("high", 5), ("low", 1)}


@virtual(queues=TIERS, routes=[by_urgency])
async def test_a_task_may_enqueue_and_replace_with_routes(app: App) -> None:
    done: list[tuple[str, bool]] = []

    @app.task(name="pay")
    async def pay(ctx: Context, *, urgent: bool) -> None:
        done.append((ctx.queue, urgent))

    @app.task(name="first")
    async def first(ctx: Context) -> Any:
        return ctx.replace(chain(pay.si(urgent=True), pay.si(urgent=False)))

    await chain(first.s()).enqueue()
    async with working(app):
        await app.clock.sleep(20)
    assert done == [("critical", True), ("default", False)]


@virtual(queues=TIERS, routes=[("pay", Route("high"))])
async def test_a_tick_of_a_schedule_has_its_route(app: App) -> None:
    @app.every("5s")
    @app.task(name="pay")
    async def pay() -> None: ...

    async with working(app):
        await app.clock.sleep(6)
        await app.schedules.create("plan", chord([pay.si()], pay.si()), every="5s")
        await app.clock.sleep(6)
    assert {queue for queue, _ in await places(app)} == {"high"}


def failing(_task: str, arguments: Any, _meta: Any) -> Route | None:
    return arguments["tier"]


@virtual
async def test_a_tick_whose_router_fails_makes_no_job(app: App) -> None:
    @app.every("5s")
    @app.task(name="pay")
    async def pay() -> None: ...

    async with working(app):
        app.routes = App(MEMORY, routes=[failing]).routes
        await app.clock.sleep(12)
        schedule = await app.schedules.get("pay")
    assert await records(app) == []
    assert schedule.ticks[-1].skipped is not None


# --- other ways in


def test_enqueue_sync_and_a_caller_transaction_are_routed() -> None:
    with_routes = App(MEMORY, queues=[Queue("high")], routes=[("pay", Route("high"))])

    @with_routes.task(name="pay")
    def pay(number: int) -> None: ...

    jobs: list[Job[None]] = [pay.enqueue_sync(1), *pay.enqueue_many_sync([(2,), (3,)])]
    assert [job.status_sync().queue for job in jobs] == ["high"] * 3
    with_routes.run_sync(with_routes.close())


def test_an_app_without_routes_has_none() -> None:
    assert App(MEMORY).routes is None
    assert App(MEMORY, routes=[]).routes is None


def test_routes_of_the_settings_file_come_after_those_in_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["[[tool.durio.routes]]", 'tasks = "*"', 'queue = "low"', "priority = 1"]
    (tmp_path / "pyproject.toml").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    app = App(MEMORY, queues=TIERS, routes=[("pay", Route("high"))])

    @app.task(name="pay")
    def pay() -> None: ...

    @app.task(name="send")
    def send() -> None: ...

    queues = [
        job.status_sync().queue for job in (pay.enqueue_sync(), send.enqueue_sync())
    ]
    assert queues == ["high", "low"]
    assert app.configuration.origin("routes").kind == "file"
    app.run_sync(app.close())
