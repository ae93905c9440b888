"""Queues: what the list says, and each change of a queue."""

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
