"""`app.queue("mail")`: pause and resume a queue from code, and see how it is."""

import json
import pickle  # noqa: TID251 - what caches of web frameworks use
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from durio import App, State
from durio.client.queue_handle import QueueHandle, QueueStatus
from durio.errors import InvalidName, InvalidOption, UnknownQueue
from durio.queues import Queue
from tests.bad_input.refusals import declined
from tests.unit.app.app_harness import drained, virtual, working


async def echo(value: int) -> int:
    return value


@virtual(name="shop")
async def test_a_paused_queue_gives_no_jobs_until_it_is_resumed(app: App):
    task = app.task(queue="mail")(echo)
    mail = app.queue("mail")
    await mail.pause("the provider is down")
    job = await task.enqueue(1)
    await drained(app)
    assert (await job.status()).state is State.READY
    assert (await mail.status()).paused
    await mail.resume()
    await drained(app)
    assert await job == 1
    resumed, paused = await (await app.store()).audit("shop", limit=5)
    assert (paused.verb, paused.target) == ("pause", "shop:mail (the provider is down)")
    assert (resumed.verb, resumed.target) == ("resume", "shop:mail")
    assert paused.who.endswith(" via app")


@virtual(name="shop")
async def test_depth_and_status(app: App):
    task = app.task(queue="mail")(echo)
    mail = app.queue("mail", maxsize=10)
    assert (await mail.depth(), (await mail.status()).depth) == (0, 0)
    await task.enqueue(1)
    due = app.clock.now()
    await task.options(delay="1h").enqueue(2)
    status = await mail.status()
    assert await mail.depth() == status.depth == 2
    assert status == QueueStatus(
        queue="mail",
        paused=False,
        closed=False,
        maxsize=10,
        ready=1,
        scheduled=1,
        blocked=0,
        running=0,
        dead=0,
        oldest_at=status.oldest_at,
        workers=0,
    )
    assert status.oldest_at.timestamp() == pytest.approx(due)
    plain = status.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert list(plain) == [*(field.name for field in fields(status)), "depth"]
    assert pickle.loads(pickle.dumps(status)) == status  # noqa: S301
    assert plain["oldest_at"].endswith("Z")
    async with working(app):
        await app.clock.sleep(1)
        assert (await mail.status()).workers == 1


@virtual
async def test_with_options_it_declares_and_without_it_does_not(app: App):
    assert isinstance(app.queue("mail", weight=3), QueueHandle)
    assert app.registry.queues["mail"] == Queue("mail", weight=3)
    assert repr(app.queue("news")) == "QueueHandle('news')"
    assert "news" not in app.registry.queues


def test_twins_for_callers_without_a_loop(tmp_path: Path):
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    app.task(queue="mail")(echo).enqueue_sync(1)
    mail = app.queue("mail")
    mail.pause_sync()
    assert mail.status_sync().paused
    mail.resume_sync()
    assert (mail.status_sync().paused, mail.depth_sync()) == (False, 1)
    app.run_sync(app.close())


@virtual(name="shop")
async def test_a_queue_that_nothing_knows(app: App):
    """A wrong name must not pause a queue that nobody uses."""
    app.task(queue="mail")(echo)
    handle = app.queue("mial")
    for call in (handle.pause, handle.resume, handle.depth, handle.status):
        with declined(UnknownQueue, "no queue 'mial'", "Did you mean 'mail'?"):
            await call()
    assert await (await app.store()).queues("shop") == []


@pytest.mark.parametrize("reason", ["", " ", 5], ids=repr)
@virtual
async def test_a_reason_that_is_none(app: App, reason: Any):
    with declined(InvalidOption, "reason cannot be"):
        await app.queue("default").pause(reason)


def test_a_name_that_no_queue_can_have():
    with declined(InvalidName, "a queue cannot be named 'a b'"):
        App("sqlite:///:memory:").queue("a b")
