"""Tasks: what workers have published about them."""

import json

from durio import App
from durio.web import User
from tests.unit.app.app_harness import drained, virtual, working
from tests.web.browser import browser, dashboard

ADMIN = User("ann", "admin")


async def send(to: str, *, copies: int = 1) -> None:
    del copies
    if not to:
        raise ValueError("no address")


@virtual(name="shop", version="2.1")
async def test_a_task_is_shown_with_options_arguments_and_workers(app: App):
    task = app.task(
        name="send", queue="mail", retry=0, timeout="20s", aliases=["post"]
    )(send)
    await task.enqueue("")
    await drained(app)
    async with (
        working(app) as worker,
        browser(dashboard(app, ADMIN)) as client,
    ):
        await worker.started.wait()
        (item,) = (await client.get("/admin/tasks")).json()["items"]
        assert (item["name"], item["queue"], item["priority"]) == (
            "shop.send",
            "mail",
            5,
        )
        assert (item["retry"], item["timeout"]) == ("no retries", "20 s")
        assert (item["workers"], item["aliases"]) == (1, ["shop.post"])
        schema = json.loads(item["args_schema_json"])
        assert schema["properties"]["to"] == {"type": "string"}
        assert schema["required"] == ["to"]
        assert item["last_error"]["text"] == "no address"
        assert item["failed"] == 1
        for name in ("shop.send", "send", "post"):
            shown = (await client.get(f"/admin/tasks/{name}")).json()
            assert shown["name"] == "shop.send"
            assert [each["running"] for each in shown["served_by"]] == [0]
        missing = await client.get("/admin/tasks/sendd")
        assert (missing.status_code, missing.json()["code"]) == (404, "unknown_task")
        assert "shop.send" in missing.json()["cure"]


@virtual(name="shop")
async def test_pages_follow_each_other(app: App):
    for n in range(5):
        app.task(name=f"t{n}")(send)
    await drained(app)
    found: list[str] = []
    async with browser(dashboard(app, ADMIN)) as client:
        cursor = ""
        while cursor is not None:
            page = (
                await client.get("/admin/tasks", params={"limit": 2, "cursor": cursor})
            ).json()
            found += [item["name"] for item in page["items"]]
            cursor = page["cursor"]
    assert found == [f"shop.t{n}" for n in range(5)]
