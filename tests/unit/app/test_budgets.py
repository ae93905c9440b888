"""Budgets: an estimate is reserved, and what was spent is settled when the attempt ends."""

from collections.abc import Callable
from typing import Any

import pytest

from durio import App, Context, DeadLetter, Retry, Snooze
from durio.errors import UsageError
from durio.limits import Budget
from tests.unit.app.app_harness import drained, virtual, working

BUDGET = Budget("tokens", 1_000, per="1000d", estimate=100)


def declare(app: App, end: Callable[[], Any], *limits: Budget) -> Any:
    @app.task(name="ask", limits=[*(limits or [BUDGET])], retry=Retry(3, base=0))
    async def ask(ctx: Context, *amounts: float) -> None:
        for amount in amounts:
            ctx.spend(amount)
        end()

    return ask


async def tokens(app: App, name: str = "5r:app/tokens/") -> float:
    (gate,) = await (await app.store()).gates(name, limit=5)
    return round(gate.tokens, 1)


def returns() -> None: ...


def raising(*errors: BaseException) -> Callable[[], None]:
    left = list(errors)

    def end() -> None:
        if left:
            raise left.pop(0)

    return end


@virtual
async def test_what_was_not_spent_is_given_back(app: App) -> None:
    ask = declare(app, returns)
    await ask.enqueue(20, 10.5)
    assert await tokens(app) == 900
    await drained(app)
    assert await tokens(app) == pytest.approx(1_000 - 30.5, abs=1)


@virtual
async def test_spending_more_than_the_estimate_is_taken(app: App) -> None:
    ask = declare(app, returns)
    await ask.enqueue(1_500)
    await drained(app)
    assert await tokens(app) == pytest.approx(-500, abs=1)
    job = await ask.enqueue()
    assert (await job.status()).state == "blocked"


@virtual
async def test_without_a_report_the_estimate_stays_spent(app: App) -> None:
    ask = declare(app, returns)
    await ask.enqueue()
    await drained(app)
    assert await tokens(app) == pytest.approx(900, abs=1)


@pytest.mark.parametrize(
    ("error", "left"),
    [
        (DeadLetter("no"), 970),
        (Snooze("10d"), 970),
        (Retry.after("10d"), 970),
        (ValueError("again at once"), 940),  # two attempts, one estimate, 30 each
    ],
)
def test_an_attempt_that_fails_has_spent_it(error: BaseException, left: float) -> None:
    @virtual
    async def story(app: App) -> None:
        ask = declare(app, raising(error))
        await ask.enqueue(30)
        async with working(app):
            await app.clock.sleep(5.0)
        assert await tokens(app) == pytest.approx(left, abs=1)

    story()


@virtual
async def test_a_lost_attempt_keeps_its_estimate_spent(app: App) -> None:
    ask = declare(app, returns)
    await ask.enqueue(30)
    store: Any = await app.store()
    await store.context.writer.write(
        lambda tx: tx.db.rows("update job set lost = 1, losses = 1", ())
    )
    await drained(app)
    assert await tokens(app) == pytest.approx(1_000 - 100 - 30, abs=1)


@virtual
async def test_two_budgets_by_name(app: App) -> None:
    second = Budget("money", 10, per="1000d", key="who", estimate="cost")

    @app.task(name="ask", limits=[BUDGET, second])
    async def ask(ctx: Context, who: str | None, cost: float = 1) -> None:
        assert cost
        ctx.spend(5, "tokens")
        if who is not None:
            ctx.spend(0.5, "money")

    await ask.enqueue("ann", cost=4)
    assert await tokens(app, "2r:app/money/ann") == 6
    await drained(app)
    assert await tokens(app, "2r:app/money/ann") == pytest.approx(9.5, abs=0.5)
    assert await tokens(app) == pytest.approx(995, abs=1)
    await ask.enqueue(None)
    await drained(app)
    assert await tokens(app) == pytest.approx(990, abs=1)


@pytest.mark.parametrize("amount", [-1, float("nan"), float("inf"), "5", None, True])
def test_an_amount_that_is_none(amount: Any) -> None:
    @virtual
    async def story(app: App) -> None:
        ask = declare(app, returns)
        with pytest.raises(UsageError, match=r"ctx.spend cannot take"):
            await refused(app, ask, amount)

    story()


async def refused(app: App, task: Any, *args: Any) -> None:
    """Raise what the task got; its calls are checked in the worker."""
    errors: list[BaseException] = []

    @app.task(name="check", limits=[BUDGET])
    async def check(ctx: Context) -> None:
        try:
            ctx.spend(*args)
        except UsageError as error:
            errors.append(error)

    del task
    await check.enqueue()
    await drained(app)
    raise errors[0]


@virtual
async def test_a_task_without_a_budget(app: App) -> None:
    found: list[str] = []

    @app.task(name="plain")
    async def plain(ctx: Context) -> None:
        try:
            ctx.spend(5)
        except UsageError as error:
            found.append(str(error))

    await plain.enqueue()
    await drained(app)
    assert "the task has no budget" in found[0]
    assert "limits=[Budget(" in found[0]


@virtual
async def test_a_job_that_was_enqueued_before_its_budget(app: App) -> None:
    older = App(app.url, name=app.name, clock=app.clock)
    older.state = app.state

    @older.task(name="ask")
    async def ask_before(*amounts: float) -> None: ...

    jobs = [await ask_before.enqueue(30, 5)]
    declare(app, returns)
    await drained(app)
    jobs.append(await ask_before.enqueue(30))
    await drained(app)
    assert [(await job.status()).state for job in jobs] == ["done", "done"]
    assert await (await app.store()).gates("5r:", limit=1) == []


@pytest.mark.parametrize("name", [None, "money"])
def test_a_job_whose_key_is_missing(name: str | None) -> None:
    @virtual
    async def story(app: App) -> None:
        @app.task(name="ask", limits=[Budget("money", 10, key="who")])
        async def ask(ctx: Context, who: str | None = None) -> None:
            assert who is None
            ctx.spend(5, name)

        job = await ask.enqueue()
        await drained(app)
        assert (await job.status()).state == "done"
        assert await (await app.store()).gates("2r:", limit=1) == []

    story()


@virtual
async def test_a_name_that_the_task_does_not_declare(app: App) -> None:
    found: list[str] = []

    @app.task(name="ask", limits=[Budget("money", 10, key="who")])
    async def ask(ctx: Context, who: str | None = None) -> None:
        assert who is None
        try:
            ctx.spend(5, "mony")
        except UsageError as error:
            found.append(str(error))

    await ask.enqueue()
    await drained(app)
    assert "the task has the budgets money, not 'mony'" in found[0]
    assert "ctx.spend(5, 'money')" in found[0]


@virtual
async def test_a_plain_call_spends_nothing(app: App) -> None:
    ask = declare(app, returns)
    await ask(5)
    assert await (await app.store()).gates("", limit=1) == []


@virtual
async def test_a_budget_that_must_be_named(app: App) -> None:
    found: list[str] = []

    @app.task(name="ask", limits=[BUDGET, Budget("money", 5)])
    async def ask(ctx: Context, name: str | None) -> None:
        try:
            ctx.spend(5, name)
        except UsageError as error:
            found.append(str(error))

    await ask.enqueue(None)
    await ask.enqueue("time")
    await drained(app)
    assert "the budgets money, tokens" in found[0]
    assert "not 'time'" in found[1]
    assert "ctx.spend(5, 'money')" in found[1]
