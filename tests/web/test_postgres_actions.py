"""One action of each area on PostgreSQL: what is done there, and its line in the audit."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from durio import App, chain
from durio.web import User
from tests.unit.app.app_harness import drained
from tests.web.browser import browser, dashboard

if TYPE_CHECKING:
    from tests.conformance.postgres import ScratchSchema

ADMIN = User("ann", "admin")
Act = Callable[[App, httpx.AsyncClient], Awaitable[tuple[str, str]]]


async def send(to: str) -> None:
    if to == "bad":
        raise ValueError("no address")


@asynccontextmanager
async def filled(url: str) -> AsyncGenerator[App]:
    """An App with a dead job and a waiting one."""
    async with App(url, name="shop") as app:
        task = app.task(name="send", queue="mail", retry=0)(send)
        await task.enqueue("bad")
        await drained(app)
        await task.enqueue("bob")
        yield app


async def ok(answer: httpx.Response) -> Any:
    assert answer.status_code < 300, answer.text
    return answer.json()


async def pause(_: App, client: httpx.AsyncClient) -> tuple[str, str]:
    path = "/admin/queues/mail"
    shown = await ok(await client.post(f"{path}/pause", json={"reason": "why"}))
    assert shown["paused"]["reason"] == "why"
    assert {state: each["count"] for state, each in shown["counts"].items()} == {
        "ready": 1,
        "scheduled": 0,
        "blocked": 0,
        "running": 0,
        "dead": 1,
    }
    return "pause", "shop:mail (why)"


async def move(_: App, client: httpx.AsyncClient) -> tuple[str, str]:
    body = {"to": "spare", "create": True}
    moved = await ok(await client.post("/admin/queues/mail/move", json=body))
    assert (moved["jobs"], moved["left"]) == (1, 0)
    return "move", "shop:mail to shop:spare"


async def purge(_: App, client: httpx.AsyncClient) -> tuple[str, str]:
    body = {"confirm": "mail"}
    purged = await ok(await client.post("/admin/queues/mail/purge", json=body))
    assert purged["jobs"] == 1
    return "cancel", "scheduled or blocked or ready jobs of shop:mail"


async def mute(_: App, client: httpx.AsyncClient) -> tuple[str, str]:
    (group,) = (await ok(await client.get("/admin/errors")))["items"]
    path = f"/admin/errors/{group['fingerprint']}"
    assert (await ok(await client.post(f"{path}/mute", json={})))["muted"] is not None
    shown = await ok(await client.get(path))
    assert shown["jobs"][0]["id"] == group["example_job"]
    return "mute", f"errors {group['fingerprint']}"


async def schedule(_: App, client: httpx.AsyncClient) -> tuple[str, str]:
    new = {"name": "hourly", "task": "send", "args_json": '["a"]', "every": "1h"}
    made = await ok(await client.post("/admin/schedules", json=new))
    (shown,) = (await ok(await client.get("/admin/schedules")))["items"]
    assert (shown["name"], shown["queue"]) == ("hourly", "mail")
    assert shown["version"] == made["version"]
    return "create", "schedule hourly"


async def cancel_plan(app: App, client: httpx.AsyncClient) -> tuple[str, str]:
    task = app.named("send")
    plan = await chain(task.si("a"), task.si("b")).enqueue()
    (shown,) = (await ok(await client.get("/admin/plans")))["items"]
    assert (shown["id"], shown["counts"]["waiting"]) == (plan.id, 2)
    answer = await ok(await client.post(f"/admin/plans/{plan.id}/cancel", json={}))
    assert answer["state"] == "cancelled"
    layout = (await ok(await client.get(f"/admin/plans/{plan.id}")))["layout"]
    assert [node["state"] for node in layout["nodes"]] == ["cancelled"] * 2
    return "cancel", f"plan {plan.id}"


@pytest.mark.parametrize(
    "act",
    [pause, move, purge, mute, schedule, cancel_plan],
    ids=lambda act: act.__name__,
)
def test_an_action_is_done_and_audited(grounds: "ScratchSchema", act: Act) -> None:
    async def main() -> None:
        async with (
            filled(grounds.url) as app,
            browser(dashboard(app, ADMIN)) as client,
        ):
            assert (await ok(await client.get("/admin/tasks")))["items"]
            verb, target = await act(app, client)
            (line,) = await (await app.store()).audit("shop", limit=1)
            assert (line.verb, line.target) == (verb, target)
            assert line.who == "ann@192.0.2.7 via dashboard"
            assert "request_id" in (line.read_details() or {})

    asyncio.run(main())
