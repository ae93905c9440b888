"""Queues: what the list says, and each change of a queue."""

from typing import Any

from durio import App
from durio.web import User
from tests.unit.app.app_harness import drained, virtual
from tests.web.browser import browser, dashboard

ADMIN = User("ann", "admin")


async def send(to: str) -> None:
    if not to:
        raise ValueError("no address")


async def fill(app: App) -> None:
    """Two jobs wait in `mail`, and one there is dead."""
    task = app.task(name="send", queue="mail", retry=0)(send)
    await task.enqueue("")
    await drained(app)
    await task.enqueue("bob")
    await task.options(delay=60).enqueue("eve")


@virtual(name="shop")
async def test_the_list_counts_jobs_and_names_who_paused(app: App):
    await fill(app)
    await app.queue("mail").pause("the relay is down")
    async with browser(dashboard(app, ADMIN)) as client:
        listed = (await client.get("/admin/queues")).json()
        (mail,) = listed["items"]
        assert mail["name"] == "mail"
        assert (mail["state"], mail["closed"]) == ("paused", False)
        assert mail["paused"]["reason"] == "the relay is down"
        assert mail["paused"]["at"].endswith("Z")
        counts = {state: each["count"] for state, each in mail["counts"].items()}
        assert counts == {
            "ready": 1,
            "scheduled": 1,
            "blocked": 0,
            "running": 0,
            "dead": 1,
        }
        assert (mail["depth"], mail["tasks"], mail["workers"]) == (2, 1, 0)
        assert (await client.get("/admin/queues/mail")).json() == mail
        missing = await client.get("/admin/queues/nail")
        assert (missing.status_code, missing.json()["code"]) == (404, "unknown_queue")


@virtual(name="shop")
async def test_a_user_sees_only_their_queues(app: App):
    await fill(app)
    limited = User("mia", "admin", queues=("other",))
    async with browser(dashboard(app, limited)) as client:
        assert (await client.get("/admin/queues")).json()["items"] == []
        assert (await client.get("/admin/queues/mail")).status_code == 404


# --- changes


async def newest_line(app: App) -> tuple[str, str, int, dict[str, Any]]:
    (line,) = await (await app.store()).audit("shop", limit=1)
    return line.verb, line.target, line.jobs, line.read_details() or {}


@virtual(name="shop")
async def test_a_queue_is_paused_closed_and_opened_again(app: App):
    await fill(app)
    path = "/admin/queues/mail"
    async with browser(dashboard(app, User("olga", "operator"))) as client:
        paused = await client.post(f"{path}/pause", json={"reason": "relay (eu) down"})
        assert paused.json()["state"] == "paused"
        assert paused.json()["paused"]["reason"] == "relay (eu) down"
        assert paused.json()["paused"]["by"] == "olga@192.0.2.7 via dashboard"
        verb, target, _, details = await newest_line(app)
        assert (verb, target) == ("pause", "shop:mail (relay (eu) down)")
        assert details["before"]["state"] == "open"
        assert details["address"] == "192.0.2.7"
        closed = (await client.post(f"{path}/close", json={"reason": "moving"})).json()
        assert (closed["state"], closed["closed"]) == ("paused", True)
        assert closed["closed_by"]["reason"] == "moving"
        resumed = (await client.post(f"{path}/resume", json={})).json()
        assert (resumed["state"], resumed["paused"]) == ("closed", None)
        opened = (await client.post(f"{path}/open", json={})).json()
        assert (opened["state"], opened["closed_by"]) == ("open", None)
        for body in ({"reason": "x", "more": 1}, {"reason": 5}):
            assert (await client.post(f"{path}/pause", json=body)).status_code == 422
        missing = await client.post("/admin/queues/nail/pause", json={})
        assert missing.status_code == 404


@virtual(name="shop")
async def test_a_bound_is_set_and_given_back_to_the_code(app: App):
    app.queue("mail", maxsize=70)
    await fill(app)
    path = "/admin/queues/mail"
    async with browser(dashboard(app, ADMIN)) as client:
        shown = (await client.get(path)).json()
        assert (shown["bound"], shown["bound_by"]) == (70, "code")
        for body, bound, by in (
            ({"maxsize": 5}, 5, "people"),
            ({"maxsize": None}, None, None),
            ({"maxsize": "code"}, 70, "code"),
        ):
            found = (await client.put(f"{path}/bound", json=body)).json()
            assert (found["bound"], found["bound_by"]) == (bound, by)
        for wrong in (0, -1, 2**63, "many", True, 1.5):
            answer = await client.put(f"{path}/bound", json={"maxsize": wrong})
            assert answer.status_code == 422, wrong
        assert (await client.get(path)).json()["bound"] == 70


@virtual(name="shop")
async def test_waiting_jobs_move_and_are_purged_after_a_confirmation(app: App):
    await fill(app)
    await app.task(name="other", queue="spare")(send).enqueue("a")
    async with browser(dashboard(app, ADMIN)) as client:
        path = "/admin/queues/mail"
        moved = (await client.post(f"{path}/move", json={"to": "spare"})).json()
        assert moved == {"status": "moved", "jobs": 2, "held": 0, "left": 0}
        verb, target, jobs, details = await newest_line(app)
        assert (verb, target, jobs) == ("move", "shop:mail to shop:spare", 2)
        assert "request_id" in details
        same = await client.post(f"{path}/move", json={"to": "mail"})
        assert same.status_code == 400
        nowhere = await client.post(f"{path}/move", json={"to": "new"})
        assert nowhere.status_code == 404
        made = await client.post(
            "/admin/queues/spare/move", json={"to": "new", "create": True}
        )
        assert made.json()["jobs"] == 3
        new = "/admin/queues/new"
        wrong = await client.post(f"{new}/purge", json={"confirm": "mail"})
        assert (wrong.status_code, wrong.json()["code"]) == (400, "not_confirmed")
        ready = {"confirm": "new", "states": ["ready"]}
        assert (await client.post(f"{new}/purge", json=ready)).json()["jobs"] == 2
        counts = (await client.get(new)).json()["counts"]
        assert (counts["ready"]["count"], counts["scheduled"]["count"]) == (0, 1)
        dead = {"confirm": "mail", "states": ["dead"]}
        assert (await client.post(f"{path}/purge", json=dead)).json()["jobs"] == 1
        assert (await newest_line(app))[0] == "discard"
        assert (await client.get(path)).json()["counts"]["dead"]["count"] == 0
        running = {"confirm": "new", "states": ["running"]}
        assert (await client.post(f"{new}/purge", json=running)).status_code == 422


@virtual(name="shop")
async def test_a_limited_admin_moves_nothing_elsewhere(app: App):
    await fill(app)
    limited = User("mia", "admin", queues=("mail",))
    async with browser(dashboard(app, limited)) as client:
        for body in ({"to": "default"}, {"to": "new", "create": True}):
            answer = await client.post("/admin/queues/mail/move", json=body)
            assert answer.status_code == 404


@virtual(name="shop")
async def test_pages_of_queues_follow_each_other(app: App):
    for n in range(5):
        await app.task(name=f"t{n}", queue=f"q{n}")(send).enqueue("a")
    async with browser(dashboard(app, ADMIN)) as client:
        found, cursor = list[str](), ""
        while cursor is not None:
            params = {"limit": 2, "cursor": cursor}
            page = (await client.get("/admin/queues", params=params)).json()
            found += [item["name"] for item in page["items"]]
            cursor = page["cursor"]
    assert found == [f"q{n}" for n in range(5)]
