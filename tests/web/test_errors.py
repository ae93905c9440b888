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


@virtual(name="shop")
async def test_a_group_is_muted_and_shown_again(app: App):
    await fail(app)
    async with browser(dashboard(app, User("olga", "operator"))) as client:
        group = (await client.get("/admin/errors?task=check")).json()["items"][0]
        path = f"/admin/errors/{group['fingerprint']}"
        muted = (await client.post(f"{path}/mute", json={"reason": "known"})).json()
        assert (muted["muted"]["by"], muted["muted"]["reason"]) == (
            "olga@192.0.2.7 via dashboard",
            "known",
        )
        only = (await client.get("/admin/errors?muted=true")).json()["items"]
        assert [item["fingerprint"] for item in only] == [group["fingerprint"]]
        others = (await client.get("/admin/errors?muted=false")).json()["items"]
        assert [item["type"] for item in others] == ["ValueError"]
        shown = (await client.post(f"{path}/unmute", json={})).json()
        assert shown["muted"] is None
    unmute, mute = await (await app.store()).audit("shop", limit=10)
    assert (unmute.verb, mute.verb) == ("unmute", "mute")
    assert (mute.read_details() or {})["after"] == {"reason": "known"}


@virtual(name="shop")
async def test_pages_of_errors_follow_each_other(app: App):
    await fail(app)
    async with browser(dashboard(app, ADMIN)) as client:
        first = (await client.get("/admin/errors?limit=1")).json()
        assert [item["type"] for item in first["items"]] == ["LookupError"]
        path = f"/admin/errors?limit=1&cursor={first['cursor']}"
        second = (await client.get(path)).json()
        assert [item["type"] for item in second["items"]] == ["ValueError"]
        assert second["cursor"] is None
        other = f"/admin/errors?task=check&cursor={first['cursor']}"
        assert (await client.get(other)).json()["code"] == "invalid_cursor"
