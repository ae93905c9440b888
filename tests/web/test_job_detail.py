"""One job as the API shows it: its life, its attempts, what can be done with it."""

import logging  # noqa: TID251 - what a task logs
from typing import Any

import pytest

from durio import App, Retry
from durio.plans import chain
from durio.web import User
from tests.unit.app.app_harness import drained, virtual
from tests.web.browser import browser, dashboard

ADMIN = User("ann", "admin")
VIEWER = User("vera", "viewer")


async def fail(order: int) -> None:
    logging.getLogger("shop").warning("card %s", "4711")
    try:
        {}["order"]
    except KeyError as error:
        raise ValueError(f"no such order {order}") from error


async def shown(app: App, job_id: str, user: User = ADMIN, more: str = "") -> Any:
    async with browser(dashboard(app, user)) as client:
        answer = await client.get(f"/admin/jobs/{job_id}{more}")
        assert answer.status_code == 200, answer.text
        return answer.json()


@virtual(name="shop")
async def test_a_job_that_died_after_two_attempts(app: App):
    app.version = "v7"
    task = app.task(name="fail", retry=Retry(retries=1, base=5))(fail)
    job = await task.options(meta={"tenant": "acme"}, key="o-7").enqueue(7)
    await drained(app)
    await app.clock.sleep(60)
    await drained(app)
    found = await shown(app, job.id)
    assert (found["state"], found["reason"]) == ("dead", "exhausted")
    assert (found["args_json"], found["kwargs_json"]) == ("[]", '{"order": 7}')
    assert (found["meta_json"], found["key"]) == ('{"tenant": "acme"}', "o-7")
    first, second = found["attempts"]
    assert (first["number"], first["outcome"]) == (1, "retried")
    assert (second["number"], second["outcome"]) == (2, "dead")
    assert first["ended_at"] < second["started_at"] <= second["ended_at"]
    assert second["error"]["text"] == "no such order 7"
    assert second["error"]["cause"] == "KeyError: 'order'"
    own = [frame for frame in second["error"]["frames"] if frame["own"]]
    assert own[-1]["function"] == "fail"
    assert "raise ValueError" in own[-1]["code"]
    assert "no such order" in second["traceback"]
    (line,) = second["logs"]
    assert (line["level"], line["at"]) == ("warning", None)
    assert "card 4711" in line["text"]
    states = [each["state"] for each in found["transitions"]]
    assert states == ["ready", "scheduled", "running", "dead"]
    assert found["same_error"]["count"] == 2
    assert found["actions"]["retry"] is None
    assert found["actions"]["edit"] is None
    assert "cannot be cancelled" in found["actions"]["cancel"]


@virtual(name="shop")
async def test_a_viewer_sees_no_payload_anywhere(app: App):
    job = (
        await app.task(name="fail", retry=0)(fail)
        .options(meta={"tenant": "x"})
        .enqueue(7)
    )
    await drained(app)
    async with browser(dashboard(app, VIEWER)) as client:
        text = (await client.get(f"/admin/jobs/{job.id}")).text
        assert "4711" not in text
        assert "tenant" not in text
        assert "raise ValueError" not in text
    found = await shown(app, job.id, VIEWER)
    assert found["masked"] is True
    for name in ("args_json", "kwargs_json", "meta_json", "result_json"):
        assert found[name] is None
    (attempt,) = found["attempts"]
    assert (attempt["traceback"], attempt["logs"]) == (None, [])
    assert (attempt["error"]["frames"], attempt["error"]["cause"]) == ([], None)
    assert attempt["error"]["text"] == "no such order 7"


async def double(n: int) -> int:
    return 2 * n


@virtual(name="shop")
async def test_a_done_job_has_its_result(app: App):
    job = await app.task(double).enqueue(2**70)
    await drained(app)
    found = await shown(app, job.id)
    assert found["result_json"] == str(2**71)
    assert found["kwargs_json"] == f'{{"n": {2**70}}}'
    assert found["state"] == "done"
    (attempt,) = found["attempts"]
    assert (attempt["outcome"], attempt["error"]) == ("done", None)
    assert found["actions"]["duplicate"] is None
    assert "only dead jobs" in found["actions"]["discard"]


@virtual(name="shop")
async def test_a_job_of_a_plan_knows_its_neighbours(app: App):
    task = app.task(double)
    plan = await chain(task.s(1), task.s(), task.s()).enqueue()
    async with browser(dashboard(app, ADMIN)) as client:
        listed = (await client.get(f"/admin/jobs?q=plan:{plan.id}")).json()["items"]
        first, second, third = sorted(item["id"] for item in listed)
        found = (await client.get(f"/admin/jobs/{second}")).json()
        assert (found["parents"], found["children"]) == ([first], [third])
        assert found["plan"]["id"] == plan.id
        assert (
            found["plan"]["name"] == "double | double | double" or found["plan"]["name"]
        )
        why = (await client.get(f"/admin/jobs/{second}/explain")).json()
        assert why["state"] == "blocked"
        assert first in why["sentence"]


@virtual(name="shop")
async def test_says_why_a_job_waits(app: App):
    job = await app.task(double).enqueue(1)
    await app.queue("default").pause("maintenance")
    found = await shown(app, job.id, VIEWER, "/explain")
    codes = [each["code"] for each in found["reasons"]]
    assert "queue_paused" in codes
    assert found["sentence"] == found["reasons"][0]["text"]
    assert any("durio" in (each["command"] or "") for each in found["reasons"])


@virtual(name="shop")
async def test_a_job_of_a_schedule_names_it(app: App):
    task = app.task(name="double")(double)
    await app.schedules.create("nightly", task.s(1), cron="0 2 * * *")
    run = await app.schedules.run("nightly")
    found = await shown(app, run.id)
    assert found["schedule"]["name"] == "nightly"
    assert found["schedule"]["due_at"].endswith("Z")
    async with browser(dashboard(app, ADMIN)) as client:
        listed = (await client.get("/admin/jobs?q=schedule:nightly")).json()
        assert [item["id"] for item in listed["items"]] == [run.id]


@pytest.mark.parametrize(
    "job_id",
    ["0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55", "x", "0198c2f4", "%00", "a" * 500],
)
def test_a_job_that_is_not_there(job_id: str):
    @virtual(name="shop")
    async def check(app: App):
        async with browser(dashboard(app, ADMIN)) as client:
            for more in ("", "/explain"):
                answer = await client.get(f"/admin/jobs/{job_id}{more}")
                assert answer.status_code == 404
                assert answer.json()["code"] == "job_not_found"

    check()
