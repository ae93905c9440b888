"""`admin/overview`: the verdict in one sentence, what needs attention, and the figures."""

import os
from datetime import datetime
from typing import Any

import pytest

from durio import App
from durio.limits import Breaker
from durio.web import User, figures
from durio.web.api import jobs as jobs_api
from durio.web.api import overview as overview_api
from tests.faults.faulty_store import FaultyStore
from tests.unit.app.app_harness import drained, finished, virtual, working
from tests.web.browser import browser, dashboard

VIEWER = User("vera", "viewer")


async def work() -> None: ...


async def fail() -> None:
    raise ValueError("no such order")


async def overview(asgi: Any) -> dict[str, Any]:
    async with browser(asgi) as client:
        answer = await client.get("/admin/overview")
    assert answer.status_code == 200, answer.text
    return answer.json()


@virtual(name="shop")
async def test_an_empty_store_is_well(app: App):
    seen = await overview(dashboard(app, VIEWER))
    assert seen["headline"] == {
        "level": "ok",
        "text": "Nothing has happened yet: there is no job and no worker.",
    }
    assert (seen["attention"], seen["queues"]) == ([], [])
    assert seen["states"]["done"] == {"count": 0, "capped": False}


@virtual(name="shop")
async def test_jobs_without_a_worker_are_the_headline(app: App):
    await app.task(name="work", queue="mail")(work).enqueue()
    seen = await overview(dashboard(app, VIEWER))
    assert seen["headline"] == {
        "level": "bad",
        "text": "No worker is alive, and jobs wait.",
    }
    (first,) = seen["attention"]
    assert first["evidence"] == "no worker serves mail (1 waiting job)"
    assert first["action"] == {"label": "Show workers", "href": "workers"}
    (queue,) = seen["queues"]
    assert (queue["name"], queue["state"], queue["workers"]) == ("mail", "open", 0)
    assert queue["counts"]["ready"] == {"count": 1, "capped": False}
    assert seen["states"]["ready"]["count"] == 1


@virtual(name="shop")
async def test_a_busy_app_is_well_and_says_its_figures(app: App):
    job = await app.task(name="work")(work).enqueue()
    async with working(app):
        await finished(job)
        seen = await overview(dashboard(app, VIEWER))
    assert seen["headline"] == {
        "level": "ok",
        "text": "All is well: 1 live worker, no running jobs, no waiting jobs.",
    }
    assert seen["workers"]["live"] == 1
    assert seen["workers"]["slots"] == app.settings.worker.concurrency
    assert seen["states"]["done"]["count"] == 1


@virtual(name="shop")
async def test_the_worst_three_are_shown_worst_first(app: App):
    task = app.task(name="fail", retry=0, queue="orders")(fail)
    for _ in range(12):
        await task.enqueue()
    other = app.task(name="work", queue="mail")(work)
    await drained(app)
    await other.enqueue()
    await app.queue("mail").pause("the server is down")
    await task.enqueue()
    seen = await overview(dashboard(app, VIEWER))
    texts = [each["text"] for each in seen["attention"]]
    assert texts == [
        "No worker is alive, and jobs wait",
        "Many jobs have died",
        "A queue is held back",
    ]
    assert seen["headline"]["text"] == (
        "No worker is alive, and jobs wait, and 2 more problems."
    )
    (group,) = seen["error_groups"]
    assert (group["type"], group["count"], group["dead"]) == ("ValueError", 12, 12)
    assert seen["last_changes"][0]["verb"] == "pause"


@virtual(name="shop")
async def test_a_user_of_one_queue_sees_nothing_of_others(app: App):
    await app.task(name="work", queue="mail")(work).enqueue()
    await app.task(name="fail", queue="orders")(fail).enqueue()
    await app.queue("orders").pause("stock is counted")
    user = User("olga", "operator", queues=["mail"])
    seen = await overview(dashboard(app, user))
    assert [each["name"] for each in seen["queues"]] == ["mail"]
    assert seen["states"]["ready"]["count"] == 1
    assert "orders" not in str(seen)


@virtual(name="shop", breakers=[Breaker("smtp", failures=3)])
async def test_an_open_breaker_and_the_next_schedules_are_shown(app: App):
    task = app.task(name="work", breaker="smtp")(work)
    await app.schedules.create("nightly", task, cron="0 3 * * *")
    async with working(app):
        operator = dashboard(app, User("olga", "operator"))
        async with browser(operator) as client:
            answer = await client.post(
                "/admin/breakers/smtp/open", json={"reason": "the provider is down"}
            )
            assert answer.json()["state"] == "forced_open"
        seen = await overview(operator)
    (item,) = seen["attention"]
    assert item["text"] == "Breaker smtp is open"
    assert "by hand: the provider is down" in item["evidence"]
    assert item["action"]["href"] == "breakers/smtp"
    (coming,) = seen["schedules_next"]
    assert (coming["name"], coming["task"]) == ("nightly", "shop.work")


@virtual(name="shop")
async def test_figures_are_counted_once_for_all_viewers_and_then_rest(app: App):
    task = app.task(name="work")(work)
    await task.enqueue()
    asgi = dashboard(app, VIEWER)
    first = await overview(asgi)
    await task.enqueue()
    again = await overview(asgi)
    assert again["as_of"] == first["as_of"]
    assert again["states"]["ready"]["count"] == 1
    await app.clock.sleep(3)
    later = await overview(asgi)
    assert later["as_of"] > first["as_of"]
    assert later["states"]["ready"]["count"] == 2


@virtual(name="shop")
async def test_the_figures_say_when_they_were_counted_also_after_a_slow_count(app: App):
    faulty = FaultyStore(await app.store(), app.clock)
    app.state.stores[os.getpid()] = faulty
    faulty.slow("queues", seconds=1, times=1)
    asgi, began = dashboard(app, VIEWER), app.clock.now()
    for _ in range(5):  # the count of one second rests for twenty
        seen = await overview(asgi)
        assert datetime.fromisoformat(seen["as_of"]).timestamp() == began
        await app.clock.sleep(3)
    await app.clock.sleep(10)
    seen = await overview(asgi)
    assert datetime.fromisoformat(seen["as_of"]).timestamp() > began + 20


@virtual(name="shop")
async def test_jobs_that_have_ended_are_counted_up_to_a_limit(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(figures, "ENDED_MAX", 3)
    monkeypatch.setattr(overview_api, "ENDED_MAX", 3)
    task = app.task(name="work")(work)
    await task.enqueue_many([() for _ in range(5)])
    cancelled = await task.options(delay=60).enqueue()
    await cancelled.cancel()
    await drained(app)
    states = (await overview(dashboard(app, VIEWER)))["states"]
    assert states["done"] == {"count": 3, "capped": True}
    assert states["cancelled"] == {"count": 1, "capped": False}


@virtual(name="shop")
async def test_a_count_of_all_jobs_is_that_of_the_figures(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(jobs_api, "COUNT_MAX", 3)
    monkeypatch.setattr(figures, "ENDED_MAX", 3)
    task = app.task(name="work", queue="mail")(work)
    await task.enqueue_many([() for _ in range(5)])
    await drained(app)
    await app.task(name="later", queue="orders")(work).enqueue()
    for queues, ready in ((None, 1), (["mail"], 0)):
        user = User("vera", "viewer", queues=queues)
        async with browser(dashboard(app, user)) as client:
            found = (await client.get("/admin/jobs/count")).json()
        assert found["by_state"]["ready"] == {"count": ready, "capped": False}
        assert found["by_state"]["done"] == {"count": 3, "capped": True}
        assert (found["count"], found["capped"]) == (3, True)
