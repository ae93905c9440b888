"""Dead letters: list, facets, export. And what the palette finds."""

import json
from typing import Any

import pytest

from durio import App
from durio.client import job_search
from durio.web import User
from tests.unit.app.app_harness import drained, virtual
from tests.web.browser import browser, dashboard

ADMIN = User("ann", "admin")
VIEWER = User("vera", "viewer")


async def send(to: str, amount: int = 1) -> None:
    del amount
    if to == "":
        raise ValueError("no address")
    if to == "x":
        raise KeyError("x\u2028\u202e")


async def fill(app: App) -> list[str]:
    task = app.task(name="send", queue="mail", retry=0)(send)
    pay = app.task(name="pay", queue="bank", retry=0)(send)
    jobs = [
        await task.enqueue("", amount=1),
        await task.enqueue("x", amount=2),
        await task.enqueue("bob", amount=3),
        await pay.enqueue("", amount=4),
    ]
    await drained(app)
    return [job.id for job in jobs]


async def ask(client: Any, path: str, **params: Any) -> Any:
    answer = await client.get(f"/admin/{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


@virtual(name="shop")
async def test_lists_dead_jobs_only(app: App):
    ids = await fill(app)
    async with browser(dashboard(app, ADMIN)) as client:
        listed = await ask(client, "dead")
        assert [item["id"] for item in listed["items"]] == [ids[3], ids[1], ids[0]]
        first = listed["items"][0]
        assert first["died_at"] == first["finished_at"]
        assert json.loads(first["kwargs_json"]) == {"to": "", "amount": 4}
        found = await ask(client, "dead", q="state:done,dead -task:pay", limit=1)
        assert [item["id"] for item in found["items"]] == [ids[1]]
        found = await ask(
            client, "dead", q="state:done,dead -task:pay", cursor=found["cursor"]
        )
        assert [item["id"] for item in found["items"]] == [ids[0]]


@virtual(name="shop")
async def test_facets_count_reasons_and_tasks(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    await fill(app)
    async with browser(dashboard(app, ADMIN)) as client:
        assert await ask(client, "dead/facets") == {
            "reasons": [{"reason": "exhausted", "count": 3}],
            "tasks": [
                {"task": "shop.send", "count": 2},
                {"task": "shop.pay", "count": 1},
            ],
            "capped": False,
        }
        found = await ask(client, "dead/facets", q="error:address")
        assert [each["count"] for each in found["tasks"]] == [1, 1]
        monkeypatch.setattr("durio.web.api.dead.FACET_JOBS_MAX", 2)
        assert (await ask(client, "dead/facets"))["capped"] is True
    limited = User("mia", "admin", queues=("bank",))
    async with browser(dashboard(app, limited)) as client:
        assert [t["task"] for t in (await ask(client, "dead/facets"))["tasks"]] == [
            "shop.pay"
        ]


@virtual(name="shop")
async def test_exports_json_lines_as_an_attachment(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(job_search, "PAGE_JOBS", 2)
    ids = await fill(app)
    async with browser(dashboard(app, ADMIN)) as client:
        answer = await client.get("/admin/dead/export", params={"q": "-task:none"})
        assert answer.status_code == 200
        assert answer.headers["content-disposition"].startswith("attachment; filename=")
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        assert answer.text.endswith("\n")
        lines = [json.loads(line) for line in answer.text.split("\n")[:-1]]
        assert [line["id"] for line in lines] == [ids[3], ids[1], ids[0]]
        assert json.loads(lines[1]["kwargs_json"])["to"] == "x"
        assert "raise KeyError" in lines[1]["traceback"]
    async with browser(dashboard(app, VIEWER)) as client:
        text = (await client.get("/admin/dead/export")).text
        lines = [json.loads(line) for line in text.split("\n")[:-1]]
        assert [line["masked"] for line in lines] == [True] * 3
        hidden = ("args_json", "kwargs_json", "meta_json", "traceback")
        assert all(line[name] is None for line in lines for name in hidden)


@virtual(name="shop")
async def test_the_palette_finds_things_by_name_and_id(app: App):
    ids = await fill(app)
    await app.schedules.create(
        "nightly-mail", app.named("send").s("bob"), cron="0 2 * * *"
    )
    async with browser(dashboard(app, ADMIN)) as client:
        found = (await ask(client, "search", q="Mail"))["items"]
        assert [(each["kind"], each["text"]) for each in found] == [
            ("queue", "mail"),
            ("schedule", "nightly-mail"),
        ]
        assert found[0]["href"] == "queues?open=mail"
        found = (await ask(client, "search", q="send"))["items"]
        assert found == [
            {"kind": "task", "text": "shop.send", "href": "tasks?open=shop.send"}
        ]
        found = (await ask(client, "search", q=ids[0]))["items"]
        assert [each["href"] for each in found] == [f"jobs/{ids[0]}"]
        several = (await ask(client, "search", q=ids[0][:11]))["items"]
        assert 1 <= len(several) <= 6
        for q in ("", " ", "zzz", "0" * 33, "0198c2f4"):
            assert (await ask(client, "search", q=q))["items"] == []
        assert (
            await client.get("/admin/search", params={"q": "x" * 201})
        ).status_code == 422


@virtual(name="shop")
async def test_the_palette_hides_what_is_not_the_users(app: App):
    ids = await fill(app)
    await app.schedules.create(
        "nightly-mail", app.named("send").s("bob"), cron="0 2 * * *"
    )
    limited = User("mia", "viewer", queues=("bank",))
    async with browser(dashboard(app, limited)) as client:
        for q in ("mail", "send", ids[0]):
            assert (await ask(client, "search", q=q))["items"] == []
        found = (await ask(client, "search", q="pay"))["items"]
        assert [each["kind"] for each in found] == ["task"]
