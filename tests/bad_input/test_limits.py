"""Mistakes in limits: refused where they are written, or at enqueue with nothing stored."""

from typing import Any

import pytest

from durio import App, Concurrency, Rate, chain, group
from durio.errors import InvalidArguments, InvalidName, InvalidOption, UsageError
from durio.limits import Budget
from tests.bad_input.refusals import declined, refused
from tests.unit.app.app_harness import MEMORY, virtual, working

NO_TEXT: Any = 5


@pytest.mark.parametrize("count", [0, -1, True, 1.5, "5", None, 2**31])
def test_a_concurrency_that_is_no_count(count: Any) -> None:
    with declined(InvalidOption, f"Concurrency cannot take {count!r}", "1 or more"):
        Concurrency(count)


@pytest.mark.parametrize(
    "rate", ["", "100", "100/", "/m", "-1/s", "100/week", "many/m", 100, None, "1/0.s"]
)
def test_a_rate_that_does_not_parse(rate: Any) -> None:
    with declined(InvalidOption, "Rate cannot take", '"100/m"'):
        Rate(rate)


@pytest.mark.parametrize("rate", ["0/s", "0.0/m", "5/0s"])
def test_a_rate_of_nothing(rate: str) -> None:
    with declined(InvalidOption, "no job would ever start", "pause the queue"):
        Rate(rate)


@pytest.mark.parametrize("burst", [0, 0.5, -1, float("nan"), float("inf"), "2", True])
def test_a_burst_below_one_job(burst: Any) -> None:
    with declined(InvalidOption, "burst=", "would never start"):
        Rate("1/s", burst=burst)


@pytest.mark.parametrize("key", ["", "a b", "a.", ".a", "1a", (), ("a", 5), 5, ["a"]])
def test_a_key_that_names_nothing(key: Any) -> None:
    with declined(InvalidOption, "a limit cannot have"):
        Concurrency(1, key=key)
    with declined(InvalidOption, "a limit cannot have"):
        App(MEMORY).task(fair_by=key)


def test_a_name_that_is_none() -> None:
    with declined(InvalidName, "a limit cannot be named"):
        Rate("1/s", name="a/b")
    with declined(InvalidName, "a limit cannot be named"):
        Budget("", 5)
    none: Any = None
    with declined(InvalidName, "a limit cannot be named 'None'"):
        Budget(none, 5)


@pytest.mark.parametrize("name", ["queue:mail", "fair:mail", "breaker:smtp", "queue:"])
@virtual
async def test_a_name_that_is_reserved(app: App, name: str) -> None:
    async def send() -> None: ...

    words = (f"a limit of the name {name!r}", "are reserved", "another name")
    for limit in (Concurrency(1, name=name), Rate("1/s", name=name), Budget(name, 5)):
        with declined(InvalidName, *words):
            app.task(name="a", limits=[limit])(send)
    with declined(InvalidName, *words):  # the name of the task is that of its limit
        app.task(name=name, limits=[Rate("1/s")])(send)
    app.task(name=name, limits=[Rate("1/s", name="queues")])(send)


@pytest.mark.parametrize("amount", [0, -5, float("inf"), "many", True])
def test_a_budget_of_nothing(amount: Any) -> None:
    with declined(InvalidOption, "cannot have the amount", "above 0"):
        Budget("tokens", amount)


def test_a_budget_without_time_or_estimate() -> None:
    with declined(InvalidOption, "per=0", "above 0"):
        Budget("tokens", 5, per=0)
    with declined(InvalidOption, "above the whole budget", "Estimate less"):
        Budget("tokens", 5, estimate=6)
    with declined(InvalidOption, "the estimate -1"):
        Budget("tokens", 5, estimate=-1)
    estimate: Any = ["tokens"]
    with declined(InvalidOption, "cannot have estimate="):
        Budget("tokens", 5, estimate=estimate)


@pytest.mark.parametrize("limits", [5, "tenant", {}, Concurrency(1)])
def test_limits_that_are_no_list(limits: Any) -> None:
    with declined(InvalidOption, "limits cannot be", "Give a list"):
        App(MEMORY).task(limits=limits)


def test_a_list_of_something_else() -> None:
    wrong: Any = ["100/m"]
    with declined(InvalidOption, "limits cannot hold '100/m'", "Give a list"):
        App(MEMORY).task(limits=wrong)


@virtual
async def test_a_key_that_is_no_parameter(app: App) -> None:
    async def send(tenant: str) -> None: ...

    with declined(InvalidOption, "a limit by 'tennant'", "Did you mean 'tenant'?"):
        app.task(name="a", limits=[Concurrency(1, key="tennant.id")])(send)
    with declined(InvalidOption, "a limit by 'customer'"):
        app.task(name="b", fair_by="customer")(send)
    with declined(InvalidOption, "a limit by 'words'"):
        app.task(name="c", limits=[Budget("words", 5, estimate="words")])(send)

    @app.task(name="d", limits=[Concurrency(1, key="tenant")])
    async def anything(**_rest: str) -> None: ...

    await anything.enqueue(tenant="a")


@virtual
async def test_a_fifth_gate(app: App) -> None:
    async def send(tenant: str) -> None: ...

    limits = [Rate(f"{n}/s") for n in range(1, 6)]
    with declined(InvalidOption, "task app.a has 5 limits: a, a-2", "at most 4"):
        app.task(name="a", limits=limits)(send)
    with declined(InvalidOption, "has 5 limits", "fair:b"):
        app.task(name="b", limits=limits[:4], fair_by="tenant")(send)
    app.task(name="c", limits=limits[:3], fair_by="tenant")(send)


@virtual
async def test_limits_that_cannot_be_met_together(app: App) -> None:
    async def send(tenant: str) -> None: ...

    twice = [Rate("1/s", name="x"), Rate("2/s", name="x")]
    with declined(InvalidOption, "'x' twice", "its own name="):
        app.task(name="a", limits=twice)(send)
    app.task(name="b", limits=[Rate("1/s", name="x")])(send)
    with declined(InvalidOption, "tasks app.b and app.c", "no job could meet both"):
        app.task(name="c", limits=[Rate("2/s", name="x")])(send)
    with declined(InvalidOption, "tasks app.b and app.d"):
        app.task(name="d", limits=[Rate("1/s", key="tenant", name="x")])(send)
    app.task(name="e", limits=[Rate("1/s")])(send)
    with declined(InvalidOption, "tasks app.e and app.f"):
        app.task(name="f", limits=[Rate("1/s", name="e")])(send)
    app.task(name="g", limits=[Rate("1/s", name="x")])(send)


# --- at enqueue


def broken(arguments: Any) -> object:
    return arguments["tennant"]


async def all_refused(app: App, send: Any, error: Any, *words: str) -> None:
    """By every way of enqueueing."""
    async with refused(app, error, *words):
        await send.enqueue("a")
    async with refused(app, error, *words):
        await send.enqueue_many([("a",), ("b",)])
    async with refused(app, error, *words):
        await app.enqueue("send", "a")
    async with refused(app, error, *words):
        await chain(send.si("a"), send.si("b")).enqueue()


@virtual
async def test_a_function_that_raises(app: App) -> None:
    @app.task(name="send", limits=[Concurrency(1, key=broken)])
    async def send(tenant: str) -> None: ...

    words = ("limit 'send' failed with KeyError: 'tennant'", "Nothing was stored")
    await all_refused(app, send, UsageError, *words)


@pytest.mark.parametrize("value", [1.5, b"a", ["a"], {"a": 1}, object()])
def test_a_function_that_returns_no_key(value: object) -> None:
    @virtual
    async def story(app: App) -> None:
        @app.task(name="send", limits=[Concurrency(1, key=lambda _: value)])
        async def send(tenant: str) -> None: ...

        words = ("the key of limit 'send' is", "cannot be a key")
        await all_refused(app, send, InvalidArguments, *words)

    story()


@virtual
async def test_an_argument_that_is_no_key(app: App) -> None:
    @app.task(name="send", fair_by="tenant")
    async def send(tenant: list[str]) -> None: ...

    async with refused(app, InvalidArguments, "limit 'fair:send'", "a list"):
        await send.enqueue(["a"])


@virtual
async def test_an_estimate_above_the_budget(app: App) -> None:
    @app.task(name="ask", limits=[Budget("tokens", 100, estimate="tokens")])
    async def ask(tokens: Any) -> None: ...

    async with refused(app, InvalidOption, "the estimate 101 is above"):
        await ask.enqueue(101)
    async with refused(app, InvalidOption, "the estimate -1"):
        await ask.enqueue(-1)
    async with refused(app, InvalidOption, "a chunk", "the estimate 120"):
        await ask.chunks([(60,), (60,)], 2).enqueue()
    for wrong in ("many", None, True):
        async with refused(app, InvalidArguments, "an estimate that is no number"):
            await ask.enqueue(wrong)


@virtual
async def test_a_producer_without_the_code_of_a_function(app: App) -> None:
    key = lambda arguments: arguments["tenant"]  # noqa: E731
    cost = lambda arguments: len(arguments["tenant"])  # noqa: E731

    @app.task(name="send", limits=[Concurrency(1, key=key)])
    async def send(tenant: str) -> None: ...

    @app.task(name="ask", limits=[Budget("tokens", 9, estimate=cost)])
    async def ask(tenant: str) -> None: ...

    await send.enqueue("a")
    async with working(app):
        await app.clock.sleep(1.0)
    other = App(MEMORY, name="app", clock=app.clock)
    other.state = app.state
    for name in ("send", "ask"):
        words = ("a function as its key or estimate", "Import the task")
        async with refused(app, UsageError, *words, stored=1):
            await other.enqueue(name, "a")


@virtual
async def test_a_key_that_is_the_result_before(app: App) -> None:
    @app.task(name="send", limits=[Concurrency(1, key="tenant")])
    async def send(tenant: str) -> str:
        return tenant

    async with refused(app, UsageError, "reads the argument 'tenant'", ".si(...)"):
        await chain(send.s("a"), send.s()).enqueue()


@virtual
async def test_a_chunk_of_different_keys(app: App) -> None:
    @app.task(name="send", limits=[Concurrency(1, key="tenant")])
    async def send(tenant: str) -> None: ...

    async with refused(app, UsageError, "different limits", "send/a", "send/b"):
        await group([send.chunks([("a",), ("b",)], 2)]).enqueue()
