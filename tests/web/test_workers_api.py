"""`admin/workers`: who works on what, and what a person asks of a worker."""

import platform
from typing import Any

from durio import App
from durio.model.job import State
from durio.web import User
from tests.unit.app.app_harness import in_state, virtual, working
from tests.web.browser import browser, dashboard

OPERATOR = User("olga", "operator")


def slow_task(app: App, **options: Any) -> Any:
    async def slow() -> None:
        await app.clock.sleep(100)

    return app.task(name="slow", **options)(slow)


@virtual(name="shop", settings={"worker": {"heartbeat_seconds": 1}})
async def test_a_worker_is_listed_with_what_it_does(app: App):
    job = await slow_task(app, queue="mail", timeout=600).enqueue()
    async with working(app):
        await in_state(job, State.RUNNING)
        await app.clock.sleep(5)
        async with browser(dashboard(app, OPERATOR)) as client:
            (item,) = (await client.get("/admin/workers")).json()["items"]
            assert (item["state"], item["busy"]) == ("live", 1)
            assert item["loop_lag_ms"] == 0  # virtual time
            assert item["python"] == platform.python_version()
            assert item["last_beat_at"] <= item["lease_ends_at"]
            (running,) = item["jobs"]
            assert running["id"] == job.id
            assert running["limit_seconds"] == 600
            assert 5 <= running["seconds"] < 7
            for name in (item["name"], item["id"]):
                one = await client.get(f"/admin/workers/{name}")
                assert one.json()["name"] == item["name"]
            missing = await client.get("/admin/workers/none")
            assert (missing.status_code, missing.json()["code"]) == (
                404,
                "worker_not_found",
            )


@virtual(name="shop", settings={"worker": {"heartbeat_seconds": 1}})
async def test_a_worker_shows_its_stack_and_drains(app: App):
    job = await slow_task(app).enqueue()
    async with working(app):
        await in_state(job, State.RUNNING)
        async with browser(dashboard(app, OPERATOR)) as client:
            (item,) = (await client.get("/admin/workers")).json()["items"]
            path = f"/admin/workers/{item['name']}"
            stack = await client.post(f"{path}/stack", json={})
            assert "app.clock.sleep(100)" in stack.json()["stack"]
            drained = await client.post(f"{path}/drain", json={})
            assert drained.json() == {"status": "draining", "running": 1}
            await app.clock.sleep(3)
            (item,) = (await client.get("/admin/workers")).json()["items"]
            assert item["state"] == "draining"
    drain, stack_line = await (await app.store()).audit("shop", limit=2)
    assert (drain.verb, drain.who) == ("drain", "olga@192.0.2.7 via dashboard")
    assert stack_line.verb == "stack"


@virtual(name="shop")
async def test_a_user_sees_the_workers_and_jobs_of_own_queues(app: App):
    task = slow_task(app, queue="mail")
    job = await task.enqueue()
    async with working(app, queues=["mail"]):
        await in_state(job, State.RUNNING)
        for queue, workers in (("mail", 1), ("orders", 0)):
            user = User("vera", "viewer", queues=[queue])
            async with browser(dashboard(app, user)) as client:
                items = (await client.get("/admin/workers")).json()["items"]
                assert len(items) == workers
