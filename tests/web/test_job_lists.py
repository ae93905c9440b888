"""Lists of jobs by the query language, counts and completion, as the API answers them."""

from typing import Any

import pytest

from durio import App
from durio.client import job_search
from durio.web import User
from tests.unit.app.app_harness import drained, virtual
from tests.web.browser import browser, dashboard

ADMIN = User("ann", "admin")


async def send(to: str, amount: int = 1) -> None:
    del amount
    if not to:
        raise ValueError("no address")


async def fill(app: App, count: int = 6) -> list[str]:
    """Every second job is dead; the newest waits."""
    task = app.task(name="send", queue="mail", retry=0)(send)
    slow = app.task(name="report", queue="slow", retry=0)(send)
    ids = [
        (await task.enqueue("" if n % 2 == 0 else "bob", amount=n)).id
        for n in range(count - 1)
    ]
    await drained(app)
    return [*ids, (await slow.enqueue("x")).id]


async def ask(client: Any, path: str, **params: Any) -> Any:
    answer = await client.get(f"/admin/{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ids_of(listed: Any) -> list[str]:
    return [item["id"] for item in listed["items"]]


@virtual(name="shop")
async def test_lists_what_a_query_finds(app: App):
    ids = await fill(app)
    async with browser(dashboard(app, ADMIN)) as client:
        assert ids_of(await ask(client, "jobs")) == ids[::-1]
        dead = await ask(client, "jobs", q="state:dead queue:mail")
        assert ids_of(dead) == [ids[4], ids[2], ids[0]]
        assert (dead["cursor"], dead["partial"]) == (None, False)
        found = await ask(client, "jobs", q="args.amount:>1 -state:done")
        assert ids_of(found) == [ids[4], ids[2]]
        prefix = await ask(client, "jobs", q=f"id:{ids[0][:9]}")
        assert set(ids_of(prefix)) == {each for each in ids if each[:9] == ids[0][:9]}


@virtual(name="shop")
async def test_shows_the_arguments_as_a_call_has_them(app: App):
    task = app.task(name="send", queue="mail")(send)
    await task.enqueue('a "b"', amount=9007199254740993)
    await task.enqueue("x" * 1000)
    async with browser(dashboard(app, ADMIN)) as client:
        long, plain = (await ask(client, "jobs"))["items"]
    assert plain["args_text"] == 'to="a \\"b\\"", amount=9007199254740993'
    assert long["args_text"].startswith('to="xxx')
    assert len(long["args_text"]) == 160
    async with browser(dashboard(app, User("eve", "viewer"))) as client:
        assert (await ask(client, "jobs"))["items"][0]["args_text"] is None


@virtual(name="shop")
async def test_pages_go_on_with_their_cursor(app: App):
    ids = await fill(app, 8)
    async with browser(dashboard(app, ADMIN)) as client:
        seen: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = await ask(client, "jobs", q="-queue:slow", limit=2, cursor=cursor)
            seen += ids_of(page)
            cursor = page["cursor"]
        assert seen == ids[-2::-1]
        first = await ask(client, "jobs", q="-queue:slow", limit=2)
        other = {"q": "queue:mail", "limit": 2, "cursor": first["cursor"]}
        changed = {**other, "q": "-queue:slow", "cursor": first["cursor"][:-1] + "!"}
        for params in (other, changed, {**other, "cursor": "x" * 99}):
            answer = await client.get("/admin/jobs", params=params)
            assert (answer.status_code, answer.json()["code"]) == (
                400,
                "invalid_cursor",
            )


@pytest.mark.parametrize(
    ("q", "position"),
    [
        ("stat:dead", 0),
        ("queue:mail attempt:two", 19),
        ("x" * 1001, 1000),
        ("x " * 33, 64),
        ('error:"open', 6),
    ],
)
def test_a_mistake_in_a_query_has_a_position(q: str, position: int):
    @virtual(name="shop")
    async def check(app: App):
        async with browser(dashboard(app, ADMIN)) as client:
            for path in ("jobs", "jobs/count"):
                answer = await client.get(f"/admin/{path}", params={"q": q})
                problem = answer.json()
                assert (answer.status_code, problem["code"]) == (400, "invalid_query")
                assert problem["position"] == position
                assert problem["expected"]

    check()


@pytest.mark.parametrize("limit", ["0", "201", "-1", str(2**63), "x"])
def test_limits_are_bounded(limit: str):
    @virtual(name="shop")
    async def check(app: App):
        async with browser(dashboard(app, ADMIN)) as client:
            answer = await client.get("/admin/jobs", params={"limit": limit})
            assert answer.status_code == 422

    check()


@virtual(name="shop")
async def test_a_path_of_python_names_is_only_a_name(app: App):
    await fill(app)
    async with browser(dashboard(app, ADMIN)) as client:
        for q in (
            "args.__proto__:1",
            "args.__class__.__name__:dict",
            "meta.constructor:x",
        ):
            assert ids_of(await ask(client, "jobs", q=q)) == []


@virtual(name="shop")
async def test_counts_by_state(app: App):
    await fill(app)
    async with browser(dashboard(app, ADMIN)) as client:
        found = await ask(client, "jobs/count")
        assert (found["count"], found["capped"], found["partial"]) == (6, False, False)
        counts = {state: each["count"] for state, each in found["by_state"].items()}
        assert (counts["dead"], counts["done"], counts["ready"]) == (3, 2, 1)
        assert len(counts) == 7
        found = await ask(client, "jobs/count", q="args.amount:<2")
        assert (found["count"], found["by_state"]["dead"]["count"]) == (2, 1)


@virtual(name="shop")
async def test_a_viewer_cannot_search_by_what_is_masked(app: App):
    """Else a search would tell the arguments, one guess at a time."""
    await fill(app)
    async with browser(dashboard(app, User("vera", "viewer"))) as client:
        for path in ("jobs", "jobs/count", "dead", "dead/export"):
            for q in ("args.to:bob", "-meta.x:*"):
                answer = await client.get(f"/admin/{path}", params={"q": q})
                assert answer.status_code == 403
                assert answer.json()["code"] == "payloads_masked"
        listed = await ask(client, "jobs", q="state:dead")
        assert len(listed["items"]) == 3
        suggested = await ask(client, "jobs/complete", q="ar")
        assert suggested["items"] == []


@virtual(name="shop")
async def test_a_user_of_some_queues_finds_only_theirs(app: App):
    ids = await fill(app)
    for queues, wanted in ((("slow",), ids[5:]), (("slow", "x"), ids[5:]), ((), [])):
        limited = User("mia", "admin", queues=queues)
        async with browser(dashboard(app, limited)) as client:
            assert ids_of(await ask(client, "jobs")) == wanted
            assert ids_of(await ask(client, "jobs", q="queue:mail")) == []
            assert ids_of(await ask(client, "jobs", q=f"id:{ids[0]}")) == []
            count = await ask(client, "jobs/count")
            assert count["count"] == len(wanted)
            names = await ask(client, "jobs/complete", q="queue:")
            assert "queue:mail" not in [each["insert"] for each in names["items"]]


@virtual(name="shop")
async def test_completes_at_a_position(app: App):
    await fill(app)
    async with browser(dashboard(app, ADMIN)) as client:
        found = await ask(client, "jobs/complete", q="state:de queue:x", at=8)
        assert found["items"] == [
            {"text": "dead", "insert": "state:dead", "note": "state (indexed)"}
        ]
        found = await ask(client, "jobs/complete", q="")
        assert found["items"][0]["insert"] == "state:"


@virtual(name="shop")
async def test_a_third_search_waits_and_gives_up(app: App):
    await fill(app)
    asgi = dashboard(app, ADMIN)
    async with browser(asgi) as client, asgi.site.search_slots, asgi.site.search_slots:
        answer = await client.get("/admin/jobs")
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many_searches")
        assert answer.headers["retry-after"] == "2"


@virtual(name="shop")
async def test_a_look_that_ends_early_is_partial(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    ids = await fill(app, 9)
    monkeypatch.setattr(job_search, "LOOK_ROWS", 3)
    monkeypatch.setattr(job_search, "PAGE_JOBS", 3)
    async with browser(dashboard(app, ADMIN)) as client:
        page = await ask(client, "jobs", q="args.amount:0")
        assert (page["items"], page["partial"]) == ([], True)
        page = await ask(client, "jobs", q="args.amount:0", cursor=page["cursor"])
        page = await ask(client, "jobs", q="args.amount:0", cursor=page["cursor"])
        assert (ids_of(page), page["partial"]) == ([ids[0]], False)
        assert (await ask(client, "jobs/count", q="args.amount:0"))["partial"]
