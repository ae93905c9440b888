"""What changes one job: who may, what is written, what the audit says, what is refused."""

import json
from typing import Any

import pytest

from durio import App, State
from durio.model.ids import id_text
from durio.ports.control import AuditNote, QueueChange
from durio.queues import Queue
from durio.web import User
from tests.unit.app.app_harness import drained, record_of, records, virtual, working
from tests.web.browser import browser, dashboard
from tests.web.logins import token_of
from tests.web.test_tokens import bearer

ADMIN = User("ann", "admin")
OPERATOR = User("olga", "operator")


async def send(to: str, amount: int = 1) -> None:
    del amount
    if not to:
        raise ValueError("no address")


def task_of(app: App) -> Any:
    return app.task(name="send", queue="mail", retry=0)(send)


async def dead(app: App) -> Any:
    job = await task_of(app).enqueue("")
    await drained(app)
    return job


async def post(client: Any, path: str, status: int, **body: Any) -> Any:
    answer = await client.post(f"/admin/jobs{path}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def audited(app: App) -> list[tuple[str, str, int]]:
    lines = await (await app.store()).audit("shop", limit=20)
    return [(line.verb, line.who.split("@")[0], line.jobs) for line in lines]


@virtual(name="shop")
async def test_cancels_waiting_and_running_jobs(app: App):
    job = await task_of(app).enqueue("bob")
    async with browser(dashboard(app, OPERATOR)) as client:
        answer = await post(client, f"/{job.id}/cancel", 200)
        assert answer == {"status": "cancelled", "state": "cancelled"}
    assert await audited(app) == [("cancel", "olga", 1)]


@virtual(name="shop")
async def test_asks_a_running_job_to_stop(app: App):
    async def wait(seconds: float) -> None:
        await app.clock.sleep(seconds)

    job = await app.task(name="wait")(wait).enqueue(1000)
    async with working(app), browser(dashboard(app, OPERATOR)) as client:
        while (await job.status()).state is not State.RUNNING:
            await app.clock.sleep(0.1)
        answer = await post(client, f"/{job.id}/cancel", 200)
        assert answer == {"status": "cancelling", "state": "running"}


@virtual(name="shop")
async def test_runs_a_scheduled_job_now(app: App):
    job = await task_of(app).options(delay="1h").enqueue("bob")
    async with browser(dashboard(app, OPERATOR)) as client:
        answer = await post(client, f"/{job.id}/run_now", 200)
        assert answer == {"status": "ready", "state": "ready"}
        again = await post(client, f"/{job.id}/run_now", 409)
        assert (again["code"], again["state"]) == ("wrong_state", "ready")


@virtual(name="shop")
async def test_only_an_admin_discards(app: App):
    job = await dead(app)
    async with browser(dashboard(app, OPERATOR)) as client:
        await post(client, f"/{job.id}/discard", 403)
    async with browser(dashboard(app, ADMIN)) as client:
        answer = await post(client, f"/{job.id}/discard", 200)
        assert answer == {"status": "discarded", "state": None}
        await post(client, f"/{job.id}/discard", 404)
        assert (await client.get(f"/admin/jobs/{job.id}")).status_code == 404
    assert await records(app) == []


@virtual(name="shop")
async def test_of_two_tabs_one_acts_and_one_is_told_the_state(app: App):
    job = await dead(app)
    async with (
        browser(dashboard(app, ADMIN)) as one,
        browser(dashboard(app, ADMIN)) as two,
    ):
        await post(one, f"/{job.id}/retry", 200)
        for verb in ("retry", "discard"):
            late = await post(two, f"/{job.id}/{verb}", 409)
            assert (late["code"], late["state"]) == ("wrong_state", "ready")


# --- edit and retry


@virtual(name="shop")
async def test_retries_with_other_arguments(app: App):
    job = await dead(app)
    async with browser(dashboard(app, ADMIN)) as client:
        answer = await post(
            client, f"/{job.id}/retry", 200, kwargs_json='{"to": "bob"}'
        )
        assert answer == {"status": "retrying", "state": "ready"}
    assert json.loads((await record_of(app, job)).payload) == [[], {"to": "bob"}]
    assert await audited(app) == [("retry_edited", "ann", 1)]
    await drained(app)
    assert (await job.status()).state is State.DONE


@virtual(name="shop")
async def test_an_operator_cannot_change_arguments(app: App):
    job = await dead(app)
    async with browser(dashboard(app, OPERATOR)) as client:
        refused = await post(client, f"/{job.id}/retry", 403, kwargs_json='{"to": "x"}')
        assert refused["code"] == "role_too_low"
    assert (await job.status()).state is State.DEAD


DEEP = "[" * 65 + "]" * 65
WRONG_ARGUMENTS = [
    ('{"to": "a", "to": "b"}', 400, "invalid_json"),
    ('{"to": NaN}', 400, "invalid_json"),
    ('{"to": ' + DEEP + "}", 400, "invalid_json"),
    ('{"to": "x"', 400, "invalid_json"),
    ("[1]", 422, "invalid_request"),
    ('{"nobody": 1}', 422, "invalid_arguments"),
    ("{}", 422, "invalid_arguments"),
    ('{"to": 5}', 422, "invalid_arguments"),
    ('{"to": "' + "x" * 1_048_577 + '"}', 413, "payload_too_large"),
]


@pytest.mark.parametrize(("text", "status", "code"), WRONG_ARGUMENTS)
def test_wrong_arguments_change_nothing(text: str, status: int, code: str):
    @virtual(name="shop")
    async def check(app: App):
        job = await dead(app)
        before = await record_of(app, job)
        async with browser(dashboard(app, ADMIN)) as client:
            for path in (f"/{job.id}/retry", ""):
                body = {"kwargs_json": text} | ({} if path else {"task": "send"})
                answer = await client.post(f"/admin/jobs{path}", json=body)
                assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert await records(app) == [before]

    check()


# --- duplicate


@virtual(name="shop")
async def test_a_duplicate_is_a_job_of_its_own(app: App):
    task = task_of(app).options(key="k", priority=8, meta={"tenant": "a"}, queue="fast")
    job = await task.enqueue("bob", amount=3)
    async with browser(dashboard(app, OPERATOR)) as client:
        made = (await post(client, f"/{job.id}/duplicate", 201))["id"]
        again = (await post(client, f"/{job.id}/duplicate", 201))["id"]
        assert len({job.id, made, again}) == 3
        found = (await client.get(f"/admin/jobs/{made}")).json()
    assert found["kwargs_json"] == '{"to": "bob", "amount": 3}'
    assert (found["queue"], found["priority"], found["key"]) == ("fast", 8, None)
    assert (found["meta_json"], found["state"]) == ('{"tenant": "a"}', "ready")
    lines = await (await app.store()).audit("shop", limit=5)
    assert lines[0].verb == "duplicate"
    assert lines[1].target == f"{job.id} as {made}"


# --- enqueue


@virtual(name="shop")
async def test_enqueues_a_checked_job(app: App):
    task_of(app)
    async with browser(dashboard(app, OPERATOR)) as client:
        body = {"task": "send", "kwargs_json": '{"to": "eve"}', "priority": 7}
        made = await post(client, "", 201, **body, delay="5m", meta_json='{"a": 1}')
        assert made["created"] is True
        found = (await client.get(f"/admin/jobs/{made['id']}")).json()
    assert (found["state"], found["queue"], found["priority"]) == (
        "scheduled",
        "mail",
        7,
    )
    assert (found["kwargs_json"], found["meta_json"]) == ('{"to": "eve"}', '{"a": 1}')
    (line,) = await (await app.store()).audit("shop", limit=5)
    assert (line.verb, line.target) == ("enqueue", f"{made['id']} shop.send")


@virtual(name="shop")
async def test_one_key_makes_one_job(app: App):
    task_of(app)
    async with browser(dashboard(app, OPERATOR)) as client:
        keyed = {"Idempotency-Key": "order-1"}
        body = {"task": "send", "kwargs_json": '{"to": "eve"}'}
        first = await client.post("/admin/jobs", json=body, headers=keyed)
        assert first.status_code == 201
        same = await client.post("/admin/jobs", json=body, headers=keyed)
        assert (same.status_code, same.json()) == (
            200,
            {"id": first.json()["id"], "created": False},
        )
        positional = {"task": "send", "args_json": '["eve"]', "key": "order-1"}
        assert (await post(client, "", 200, **positional))["created"] is False
        other = {**body, "kwargs_json": '{"to": "bob"}'}
        refused = await client.post("/admin/jobs", json=other, headers=keyed)
        assert (refused.status_code, refused.json()["code"]) == (422, "key_conflict")
        both = await client.post(
            "/admin/jobs", json={**body, "key": "x"}, headers=keyed
        )
        assert both.status_code == 400
    assert len(await records(app)) == 1


@virtual(name="shop")
async def test_an_unknown_task_is_refused(app: App):
    await dead(app)
    async with browser(dashboard(app, OPERATOR)) as client:
        refused = await post(client, "", 404, task="sned")
        assert refused["code"] == "unknown_task"
        assert "send" in refused["cure"]
        await post(client, "", 404, task="bank.send", kwargs_json='{"to": "x"}')
        for name in ("", "a b", "x" * 200, "shop.\u202esend"):
            await post(client, "", 400, task=name)


@virtual(name="shop", queues=[Queue("mail", maxsize=1)])
async def test_full_and_closed_queues_refuse(app: App):
    task_of(app)
    await app.declare_bounds()
    async with browser(dashboard(app, OPERATOR)) as client:
        body = {"task": "send", "kwargs_json": '{"to": "eve"}'}
        await post(client, "", 201, **body)
        full = await client.post("/admin/jobs", json=body)
        assert (full.status_code, full.json()["code"]) == (503, "queue_full")
        assert int(full.headers["retry-after"]) >= 1
        (job,) = await records(app)
        await post(client, f"/{id_text(job.id)}/duplicate", 201)
        change = QueueChange(closed=True)
        note = AuditNote(who="ann")
        await (await app.store()).set_queue("shop:mail", change, note)
        closed = await post(client, "", 409, **body)
        assert closed["code"] == "queue_closed"


@virtual(name="shop")
async def test_a_user_of_one_queue_enqueues_there_only(app: App):
    await dead(app)
    limited = User("mia", "operator", queues=("mail",))
    async with browser(dashboard(app, limited)) as client:
        body = {"task": "send", "kwargs_json": '{"to": "eve"}'}
        await post(client, "", 201, **body)
        await post(client, "", 404, **body, queue="other")
        await post(client, "", 404, task="nothing")


@virtual(name="shop")
async def test_options_are_checked(app: App):
    task_of(app)
    async with browser(dashboard(app, OPERATOR)) as client:
        body = {"task": "send", "kwargs_json": '{"to": "eve"}'}
        for wrong in (
            {"priority": 10},
            {"delay": "soon"},
            {"at": "2030-01-01"},
            {"at": "x"},
            {"queue": "a b"},
            {"delay": 5, "at": "2030-01-01T00:00:00Z"},
        ):
            answer = await client.post("/admin/jobs", json={**body, **wrong})
            assert answer.status_code == 400, wrong
        answer = await client.post("/admin/jobs", json={**body, "what": 1})
        assert answer.status_code == 422
    assert await records(app) == []


@virtual(name="shop")
async def test_a_token_to_enqueue_is_for_its_tasks_only(app: App):
    await dead(app)
    tokens = {
        "own": await token_of(
            app, role=None, purposes=("enqueue",), tasks=("shop.send",)
        ),
        "other": await token_of(
            app, role=None, purposes=("enqueue",), tasks=("shop.x",)
        ),
        "metrics": await token_of(app, role=None, purposes=("metrics",)),
    }
    body = {"task": "send", "kwargs_json": '{"to": "eve"}'}
    for name, status in {"own": 201, "other": 403, "metrics": 403}.items():
        async with browser(dashboard(app), headers=bearer(tokens[name])) as client:
            assert (await client.post("/admin/jobs", json=body)).status_code == status
            assert (await client.get("/admin/jobs")).status_code == 403
