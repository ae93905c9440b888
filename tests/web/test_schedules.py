"""Schedules: what is shown of them, and each change."""

from datetime import UTC, datetime
from typing import Any

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


# --- changes


async def lines(app: App) -> list[tuple[str, str, str]]:
    found = await (await app.store()).audit("shop", limit=10)
    return [(line.verb, line.target, line.who) for line in found][::-1]


BY = "ann@192.0.2.7 via dashboard"


@virtual(name="shop")
async def test_a_schedule_is_created_changed_and_deleted(app: App):
    app.task(name="clean", queue="night", retry=0)(clean)
    await drained(app)
    new = {
        "name": "hourly",
        "task": "clean",
        "kwargs_json": '{"box": "secret-box"}',
        "every": "1h",
        "queue": "late",
        "end": "2999-01-01T00:00:00Z",
    }
    async with browser(dashboard(app, ADMIN)) as client:
        made = await client.post("/admin/schedules", json=new)
        assert (made.status_code, made.json()["every"]) == (201, 3600.0)
        assert made.json()["queue"] == "late"
        again = await client.post("/admin/schedules", json=new)
        assert (again.status_code, again.json()["code"]) == (409, "schedule_conflict")
        version = made.json()["version"]
        path = "/admin/schedules/hourly"
        await app.clock.sleep(1)
        change = {"version": version, "cron": "5 * * * *", "end": None}
        changed = (await client.patch(path, json=change)).json()
        assert (changed["cron"], changed["every"]) == ("5 * * * *", None)
        assert changed["end"] is None
        assert '"secret-box"' in changed["link_json"]
        stale = await client.patch(path, json={"version": version, "jitter": "1m"})
        assert stale.status_code == 409
        assert BY in stale.json()["detail"]
        same = await client.patch(path, json={"version": changed["version"]})
        assert same.status_code == 400
        args = {"version": changed["version"], "args_json": '["out"]'}
        linked = (await client.patch(path, json=args)).json()
        assert '"late"' in linked["link_json"]
        assert "secret-box" not in linked["link_json"]
        assert (
            await client.delete(f"{path}?version={version}", **JSON)
        ).status_code == 409
        assert (await client.delete(path, **JSON)).json() == {"status": "deleted"}
        assert (await client.get(path)).status_code == 404
    verbs = [(verb, who) for verb, _, who in await lines(app)]
    assert verbs == [("create", BY), ("change", BY), ("change", BY), ("delete", BY)]
    newest = (await (await app.store()).audit("shop", limit=10))[2]
    details = newest.read_details() or {}
    assert details["after"]["cron"] == "5 * * * *"
    assert details["address"] == "192.0.2.7"
    assert "secret-box" not in newest.details


JSON: Any = {"headers": {"Content-Type": "application/json"}}


@virtual(name="shop")
async def test_wrong_schedules_are_refused(app: App):
    app.task(name="clean", queue="night")(clean)
    await drained(app)
    wrong: list[tuple[dict[str, Any], int, str]] = [
        ({}, 400, "no task"),
        ({"task": "clean"}, 400, "nothing says when"),
        ({"task": "clean", "every": "1h", "cron": "* * * * *"}, 400, "and every"),
        ({"task": "clean", "cron": "61 * * * *"}, 400, "61"),
        ({"task": "clean", "at": "2030-01-01"}, 400, "no time zone"),
        ({"task": "clean", "every": "1h", "args_json": "{}"}, 422, "not an array"),
        ({"task": "clean", "every": "1h", "kwargs_json": '{"x": 1}'}, 422, "x"),
        ({"task": "cleam", "every": "1h"}, 404, "cleam"),
        ({"task": "clean", "plan_json": "{}", "every": "1h"}, 400, "both"),
        ({"plan_json": "[]", "every": "1h"}, 422, "not an object"),
        (
            {"task": "clean", "every": "1h", "args_json": '[{"a":1,"a":2}]'},
            400,
            "twice",
        ),
    ]
    async with browser(dashboard(app, ADMIN)) as client:
        for body, status, text in wrong:
            answer = await client.post("/admin/schedules", json={"name": "n", **body})
            assert (answer.status_code, text in answer.text) == (status, True), (
                body,
                answer.text,
            )
        assert (await client.get("/admin/schedules")).json()["items"] == []
    assert await lines(app) == []


@virtual(name="shop")
async def test_a_schedule_is_paused_resumed_run_and_reset(app: App):
    await declare(app)
    async with browser(dashboard(app, User("olga", "operator"))) as client:
        path = "/admin/schedules/nightly"
        paused = await client.post(f"{path}/pause", json={"reason": "disk full"})
        assert paused.json()["paused"]["reason"] == "disk full"
        assert paused.json()["paused"]["by"] == "olga@192.0.2.7 via dashboard"
        resumed = (await client.post(f"{path}/resume", json={})).json()
        assert (resumed["state"], resumed["paused"]) == ("active", None)
        ran = await client.post(f"{path}/run", json={})
        assert (ran.status_code, ran.json()["is_plan"]) == (201, False)
        job = (await client.get(f"/admin/jobs/{ran.json()['id']}")).json()
        assert (job["task"], job["state"]) == ("shop.clean", "ready")
        busy = await client.post(f"{path}/run", json={})
        assert (busy.status_code, busy.json()["code"]) == (409, "schedule_conflict")
        forced = await client.post(f"{path}/run", json={"force": True})
        assert forced.status_code == 201
        for verb, body in (("reset", {}), ("backfill", {"from": "x", "to": "y"})):
            assert (await client.post(f"{path}/{verb}", json=body)).status_code == 403
    async with browser(dashboard(app, ADMIN)) as client:
        version = resumed["version"]
        await client.patch(path, json={"version": version, "cron": "0 3 * * *"})
        back = (await client.post(f"{path}/reset", json={})).json()
        assert (back["cron"], back["origin"]) == ("0 2 * * *", "code")
    verbs = [verb for verb, _, _ in await lines(app)]
    assert verbs == ["pause: disk full", "resume", "run", "run", "change", "reset"]


@virtual(name="shop")
async def test_runs_are_previewed_with_notes(app: App):
    await declare(app)
    spring = "2030-03-30T00:00:00Z"  # the clocks change in the night to the 31st
    async with browser(dashboard(app, User("vera", "viewer"))) as client:
        rule = {"cron": "30 2 * * *", "tz": "Europe/Paris", "n": 3, "after": spring}
        seen = (await client.post("/admin/schedules/preview", json=rule)).json()
        assert [run["at"] for run in seen["runs"]] == [
            "2030-03-30T01:30:00Z",
            "2030-03-31T01:00:00Z",
            "2030-04-01T00:30:00Z",
        ]
        assert seen["runs"][1]["note"] is not None
        of_name = await client.post("/admin/schedules/nightly/preview", json={"n": 2})
        assert len(of_name.json()["runs"]) == 2
        wrong = await client.post("/admin/schedules/preview", json={"n": 2})
        assert wrong.status_code == 400
        for after in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "soon"):
            early = {"every": "1h", "after": after}
            answer = await client.post("/admin/schedules/preview", json=early)
            assert answer.status_code == 400, after
        too_many = {"cron": "* * * * *", "n": 1001}
        answer = await client.post("/admin/schedules/preview", json=too_many)
        assert answer.status_code == 422


@virtual(name="shop")
async def test_a_backfill_is_counted_started_and_cancelled(app: App):
    task = app.task(name="clean", queue="night")(clean)
    await drained(app)
    await app.schedules.create("hourly", task, cron="0 * * * *")
    now = app.now() // 3600 * 3600
    times = [datetime.fromtimestamp(at, UTC).isoformat() for at in (now - 36000, now)]
    span = {"from": times[0], "to": times[1], "concurrency": 2}
    async with browser(dashboard(app, ADMIN)) as client:
        path = "/admin/schedules/hourly"
        dry = await client.post(f"{path}/backfill", json={**span, "dry_run": True})
        assert (dry.json()["total"], dry.json()["id"]) == (10, "")
        assert (await client.get(path)).json()["backfills"] == []
        made = (await client.post(f"{path}/backfill", json=span)).json()
        (shown,) = (await client.get(path)).json()["backfills"]
        assert (shown["id"], shown["concurrency"], shown["made"]) == (made["id"], 2, 0)
        other = await client.delete(f"{path}/backfills/{'0' * 32}", **JSON)
        assert other.status_code == 404
        gone = await client.delete(f"{path}/backfills/{made['id']}", **JSON)
        assert gone.json() == {"status": "cancelled"}
        assert (await client.get(path)).json()["backfills"] == []


@virtual(name="shop")
async def test_a_limited_user_makes_no_jobs_elsewhere(app: App):
    await declare(app)
    limited = User("mia", "admin", queues=("night",))
    new = {"name": "mine", "task": "clean", "every": "1h"}
    async with browser(dashboard(app, limited)) as client:
        assert (await client.post("/admin/schedules", json=new)).status_code == 201
        other = {**new, "name": "other", "queue": "mail"}
        refused = await client.post("/admin/schedules", json=other)
        assert (refused.status_code, refused.json()["code"]) == (403, "not_yours")
        version = (await client.get("/admin/schedules/mine")).json()["version"]
        moved = {"version": version, "queue": "mail"}
        answer = await client.patch("/admin/schedules/mine", json=moved)
        assert answer.status_code == 403
