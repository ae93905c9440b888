"""Plans: the list, one with its picture, and what can be done with it."""

from durio import App, chain, group
from durio.web import User
from tests.unit.app.app_harness import drained, virtual
from tests.web.browser import browser, dashboard

ADMIN = User("ann", "admin")
IS_BROKEN = {"yes": True}


async def fetch(page: int) -> int:
    return page


async def total(pages: list[int]) -> int:
    if IS_BROKEN["yes"]:
        raise ValueError("no total")
    return sum(pages)


async def made(app: App, members: int = 3) -> str:
    one = app.task(name="fetch", queue="mail")(fetch)
    last = app.task(name="total", queue="mail", retry=0)(total)
    plan = chain(group(one.s(n) for n in range(members)), last.s())
    job = await plan.enqueue()
    await drained(app)
    return job.id


@virtual(name="shop")
async def test_a_failed_plan_is_listed_and_drawn(app: App):
    IS_BROKEN["yes"] = True
    plan_id = await made(app)
    async with browser(dashboard(app, ADMIN)) as client:
        listed = (await client.get("/admin/plans?state=failed")).json()
        (item,) = listed["items"]
        assert (item["id"], item["name"]) == (plan_id, "group(3 x fetch) | total")
        assert item["counts"] == {
            "total": 4,
            "done": 3,
            "running": 0,
            "waiting": 0,
            "dead": 1,
            "cancelled": 0,
            "gone": 0,
        }
        assert (item["failure"]["type"], item["failure"]["text"]) == (
            "ValueError",
            "no total",
        )
        assert (await client.get("/admin/plans?state=done")).json()["items"] == []
        shown = (await client.get(f"/admin/plans/{plan_id}")).json()
        assert shown["actions"] == {"cancel": "all its jobs have ended", "retry": None}
        nodes = shown["layout"]["nodes"]
        assert [node["label"] for node in nodes] == ["fetch"] * 3 + ["total"]
        assert [node["layer"] for node in nodes] == [0, 0, 0, 1]
        last = nodes[-1]["id"]
        assert shown["layout"]["edges"] == [
            {"from": node["id"], "to": last} for node in nodes[:3]
        ]
        wrong = await client.get("/admin/plans?state=odd")
        assert (wrong.status_code, wrong.json()["code"]) == (400, "unknown_state")
        for missing in (plan_id[:-1] + ("0" if plan_id[-1] != "0" else "1"), "x"):
            answer = await client.get(f"/admin/plans/{missing}")
            assert (answer.status_code, answer.json()["code"]) == (
                404,
                "plan_not_found",
            )


@virtual(name="shop")
async def test_a_large_group_is_one_box(app: App):
    IS_BROKEN["yes"] = False
    plan_id = await made(app, members=60)
    async with browser(
        dashboard(app, User("mia", "viewer", queues=("mail",)))
    ) as client:
        (item,) = (await client.get("/admin/plans")).json()["items"]
        assert (item["state"], item["counts"]["done"]) == ("done", 61)
        shown = (await client.get(f"/admin/plans/{plan_id}")).json()
        box, last = shown["layout"]["nodes"]
        assert (box["kind"], box["label"], box["count"]) == (
            "group",
            "60 x fetch",
            60,
        )
        assert (box["states"], box["state"]) == ({"done": 60}, "done")
        assert last["label"] == "total"
    other = User("mia", "viewer", queues=("other",))
    async with browser(dashboard(app, other)) as client:
        assert (await client.get("/admin/plans")).json()["items"] == []
        assert (await client.get(f"/admin/plans/{plan_id}")).status_code == 404


# --- changes


@virtual(name="shop")
async def test_a_failed_plan_is_retried(app: App):
    IS_BROKEN["yes"] = True
    plan_id = await made(app)
    path = f"/admin/plans/{plan_id}"
    async with browser(dashboard(app, User("olga", "operator"))) as client:
        over = await client.post(f"{path}/cancel", json={})
        assert (over.status_code, over.json()["state"]) == (409, "failed")
        IS_BROKEN["yes"] = False
        retried = (await client.post(f"{path}/retry", json={})).json()
        assert retried == {"status": "retrying", "state": "running", "jobs": 1}
        await drained(app)
        shown = (await client.get(path)).json()
        assert (shown["state"], shown["resumed"], shown["failure"]) == ("done", 1, None)
        again = await client.post(f"{path}/retry", json={})
        assert (again.status_code, again.json()["state"]) == (409, "done")
    (line,) = await (await app.store()).audit("shop", limit=10)
    assert (line.verb, line.target, line.jobs) == ("retry", f"plan {plan_id}", 1)
    assert (line.read_details() or {})["before"] == {"state": "failed"}


@virtual(name="shop")
async def test_a_waiting_plan_is_cancelled(app: App):
    one = app.task(name="fetch", queue="mail")(fetch)
    plan = await chain(one.si(1), one.si(2)).enqueue()
    async with browser(dashboard(app, ADMIN)) as client:
        path = f"/admin/plans/{plan.id}"
        assert (await client.get(path)).json()["actions"]["cancel"] is None
        answer = (await client.post(f"{path}/cancel", json={})).json()
        assert (answer["status"], answer["state"]) == ("cancelled", "cancelled")
        shown = (await client.get(path)).json()
        assert shown["counts"]["cancelled"] == 2
        assert shown["actions"] == {"cancel": "all its jobs have ended", "retry": None}
    (line,) = await (await app.store()).audit("shop", limit=10)
    assert (line.verb, line.who) == ("cancel", "ann@192.0.2.7 via dashboard")
    assert "request_id" in line.details


@virtual(name="shop")
async def test_pages_of_plans_follow_each_other_newest_first(app: App):
    one = app.task(name="fetch", queue="mail")(fetch)
    made_ids: list[str] = []
    for n in range(5):
        made_ids.append((await chain(one.si(n), one.si(n)).enqueue()).id)
        await app.clock.sleep(100 * n)
    async with browser(dashboard(app, ADMIN)) as client:
        found, cursor = list[str](), ""
        while cursor is not None:
            params = {"limit": 2, "cursor": cursor}
            page = (await client.get("/admin/plans", params=params)).json()
            found += [item["id"] for item in page["items"]]
            cursor = page["cursor"]
    assert found == made_ids[::-1]
