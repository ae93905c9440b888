"""Limits of tasks: which gates a job gets, by every way to enqueue, and that they hold."""

from collections import Counter
from typing import Any

import pytest

from durio import App, Concurrency, Context, Job, Rate, chain, group
from durio.limits import Budget
from durio.model.gate import START
from durio.plans import PlanFailure
from durio.ports.browse import GateRow
from durio.testing.clock import VirtualClock, run_virtual
from tests.unit.app.app_harness import MEMORY, drained, virtual, working


class Running:
    """Counts how many calls run at once, by key."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def call(self, app: App, key: str, seconds: float = 1.0) -> None:
        self.now[key] += 1
        self.most[key] = max(self.most[key], self.now[key])
        await app.clock.sleep(seconds)
        self.now[key] -= 1


def declare(app: App, running: Running | None = None, **options: Any) -> Any:
    counted = Running() if running is None else running

    @app.task(name="send", **options)
    async def send(tenant: str | None = None, *, to: str = "") -> None:
        assert not to
        await counted.call(app, str(tenant))

    return send


async def gates(app: App) -> dict[str, GateRow]:
    store = await app.store()
    return {row.name: row for row in await store.gates("", limit=100)}


async def waiting(app: App) -> dict[str, tuple[int, int]]:
    """Places that are held, and jobs that wait, by gate."""
    return {name: (row.used, row.waiting) for name, row in (await gates(app)).items()}


# --- by every way to enqueue


@pytest.mark.proves("M102", "M121")
@virtual
async def test_every_way_to_enqueue_gives_the_same_gate(app: App) -> None:
    send = declare(app, limits=[Concurrency(1, key="tenant")])
    await send.enqueue("a")
    await send.enqueue(tenant="a")
    await send.enqueue_many([("a",), {"tenant": "a"}, send.s("a")])
    await app.enqueue("send", "a")
    await app.named("send").options(priority=9).enqueue(tenant="a")
    await (send.si("a") | send.si("a")).enqueue()
    await group([send.si("a")]).enqueue()
    await send.chunks([("a",), ("a",)], 2).enqueue()
    assert await waiting(app) == {"1k:app/send/a": (1, 9)}


@virtual
async def test_a_tick_has_the_gates_of_its_task(app: App) -> None:
    running = Running()
    send = declare(app, running, limits=[Concurrency(1, key="tenant")])
    for name in ("one", "two"):
        await app.schedules.create(name, send.s("a"), every="10s")
    await app.schedules.create("plan", send.si("a") | send.si("a"), every="10s")
    async with working(app):
        await app.clock.sleep(25.0)
    assert running.most == {"a": 1}
    assert "1k:app/send/a" in await gates(app)


def test_a_producer_without_the_code_computes_the_same_gates() -> None:
    async def main(clock: VirtualClock) -> None:
        async with App(MEMORY, name="shop", clock=clock) as app:

            @app.task(
                name="send",
                limits=[Concurrency(1, key="tenant"), Rate("1/m", key="to")],
            )
            async def send(tenant: str = "acme", *, to: str | None = None) -> None: ...

            async with working(app):
                await clock.sleep(1.0)  # it publishes its tasks
            producer = App(app.url, name="shop", clock=clock)
            producer.state = app.state
            for row in (send, producer.named("send")):
                await row.enqueue()
                await row.enqueue("b", to="x")
            assert {*await gates(app)} == {
                "1k:shop/send/acme",
                "1k:shop/send/b",
                "2r:shop/send-2/x",
            }
            assert (await waiting(app))["1k:shop/send/acme"] == (1, 1)

    run_virtual(main)


# --- they hold


@pytest.mark.proves("M102", "M121")
@virtual
async def test_no_more_jobs_of_a_key_run_at_once(app: App) -> None:
    running = Running()
    send = declare(app, running, limits=[Concurrency(2, key="tenant")])
    await send.enqueue_many([(f"t{n % 3}",) for n in range(30)])
    await drained(app)
    assert running.most == {"t0": 2, "t1": 2, "t2": 2}
    assert set((await waiting(app)).values()) == {(0, 0)}


@virtual
async def test_a_missing_key_has_no_limit(app: App) -> None:
    running = Running()
    send = declare(app, running, limits=[Concurrency(1, key="tenant")])
    await send.enqueue_many([(), (None,), ()])
    assert await gates(app) == {}
    await drained(app)
    assert running.most == {"None": 3}


@pytest.mark.proves("M204", "L17", "L19")
@virtual
async def test_a_rate_lets_jobs_start_at_an_even_pace(app: App) -> None:
    started: list[float] = []

    @app.task(name="poll", limits=[Rate("6/m", burst=2)])
    async def poll() -> None:
        started.append(app.clock.now())

    jobs = await poll.enqueue_many([()] * 5)
    async with working(app):
        for job in jobs:
            await job.result(timeout=60)
    passed = [round(at - started[0]) for at in started]
    assert passed == [0, 0, 10, 20, 30]


@virtual
async def test_keys_of_every_kind(app: App) -> None:
    @app.task(
        name="ship",
        limits=[
            Concurrency(1, key="order.tenant"),
            Concurrency(1, key=("order.tenant", "region")),
            Rate("1/s", key=lambda arguments: len(arguments["order"])),
            Rate("1/s", key=lambda arguments: (1, arguments["region"])),
        ],
    )
    async def ship(order: dict[str, Any], region: str = "eu") -> None: ...

    await ship.enqueue({"tenant": 7, "id": 1})
    assert {*await gates(app)} == {
        "1k:app/ship/7",
        '1k:app/ship-2/["7", "eu"]',
        "2r:app/ship-3/2",
        '2r:app/ship-4/["1", "eu"]',
    }


@virtual
async def test_two_tasks_share_a_limit_by_its_name(app: App) -> None:
    limit = Concurrency(1, name="smtp")
    running = Running()

    @app.task(name="send", limits=[limit])
    async def send() -> None:
        await running.call(app, "smtp")

    @app.task(name="remind", limits=[limit])
    async def remind() -> None:
        await running.call(app, "smtp")

    await group([send.s(), remind.s(), send.s(), remind.s()]).enqueue()
    await drained(app)
    assert running.most == {"smtp": 1}
    assert {*await gates(app)} == {"4w:app/smtp/"}


@virtual
async def test_a_budget_takes_the_estimate_before_the_job_starts(app: App) -> None:
    @app.task(
        name="ask",
        limits=[Budget("tokens", 100, per="100s", estimate="tokens", key="tenant")],
    )
    async def ask(tenant: str, tokens: int = 40) -> None: ...

    await ask.enqueue_many([("a",), ("a",), ("a", 90), ("b", 100)])
    found = await gates(app)
    assert {name: (row.tokens, row.waiting) for name, row in found.items()} == {
        "2r:app/tokens/a": (20.0, 1),
        "2r:app/tokens/b": (0.0, 0),
    }


# --- fair_by


@virtual
async def test_customers_take_turns(app: App) -> None:
    ran: list[str] = []

    @app.task(name="work", fair_by="tenant")
    async def work(tenant: str) -> None:
        ran.append(tenant)

    await work.enqueue_many([("big",)] * 100)
    await work.enqueue_many([("small",)] * 3)
    await drained(app, concurrency=1)
    assert ran.index("small") <= 17
    assert [n for n, who in enumerate(ran) if who == "small"][-1] <= 24


@virtual
async def test_the_gate_of_fairness_is_that_of_queue_and_priority(app: App) -> None:
    @app.task(name="work", fair_by="tenant", queue="mail")
    async def work(tenant: str) -> None: ...

    await work.enqueue_many([("a",)] * 20)
    await work.options(priority=9, queue="high").enqueue_many([("a",)] * 17)
    assert await waiting(app) == {
        "3f:app/fair:mail/5/a": (16, 4),
        "3f:app/fair:high/9/a": (16, 1),
    }
    store = await app.store()
    assert (await store.gates("3f:", limit=1))[0].cap == 16
    assert START == 1


# --- plans


@virtual
async def test_a_key_in_the_middle_of_a_plan(app: App) -> None:
    running = Running()

    @app.task(name="load", limits=[Concurrency(1, key="tenant")])
    async def load(row: int, tenant: str) -> int:
        await running.call(app, tenant)
        return row + 1

    plans = [await chain(load.s(1, "a"), load.s(tenant="a")).enqueue() for _ in "123"]
    await drained(app)
    assert [await plan.result(timeout=1) for plan in plans] == [3, 3, 3]
    assert running.most == {"a": 1}


@virtual
async def test_jobs_that_a_plan_adds_have_their_gates(app: App) -> None:
    running = Running()
    send = declare(app, running, limits=[Concurrency(1, key="tenant")])

    @app.task(name="split")
    async def split() -> None:
        Context.current().add(send.s("a"), send.s("a"))

    plan = await group([split.s(), split.s()]).enqueue()
    await drained(app)
    await plan.result(timeout=1)
    assert running.most == {"a": 1}


@virtual
async def test_jobs_of_error_handlers_have_their_gates(app: App) -> None:
    @app.task(name="boom", retry=0)
    async def boom() -> None:
        raise ValueError("no")

    @app.task(name="alert", limits=[Concurrency(1, key="who"), Rate("1/h", burst=2)])
    async def alert(failure: PlanFailure, who: str) -> None: ...

    for _ in range(3):
        await (boom.si() | boom.si()).on_error(alert.s(who="ann")).enqueue()
    async with working(app):
        await app.clock.sleep(30.0)
    found = await waiting(app)
    assert found == {"1k:app/alert/ann": (1, 0), "5r:app/alert-2/": (0, 1)}


# --- states


@virtual
async def test_a_job_that_waits_for_a_limit_is_blocked(app: App) -> None:
    send = declare(app, limits=[Concurrency(1)])
    jobs: list[Job[Any]] = await send.enqueue_many([("a",), ("b",)])
    assert [(await job.status()).state for job in jobs] == ["ready", "blocked"]
    await jobs[0].cancel()
    assert (await jobs[1].status()).state == "ready"
