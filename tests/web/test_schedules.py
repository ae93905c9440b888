"""Schedules: what is shown of them, and each change."""

from datetime import UTC, datetime

from durio import App
from durio.web import User
from tests.unit.app.app_harness import drained, virtual, working
from tests.web.browser import browser, dashboard

ADMIN = User("ann", "admin")


async def clean(box: str = "in") -> None:
    if box == "bad":
        raise ValueError(box)


async def declare(app: App, **choices: object) -> None:
    task = app.task(name="clean", queue="night", retry=0)(clean)
    app.cron("0 2 * * *", name="nightly", tz="Europe/Paris", **choices)(task)  # type: ignore[arg-type]
    await drained(app)


@virtual(name="shop")
async def test_a_schedule_is_listed_with_its_next_runs(app: App):
    await declare(app)
    await app.schedules.pause("nightly", "the disk is full")
    async with browser(dashboard(app, ADMIN)) as client:
        (item,) = (await client.get("/admin/schedules")).json()["items"]
        assert (item["name"], item["state"], item["origin"]) == (
            "nightly",
            "paused",
            "code",
        )
        assert item["plain"].startswith("At 02:00")
        assert (item["task"], item["queue"]) == ("shop.clean", "night")
        assert item["paused"]["reason"] == "the disk is full"
        assert len(item["next"]) == 3
        first = item["next"][0]
        assert first["at"].endswith("Z")
        assert " 02:00:00 CE" in first["local"]
        shown = (await client.get("/admin/schedules/nightly")).json()
        assert len(shown["next"]) == 10
        assert shown["link_json"] is not None
        assert (shown["code_says"], shown["code_differences"]) == (None, [])
        missing = await client.get("/admin/schedules/none")
        assert missing.json()["code"] == "schedule_not_found"


@virtual(name="shop")
async def test_a_change_of_people_is_shown_beside_the_code(app: App):
    await declare(app)
    await app.schedules.change("nightly", cron="0 3 * * *", kwargs={"box": "out"})
    async with browser(dashboard(app, ADMIN)) as client:
        shown = (await client.get("/admin/schedules/nightly")).json()
        assert shown["origin"] == "manual"
        assert {
            (each["field"], each["now"], each["code"])
            for each in shown["code_differences"]
            if each["field"] == "cron"
        } == {("cron", "0 3 * * *", "0 2 * * *")}
    async with browser(dashboard(app, User("vera", "viewer"))) as client:
        shown = (await client.get("/admin/schedules/nightly")).json()
        assert (shown["masked"], shown["link_json"]) == (True, None)
        assert "out" not in str(shown)


@virtual(name="shop")
async def test_the_problem_of_a_schedule_is_named(app: App):
    task = app.task(name="clean", queue="night", retry=0)(clean)
    at = datetime.fromtimestamp(app.now() + 5, UTC)
    await app.schedules.create("once", task, args=("bad",), at=at)
    async with working(app):
        await app.clock.sleep(120)
    await app.schedules.create("late", task, every="1m")
    await app.clock.sleep(600)
    async with browser(dashboard(app, ADMIN)) as client:
        late, once = (await client.get("/admin/schedules")).json()["items"]
        assert late["state"] == "missed"
        assert "no worker has handled it" in late["problem"]
        assert (once["state"], once["problem"]) == ("ended", "its last run is dead")
        assert once["last"][0]["outcome"] == "dead"
    mia = User("mia", "operator", queues=("other",))
    async with browser(dashboard(app, mia)) as client:
        assert (await client.get("/admin/schedules")).json()["items"] == []
        assert (await client.get("/admin/schedules/late")).status_code == 404
