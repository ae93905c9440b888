"""Bulk actions: previewed, confirmed, run in steps, stopped, taken up again, exact."""

import asyncio
import json
from typing import Any

import pytest

from durio import App
from durio.client import bulk_runner, bulk_runs
from durio.client.bulk_runner import BulkRunner
from durio.errors import StoreUnavailable
from durio.model.job import DEAD
from durio.ports.browse import Query
from durio.web import User
from tests.unit.app.app_harness import drained, virtual
from tests.web.browser import browser, dashboard

ADMIN = User("ann", "admin")
OPERATOR = User("olga", "operator")


async def send(to: str, amount: int = 1) -> None:
    del amount
    if not to:
        raise ValueError("no address")


async def dead_jobs(app: App, count: int) -> list[str]:
    if app.registry.by_name.find("shop.send") is None:
        app.task(name="send", queue="mail", retry=0)(send)
    task = app.named("send")
    jobs = await task.enqueue_many([("", n) for n in range(count)])
    await drained(app)
    return [job.id for job in jobs]


async def post(client: Any, path: str, status: int, **body: Any) -> Any:
    answer = await client.post(f"/admin/bulk{path}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def ended(app: App, client: Any, run: str) -> Any:
    """The bulk action at its end."""
    for _ in range(1000):
        found = (await client.get(f"/admin/bulk/{run}")).json()
        if found["ended_at"] is not None:
            return found
        await app.clock.sleep(0.1)
    raise AssertionError(found)


async def number(app: App, **query: Any) -> int:
    return (await (await app.store()).count(Query("shop", **query))).jobs


@virtual(name="shop")
async def test_previews_runs_and_ends_with_exact_numbers(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bulk_runner, "STEP_JOBS", 7)
    await dead_jobs(app, 40)
    async with browser(dashboard(app, OPERATOR)) as client:
        wish = {"verb": "retry", "q": "state:dead args.amount:>=10", "reason": "fixed"}
        found = await post(client, "/preview", 200, **wish)
        assert (found["count"], found["capped"], found["sampled"]) == (30, False, False)
        assert found["by_task"] == [{"task": "shop.send", "count": 30}]
        assert found["needs"] == {"type_count": False, "admin": False}
        assert await number(app, states=(DEAD,)) == 40
        run = (await post(client, "", 202, preview=found["preview"]))["run"]
        at_end = await ended(app, client, run)
        assert at_end["state"] == "done"
        numbers = {
            name: at_end[name] for name in ("done", "skipped", "failed", "expected")
        }
        assert numbers == {"done": 30, "skipped": 0, "failed": 0, "expected": 30}
        assert await number(app, states=(DEAD,)) == 10
        listed = (await client.get("/admin/bulk")).json()["items"]
        assert listed == [at_end]
    (line,) = await (await app.store()).audit("shop", limit=10)
    assert (line.verb, line.jobs) == ("retry", 30)
    assert "args.amount:..." in line.target
    details = json.loads(line.details)
    assert (details["bulk"], details["reason"]) == (run, "fixed")


@virtual(name="shop")
async def test_only_jobs_up_to_the_mark_change(app: App):
    await dead_jobs(app, 5)
    async with browser(dashboard(app, ADMIN)) as client:
        found = await post(client, "/preview", 200, verb="discard", q="queue:mail")
        later = await dead_jobs(app, 3)
        run = (await post(client, "", 202, preview=found["preview"]))["run"]
        assert (await ended(app, client, run))["done"] == 5
        left = (await client.get("/admin/jobs")).json()["items"]
        assert sorted(item["id"] for item in left) == sorted(later)


@virtual(name="shop")
async def test_a_job_that_changed_meanwhile_is_skipped(app: App):
    ids = await dead_jobs(app, 5)
    async with browser(dashboard(app, ADMIN)) as client:
        found = await post(client, "/preview", 200, verb="discard", q="queue:mail")
        await client.post(f"/admin/jobs/{ids[0]}/retry", json={})
        run = (await post(client, "", 202, preview=found["preview"]))["run"]
        at_end = await ended(app, client, run)
        assert (at_end["done"], at_end["expected"]) == (4, 5)


@virtual(name="shop")
async def test_a_preview_starts_once_and_only_for_its_user(app: App):
    await dead_jobs(app, 2)
    async with (
        browser(dashboard(app, OPERATOR)) as client,
        browser(dashboard(app, ADMIN)) as other,
    ):
        found = await post(client, "/preview", 200, verb="retry", q="state:dead")
        await post(other, "", 404, preview=found["preview"])
        await post(client, "", 202, preview=found["preview"])
        again = await post(client, "", 404, preview=found["preview"])
        assert again["code"] == "bulk_not_found"
        stale = await post(client, "/preview", 200, verb="retry", q="state:dead")
        await app.clock.sleep(1000)
        await post(client, "", 404, preview=stale["preview"])


@virtual(name="shop")
async def test_above_a_hundred_jobs_the_number_is_typed(app: App):
    await dead_jobs(app, 101)
    async with browser(dashboard(app, OPERATOR)) as client:
        found = await post(client, "/preview", 200, verb="retry", q="state:dead")
        assert found["needs"]["type_count"] is True
        for count in (None, 100, 102):
            body = {} if count is None else {"count": count}
            refused = await post(client, "", 422, preview=found["preview"], **body)
            assert refused["code"] == "count_not_confirmed"
        await post(client, "", 202, preview=found["preview"], count=101)


@virtual(name="shop")
async def test_above_the_bound_an_admin_is_needed(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bulk_runs, "COUNT_MAX", 10)
    monkeypatch.setattr("durio.web.api.bulk.COUNT_MAX", 10)
    await dead_jobs(app, 12)
    async with (
        browser(dashboard(app, OPERATOR)) as client,
        browser(dashboard(app, ADMIN)) as admin,
    ):
        wish = {"verb": "retry", "q": "state:dead -args.amount:1"}
        found = await post(client, "/preview", 200, **wish)
        assert (found["count"], found["capped"]) == (10, True)
        assert found["needs"]["admin"] is True
        refused = await post(client, "", 403, preview=found["preview"])
        assert refused["code"] == "role_too_low"
        found = await post(admin, "/preview", 200, **wish)
        run = (await post(admin, "", 202, preview=found["preview"]))["run"]
        at_end = await ended(app, admin, run)
        assert (at_end["done"], at_end["capped"]) == (11, True)


@virtual(name="shop")
async def test_verbs_need_their_role_and_a_query(app: App):
    await dead_jobs(app, 1)
    async with browser(dashboard(app, OPERATOR)) as client:
        await post(client, "/preview", 403, verb="discard", q="state:dead")
        await post(client, "/preview", 403, verb="move", q="state:ready", to="slow")
        await post(client, "/preview", 422, verb="purge", q="state:dead")
        await post(client, "/preview", 400, verb="retry", q="  ")
        await post(client, "/preview", 400, verb="retry", q="stat:dead")
        wrong = await post(client, "/preview", 409, verb="retry", q="state:done")
        assert wrong["code"] == "wrong_state"
        await post(client, "/preview", 422, verb="retry", q="state:dead", to="x")
    async with browser(dashboard(app, ADMIN)) as client:
        await post(client, "/preview", 422, verb="move", q="state:ready")
        await post(client, "/preview", 404, verb="move", q="state:ready", to="none")
    async with browser(dashboard(app, User("vera", "viewer"))) as client:
        await post(client, "/preview", 403, verb="retry", q="state:dead")


@virtual(name="shop")
async def test_moves_waiting_jobs(app: App):
    task = app.task(name="send", queue="mail")(send)
    await task.enqueue_many([("bob", n) for n in range(4)])
    await task.options(queue="slow").enqueue("eve")
    async with browser(dashboard(app, ADMIN)) as client:
        wish = {"verb": "move", "q": "queue:mail args.amount:<3", "to": "slow"}
        found = await post(client, "/preview", 200, **wish)
        run = (await post(client, "", 202, preview=found["preview"]))["run"]
        at_end = await ended(app, client, run)
        assert (at_end["done"], at_end["to"]) == (3, "slow")
    assert await number(app, lane="shop:slow") == 4


@virtual(name="shop")
async def test_a_run_is_stopped_between_two_steps(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bulk_runner, "STEP_JOBS", 5)
    await dead_jobs(app, 50)
    store = await app.store()
    act, gate, acted = type(store).act, asyncio.Event(), list[int]()

    async def slow_act(self: Any, ids: Any, *args: Any, **options: Any) -> Any:
        if len(acted) == 2:
            await gate.wait()
        answer = await act(self, ids, *args, **options)
        acted.append(len(ids))
        return answer

    monkeypatch.setattr(type(store), "act", slow_act)
    async with browser(dashboard(app, OPERATOR)) as client:
        found = await post(client, "/preview", 200, verb="retry", q="state:dead")
        run = (await post(client, "", 202, preview=found["preview"]))["run"]
        while len(acted) < 2:
            await app.clock.sleep(0.01)
        asked = await post(client, f"/{run}/stop", 200)
        assert asked["state"] == "stopping"
        gate.set()
        at_end = await ended(app, client, run)
        assert at_end["state"] == "stopped"
        assert at_end["done"] == 50 - await number(app, states=(DEAD,)) == 10
        late = await post(client, f"/{run}/stop", 409)
        assert late["state"] == "stopped"


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_run_whose_process_died_is_taken_up_again(
    place: str, monkeypatch: pytest.MonkeyPatch
):
    """It dies right before or right after a step is committed: the numbers stay exact."""

    @virtual(name="shop")
    async def story(app: App):
        monkeypatch.setattr(bulk_runner, "STEP_JOBS", 5)
        await dead_jobs(app, 22)
        store, calls = await app.store(), list[int]()
        act = type(store).act

        async def dying_act(self: Any, *args: Any, **options: Any) -> Any:
            calls.append(1)
            if len(calls) != 2:
                return await act(self, *args, **options)
            if place == "after":
                await act(self, *args, **options)
            raise StoreUnavailable("the process dies here")

        monkeypatch.setattr(type(store), "act", dying_act)
        async with browser(dashboard(app, OPERATOR)) as client:
            found = await post(client, "/preview", 200, verb="retry", q="state:dead")
            run = (await post(client, "", 202, preview=found["preview"]))["run"]
            while len(calls) < 2:
                await app.clock.sleep(0.01)
            await app.clock.sleep(1)
            assert (await client.get(f"/admin/bulk/{run}")).json()["state"] == "running"
            assert await number(app, states=(DEAD,)) == (12 if place == "after" else 17)
        await app.clock.sleep(40)
        while await BulkRunner(app).turn() == 0.0:
            pass
        async with browser(dashboard(app, OPERATOR)) as client:
            at_end = (await client.get(f"/admin/bulk/{run}")).json()
        assert (at_end["state"], at_end["done"], at_end["skipped"]) == ("done", 22, 0)
        assert sum(line.jobs for line in await store.audit("shop", limit=50)) == 22

    story()


@virtual(name="shop")
async def test_two_runners_never_do_one_step(app: App, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bulk_runner, "STEP_JOBS", 3)
    monkeypatch.setattr(bulk_runner, "TAKEN_SECONDS", 0.0)  # always free to take
    await dead_jobs(app, 40)
    async with browser(dashboard(app, OPERATOR)) as client:
        found = await post(client, "/preview", 200, verb="retry", q="state:dead")
        run = (await post(client, "", 202, preview=found["preview"]))["run"]
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(BulkRunner(app).run_due())
        at_end = await ended(app, client, run)
    assert (at_end["done"], at_end["skipped"]) == (40, 0)
    lines = await (await app.store()).audit("shop", limit=50)
    assert sum(line.jobs for line in lines) == 40


@virtual(name="shop")
async def test_a_user_of_one_queue_changes_and_sees_only_that(app: App):
    await dead_jobs(app, 3)
    other = app.task(name="other", queue="slow", retry=0)(send)
    await other.enqueue("")
    await drained(app)
    limited = User("mia", "operator", queues=("slow",))
    async with (
        browser(dashboard(app, limited)) as mia,
        browser(dashboard(app, ADMIN)) as ann,
    ):
        found = await post(mia, "/preview", 200, verb="retry", q="state:dead")
        assert found["count"] == 1
        run = (await post(mia, "", 202, preview=found["preview"]))["run"]
        assert (await ended(app, mia, run))["done"] == 1
        whole = await post(ann, "/preview", 200, verb="retry", q="state:dead")
        run_of_ann = (await post(ann, "", 202, preview=whole["preview"]))["run"]
        await ended(app, ann, run_of_ann)
        assert (await mia.get(f"/admin/bulk/{run_of_ann}")).status_code == 404
        assert len((await mia.get("/admin/bulk")).json()["items"]) == 1
        assert len((await ann.get("/admin/bulk")).json()["items"]) == 2


@virtual(name="shop")
async def test_a_read_only_dashboard_runs_nothing(app: App):
    await dead_jobs(app, 1)
    async with browser(dashboard(app, ADMIN, is_read_only=True)) as client:
        refused = await post(client, "/preview", 409, verb="retry", q="state:dead")
        assert refused["code"] == "read_only"
        assert (await client.get("/admin/bulk")).json()["items"] == []
