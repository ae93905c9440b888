"""Rules of a task's call, attempt and result, as a user meets them."""

import asyncio
import math
from itertools import pairwise
from typing import Any

import pytest

from durio import App, Context, Job, JobNotFound, JobStatus, QueueFull, Retry, State
from durio.errors import InvalidArguments, NotSerializable, UsageError, WrongState
from durio.model.failure import Failure, failures
from durio.worker.context import local_context
from tests.unit.app.app_harness import finished, record_of, virtual, working


async def last_error(app: App, job: Job[Any]) -> Failure:
    return failures((await record_of(app, job)).errors)[-1]


async def end_of(app: App, function: Any, **options: Any) -> tuple[JobStatus, Failure]:
    """The end of a job of this function, and its last error."""
    async with working(app):
        job = await app.task(name=function.__name__, **options)(function).enqueue()
        return await finished(job), await last_error(app, job)


# --- a policy that is raised


@virtual
async def test_a_raised_policy_retries_by_its_own_numbers(app: App):
    times: list[float] = []

    async def poll() -> None:
        times.append(app.clock.now())
        raise Retry(2, base=10, jitter=False)

    status, error = await end_of(app, poll, retry=0)
    assert (status.state, status.reason) == (State.DEAD, "exhausted")
    pauses = [b - a for a, b in pairwise(times)]
    assert pauses == pytest.approx([10, 20], abs=1.5)
    assert (error.type, error.attempt) == ("Retry", 3)
    assert error.message == "the task asked for Retry(2, base=10, jitter=False)"


SHARED = Retry(1, base=1)


@virtual
async def test_a_raised_policy_shows_its_cause_and_keeps_no_frames(app: App):
    async def poll() -> None:
        raise SHARED from KeyError("slow")

    status, error = await end_of(app, poll, retry=9)
    assert (status.attempt, status.reason) == (2, "exhausted")
    assert (error.type, error.message) == ("KeyError", "'slow'")
    assert SHARED.__traceback__ is None
    assert SHARED.__cause__ is None


@virtual
async def test_retry_after_stays_the_short_way(app: App):
    async def poll() -> None:
        raise Retry.after("30s", cause=ValueError("later"))

    status, error = await end_of(app, poll, retry=1)
    assert (status.attempt, status.reason, error.type) == (2, "exhausted", "ValueError")


# --- wrong calls inside a task


@virtual
async def test_a_wrong_call_inside_a_task_is_permanent(app: App):
    async def other() -> None: ...

    task = app.task(name="other")(other)

    async def wrong() -> None:
        await task.options(dealy=5).enqueue()  # type: ignore[call-arg]

    status, error = await end_of(app, wrong, retry=3)
    assert (status.attempt, status.reason) == (1, "permanent")
    assert error.type == "InvalidOption"


TROUBLE = {
    "no such job": JobNotFound("gone"),
    "full": QueueFull("full", queue="q", depth=1, limit=1, retry_after=1.0),
}


@pytest.mark.parametrize("what", TROUBLE)
@virtual
async def test_trouble_inside_a_task_is_retried(app: App, what: str):
    async def wrong() -> None:
        raise TROUBLE[what]

    status, _ = await end_of(app, wrong, retry=Retry(2, base=1))
    assert (status.attempt, status.reason) == (3, "exhausted")


@virtual
async def test_a_wrong_state_is_a_wrong_call(app: App):
    async def wrong() -> None:
        raise WrongState("done already")

    status, _ = await end_of(app, wrong, retry=Retry(2, base=1))
    assert (status.attempt, status.reason) == (1, "permanent")


# --- results


@virtual
async def test_a_result_that_does_not_fit_is_dead_in_the_worker(app: App):
    async def count() -> int:
        return {"password": "hunter2"}  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    status, error = await end_of(app, count, retry=3)
    assert (status.state, status.attempt, status.reason) == (
        State.DEAD,
        1,
        "bad_result",
    )
    assert error.message.startswith("count() returned {'password': ***}, which")
    assert "hunter2" not in error.message + error.traceback


@virtual
async def test_a_result_that_is_missing_does_not_fit(app: App):
    def count() -> int:
        return None  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    status, error = await end_of(app, count, retry=3)
    assert status.reason == "bad_result"
    assert "it must be int, not None" in error.message


@pytest.mark.parametrize("value", [object(), float("nan"), "a\0b"])
@virtual
async def test_a_result_that_is_not_json_is_a_bad_result(app: App, value: object):
    def give() -> object:
        return value

    status, error = await end_of(app, give, retry=Retry(2, base=1, on=Exception))
    assert (status.attempt, status.reason) == (1, "bad_result")
    assert error.type == "InvalidResult"
    assert error.message.startswith("app.give: result")


# --- arguments without an annotation


PLAIN = [None, True, 5, 2.5, "x", [1, ["y"]], {"a": {"b": [None]}}]


def bare(value, *rest, **more):
    return [value, *rest, more]


@virtual
async def test_plain_values_need_no_annotation(app: App):
    task = app.task(bare)
    async with working(app):
        for value in PLAIN:
            job = await task.enqueue(value, value, more=value)
            assert await job.result() == [value, value, {"more": value}]


CHANGED: dict[str, tuple[Any, str]] = {
    "tuple": ((1,), "be a tuple"),
    "set": ({1}, "be a set"),
    "bytes": (b"x", "be a bytes"),
    "a tuple in a list": ([[(1,)]], "hold a tuple"),
    "keys": ({1: 2}, "be a dict with keys that are not str"),
    "a key of None": ({None: 2}, "be a dict with keys that are not str"),
    "keys in a list": ([{1: 2}], "hold a dict with keys that are not str"),
}


@pytest.mark.parametrize("what", CHANGED)
@virtual
async def test_other_values_need_one(app: App, what: str):
    value, why = CHANGED[what]
    task = app.task(bare)
    for name, args, kwargs in (
        ("value", (value,), {}),
        ("*rest", (1, value), {}),
        ("other", (1,), {"other": value}),
    ):
        with pytest.raises(NotSerializable) as caught:
            await task.enqueue(*args, **kwargs)
        assert caught.value.what == (
            f"bare(): argument {name!r} has no annotation, so it cannot {why}"
        )
        assert "None, bool, int, float, str" in caught.value.cure


@virtual
async def test_the_words_of_wrong_arguments(app: App):
    async def send(to: str) -> None: ...
    async def rec(n: int) -> None: ...

    tasks = [app.task(name=f.__name__)(f) for f in (send, rec)]
    for by_name in (False, True):
        calls = [
            (app.enqueue, (f"{app.name}.{t.name.rpartition('.')[2]}",))
            if by_name
            else (t.enqueue, ())
            for t in tasks
        ]
        with pytest.raises(InvalidArguments, match=r"send\(\) has no parameter 'y' \["):
            await calls[0][0](*calls[0][1], to="a", y=1)
        with pytest.raises(
            InvalidArguments, match=r"rec\(\) needs the argument 'n' \["
        ):
            await calls[1][0](*calls[1][1])


# --- keys by name


@virtual
async def test_a_policy_by_its_name_holds_the_key(app: App):
    async def send() -> None: ...

    task = app.task(name="send")(send).options(key="k", unique="while_active")
    first, second = await task.enqueue(), await task.enqueue()
    assert (first.id, second.created) == (second.id, False)
    async with working(app):
        await finished(first)
    assert (await task.enqueue()).created


# --- progress


def test_progress_gives_one_awaitable_that_is_done():
    ctx = local_context("shop.t", b"0" * 16)
    reported = ctx.progress(1, 2)
    assert reported is ctx.progress(2, 2)

    async def twice() -> None:
        assert await reported is None
        assert await reported is None
        await asyncio.gather(reported, ctx.progress(3))

    asyncio.run(twice())
    assert not hasattr(ctx, "progress_sync")


@pytest.mark.parametrize(
    ("done", "total", "what"),
    [
        (math.nan, None, "done cannot be nan"),
        (math.inf, 1, "done cannot be inf"),
        (1, math.nan, "total cannot be nan"),
        ("1", None, "done cannot be '1'"),
        (None, None, "done cannot be None"),
    ],
)
def test_progress_takes_numbers_only(done: Any, total: Any, what: str):
    ctx = local_context("shop.t", b"0" * 16)
    with pytest.raises(UsageError, match=f"progress: {what}") as caught:
        ctx.progress(done, total)
    assert "ctx.progress(3, 10)" in caught.value.cure


@virtual
async def test_progress_that_is_not_awaited_is_stored_too(app: App):
    async def slow(ctx: Context) -> None:
        ctx.progress(3, 10, message="unawaited")
        await app.clock.sleep(5)

    async with working(app):
        job = await app.task(name="slow")(slow).enqueue()
        await app.clock.sleep(2)
        status = await job.status()
        assert status.progress is not None
        assert status.progress.message == "unawaited"
