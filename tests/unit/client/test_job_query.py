"""`app.jobs(...)`: jobs by filters, read, counted and acted on."""

import asyncio
import pickle  # noqa: TID251 - what caches of web frameworks use
from pathlib import Path
from typing import Any

import pytest

from durio import App, JobDetails, JobNotFound, Retry, State
from durio.client import job_query
from durio.client.job_query import BulkResult
from durio.errors import (
    InvalidName,
    InvalidOption,
    UnknownQueue,
    UnknownTask,
    UsageError,
    WrongState,
)
from durio.keys import while_active
from durio.ports.browse import Query
from tests.bad_input.refusals import declined
from tests.unit.app.app_harness import drained, virtual, working

UNKNOWN = "0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55"
UNBOUND = {"queue": {"embedded_max": 0}}


async def echo(value: int) -> int:
    return value


async def fail(text: str = "no such order") -> None:
    raise ValueError(text)


async def dead_jobs(app: App, *texts: str) -> list[str]:
    """Let one job die for each text; their ids, the oldest first."""
    task = app.task(name="fail", retry=0)(fail)
    jobs = [await task.enqueue(text) for text in texts]
    await drained(app)
    return [job.id for job in jobs]


async def ids(jobs: Any) -> list[str]:
    return [job.id async for job in jobs]


# --- reading


@virtual(name="shop")
async def test_jobs_are_details_newest_first(app: App):
    task = app.task(echo)
    made = [await task.enqueue(n) for n in range(3)]
    jobs = [job async for job in app.jobs()]
    assert [job.id for job in jobs] == [job.id for job in reversed(made)]
    assert all(isinstance(job, JobDetails) for job in jobs)
    assert [job.kwargs for job in jobs] == [{"value": n} for n in (2, 1, 0)]
    assert await ids(app.jobs().limit(2)) == [made[2].id, made[1].id]


@virtual(settings=UNBOUND)
async def test_reading_goes_by_pages_of_two_hundred(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    made = await app.task(echo).enqueue_many([(n,) for n in range(450)])
    store, sizes = await app.store(), list[int]()
    find = type(store).find

    async def noted(self: Any, query: Query, *, limit: int, **others: Any) -> Any:
        sizes.append(limit)
        return await find(self, query, limit=limit, **others)

    monkeypatch.setattr(type(store), "find", noted)
    jobs = app.jobs()
    assert await ids(jobs) == [job.id for job in reversed(made)]
    assert sizes == [200, 200, 200]
    sizes.clear()
    assert len(await ids(jobs.limit(250))) == 250
    assert sizes == [200, 50]
    reading = jobs.__aiter__()
    sizes.clear()
    await anext(reading)
    assert sizes == [200]


@virtual(name="shop")
async def test_every_filter_narrows(app: App):
    first, second = await dead_jobs(app, "no such order", "timed out")
    await app.clock.sleep(3600)
    task = app.task(queue="mail")(echo)
    ready = (await task.enqueue(1)).id
    later = (await task.options(delay="1h").enqueue(2)).id
    everything = [later, ready, second, first]
    filters: list[tuple[dict[str, Any], list[str]]] = [
        ({}, everything),
        ({"state": "dead"}, [second, first]),
        ({"state": State.READY}, [ready]),
        ({"state": ("ready", State.SCHEDULED)}, [later, ready]),
        ({"state": iter(["ready"])}, [ready]),
        ({"task": "fail"}, [second, first]),
        ({"task": "shop.fail"}, [second, first]),
        ({"task": task}, [later, ready]),
        ({"queue": "mail"}, [later, ready]),
        ({"error": "TIMED"}, [second]),
        ({"reason": "exhausted"}, [second, first]),
        ({"older": "30m"}, [second, first]),
        ({"newer": 1800}, [later, ready]),
        ({"ids": [first, ready]}, [ready, first]),
        ({"ids": (each for each in [first])}, [first]),
        ({"ids": []}, []),
        ({"ids": [UNKNOWN]}, []),
        ({"state": "dead", "error": "order", "ids": [first, second]}, [first]),
    ]
    for given, wanted in filters:
        jobs = app.jobs(**given)
        assert await ids(jobs) == wanted, given
        assert await jobs.count() == len(wanted), given


@virtual
async def test_jobs_of_other_apps_are_not_seen(app: App):
    other = App("sqlite:///:memory:", name="bank", clock=app.clock)
    other.state.stores = app.state.stores
    await app.task(echo).enqueue(1)
    assert await ids(other.jobs()) == []
    assert (await other.jobs().cancel(everything=True)).matched == 0
    assert await app.jobs(state="ready").count() == 1


@virtual
async def test_a_count_stops_after_its_maximum(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(job_query, "COUNT_MAX", 3)
    task = app.task(echo)
    for number in range(1, 6):
        await task.enqueue(number)
        assert await app.jobs().count() == min(number, 4)


# --- acting


@virtual
async def test_many_are_retried(app: App):
    first, _, third = await dead_jobs(app, "full", "lost", "full")
    assert await app.jobs(error="full").retry() == BulkResult(2, 2, 0)
    assert sorted(await ids(app.jobs(state="ready"))) == sorted([first, third])


@virtual
async def test_many_are_cancelled_discarded_and_run_now(app: App):
    await dead_jobs(app, "a", "b")
    task = app.task(echo)
    later = task.options(delay="1h")
    jobs = [await later.enqueue(n) for n in range(3)] + [await task.enqueue(7)]
    assert await app.jobs(task=task).run_now() == BulkResult(3, 3, 0)
    assert await app.jobs(state="ready").count() == 4
    assert await app.jobs(ids=[jobs[0].id]).cancel() == BulkResult(1, 1, 0)
    assert await app.jobs(task="fail").discard() == BulkResult(2, 2, 0)
    assert await app.jobs(state="dead").count() == 0
    assert await app.jobs().cancel(everything=True) == BulkResult(3, 3, 0)


@virtual
async def test_a_limit_bounds_an_action(app: App):
    oldest, *_ = await dead_jobs(app, "a", "b", "c")
    assert await app.jobs(state="dead").limit(1).retry() == BulkResult(3, 1, 0)
    assert await ids(app.jobs(state="ready")) == [oldest]
    assert await app.jobs().limit(2).count() == 2


@virtual
async def test_a_job_that_comes_after_the_count_is_left_alone(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    task = app.task(echo)
    await task.enqueue(1)
    store = await app.store()
    count = type(store).count

    async def slow(self: Any, query: Query, **_: Any) -> Any:
        counted = await count(self, query)
        await task.enqueue(2)
        return counted

    monkeypatch.setattr(type(store), "count", slow)
    assert await app.jobs(task=task).cancel() == BulkResult(1, 1, 0)
    monkeypatch.undo()
    (left,) = [job async for job in app.jobs(state="ready")]
    assert left.kwargs == {"value": 2}


@virtual
async def test_a_retried_job_that_dies_again_is_met_once(app: App):
    await dead_jobs(app, "a", "b")
    async with working(app):
        assert (await app.jobs(state="dead").retry()).changed == 2
    assert await app.jobs(state="dead").count() == 2


@virtual(name="shop")
async def test_actions_are_audited_with_user_filters_and_number(app: App):
    await dead_jobs(app, "full", "lost")
    await app.jobs(state="dead", error="full").retry()
    await app.jobs(task="fail").limit(1).discard()
    newest, oldest = await (await app.store()).audit("shop", limit=10)
    assert (oldest.verb, oldest.jobs) == ("retry", 1)
    assert oldest.target == "dead jobs of shop:* error 'full'"
    assert oldest.who.endswith(" via app")
    assert (newest.verb, newest.jobs) == ("discard", 1)
    assert "task shop.fail" in newest.target


@virtual
async def test_a_job_whose_key_another_has_is_matched_and_not_changed(app: App):
    task = app.task(name="fail", retry=0)(fail)
    call = task.options(key="k", unique=while_active)
    await call.enqueue()
    await drained(app)
    again = await call.enqueue()
    assert again.created
    assert await app.jobs(state="dead").retry() == BulkResult(1, 0, 0)


def test_twins_for_callers_without_a_loop(tmp_path: Path):
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    task = app.task(retry=Retry(0))(fail)
    later = task.options(delay="1h")
    made = [later.enqueue_sync().id for _ in range(3)]
    assert [job.id for job in app.jobs()] == made[::-1]
    assert app.jobs(task=task).count_sync() == 3
    assert app.jobs(ids=made[:1]).run_now_sync() == BulkResult(1, 1, 0)
    assert app.jobs(ids=made[1:]).cancel_sync() == BulkResult(2, 2, 0)
    assert app.jobs(ids=made[1:]).retry_sync() == BulkResult(2, 2, 0)
    assert app.jobs().discard_sync(everything=True) == BulkResult(0, 0, 0)

    async def inside() -> None:
        with declined(UsageError, "running event loop"):
            list(app.jobs())

    asyncio.run(inside())
    app.run_sync(app.close())


# --- bad input


@pytest.mark.parametrize("verb", ["retry", "cancel", "discard", "run_now"])
@virtual(name="shop")
async def test_an_action_without_a_filter(app: App, verb: str):
    await app.task(echo).enqueue(1)
    words = (
        "without a filter",
        f"{verb}()",
        "every job of App shop",
        "everything=True",
    )
    with declined(UsageError, *words):
        await getattr(app.jobs(), verb)()
    assert await app.jobs(state="ready").count() == 1


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"state": "ded"}, InvalidOption, ("no state 'ded'", "Did you mean 'dead'?")),
        ({"state": 5}, InvalidOption, ("no state 5", "States: scheduled,")),
        ({"state": ["dead", "x"]}, InvalidOption, ("no state 'x'",)),
        ({"task": "a b"}, InvalidName, ("a task cannot be named 'a b'",)),
        ({"task": 5}, InvalidOption, ("task cannot be 5", "task='send'")),
        ({"task": len}, InvalidOption, ("task cannot be <built-in function len>",)),
        ({"queue": ""}, InvalidName, ("a queue cannot be named ''",)),
        ({"error": " "}, UsageError, ("error is empty or not valid text",)),
        ({"error": 5}, UsageError, ("error is empty or not valid text",)),
        ({"reason": "tired"}, InvalidOption, ("'tired'", "Reasons: exhausted,")),
        ({"older": "soon"}, InvalidOption, ("older cannot be 'soon'",)),
        ({"older": "2h", "newer": "1h"}, UsageError, ("no job is older than 2 h",)),
        ({"ids": UNKNOWN}, InvalidOption, ("ids cannot be", "ids=[job.id]")),
        ({"ids": 5}, InvalidOption, ("ids cannot be 5",)),
        ({"ids": ["x"]}, JobNotFound, ("'x' is not a job id",)),
    ],
    ids=str,
)
def test_a_filter_that_cannot_be(
    given: dict[str, Any], error: type[Exception], words: tuple[str, ...]
):
    """It is refused where it is written, before any store is opened."""
    app = App("sqlite:///:memory:")
    with declined(error, *words):
        app.jobs(**given)


@pytest.mark.parametrize("number", [0, -1, True, "5", 1.5, None], ids=repr)
def test_a_limit_that_cannot_be(number: Any):
    with declined(InvalidOption, f"limit cannot be {number!r}", "from 1"):
        App("sqlite:///:memory:").jobs().limit(number)


@virtual(name="shop")
async def test_a_task_or_queue_that_nothing_knows(app: App):
    await app.task(queue="mail")(echo).enqueue(1)
    words = ("there is no task 'shop.ecko'", "Known: shop.echo.", "mean 'shop.echo'?")
    for jobs, error, said in (
        (app.jobs(task="ecko"), UnknownTask, words),
        (
            app.jobs(queue="mial"),
            UnknownQueue,
            ("app shop has no queue 'mial'", "mail"),
        ),
    ):
        with declined(error, *said):
            await ids(jobs)
        with declined(error, *said):
            await jobs.count()
        with declined(error, *said):
            await jobs.cancel()
    assert await ids(app.jobs(task="echo", queue="default")) == []


@virtual(name="shop")
async def test_a_task_of_which_nothing_is_known_is_no_mistake(app: App):
    """No worker has published a task yet, and no code is loaded: nothing can be said."""
    assert await ids(app.jobs(task="send")) == []


@virtual
async def test_jobs_of_a_task_that_is_gone_are_found(app: App):
    other = App("sqlite:///:memory:", clock=app.clock)
    other.state.stores = app.state.stores
    other.task(echo)
    job = await app.task(name="gone")(echo).enqueue(1)
    assert await ids(other.jobs(task="gone")) == [job.id]
    dead = other.jobs(task="gone", state="dead")  # none, and the task is no typo
    assert (await ids(dead), await dead.count()) == ([], 0)
    assert await dead.retry() == BulkResult(0, 0, 0)


@virtual
async def test_a_state_that_the_action_cannot_change(app: App):
    await app.task(echo).enqueue(1)
    with declined(WrongState, "retry changes dead or cancelled jobs, not ready ones"):
        await app.jobs(state="ready").retry()
    with declined(WrongState, "discard changes dead jobs"):
        await app.jobs(state=("ready", "done")).discard()
    assert await app.jobs(state=("ready", "scheduled")).run_now() == BulkResult(0, 0, 0)
    done = await app.jobs(state=[]).cancel()
    assert done == BulkResult(0, 0, 0)
    assert pickle.loads(pickle.dumps(done)) == done  # noqa: S301
