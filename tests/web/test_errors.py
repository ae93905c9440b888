"""Groups of errors: the list, one of them, and what a viewer does not see."""

from durio import App
from durio.web import User
from tests.unit.app.app_harness import drained, virtual
from tests.web.browser import browser, dashboard

ADMIN = User("ann", "admin")


async def send(to: str) -> None:
    raise ValueError(f"no address {to}")


async def check(to: str) -> None:
    raise LookupError(to)


async def fail(app: App) -> None:
    sender = app.task(name="send", queue="mail", retry=0)(send)
    checker = app.task(name="check", queue="audit", retry=0)(check)
    await sender.enqueue("a")
    await sender.enqueue("b")
    await drained(app)
    await app.clock.sleep(5)
    await checker.enqueue("c")
    await drained(app)


@virtual(name="shop", version="7")
async def test_groups_are_listed_and_shown_with_frames_and_jobs(app: App):
    await fail(app)
    async with browser(dashboard(app, ADMIN)) as client:
        listed = (await client.get("/admin/errors")).json()["items"]
        assert [item["type"] for item in listed] == ["LookupError", "ValueError"]
        group = listed[1]
        assert (group["count"], group["dead"], group["tasks"]) == (2, 2, ["shop.send"])
        assert (group["versions"], group["muted"]) == (["7"], None)
        only = (await client.get("/admin/errors?task=check")).json()["items"]
        assert [item["type"] for item in only] == ["LookupError"]
        shown = (await client.get(f"/admin/errors/{group['fingerprint']}")).json()
        frame = shown["frames"][-1]
        assert (frame["function"], frame["own"]) == ("send", True)
        assert frame["code"] == 'raise ValueError(f"no address {to}")'
        assert frame["line"] > 0
        assert "ValueError: no address" in shown["traceback"]
        assert len(shown["jobs"]) == 2
        assert group["example_job"] in [job["id"] for job in shown["jobs"]]
        assert (await client.get("/admin/errors/beefbeef")).status_code == 404


@virtual(name="shop")
async def test_a_viewer_sees_no_source_and_no_other_queue(app: App):
    await fail(app)
    viewer = User("vera", "viewer", queues=("mail",))
    async with browser(dashboard(app, viewer)) as client:
        (group,) = (await client.get("/admin/errors")).json()["items"]
        assert group["type"] == "ValueError"
        shown = (await client.get(f"/admin/errors/{group['fingerprint']}")).json()
        assert (shown["traceback"], shown["frames"][-1]["code"]) == (None, None)
        assert shown["frames"][-1]["function"] == "send"
    async with browser(dashboard(app, ADMIN)) as client:
        other = (await client.get("/admin/errors")).json()["items"][0]["fingerprint"]
    async with browser(dashboard(app, viewer)) as client:
        assert (await client.get(f"/admin/errors/{other}")).status_code == 404
