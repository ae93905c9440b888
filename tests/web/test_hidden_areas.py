"""What a token for some tasks sees, and what damaged records do to lists."""

from datetime import UTC, datetime

from durio import App, chain
from durio.model.effects import Effects, Put
from durio.web import User
from tests.unit.app.app_harness import drained, virtual
from tests.web.browser import browser, dashboard
from tests.web.logins import token_of

ADMIN = User("ann", "admin")


async def fail(text: str) -> None:
    raise ValueError(text)


async def pay(text: str) -> None:
    raise LookupError(text)


async def fill(app: App) -> dict[str, str]:
    """Two tasks with an error, a schedule and a plan each; return plan ids by task."""
    found: dict[str, str] = {}
    for function in (fail, pay):
        task = app.task(name=function.__name__, retry=0)(function)
        await task.enqueue("x")
        await drained(app)
        at = datetime.fromtimestamp(app.now() + 3600, UTC)
        await app.schedules.create(function.__name__, task, args=("x",), at=at)
        plan = await chain(task.si("a"), task.si("b")).enqueue()
        found[function.__name__] = plan.id
    return found


@virtual(name="shop")
async def test_a_token_for_one_task_sees_nothing_of_others(app: App):
    plans = await fill(app)
    text = await token_of(app, role="operator", tasks=("shop.fail",))
    headers = {"Authorization": f"Bearer {text}"}
    async with browser(dashboard(app), headers=headers) as client:

        async def names(path: str, field: str) -> list[str]:
            items = (await client.get(path)).json()["items"]
            return [item[field] for item in items]

        assert await names("/admin/tasks", "name") == ["shop.fail"]
        assert await names("/admin/errors", "type") == ["ValueError"]
        assert await names("/admin/schedules", "name") == ["fail"]
        assert await names("/admin/plans", "id") == [plans["fail"]]
        for path in ("tasks/pay", "schedules/pay", f"plans/{plans['pay']}"):
            assert (await client.get(f"/admin/{path}")).status_code == 404
        for path in ("schedules/pay/pause", f"plans/{plans['pay']}/cancel"):
            answer = await client.post(f"/admin/{path}", json={})
            assert answer.status_code == 404, path


@virtual(name="shop")
async def test_a_damaged_record_does_not_hide_the_others(app: App):
    plans = await fill(app)
    store = await app.store()
    puts = [
        Put("schedule:shop", "broken", b"{"),
        Put("plan:shop", plans["pay"], b"{"),
    ]
    await store.commit(Effects(puts=puts))
    async with browser(dashboard(app, ADMIN)) as client:
        listed = (await client.get("/admin/schedules")).json()["items"]
        assert [item["name"] for item in listed] == ["broken", "fail", "pay"]
        assert listed[0]["state"] == "damaged"
        assert "damaged" in listed[0]["problem"]
        shown = await client.get("/admin/schedules/broken")
        assert (shown.status_code, shown.json()["code"]) == (400, "invalid_schedule")
        json = {"headers": {"Content-Type": "application/json"}}
        gone = await client.delete("/admin/schedules/broken", **json)
        assert gone.status_code == 200
        found = (await client.get("/admin/plans")).json()["items"]
        states = {item["id"]: item["state"] for item in found}
        assert states == {plans["fail"]: "failed", plans["pay"]: None}
        damaged = await client.get(f"/admin/plans/{plans['pay']}")
        assert (damaged.status_code, damaged.json()["code"]) == (400, "invalid_plan")


@virtual(name="shop")
async def test_names_of_jobs_data_are_data(app: App):
    """Names that are special in JavaScript or on a terminal come back as they are."""
    for name in ("constructor", "__proto__", "toString"):
        task = app.task(name=name, queue=name)(fail)
        await task.enqueue("\u202e\x1b[31m<script>")
    await drained(app)
    async with browser(dashboard(app, ADMIN)) as client:
        queues = (await client.get("/admin/queues")).json()["items"]
        names = ["__proto__", "constructor", "toString"]
        assert [item["name"] for item in queues] == names
        shown = (await client.get("/admin/queues/__proto__")).json()
        assert (shown["name"], shown["tasks"]) == ("__proto__", 1)
        errors = (await client.get("/admin/errors")).json()["items"]
        assert "<script>" in errors[0]["text"]
