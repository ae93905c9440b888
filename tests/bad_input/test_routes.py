"""Mistakes in routes: refused where they are written, or at enqueue with nothing stored."""

from pathlib import Path
from typing import Any

import pytest

from durio import App
from durio.errors import InvalidOption, InvalidRoute, QueueClosed
from durio.plans import chain
from durio.ports.control import AuditNote, QueueChange
from durio.queues import Queue, Route
from tests.bad_input.refusals import declined, refused
from tests.unit.app.app_harness import MEMORY, records, virtual


def declare(app: App) -> Any:
    @app.task(name="pay")
    async def pay(number: int) -> None: ...

    return pay


def lost(_task: str, arguments: Any, _meta: Any) -> Route | None:
    return arguments["tier"]


def answering(answer: Any) -> Any:
    def route(_task: str, _arguments: Any, _meta: Any) -> Any:
        return answer

    return route


async def later() -> None: ...


def promising(_task: str, _arguments: Any, _meta: Any) -> Any:
    return later()


async def all_refused(app: App, *words: str) -> None:
    """By every way of enqueueing."""
    pay = declare(app)
    async with refused(app, InvalidRoute, *words):
        await pay.enqueue(1)
    async with refused(app, InvalidRoute, *words):
        await pay.enqueue_many([(1,), (2,)])
    async with refused(app, InvalidRoute, *words):
        await app.enqueue("pay", 1)
    async with refused(app, InvalidRoute, *words):
        await chain(pay.s(1), pay.si(2)).enqueue()
    async with refused(app, InvalidRoute, *words):
        await app.schedules.create("daily", pay.s(1), every="1d")


@virtual(routes=[lost])
async def test_a_router_that_raises(app: App) -> None:
    await all_refused(app, "router lost failed for app.pay with KeyError: 'tier'")


@pytest.mark.parametrize(
    "answer", ["high", ("high", 5), {"queue": "high"}, False, Route]
)
@virtual
async def test_a_router_that_returns_no_route(app: App, answer: Any) -> None:
    app.routes = App(MEMORY, routes=[answering(answer)]).routes
    await all_refused(app, f"returned {answer!r:.80} for app.pay", 'Route("critical")')


@virtual(routes=[promising])
async def test_a_router_that_returns_a_coroutine(app: App) -> None:
    await all_refused(app, "returned <coroutine")


@virtual(queues=[Queue("critical")], routes=[("*", Route("critcal"))])
async def test_a_glob_that_leads_to_an_unknown_queue(app: App) -> None:
    await all_refused(app, "'critcal'", "Did you mean 'critical'?")


@virtual(routes=[answering(Route("unheard"))])
async def test_a_router_that_names_an_unknown_queue(app: App) -> None:
    await all_refused(app, "'unheard'", 'queues=[Queue("unheard")]')
    app.queue("unheard", weight=1)
    await app.enqueue("pay", 1)
    assert [record.lane for record in await records(app)] == ["app:unheard"]


@virtual(routes=[("pay", Route("mail"))])
async def test_a_queue_that_a_task_names_is_known(app: App) -> None:
    @app.task(name="send", queue="mail")
    async def send() -> None: ...

    await declare(app).enqueue(1)
    assert [record.lane for record in await records(app)] == ["app:mail"]


@virtual(queues=[Queue("high")], routes=[("*", Route("high"))])
async def test_a_route_to_a_closed_queue(app: App) -> None:
    store = await app.store()
    await store.set_queue("app:high", QueueChange(closed=True), AuditNote(who="ann"))
    with declined(QueueClosed, "high"):
        await declare(app).enqueue(1)
    assert await records(app) == []


BROKEN = {
    'routes = "pay"': "routes cannot be 'pay'",
    "routes = [7]": "names no tasks",
    '[[routes]]\nqueue = "high"': "names no tasks",
    '[[routes]]\ntasks = "pay"': "neither a queue nor a priority",
    '[[routes]]\ntask = "pay"': "has a key 'task'",
    '[[routes]]\ntasks = "pay"\nqueue = 7': "cannot be named '7'",
    '[[routes]]\ntasks = "pay"\npriority = 99': "priority",
    '[[routes]]\ntasks = "pay["\nqueue = "high"': "can match no task",
    '[[routes]]\ntasks = 7\nqueue = "high"': "a task cannot be named '7'",
}


@pytest.mark.parametrize("text", BROKEN)
def test_bad_routes_in_a_settings_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "other.toml"
    file.write_text(text)
    with declined(InvalidOption, str(file), BROKEN[text]):
        App(MEMORY, settings=str(file))


def test_routes_among_settings_in_code() -> None:
    with declined(InvalidOption, "there is no setting routes"):
        App(MEMORY, settings={"routes": [{"tasks": "pay", "queue": "high"}]})
