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
