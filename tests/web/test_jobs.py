"""`admin/jobs`: search, one job, and everything that can be done with it."""

import asyncio
import json
import threading  # noqa: TID251 - a formatter that hangs in its thread
from typing import Any

import httpx
import pytest

from durio import App, Context, Snooze
from durio.web import User
from tests.unit.app.app_harness import drained, virtual, working
from tests.web.browser import browser, dashboard
from tests.web.logins import token_of

ADMIN, OPERATOR = User("ann", "admin"), User("olga", "operator")
VIEWER = User("vera", "viewer")
GONE = "0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55"
PATH = "/admin/jobs"


HIDDEN = "s3cret"


async def fail(text: str, secret: str) -> None:
    raise ValueError(text if secret else "")


async def add(a: int, b: int = 0) -> int:
    return a + b


async def dead_job(app: App, **options: Any) -> str:
    task = app.task(name="fail", retry=0)(fail)
    job = await task.options(**options).enqueue("no such order", HIDDEN)
    await drained(app)
    return job.id


async def ids(client: httpx.AsyncClient, **params: Any) -> list[str]:
    answer = await client.get(PATH, params=params)
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()["items"]]


# --- searching


@virtual(name="shop")
async def test_jobs_are_searched_page_by_page(app: App):
    made = [(await app.named("send").enqueue(n)).id for n in range(7)]
    made.reverse()
    other = (await app.named("cut").options(queue="video").enqueue()).id
    async with browser(dashboard(app, VIEWER)) as client:
        assert await ids(client, q="queue:video") == [other]
        assert await ids(client) == [other, *made]
        params = {"q": "task:send", "limit": 3}
        first = (await client.get(PATH, params=params)).json()
        assert [item["id"] for item in first["items"]] == made[:3]
        assert not first["partial"]
        params["cursor"] = first["cursor"]
        assert await ids(client, **params) == made[3:6]
        other_query = await client.get(PATH, params={**params, "q": "task:cut"})
        assert other_query.status_code == 400
        cursor = first["cursor"]
        swapped = cursor[:-1] + ("A" if cursor[-1] != "A" else "B")
        for wrong in (swapped, cursor[1:], "x", "%00", "A" * 2001):
            answer = await client.get(PATH, params={**params, "cursor": wrong})
            assert answer.status_code in (400, 422), wrong


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"limit": 0}, 422),
        ({"limit": 201}, 422),
        ({"limit": -1}, 422),
        ({"limit": 2**63}, 422),
        ({"limit": "ten"}, 422),
        ({"q": "x" * 1001}, 400),
        ({"q": " ".join(f"w{n}" for n in range(33))}, 400),
        ({"q": "colour:red"}, 400),
        ({"q": 'task:"open'}, 400),
        ({"q": "args.__proto__:1"}, 200),
        ({"q": "queue:constructor"}, 200),
    ],
)
def test_queries_that_cannot_be(params: dict[str, Any], status: int):
    @virtual(name="shop")
    async def ask(app: App):
        async with browser(dashboard(app, OPERATOR)) as client:
            for path in (PATH, f"{PATH}/count"):
                if "limit" in params and path != PATH:
                    continue
                answer = await client.get(path, params=params)
                assert answer.status_code == status, answer.text
                if status == 400:
                    assert answer.json()["cure"]

    ask()


@virtual(name="shop")
async def test_a_wrong_query_says_where(app: App):
    async with browser(dashboard(app, OPERATOR)) as client:
        answer = (await client.get(PATH, params={"q": "state:dead colour:red"})).json()
    assert (answer["code"], answer["position"]) == ("invalid_query", 11)


@virtual(name="shop")
async def test_jobs_are_counted_by_state(app: App):
    await dead_job(app)
    app.task(name="send")(add)
    await app.named("send").enqueue(1)
    await app.named("send").options(delay="1h").enqueue(1)
    async with browser(dashboard(app, VIEWER)) as client:
        count = (await client.get(f"{PATH}/count")).json()
        assert count == {
            "count": 3,
            "capped": False,
            "partial": False,
            "by_state": count["by_state"],
        }
        found = {k: v["count"] for k, v in count["by_state"].items() if v["count"]}
        assert found == {"dead": 1, "ready": 1, "scheduled": 1}
        params = {"q": "task:send state:ready"}
        assert (await client.get(f"{PATH}/count", params=params)).json()["count"] == 1


@virtual(name="shop")
async def test_a_query_is_completed(app: App):
    await app.named("send").options(queue="mail").enqueue()
    async with browser(dashboard(app, VIEWER)) as client:
        params = {"q": "state:de", "at": 8}
        found = (await client.get(f"{PATH}/complete", params=params)).json()["items"]
        assert [item["text"] for item in found] == ["dead"]
        params = {"q": "queue:", "at": 6}
        found = (await client.get(f"{PATH}/complete", params=params)).json()["items"]
        assert "mail" in [item["text"] for item in found]


@virtual(name="shop")
async def test_hidden_arguments_are_not_found_by_searching(app: App):
    await app.named("send").enqueue(card="4111")
    for user, options in ((VIEWER, {}), (ADMIN, {"mask": lambda *_: None})):
        async with browser(dashboard(app, user, **options)) as client:
            for q in ("args.card:4111", "meta.tenant:1", "-args.card:5"):
                for path in (PATH, f"{PATH}/count"):
                    answer = await client.get(path, params={"q": q})
                    assert answer.json()["code"] == "payloads_masked"
    async with browser(dashboard(app, ADMIN)) as client:
        assert len(await ids(client, q="args.card:4111")) == 1


@virtual(name="shop")
async def test_a_user_of_two_queues_finds_only_their_jobs(app: App):
    made = {
        queue: (await app.named("send").options(queue=queue).enqueue()).id
        for queue in ("mail", "video", "bank")
    }
    user = User("olga", "operator", queues=["mail", "video"])
    async with browser(dashboard(app, user)) as client:
        assert set(await ids(client)) == {made["mail"], made["video"]}
        assert await ids(client, q="queue:bank") == []
        assert (await client.get(f"{PATH}/count")).json()["count"] == 2
        for verb in ("cancel", "retry"):
            answer = await client.post(f"{PATH}/{made['bank']}/{verb}", json={})
            assert answer.status_code == 404


@virtual(name="shop")
async def test_searches_wait_for_each_other_and_give_up(app: App):
    async with browser(dashboard(app, ADMIN)) as client:
        served = client._transport.app  # type: ignore[attr-defined]
        slots = served.site.search_slots
        async with slots, slots:
            answer = await client.get(PATH)
            assert (answer.status_code, answer.json()["code"]) == (
                429,
                "too_many_searches",
            )
            assert answer.headers["retry-after"] == "2"
        assert (await client.get(PATH)).status_code == 200


# --- one job


@virtual(name="shop")
async def test_a_job_shows_its_attempts_and_what_can_be_done(app: App):
    job_id = await dead_job(app, meta={"tenant": 7}, key="order-1")
    async with browser(dashboard(app, ADMIN)) as client:
        job = (await client.get(f"{PATH}/{job_id}")).json()
    assert json.loads(job["kwargs_json"]) == {
        "text": "no such order",
        "secret": HIDDEN,
    }
    assert (job["args_json"], job["meta_json"]) == ("[]", '{"tenant": 7}')
    assert (job["result_json"], job["key"], job["masked"]) == (None, "order-1", False)
    (attempt,) = job["attempts"]
    assert (attempt["number"], attempt["outcome"]) == (1, "dead")
    assert attempt["error"]["type"] == "ValueError"
    assert attempt["error"]["frames"][-1]["function"] == "fail"
    assert attempt["error"]["frames"][-1]["own"]
    assert "raise ValueError(text" in attempt["traceback"]
    assert [each["state"] for each in job["transitions"]][-1] == "dead"
    assert job["same_error"]["count"] == 1
    allowed = {verb for verb, why in job["actions"].items() if why is None}
    assert allowed == {"retry", "edit", "discard", "duplicate"}
    assert "is dead" in job["actions"]["cancel"]
    assert job["created_at"].endswith("Z")


@virtual(name="shop")
async def test_a_viewer_sees_no_payloads_and_no_tracebacks(app: App):
    job_id = await dead_job(app, meta={"tenant": 7})
    async with browser(dashboard(app, VIEWER)) as client:
        answer = await client.get(f"{PATH}/{job_id}")
    job = answer.json()
    assert job["masked"]
    texts = ("args_json", "kwargs_json", "meta_json", "result_json")
    assert [job[name] for name in texts] == [None] * 4
    (attempt,) = job["attempts"]
    assert (attempt["traceback"], attempt["logs"]) == (None, [])
    assert attempt["error"]["frames"] == []
    assert HIDDEN not in answer.text
    async with browser(dashboard(app, User("p", "viewer", payloads=True))) as client:
        assert HIDDEN in (await client.get(f"{PATH}/{job_id}")).text
    async with browser(dashboard(app, User("p", "admin", payloads=False))) as client:
        assert HIDDEN not in (await client.get(f"{PATH}/{job_id}")).text


@virtual(name="shop")
async def test_a_done_job_shows_its_result_and_big_numbers_exactly(app: App):
    app.task(name="add", result_ttl="1h")(add)
    job = await app.named("add").enqueue(2**63 - 1)
    await drained(app)
    async with browser(dashboard(app, ADMIN)) as client:
        shown = (await client.get(f"{PATH}/{job.id}")).json()
    assert shown["result_json"] == str(2**63 - 1)
    assert (shown["state"], shown["attempts"][0]["outcome"]) == ("done", "done")


@virtual(name="shop")
async def test_a_running_job_shows_its_progress_and_can_be_asked_to_stop(app: App):
    begun = asyncio.Event()

    @app.task(name="long", retry=0)
    async def long(ctx: Context) -> None:
        await ctx.progress(3, 10, message="cutting")
        begun.set()
        await app.clock.sleep(60)

    job = await long.enqueue()
    async with working(app), browser(dashboard(app, OPERATOR)) as client:
        await begun.wait()
        shown = (await client.get(f"{PATH}/{job.id}")).json()
        assert shown["state"] == "running"
        assert shown["now"].startswith("for ")
        assert shown["attempts"][0]["outcome"] == "running"
        answer = (await client.post(f"{PATH}/{job.id}/cancel", json={})).json()
        assert answer == {"status": "cancelling", "state": "running"}


@virtual(name="shop")
async def test_a_job_of_a_plan_shows_what_is_around_it(app: App):
    task = app.task(name="add")(add)
    plan = await (task.s(1) | task.s(2) | task.s(3)).enqueue()
    async with browser(dashboard(app, ADMIN)) as client:
        jobs = {
            item["id"]: (await client.get(f"{PATH}/{item['id']}")).json()
            for item in (await client.get(PATH)).json()["items"]
        }
    first, second, third = sorted(jobs.values(), key=lambda job: job["plan"]["node"])
    assert {job["plan"]["id"] for job in jobs.values()} == {plan.id}
    assert (first["parents"], first["children"]) == ([], [second["id"]])
    assert (second["parents"], second["children"]) == ([first["id"]], [third["id"]])
    assert second["actions"]["duplicate"]
    assert first["actions"]["duplicate"] is None


@virtual(name="shop")
async def test_a_job_is_explained(app: App):
    job = await app.named("send").options(delay="1h").enqueue()
    async with browser(dashboard(app, VIEWER)) as client:
        why = (await client.get(f"{PATH}/{job.id}/explain")).json()
    assert why["sentence"].startswith("it was enqueued for later")
    assert any("durio jobs run" in (each["command"] or "") for each in why["reasons"])
    assert why["reasons"][0]["is_blocking"]


@pytest.mark.parametrize("job_id", [GONE, "x", GONE[:8], "0" * 200, "..%2F..%2Fme"])
def test_a_job_that_is_not_there(job_id: str):
    @virtual(name="shop")
    async def ask(app: App):
        async with browser(dashboard(app, ADMIN)) as client:
            for path in (f"{PATH}/{job_id}", f"{PATH}/{job_id}/explain"):
                assert (await client.get(path)).status_code == 404
            for verb in ("retry", "cancel", "run_now", "discard", "duplicate"):
                answer = await client.post(f"{PATH}/{job_id}/{verb}", json={})
                assert answer.status_code == 404

    ask()


@virtual(name="shop")
async def test_a_job_of_another_app_is_not_there(app: App):
    job = await app.enqueue("bank.send")
    async with browser(dashboard(app, ADMIN)) as client:
        assert await ids(client) == []
        assert (await client.get(f"{PATH}/{job.id}")).status_code == 404
        answer = await client.post(f"{PATH}/{job.id}/cancel", json={})
        assert answer.status_code == 404
    assert (await job.status()).state == "ready"


# --- a formatter


@virtual(name="shop")
async def test_a_formatter_hides_fields(app: App):
    job_id = await dead_job(app, meta={"tenant": 7})

    def mask(task: str, name: str, value: Any) -> Any:
        assert task == "shop.fail"
        return {**value, "secret": "***"} if name == "kwargs" else value

    async with browser(dashboard(app, ADMIN, mask=mask)) as client:
        job = (await client.get(f"{PATH}/{job_id}")).json()
    assert json.loads(job["kwargs_json"])["secret"] == "***"
    assert (job["meta_json"], job["masked"]) == ('{"tenant": 7}', False)


def raises(*_: Any) -> Any:
    raise KeyError("secret")


@pytest.mark.parametrize("mask", [raises, lambda *_: object(), lambda: None])
def test_a_formatter_that_fails_hides_everything(mask: Any):
    @virtual(name="shop")
    async def ask(app: App):
        job_id = await dead_job(app)
        async with browser(dashboard(app, ADMIN, mask=mask)) as client:
            job = (await client.get(f"{PATH}/{job_id}")).json()
        assert (job["masked"], job["kwargs_json"]) == (True, None)

    ask()


def test_a_formatter_that_hangs_hides_everything():
    let_go = threading.Event()

    async def main() -> None:
        app = App("sqlite:///:memory:", name="shop")
        job = await app.named("send").enqueue()

        def hangs(*_: Any) -> Any:
            let_go.wait(30)

        async with browser(dashboard(app, ADMIN, mask=hangs)) as client:
            shown = (await client.get(f"{PATH}/{job.id}")).json()
            assert shown["masked"]
        let_go.set()
        await app.close()

    asyncio.run(main())


# --- acting


@virtual(name="shop")
async def test_each_action_changes_the_job_and_is_audited(app: App):
    dead = await dead_job(app)
    app.task(name="add")(add)
    later = await app.named("add").options(delay="1h").enqueue(1)
    async with browser(dashboard(app, ADMIN)) as client:

        async def act(job_id: str, verb: str) -> dict[str, Any]:
            answer = await client.post(f"{PATH}/{job_id}/{verb}", json={})
            assert answer.status_code in (200, 201), answer.text
            return answer.json()

        assert await act(later.id, "run_now") == {"status": "ready", "state": "ready"}
        assert await act(later.id, "cancel") == {
            "status": "cancelled",
            "state": "cancelled",
        }
        assert await act(later.id, "retry") == {"status": "retrying", "state": "ready"}
        copy = await act(dead, "duplicate")
        assert await act(dead, "discard") == {"status": "discarded", "state": None}
        assert (await client.get(f"{PATH}/{dead}")).status_code == 404
        shown = (await client.get(f"{PATH}/{copy['id']}")).json()
        assert json.loads(shown["kwargs_json"])["text"] == "no such order"
    lines = await (await app.store()).audit("shop", limit=10)
    assert [(line.verb, line.target) for line in reversed(lines)] == [
        ("run_now", later.id),
        ("cancel", later.id),
        ("retry", later.id),
        ("duplicate", f"{dead} as {copy['id']}"),
        ("discard", dead),
    ]
    details = lines[0].read_details()
    assert details
    assert details["browser"].startswith("python-httpx")
    assert len(details["request_id"]) == 32


@pytest.mark.parametrize(
    ("verb", "state"),
    [
        ("retry", "ready"),
        ("run_now", "ready"),
        ("discard", "ready"),
        ("cancel", "dead"),
    ],
)
def test_an_action_in_another_state_is_a_conflict(verb: str, state: str):
    """As when two people act on one job at the same time."""

    @virtual(name="shop")
    async def ask(app: App):
        if state == "dead":
            job_id = await dead_job(app)
        else:
            job_id = (await app.named("send").enqueue()).id
        async with browser(dashboard(app, ADMIN)) as client:
            answer = await client.post(f"{PATH}/{job_id}/{verb}", json={})
            problem = answer.json()
            assert (answer.status_code, problem["code"]) == (409, "wrong_state")
            assert problem["state"] == state

    ask()


@virtual(name="shop")
async def test_an_admin_retries_with_other_arguments(app: App):
    job_id = await dead_job(app)
    path = f"{PATH}/{job_id}/retry"
    edited = {"kwargs_json": '{"text": "again", "secret": "x"}'}
    async with browser(dashboard(app, OPERATOR)) as client:
        answer = await client.post(path, json=edited)
        assert (answer.status_code, answer.json()["code"]) == (403, "role_too_low")
    async with browser(dashboard(app, User("b", "admin", payloads=False))) as client:
        answer = await client.post(path, json=edited)
        assert (answer.status_code, answer.json()["code"]) == (403, "payloads_masked")
    async with browser(dashboard(app, ADMIN)) as client:
        for wrong, status in (
            ({"kwargs_json": '{"colour": 1}'}, 422),
            ({"kwargs_json": "[]"}, 422),
            ({"args_json": "{}"}, 422),
            ({"kwargs_json": '{"text": "a", "text": "b"}'}, 400),
            ({"kwargs_json": '{"text": NaN}'}, 400),
            ({"args_json": "[" * 65 + "]" * 65}, 400),
            (
                {"kwargs_json": json.dumps({"text": "x" * 1024 * 1024, "secret": ""})},
                413,
            ),
            ({"args": []}, 422),
        ):
            answer = await client.post(path, json=wrong)
            assert answer.status_code == status, (wrong, answer.text[:300])
        assert (await client.post(path, json=edited)).status_code == 200
        shown = (await client.get(f"{PATH}/{job_id}")).json()
        assert json.loads(shown["kwargs_json"])["text"] == "again"
    (line,) = await (await app.store()).audit("shop", limit=1)
    assert line.verb == "retry_edited"
    assert "again" not in line.details


# --- enqueueing


@virtual(name="shop")
async def test_a_job_is_enqueued_with_its_options(app: App):
    app.task(name="add")(add)
    body = {
        "task": "add",
        "kwargs_json": '{"a": 1}',
        "queue": "mail",
        "priority": 9,
        "delay": "5m",
        "key": "k",
        "meta_json": '{"tenant": 7}',
    }
    async with browser(dashboard(app, OPERATOR)) as client:
        made = await client.post(PATH, json=body)
        assert made.status_code == 201
        job = (await client.get(f"{PATH}/{made.json()['id']}")).json()
        assert (job["task"], job["queue"], job["priority"]) == ("shop.add", "mail", 9)
        assert (job["state"], job["key"]) == ("scheduled", "k")
        assert job["meta_json"] == '{"tenant": 7}'
        at = {"task": "add", "args_json": "[1]", "at": "2030-01-01T00:00:00+01:00"}
        made = await client.post(PATH, json=at)
        job = (await client.get(f"{PATH}/{made.json()['id']}")).json()
        assert job["run_at"] == "2029-12-31T23:00:00Z"
    (line,) = await (await app.store()).audit("shop", limit=1)
    assert (line.verb, line.target) == ("enqueue", f"{job['id']} shop.add")


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"task": "nosuch"}, 404),
        ({"task": "bank.add"}, 404),
        ({"task": ""}, 400),
        ({"task": "a b"}, 400),
        ({"kwargs_json": '{"c": 1}'}, 422),
        ({"kwargs_json": '{"a": "one"}'}, 422),
        ({"kwargs_json": "{}"}, 422),
        ({"kwargs_json": "{"}, 400),
        ({"priority": 10}, 400),
        ({"priority": "high"}, 422),
        ({"delay": "soon"}, 400),
        ({"delay": -1}, 400),
        ({"at": "tomorrow"}, 400),
        ({"at": "2030-01-01T00:00:00"}, 400),
        ({"delay": 1, "at": "2030-01-01T00:00:00Z"}, 400),
        ({"queue": "a/b"}, 400),
        ({"key": ""}, 400),
        ({"meta_json": "[]"}, 422),
        ({"colour": "red"}, 422),
        ({"kwargs_json": json.dumps({"a": 1, "b": "x" * 1024 * 1024})}, 422),
        ({"args_json": json.dumps(["x" * 2 * 1024 * 1024])}, 413),
    ],
)
def test_jobs_that_cannot_be_enqueued(change: dict[str, Any], status: int):
    @virtual(name="shop")
    async def ask(app: App):
        app.task(name="add")(add)
        body = {"task": "add", "kwargs_json": '{"a": 1}', **change}
        async with browser(dashboard(app, OPERATOR)) as client:
            answer = await client.post(PATH, json=body)
            assert answer.status_code == status, answer.text[:300]
            assert await ids(client) == []
        assert not await (await app.store()).audit("shop", limit=1)

    ask()


@virtual(name="shop")
async def test_a_repeat_with_one_idempotency_key_is_one_job(app: App):
    app.task(name="add")(add)
    body = {"task": "add", "args_json": "[1]"}
    key = {"Idempotency-Key": "order-1"}
    async with browser(dashboard(app, OPERATOR)) as client:
        first = await client.post(PATH, json=body, headers=key)
        again = await client.post(PATH, json=body, headers=key)
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json() == {"id": first.json()["id"], "created": False}
        other = {**body, "args_json": "[2]"}
        answer = await client.post(PATH, json=other, headers=key)
        assert (answer.status_code, answer.json()["code"]) == (422, "key_conflict")
        both = await client.post(PATH, json={**body, "key": "k"}, headers=key)
        assert both.status_code == 400
        await drained(app)
        await app.clock.sleep(24 * 3600)
        assert (await client.post(PATH, json=body, headers=key)).status_code == 201


@virtual(name="shop")
async def test_a_full_or_closed_queue_refuses_at_once(app: App):
    app.task(name="add")(add)
    app.queue("mail", maxsize=1)
    body = {"task": "add", "args_json": "[1]", "queue": "mail"}
    await app.declare_bounds()
    async with browser(dashboard(app, OPERATOR)) as client:
        assert (await client.post(PATH, json=body)).status_code == 201
        full = await client.post(PATH, json=body)
        assert (full.status_code, full.json()["code"]) == (503, "queue_full")
        assert int(full.headers["retry-after"]) >= 1
        closing = await client.post("/admin/queues/mail/close", json={})
        assert closing.status_code == 200
        closed = await client.post(PATH, json=body)
        assert (closed.status_code, closed.json()["code"]) == (409, "queue_closed")


@virtual(name="shop")
async def test_a_token_enqueues_its_tasks_into_its_queues_only(app: App):
    app.task(name="add", queue="mail")(add)
    app.task(name="other")(add)
    limits = {"tasks": ("shop.add",), "queues": ("mail",)}
    text = await token_of(app, purposes=("enqueue",), **limits)
    headers = {"Authorization": f"Bearer {text}"}
    body = {"task": "add", "args_json": "[1]"}
    async with browser(dashboard(app), headers=headers) as client:
        assert (await client.post(PATH, json=body)).status_code == 201
        for change, status in (({"task": "other"}, 403), ({"queue": "bank"}, 404)):
            answer = await client.post(PATH, json={**body, **change})
            assert answer.status_code == status
        assert (await client.get(PATH)).status_code == 403


@virtual(name="shop")
async def test_a_snoozed_job_says_so(app: App):
    @app.task(name="nap")
    async def nap() -> None:
        raise Snooze("1h")

    job = await nap.enqueue()
    async with working(app), browser(dashboard(app, VIEWER)) as client:
        await app.clock.sleep(5)
        shown = (await client.get(f"{PATH}/{job.id}")).json()
    assert shown["state"] == "scheduled"
    assert shown["now"].startswith("due in ")
