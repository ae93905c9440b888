"""One job from the list to its retry, as each role."""

from typing import Any

import pytest

from durio import App
from durio.web import User
from tests.unit.app.app_harness import drained, virtual
from tests.web.browser import browser, dashboard

ADMIN = User("ann", "admin")


async def fail(text: str) -> None:
    raise ValueError(text)


async def dead_job(app: App) -> str:
    job = await app.task(name="fail", retry=0)(fail).enqueue("no such order")
    await drained(app)
    return job.id


@virtual(name="shop")
async def test_a_dead_job_is_found_shown_and_retried(app: App):
    job_id = await dead_job(app)
    async with browser(dashboard(app, User("olga", "operator"))) as client:
        listed = (await client.get("/admin/jobs?q=state:dead")).json()
        assert [item["id"] for item in listed["items"]] == [job_id]
        assert listed["items"][0]["last_error"]["text"] == "no such order"
        assert not (await client.get("/admin/jobs?q=state:done")).json()["items"]
        shown = (await client.get(f"/admin/jobs/{job_id}")).json()
        assert (shown["state"], shown["masked"]) == ("dead", False)
        assert shown["args_json"] == "[]"
        assert shown["kwargs_json"] == '{"text": "no such order"}'
        answer = await client.post(f"/admin/jobs/{job_id}/retry", json={})
        assert (answer.status_code, answer.json()) == (
            200,
            {"status": "retrying", "state": "ready"},
        )
        again = await client.post(f"/admin/jobs/{job_id}/retry", json={})
        assert (again.status_code, again.json()["state"]) == (409, "ready")
    refused, line = await (await app.store()).audit("shop", limit=10)
    assert (line.verb, line.target, line.jobs) == ("retry", job_id, 1)
    assert refused.jobs == 0
    assert line.who == "olga@192.0.2.7 via dashboard"


@virtual(name="shop")
async def test_a_viewer_sees_no_arguments_and_cannot_retry(app: App):
    job_id = await dead_job(app)
    async with browser(dashboard(app, User("vera", "viewer"))) as client:
        shown = (await client.get(f"/admin/jobs/{job_id}")).json()
        assert (shown["masked"], shown["args_json"]) == (True, None)
        answer = await client.post(f"/admin/jobs/{job_id}/retry", json={})
        assert (answer.status_code, answer.json()["code"]) == (403, "role_too_low")


@pytest.mark.parametrize("path", ["/admin/me", "/admin/jobs", "/admin/none", "/none"])
def test_without_a_credential_nothing_is_there(path: str):
    @virtual(name="shop")
    async def ask(app: App):
        async with browser(dashboard(app)) as client:
            answer = await client.get(path)
            assert answer.status_code == 401
            assert answer.headers["content-type"] == "application/problem+json"
            assert (await client.post(path, json={})).status_code == 401

    ask()


@virtual(name="shop")
async def test_errors_of_the_framework_are_problems(app: App):
    async with browser(dashboard(app, ADMIN)) as client:
        answers: list[Any] = [
            await client.get("/admin/none"),
            await client.put("/admin/me", json={}),
            await client.get("/admin/jobs?limit=0"),
        ]
        assert [answer.status_code for answer in answers] == [404, 405, 422]
        for answer in answers:
            assert answer.headers["content-type"] == "application/problem+json"
            assert {
                "type",
                "title",
                "status",
                "code",
                "detail",
                "cure",
            } <= answer.json().keys()
        me = (await client.get("/admin/me")).json()
    assert (me["user"], me["role"], me["via"]) == ("ann", "admin", "hook")
    assert me["may"]["retry"]
