"""`auth=`: the host application says who asks; whatever it does, it opens no door."""

import asyncio
import threading  # noqa: TID251 - a hook that hangs in its thread
from typing import Any

import pytest
from starlette.requests import Request

from durio import App
from durio.errors import InvalidOption
from durio.web import User
from durio.web.access import hook as hooks
from tests.unit.app.app_harness import real, virtual
from tests.web.browser import browser, dashboard

OLGA = User("olga", "operator", queues=["mail"])


async def is_async(request: Request) -> User | None:
    return OLGA if request.headers.get("x-user") == "olga" else None


def is_sync(request: Request) -> User | None:
    return OLGA if request.headers.get("x-user") == "olga" else None


def unmarked(request: Request) -> Any:
    """A plain function that returns a coroutine."""
    return is_async(request)


class WithCall:
    async def __call__(self, request: Request) -> User | None:
        return await is_async(request)


@pytest.mark.parametrize("hook", [is_async, is_sync, WithCall(), unmarked])
def test_the_hook_is_asked_on_every_request(hook: Any):
    @virtual(name="shop")
    async def ask(app: App):
        async with browser(dashboard(app, auth=hook)) as client:
            assert (await client.get("/admin/me")).status_code == 401
            answer = await client.get("/admin/me", headers={"X-User": "olga"})
            me = answer.json()
            assert (me["user"], me["via"], me["queues"]) == ("olga", "hook", ["mail"])
            assert (await client.get("/admin/me")).status_code == 401

    ask()


def raises(_: Request) -> Any:
    raise RuntimeError("no database")


def exits(_: Request) -> Any:
    raise SystemExit(3)


async def raises_later(_: Request) -> Any:
    raise KeyError("user")


async def hangs(_: Request) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "hook",
    [
        raises,
        exits,
        raises_later,
        hangs,
        lambda _: "admin",
        lambda _: True,
        lambda _: {"name": "ann", "role": "admin"},
        lambda _: (OLGA,),
        lambda _: User,
        lambda _: User("ann", "root"),  # type: ignore[arg-type]
        lambda: OLGA,
    ],
)
def test_a_hook_that_fails_is_a_refusal(hook: Any):
    @virtual(name="shop")
    async def ask(app: App):
        async with browser(dashboard(app, auth=hook)) as client:
            assert (await client.get("/admin/me")).status_code == 401
            assert (
                await client.post("/admin/jobs/x/retry", json={})
            ).status_code == 401

    ask()


def test_threads_that_hang_do_not_stop_the_dashboard(monkeypatch: pytest.MonkeyPatch):
    """Nor do they take more than a few threads of the host application."""
    monkeypatch.setattr(hooks, "HOOK_SECONDS_MAX", 0.05)
    let_go, begun = threading.Event(), []

    def blocks(_: Request) -> User:
        begun.append(1)
        let_go.wait(30)
        return OLGA

    @real(name="shop")
    async def ask(app: App):
        async with browser(dashboard(app, auth=blocks)) as client:
            try:
                for _ in range(8):
                    assert (await client.get("/admin/me")).status_code == 401
                assert len(begun) == 4
                assert (await client.get("/livez")).status_code == 200
            finally:
                let_go.set()

    ask()


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "x" * 129},
        {"name": None},
        {"role": "root"},
        {"role": None},
        {"queues": "mail"},
        {"queues": 3},
    ],
)
def test_a_user_that_cannot_be(fields: dict[str, Any]):
    with pytest.raises(InvalidOption):
        User(**{"name": "ann", "role": "admin", **fields})
