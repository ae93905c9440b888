"""`admin/limits` and `admin/breakers`: read, change and reset, audited."""

import json
from typing import Any

from durio import App, Concurrency, Rate
from durio.limits import Breaker, Budget
from durio.model.job import State
from durio.web import User
from tests.unit.app.app_harness import in_state, virtual, working
from tests.web.browser import browser, dashboard

ADMIN = User("ann", "admin")


def slow_task(app: App, **options: Any) -> Any:
    async def send(tenant: str) -> None:
        assert tenant
        await app.clock.sleep(100)

    return app.task(name="send", **options)(send)


@virtual(name="shop")
async def test_a_limit_shows_who_holds_it_and_who_waits(app: App):
    task = slow_task(app, limits=[Concurrency(1, key="tenant")])
    async with working(app):
        first = await task.enqueue("acme")
        await in_state(first, State.RUNNING)
        await task.enqueue("acme")
        await task.enqueue("other")
        async with browser(dashboard(app, ADMIN)) as client:
            (item,) = (await client.get("/admin/limits")).json()["items"]
            assert (item["name"], item["kind"], item["size"]) == (
                "send",
                "concurrency",
                1,
            )
            assert (item["used"], item["waiting"], item["keys"]) == (2, 1, 2)
            assert (item["by"], item["text"]) == ("code", "1 at once")
            shown = (await client.get("/admin/limits/send?limit=1")).json()
            (key,) = shown["items"]
            assert (key["key"], key["waiting"]) == ("acme", 1)
            assert key["holders"] == [first.id]
            path = f"/admin/limits/send?limit=1&cursor={shown['cursor']}"
            rest = (await client.get(path)).json()
            assert [each["key"] for each in rest["items"]] == ["other"]
            assert rest["cursor"] is None
            wrong = await client.get(f"/admin/limits?cursor={shown['cursor']}")
            assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_cursor")


@virtual(name="shop")
async def test_a_limit_is_changed_by_hand_and_reset(app: App):
    task = slow_task(app, limits=[Concurrency(1)])
    async with working(app):
        await task.enqueue("a")
        second = await task.enqueue("b")
        async with browser(dashboard(app, ADMIN)) as client:
            changed = await client.put("/admin/limits/send", json={"size": 5})
            assert changed.json()["text"] == "5 at once"
            await in_state(second, State.RUNNING)
            (item,) = (await client.get("/admin/limits")).json()["items"]
            assert (item["by"], item["in_code"]) == ("people", "1 at once")
            both = await client.put("/admin/limits/send", json={"size": 5, "off": True})
            assert both.status_code == 400
            none = await client.put("/admin/limits/send", json={})
            assert none.status_code == 400
            rate = await client.put("/admin/limits/send", json={"rate": "5/m"})
            assert (rate.status_code, rate.json()["code"]) == (400, "invalid_option")
            reset = await client.request(
                "DELETE",
                "/admin/limits/send/override",
                headers={"Content-Type": "application/json"},
            )
            assert reset.json()["text"] == "1 at once"
    reset_line, set_line = await (await app.store()).audit("shop", limit=2)
    assert (reset_line.verb, reset_line.target) == ("reset limit", "send")
    assert (set_line.verb, set_line.target) == ("set limit", "send (5 at once)")
    assert set_line.who == "ann@192.0.2.7 via dashboard"
    details = json.loads(set_line.details)
    assert details["before"] == {"cap": 1, "rate": None, "burst": None}
    assert details["after"]["cap"] == 5
    assert details["address"] == "192.0.2.7"


@virtual(name="shop")
async def test_rates_and_budgets_say_how_much_in_which_time(app: App):
    slow_task(app, limits=[Rate("100/m", name="pace"), Budget("tokens", 1000, "1d")])
    async with working(app), browser(dashboard(app, ADMIN)) as client:
        pace, tokens = (await client.get("/admin/limits")).json()["items"]
        assert (pace["kind"], pace["text"]) == ("rate", "100/m")
        assert (pace["size"], pace["per"]) == (100, "m")
        assert (tokens["kind"], tokens["size"], tokens["per"]) == (
            "budget",
            1000,
            "d",
        )
        more = await client.put("/admin/limits/tokens", json={"amount": 5000})
        assert more.json()["burst"] == 5000
        wrong = await client.put("/admin/limits/pace", json={"amount": 5000})
        assert wrong.status_code == 400


@virtual(name="shop")
async def test_the_limit_of_a_queue_is_hidden_from_users_of_others(app: App):
    async with browser(dashboard(app, ADMIN)) as client:
        made = await client.put("/admin/limits/queue:mail", json={"size": 3})
        assert made.status_code == 200
    async with browser(
        dashboard(app, User("olga", "operator", queues=["orders"]))
    ) as client:
        assert not (await client.get("/admin/limits")).json()["items"]
        hidden = await client.get("/admin/limits/queue:mail")
        assert hidden.status_code == 404


@virtual(name="shop", breakers=[Breaker("smtp", failures=3)])
async def test_a_breaker_is_opened_closed_and_reset(app: App):
    async with browser(dashboard(app, User("olga", "operator"))) as client:
        (item,) = (await client.get("/admin/breakers")).json()["items"]
        assert (item["name"], item["state"], item["history"]) == ("smtp", "closed", [])
        silent = await client.post("/admin/breakers/smtp/open", json={})
        assert silent.status_code == 422
        opened = await client.post(
            "/admin/breakers/smtp/open", json={"reason": "maintenance"}
        )
        assert opened.json()["state"] == "forced_open"
        assert opened.json()["forced"]["reason"] == "maintenance"
        closed = await client.post("/admin/breakers/smtp/close", json={})
        assert closed.json()["state"] == "forced_closed"
        reset = (await client.post("/admin/breakers/smtp/reset", json={})).json()
        assert (reset["state"], reset["forced"]) == ("closed", None)
        one = (await client.get("/admin/breakers/smtp")).json()
        assert [each["state"] for each in one["history"]] == ["closed", "open"]
        missing = await client.get("/admin/breakers/none")
        assert missing.status_code == 404
    lines = await (await app.store()).audit("shop", limit=3)
    assert [line.verb for line in lines] == ["reset", "close", "open"]
    assert lines[-1].target == "breaker smtp (maintenance)"
