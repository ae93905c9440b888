"""Bad data that lies in the store already, or that a task hands to it at its end."""

import io
import json
import logging  # noqa: TID251 - a task's own use of it
import os
import pickle  # noqa: TID251 - what an attacker would write
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import pytest

from durio import App, Context, Job, JobDead, JobStatus, State
from durio.errors import NotSerializable, OperatingError, UsageError
from tests.bad_input.refusals import asked, declined
from tests.unit.app.app_harness import (
    drained,
    finished,
    in_state,
    record_of,
    records,
    virtual,
    working,
)

SEEN: list[object] = []


@dataclass
class Order:
    id: int

    def __post_init__(self) -> None:
        if self.id == 13:
            raise RuntimeError("thirteen")


async def ship(order: Order, at: datetime | None = None) -> None:
    SEEN.append((order, at))


async def free(value: Any = None) -> None:
    SEEN.append(value)


async def opened(a: int = 0, *rest: int, **extra: int) -> None:
    SEEN.append((a, rest, extra))


class Bomb:
    """Leaves a trace when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.putenv, ("DURIO_EXPLODED", "1")


async def end_of_altered(app: App, task: Any, **columns: Any) -> JobStatus:
    """Store a good job, change it behind everybody's back, let a worker run it."""
    SEEN.clear()
    job = await task.enqueue()
    for column, value in columns.items():
        await asked(app, f"update job set {column} = ?", value)  # noqa: S608
    await drained(app)
    assert json.dumps((await job.details()).to_dict())  # as far as it can be read
    return await job.status()


BAD_PAYLOADS: dict[str, tuple[Any, bytes]] = {
    "not JSON": (ship, b"hello"),
    "nothing": (ship, b""),
    "invalid UTF-8": (ship, b'[[],{"order":{"id":"\xff\xfe"}}]'),
    "invalid UTF-8 where anything goes": (free, b'[[],{"value":"\xff"}]'),
    "invalid UTF-8 in a name": (opened, b'[[],{"\xff":1}]'),
    "half of it": (ship, b'[[],{"order":'),
    "another shape": (ship, b'{"order":{"id":1}}'),
    "a third part": (ship, b'[[],{"order":{"id":1}},{}]'),
    "args that are none": (ship, b'[{},{"order":{"id":1}}]'),
    "a wrong type": (ship, b'[[],{"order":{"id":"x"}}]'),
    "a missing argument": (ship, b"[[],{}]"),
    "an unknown argument": (ship, b'[[],{"order":{"id":1},"x":1}]'),
    "too many": (ship, b'[[{"id":1},null,3],{}]'),
    "a wrong type among the extra ones": (opened, b'[[],{"a":1,"z":"x"}]'),
    "a naive datetime": (ship, b'[[],{"order":{"id":1},"at":"2026-01-01T00:00:00"}]'),
    "NaN": (free, b'[[],{"value":NaN}]'),
    "a type's own refusal": (ship, b'[[],{"order":{"id":13}}]'),
    "depth": (free, b'[[],{"value":' + b"[" * 100_000 + b"]" * 100_000 + b"}]"),
    "pickle": (free, pickle.dumps(([], {"value": Bomb()}))),
    "pickle, of a signature": (ship, pickle.dumps(Bomb(), protocol=0)),
    "pickle, with extra ones": (opened, pickle.dumps(Bomb(), protocol=5)),
}


@pytest.mark.proves("M45", "M43")
@pytest.mark.parametrize("what", BAD_PAYLOADS)
@virtual
async def test_a_bad_payload_is_dead_at_once(app: App, what: str):
    function, payload = BAD_PAYLOADS[what]
    optional = app.task(name="free")(free)
    job = await optional.enqueue()
    await asked(app, "update job set task = ?", f"app.{function.__name__}")
    if function is not free:
        app.task(function)
    SEEN.clear()
    await asked(app, "update job set payload = ?", payload)
    await drained(app)
    status = await job.status()
    assert (status.state, status.reason) == (State.DEAD, "bad_payload")
    assert status.attempt == 1
    assert status.last_error.message
    assert (await record_of(app, job)).payload == payload  # kept as it is
    assert SEEN == []
    assert "DURIO_EXPLODED" not in os.environ
    with pytest.raises(JobDead) as caught:
        await job.result()
    assert caught.value.reason == "bad_payload"


@pytest.mark.proves("M45")
@virtual
async def test_a_bad_payload_says_what_is_wrong_with_it(app: App):
    task = app.task(ship)
    job = await task.enqueue(Order(1))
    await asked(app, "update job set payload = ?", b'[[],{"order":{"id":"x"}}]')
    await drained(app)
    error = (await job.status()).last_error
    assert error.type == "InvalidArguments"
    assert "order.id" in error.message
    assert "must be int, not str" in error.message


BAD_OPTIONS = {
    "not JSON": b"\x80\x05nonsense",
    "nothing": b"",
    "invalid UTF-8": b'{"meta":{"a":"\xff"}}',
    "another shape": b"[1]",
    "pickle": pickle.dumps(Bomb()),
    "an unknown field of a policy": b'{"retry":{"retries":1,"zzz":1}}',
    "a policy out of range": b'{"retry":{"retries":-1}}',
    "limits the wrong way round": b'{"timeout":[5.0,1.0]}',
    "depth": b'{"meta":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
}


@pytest.mark.parametrize("what", BAD_OPTIONS)
@virtual
async def test_bad_options_are_dead_at_once_and_the_worker_goes_on(app: App, what: str):
    task = app.task(free)
    status = await end_of_altered(app, task, opts=BAD_OPTIONS[what])
    assert (status.state, status.reason) == (State.DEAD, "bad_payload")
    assert (
        "options" in status.last_error.message
        or "retry" in status.last_error.message
        or ("timeout" in status.last_error.message)
    )
    assert SEEN == []
    job = await task.enqueue(5)
    await drained(app)
    assert SEEN == [5]
    assert (await job.status()).state is State.DONE


@virtual(settings={"worker": {"unknown_task_seconds": 100}})
async def test_an_unknown_task_is_parked_then_dead(app: App):
    job = await app.task(name="gone")(free).enqueue(1)
    del app.registry.by_name["app.gone"]  # a deploy took it away
    async with working(app):
        status = await in_state(job, State.SCHEDULED)
        assert (status.attempt, status.last_error) == (1, None)
        other = await app.task(opened).enqueue()
        assert (await finished(other)).state is State.DONE
        status = await finished(job)
    assert (status.state, status.reason) == (State.DEAD, "unknown_task")
    assert status.last_error.type == "UnknownTask"
    assert "Deploy the code" in status.last_error.message


# --- results


RESULTS: dict[str, Any] = {
    "an object": object(),
    "an open file": io.StringIO(),
    "NaN": float("nan"),
    "NUL": {"a": "\0"},
    "a lone surrogate": ["\ud800"],
    "raw": msgspec.Raw(b"nonsense"),
}


@pytest.mark.parametrize("what", RESULTS)
@virtual
async def test_a_result_that_cannot_be_stored(app: App, what: str):
    @app.task(name="task")
    async def task() -> Any:
        SEEN.append(what)
        return RESULTS[what]

    SEEN.clear()
    job = await task.enqueue()
    await drained(app)
    status = await job.status()
    assert (status.state, status.reason) == (State.DEAD, "bad_result")
    assert (status.attempt, status.last_error.type) == (1, "InvalidResult")
    assert "app.task" in status.last_error.message
    assert [what] == SEEN  # run once: again would be no better
    assert (await record_of(app, job)).result is None


@virtual(settings={"payload": {"result_bytes_max": 100}})
async def test_a_result_over_the_bound(app: App):
    @app.task(name="task")
    async def task() -> str:
        return "x" * 100

    job = await task.enqueue()
    await drained(app)
    status = await job.status()
    assert (status.state, status.reason) == (State.DEAD, "permanent")
    assert status.last_error.type == "PayloadTooLarge"
    assert "return its id" in status.last_error.message


@virtual
async def test_a_result_that_is_not_what_its_annotation_says(app: App):
    @app.task(name="task")
    async def task() -> int:
        return 5

    job: Job[int] = await task.enqueue()
    await drained(app)
    await asked(app, "update job set result = ?", b'"five"')  # of other code
    with pytest.raises(OperatingError, match="does not fit its annotation") as caught:
        await job.result()
    assert "return annotation" in caught.value.cure


@virtual
async def test_progress_that_cannot_be_stored(app: App):
    @app.task(name="task")
    async def task(ctx: Context) -> None:
        for bad in (float("nan"), object()):
            with declined(
                UsageError, "progress: done cannot be", "ctx.progress(3, 10)"
            ):
                await ctx.progress(bad)
        with declined(NotSerializable, "NUL"):
            await ctx.progress(1, message="\0")
        with declined(UsageError, "progress is", "short"):
            await ctx.progress(1, message="x" * 5000)
        await ctx.progress(1, 2)

    job = await task.enqueue()
    await drained(app)
    assert (await job.status()).state is State.DONE


# --- exceptions that fight back


class Mute(Exception):
    """Has no text, and says so loudly."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Nothing(Exception):
    """Its text is no text."""

    def __str__(self) -> Any:
        return vars(self).get("text")


class Leaving(Exception):
    """Asking for its text ends the process."""

    def __str__(self) -> str:
        raise SystemExit


class Foul(Exception):
    """Its text can be stored nowhere."""

    def __str__(self) -> str:
        return "\0\ud800" + "x" * 1_000_000


Unwritable = type("A\n" + "b" * 1000, (Exception,), {})


def chained(length: int) -> Exception:
    error: Exception | None = None
    for _ in range(length):
        newer = ValueError("link")
        newer.__context__ = error
        error = newer
    assert error is not None
    return error


@pytest.mark.proves("M89")
@pytest.mark.parametrize(
    "error",
    [Mute(), Nothing(), Leaving(), Foul(), Unwritable("x"), chained(5000)],
    ids=["mute", "no text", "leaving", "foul", "a long name", "a long chain"],
)
@virtual
async def test_a_hostile_exception_is_recorded_all_the_same(app: App, error: Exception):
    @app.task(name="task", retry=0)
    async def task() -> None:
        raise error

    @app.task(name="next")
    async def next_one() -> None: ...

    job = await task.enqueue()
    after = await next_one.enqueue()
    await drained(app)
    status = await job.status()
    assert (status.state, status.reason) == (State.DEAD, "exhausted")
    assert status.last_error.type
    assert len(status.last_error.message) <= 4000
    assert "\0" not in status.last_error.message + status.last_error.type
    assert (await after.status()).state is State.DONE


@virtual
async def test_a_log_line_that_cannot_be_formatted_does_not_lose_the_failure(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logging, "raiseExceptions", False)

    @app.task(name="task", retry=0)
    async def task(ctx: Context) -> None:
        ctx.log.warning("%s", Mute())
        ctx.log.warning("%d", "x")
        ctx.log.warning("fine")
        raise ValueError("the failure")

    logger = logging.getLogger("durio.task.app.task")
    logger.addHandler(logging.NullHandler())
    monkeypatch.setattr(logger, "propagate", False)
    job = await task.enqueue()
    await drained(app)
    status = await job.status()
    assert (status.state, status.last_error.message) == (State.DEAD, "the failure")
    logs = (await job.details()).errors[-1].logs
    assert len(logs) == 3
    assert logs[2] == "WARNING fine"


@pytest.mark.parametrize(
    "error",
    [Mute(), SystemExit(1), ValueError("x")],
    ids=lambda error: type(error).__name__,
)
@virtual
async def test_a_hostile_hook_harms_nobody(app: App, error: BaseException):
    @app.task(name="task")
    async def task() -> int:
        return 1

    told: list[str] = []

    @app.hooks.after
    def bad(_: Any) -> None:
        raise error

    @app.hooks.after
    async def good(event: Any) -> None:
        told.append(event.job_id)

    async with working(app):
        jobs = [await task.enqueue() for _ in range(3)]
        assert [await job.result() for job in jobs] == [1, 1, 1]
    assert sorted(told) == sorted(job.id for job in jobs)
    assert len(await records(app)) == 3
