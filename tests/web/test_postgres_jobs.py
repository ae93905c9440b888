"""Jobs in the admin API on PostgreSQL: search, one job, changes, bulk actions, dead letters."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from durio import App
from durio.client import bulk_runner
from durio.client.bulk_runner import BulkRunner
from durio.errors import StoreUnavailable
from durio.web import User
from tests.unit.app.app_harness import drained
from tests.web.browser import browser, dashboard

if TYPE_CHECKING:
    from tests.conformance.postgres import ScratchSchema

ADMIN = User("ann", "admin")
Story = Callable[[App, httpx.AsyncClient], Awaitable[None]]


async def send(to: str, amount: int = 1) -> None:
    del amount
    if not to:
        raise ValueError("no address")


def run(grounds: "ScratchSchema", story: Story) -> None:
    """A story in an App with 9 dead jobs, 3 done ones and a waiting one."""

    async def whole() -> None:
        async with App(grounds.url, name="shop") as app:
            task = app.task(name="send", queue="mail", retry=0)(send)
            await task.enqueue_many(
                [("bob" if n % 4 == 3 else "", n) for n in range(12)]
            )
            await drained(app)
            await task.options(delay="1h", key="k").enqueue("eve")
            async with browser(dashboard(app, ADMIN)) as client:
                await story(app, client)

    asyncio.run(whole())


async def ask(client: httpx.AsyncClient, path: str, **params: Any) -> Any:
    answer = await client.get(f"/admin/{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def post(client: httpx.AsyncClient, path: str, **body: Any) -> Any:
    answer = await client.post(f"/admin/{path}", json=body)
    assert answer.status_code < 300, answer.text
    return answer.json()


def test_searches_pages_and_counts(grounds: "ScratchSchema") -> None:
    async def story(_: App, client: httpx.AsyncClient) -> None:
        found = await ask(
            client, "jobs", q="queue:mail args.amount:>=6 -state:scheduled"
        )
        amounts = [
            (await ask(client, f"jobs/{item['id']}"))["kwargs_json"]
            for item in found["items"]
        ]
        assert [json.loads(text)["amount"] for text in amounts] == [11, 10, 9, 8, 7, 6]
        seen, cursor = list[str](), None
        while True:
            more = {} if cursor is None else {"cursor": cursor}
            page = await ask(client, "jobs", q="error:ADDRESS", limit=2, **more)
            seen += [item["id"] for item in page["items"]]
            cursor = page["cursor"]
            if cursor is None:
                break
        assert len(seen) == len(set(seen)) == 9
        counts = (await ask(client, "jobs/count", q="age:<1h"))["by_state"]
        assert {s: c["count"] for s, c in counts.items() if c["count"]} == {
            "scheduled": 1,
            "done": 3,
            "dead": 9,
        }
        facets = await ask(client, "dead/facets")
        assert facets["reasons"] == [{"reason": "exhausted", "count": 9}]
        lines = (await client.get("/admin/dead/export?q=args.amount:<5")).text
        assert lines.count("\n") == 4

    run(grounds, story)


def test_changes_of_one_job(grounds: "ScratchSchema") -> None:
    async def story(_: App, client: httpx.AsyncClient) -> None:
        (waiting,) = (await ask(client, "jobs", q="key:k"))["items"]
        made = await post(client, f"jobs/{waiting['id']}/duplicate")
        copy = await ask(client, f"jobs/{made['id']}")
        assert (copy["state"], copy["key"]) == ("ready", None)
        assert copy["kwargs_json"] == '{"to": "eve"}'
        dead = (await ask(client, "dead", q="args.amount:8"))["items"][0]["id"]
        edited = await post(client, f"jobs/{dead}/retry", kwargs_json='{"to": "ann"}')
        assert edited["state"] == "ready"
        body = {"task": "send", "kwargs_json": '{"to": "x"}', "key": "order-1"}
        answers = [await client.post("/admin/jobs", json=body) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [201, 200]
        other = {**body, "kwargs_json": '{"to": "y"}'}
        assert (await client.post("/admin/jobs", json=other)).status_code == 422

    run(grounds, story)


@pytest.mark.parametrize("place", [None, "before", "after"])
def test_a_bulk_action_ends_with_exact_numbers(
    grounds: "ScratchSchema", monkeypatch: pytest.MonkeyPatch, place: str | None
) -> None:
    """Also if its process dies right before or after the commit of a step."""
    monkeypatch.setattr(bulk_runner, "STEP_JOBS", 2)
    monkeypatch.setattr(bulk_runner, "TAKEN_SECONDS", 0.05)

    async def story(app: App, client: httpx.AsyncClient) -> None:
        store, calls = await app.store(), list[int]()
        act = type(store).act

        async def dying_act(self: Any, *args: Any, **options: Any) -> Any:
            calls.append(1)
            if len(calls) != 2 or place is None:
                return await act(self, *args, **options)
            if place == "after":
                await act(self, *args, **options)
            raise StoreUnavailable("the process dies here")

        found = await post(
            client, "bulk/preview", verb="retry", q="state:dead args.amount:<9"
        )
        assert found["count"] == 7
        monkeypatch.setattr(type(store), "act", dying_act)
        started = await post(client, "bulk", preview=found["preview"])
        path = f"bulk/{started['run']}"
        while (at_end := await ask(client, path))["ended_at"] is None:
            await BulkRunner(app).turn()
        assert (at_end["state"], at_end["done"], at_end["skipped"]) == ("done", 7, 0)
        counts = (await ask(client, "jobs/count", q="queue:mail"))["by_state"]
        assert (counts["dead"]["count"], counts["ready"]["count"]) == (2, 7)
        lines = [line for line in await store.audit("shop", limit=50) if line.jobs]
        assert sum(line.jobs for line in lines if line.verb == "retry") == 7

    run(grounds, story)
