"""`admin/stream` and `admin/poll`, in virtual time."""

import os

import pytest

from durio import App
from durio.model.job import State
from durio.web import User
from durio.web.feeds import VIEWERS_MAX, Viewer
from durio.web.topics import KINDS
from tests.faults.faulty_store import FaultyStore
from tests.unit.app.app_harness import drained, in_state, virtual, working
from tests.web.browser import browser, dashboard
from tests.web.open_stream import stream

VIEWER = User("vera", "viewer")


async def work() -> None: ...


def slow_task(app: App) -> object:
    async def slow() -> None:
        await app.clock.sleep(5)

    return app.task(name="slow")(slow)


@virtual(name="shop")
async def test_a_list_says_that_it_changed_and_no_more(app: App):
    task = app.task(name="work")(work)
    async with stream(app, dashboard(app, VIEWER), "jobs,dead") as viewer:
        assert viewer.status == 200
        assert viewer.headers["content-type"].startswith("text/event-stream")
        assert viewer.headers["cache-control"] == "no-store"
        await viewer.quiet(5)
        await task.enqueue()
        event = await viewer.next(3)
        assert (event["event"], event["topic"]) == ("message", "jobs")
        assert event["data"] == {"changed": True}


@virtual(name="shop")
async def test_a_job_sends_its_state_and_numbers(app: App):
    job = await app.task(name="work")(work).enqueue()
    async with stream(app, dashboard(app, VIEWER), f"job:{job.id}") as viewer:
        assert (await viewer.next())["data"]["state"] == "ready"
        await drained(app)
        event = await viewer.next()
        assert event["topic"] == f"job:{job.id}"
        assert (event["data"]["state"], event["data"]["attempt"]) == ("done", 1)
        assert "args" not in str(event)


@virtual(name="shop")
async def test_the_overview_sends_the_verdict_and_the_states(app: App):
    async with stream(app, dashboard(app, VIEWER), "overview") as viewer:
        first = (await viewer.next())["data"]
        assert (first["level"], first["states"]) == ("ok", {})
        await app.task(name="work")(work).enqueue()
        later = (await viewer.next())["data"]
        assert (later["level"], later["states"]) == ("bad", {"ready": 1})
        await viewer.quiet(30)


@virtual(name="shop")
async def test_one_producer_reads_for_all_viewers(app: App):
    asgi = dashboard(app, VIEWER)
    async with stream(app, asgi, "jobs") as one, stream(app, asgi, "jobs") as two:
        (feed,) = asgi.site.feeds.feeds.values()
        assert len(feed.viewers) == 2
        await app.task(name="work")(work).enqueue()
        assert await one.next() == await two.next()


@virtual(name="shop")
async def test_a_producer_ends_ten_seconds_after_the_last_viewer(app: App):
    asgi = dashboard(app, VIEWER)
    async with stream(app, asgi, "jobs"):
        (feed,) = asgi.site.feeds.feeds.values()
    assert not feed.viewers
    await app.clock.sleep(9)
    assert feed.producer is not None
    await app.clock.sleep(2.5)
    assert feed.producer is None
    async with stream(app, asgi, "jobs"):
        assert feed.producer is not None


@virtual(name="shop")
async def test_a_list_sends_at_most_one_message_a_second(app: App):
    task = app.task(name="work")(work)
    async with stream(app, dashboard(app, VIEWER), "jobs") as viewer:
        for _ in range(100):
            await task.enqueue()
            await app.clock.sleep(0.05)
        await app.clock.sleep(1)
        assert 3 <= len(viewer.events) <= 6


@virtual(name="shop")
async def test_a_slow_viewer_is_told_to_read_again_and_closed(app: App):
    asgi = dashboard(app, VIEWER)
    async with stream(app, asgi, "jobs") as slow, stream(app, asgi, "jobs") as quick:
        slow.reads.clear()
        (feed,) = asgi.site.feeds.feeds.values()
        for number in range(70):
            asgi.site.feeds.send(feed, {"number": number})
            if number % 10 == 0:
                await app.clock.sleep(0.1)
        await app.clock.sleep(0.1)
        assert len(quick.events) == 70
        slow.reads.set()
        await slow.over()
        assert slow.events[-1]["event"] == "resync"
        assert len(slow.events) < 70
        assert not quick.is_over


# --- coming back


@virtual(name="shop")
async def test_a_viewer_that_comes_back_gets_what_it_missed(app: App):
    asgi = dashboard(app, VIEWER)
    async with stream(app, asgi, "jobs,workers") as viewer:
        await viewer.quiet(20)
        last_id = viewer.last_id
    await app.clock.sleep(3)
    await app.task(name="work")(work).enqueue()
    await app.clock.sleep(3)
    async with stream(app, asgi, "jobs,workers", last_id) as again:
        event = await again.next(0.2)
        assert (event["event"], event["topic"]) == ("message", "jobs")
        await again.quiet(5)


@virtual(name="shop")
async def test_what_changed_while_no_producer_ran_is_not_missed(app: App):
    asgi = dashboard(app, VIEWER)
    async with stream(app, asgi, "jobs") as viewer:
        last_id = viewer.last_id
    await app.clock.sleep(20)
    await app.task(name="work")(work).enqueue()
    await app.clock.sleep(20)
    async with stream(app, asgi, "jobs", last_id) as again:
        event = await again.next(2)
        assert (event["event"], event["topic"]) == ("message", "jobs")


@virtual(name="shop")
async def test_after_a_minute_everything_is_read_again(app: App):
    asgi = dashboard(app, VIEWER)
    async with stream(app, asgi, "jobs") as viewer:
        last_id = viewer.last_id
    await app.clock.sleep(62)
    async with stream(app, asgi, "jobs", last_id) as again:
        assert (await again.next())["event"] == "resync"
        assert not again.is_over


@pytest.mark.parametrize(
    "last_id",
    ["1", "0123456789ab-3-1000", "%s-99-1000", "%s--1-1000", "%s-1-99999999", "%s-x-y"],
)
def test_a_foreign_last_id_is_answered_with_resync(last_id: str):
    @virtual(name="shop")
    async def check(app: App):
        asgi = dashboard(app, VIEWER)
        epoch = asgi.site.feeds.epoch
        async with stream(app, asgi, "jobs", last_id.replace("%s", epoch)) as viewer:
            assert (await viewer.next())["event"] == "resync"

    check()


@virtual(name="shop")
async def test_an_id_of_other_topics_is_not_enough(app: App):
    asgi = dashboard(app, VIEWER)
    async with stream(app, asgi, "jobs") as viewer:
        last_id = viewer.last_id
        async with stream(app, asgi, "jobs,dead", last_id) as other:
            assert (await other.next())["event"] == "resync"


# --- the end


@virtual(name="shop")
async def test_a_heartbeat_comes_every_fifteen_seconds(app: App):
    async with stream(app, dashboard(app, VIEWER), "jobs") as viewer:
        await app.clock.sleep(61)
        assert viewer.heartbeats == 4


@pytest.mark.parametrize("change", [None, User("vera", "viewer", queues=["mail"])])
def test_a_stream_ends_within_five_seconds_of_its_credential(change: User | None):
    @virtual(name="shop")
    async def check(app: App):
        users: list[User | None] = [VIEWER]
        asgi = dashboard(app, auth=lambda _: users[-1])
        async with stream(app, asgi, "jobs") as viewer:
            await viewer.quiet(30)
            users.append(change)
            await viewer.over(5)
            assert viewer.events[-1]["event"] == "bye"

    check()


@virtual(name="shop")
async def test_a_hook_that_hangs_ends_the_stream_within_five_seconds(app: App):
    hangs = False

    async def hook(_: object) -> User:
        if hangs:
            await app.clock.sleep(3600)
        return VIEWER

    async with stream(app, dashboard(app, auth=hook), "jobs") as viewer:
        await viewer.quiet(30)
        hangs = True
        await viewer.over(5)


@virtual(name="shop")
async def test_the_end_of_the_server_ends_streams_first(app: App):
    asgi = dashboard(app, VIEWER)
    async with stream(app, asgi, "jobs,workers,limits") as viewer:
        asgi.end_streams()
        await viewer.over(1)
        assert viewer.events[-1]["event"] == "bye"
        async with stream(app, asgi, "jobs") as late:
            assert (late.status, late.problem["code"]) == (503, "no_stream")
    assert all(each.producer is None for each in asgi.site.feeds.feeds.values())


@virtual(name="shop")
async def test_streams_survive_a_store_that_is_away(app: App):
    task = app.task(name="work")(work)
    faulty = FaultyStore(await app.store(), app.clock)
    app.state.stores[os.getpid()] = faulty
    asgi = dashboard(app, VIEWER)
    async with stream(app, asgi, "jobs,overview") as viewer:
        await viewer.next()
        faulty.cut()
        await viewer.quiet(60)
        faulty.heal()
        await task.enqueue()
        seen = {(await viewer.next(8))["topic"] for _ in range(2)}
        assert seen == {"jobs", "overview"}
        assert not viewer.is_over


@virtual(name="shop")
async def test_a_thousand_streams_are_the_most(app: App):
    asgi = dashboard(app, VIEWER)
    feeds = asgi.site.feeds
    feeds.viewers |= {Viewer() for _ in range(VIEWERS_MAX)}
    async with stream(app, asgi, "jobs") as refused:
        assert (refused.status, refused.problem["code"]) == (503, "no_stream")
    feeds.viewers.pop()
    async with stream(app, asgi, "jobs") as viewer:
        assert viewer.status == 200
    assert len(feeds.viewers) == VIEWERS_MAX - 1


@virtual(name="shop")
async def test_feeds_that_nobody_can_resume_are_forgotten(app: App):
    asgi = dashboard(app, VIEWER)
    async with stream(app, asgi, "jobs,workers,plans"):
        pass
    assert len(asgi.site.feeds.feeds) == 3
    await app.clock.sleep(100)
    async with stream(app, asgi, "dead"):
        assert [topic.name for topic in asgi.site.feeds.feeds] == ["dead"]


@virtual(name="shop")
async def test_a_viewer_does_not_wait_long_for_a_slow_store(app: App):
    faulty = FaultyStore(await app.store(), app.clock)
    app.state.stores[os.getpid()] = faulty
    faulty.slow("find", seconds=8)
    began = app.clock.monotonic()
    async with stream(app, dashboard(app, VIEWER), "jobs") as viewer:
        assert app.clock.monotonic() - began < 3
        # What happened before the first read is not known: the list is read again.
        assert (await viewer.next(60))["data"] == {"changed": True}


# --- who may watch what


@pytest.mark.parametrize(
    ("topics", "code"),
    [
        ("", "no_topics"),
        (",".join(f"job:{n}" for n in range(17)), "too_many_topics"),
        ("jobs,secrets", "unknown_topic"),
        ("job", "unknown_topic"),
        ("jobs:1", "unknown_topic"),
        ("__proto__", "unknown_topic"),
    ],
)
def test_wrong_topics_are_refused(topics: str, code: str):
    @virtual(name="shop")
    async def check(app: App):
        async with browser(dashboard(app, VIEWER)) as client:
            for path in ("stream", "poll"):
                answer = await client.get(f"/admin/{path}", params={"topics": topics})
                assert (answer.status_code, answer.json()["code"]) == (400, code)

    check()


@virtual(name="shop")
async def test_a_user_of_one_queue_hears_nothing_of_others(app: App):
    orders = await app.task(name="work", queue="orders")(work).enqueue()
    mail = app.task(name="send", queue="mail")(work)
    asgi = dashboard(app, User("olga", "operator", queues=["mail"]))
    async with browser(asgi) as client:
        for topic in (f"job:{orders.id}", "job:nonsense", f"plan:{orders.id}"):
            hidden = await client.get(f"/admin/stream?topics={topic}")
            assert hidden.status_code == 404, topic
    async with stream(app, asgi, "jobs,queues,overview") as viewer:
        assert (await viewer.next())["data"]["states"] == {}
        await app.job(orders.id)
        await (await app.job(orders.id)).cancel()
        await viewer.quiet(10)
        await mail.enqueue()
        await app.clock.sleep(6)
        topics = {event["topic"] for event in viewer.events}
        assert topics == {"jobs", "queues", "overview"}


@virtual(name="shop")
async def test_every_topic_can_be_watched_and_is_quiet_while_nothing_happens(app: App):
    task = slow_task(app)
    job = await task.enqueue()
    async with working(app):
        await in_state(job, State.RUNNING)
        lists = [name for name, kind in KINDS.items() if kind.is_list]
        topics = ",".join([*lists, f"job:{job.id}"])
        async with stream(app, dashboard(app, VIEWER), topics) as viewer:
            assert (await viewer.next())["data"]["state"] == "running"
            await viewer.quiet(2)
            await app.clock.sleep(10)
            changed = {event["topic"] for event in viewer.events}
            assert {"jobs", "workers", f"job:{job.id}"} <= changed


# --- polling


@virtual(name="shop")
async def test_polling_answers_what_the_stream_sends(app: App):
    task = app.task(name="work")(work)
    async with browser(dashboard(app, VIEWER)) as client:
        path = "/admin/poll?topics=jobs,overview"
        first = (await client.get(path)).json()
        assert [each["topic"] for each in first["events"]] == ["overview"]
        quiet = (await client.get(f"{path}&since={first['since']}")).json()
        assert quiet["events"] == []
        await task.enqueue()
        await app.clock.sleep(5)
        later = (await client.get(f"{path}&since={quiet['since']}")).json()
        assert {each["topic"] for each in later["events"]} == {"jobs", "overview"}
        await app.clock.sleep(100)
        old = (await client.get(f"{path}&since={later['since']}")).json()
        assert old["events"] == [{"event": "resync", "topic": "*"}]
