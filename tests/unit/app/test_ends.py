"""How an attempt ends, by the task's own word or by what it raises."""

import asyncio
from typing import Any

import msgspec
import pydantic
import pytest

from durio import (
    App,
    Cancel,
    Context,
    DeadLetter,
    Job,
    JobCancelled,
    JobDead,
    JobStatus,
    Permanent,
    Retry,
    State,
)
from durio.client.job_view import job_errors
from durio.model.job import LastError
from durio.telemetry.emit import JobEvent
from durio.telemetry.names import EmissionMeaning
from tests.unit.app.app_harness import (
    drained,
    finished,
    in_state,
    record_of,
    virtual,
    working,
)


class BadAddress(Exception):
    """A failure that will not go away."""


class Listener:
    """Hears what an App says."""

    def __init__(self, app: App) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        app.emit.subscribers.append(self)

    def on_event(
        self, name: str, meaning: EmissionMeaning, fields: dict[str, Any]
    ) -> None:
        del meaning
        self.heard.append((name, fields))

    def on_jobs(self, events: list[JobEvent]) -> None:
        self.heard += [(event.name, event._asdict()) for event in events]

    def wants(self, meaning: EmissionMeaning) -> bool:
        return bool(meaning)

    def names(self) -> list[str]:
        return [name for name, _ in self.heard]


async def end_of(app: App, error: BaseException, **options: Any) -> JobStatus:
    """The end of a job whose task raises this."""

    @app.task(name="raises", **options)
    async def raises() -> None:
        raise error

    async with working(app):
        return await finished(await raises.enqueue())


QUICK = Retry(2, base=1, on=(ConnectionError, TimeoutError), never=(BadAddress,))


@pytest.mark.proves("M68")
@pytest.mark.parametrize("error", [ConnectionResetError("x"), TimeoutError("x")])
@virtual
async def test_a_listed_error_is_retried_also_by_its_family(app: App, error: Exception):
    status = await end_of(app, error, retry=QUICK)
    assert (status.attempt, status.reason) == (3, "exhausted")


@pytest.mark.proves("M68")
@virtual
async def test_what_is_not_on_the_list_is_dead_at_once(app: App):
    status = await end_of(app, ValueError("x"), retry=QUICK)
    assert (status.state, status.attempt, status.reason) == (
        State.DEAD,
        1,
        "permanent",
    )


@pytest.mark.proves("M69")
@pytest.mark.parametrize("error", [BadAddress("no such"), Permanent("no such")])
@virtual
async def test_a_permanent_error_is_never_retried(app: App, error: Exception):
    status = await end_of(app, error, retry=Retry(5, never=(BadAddress,)))
    assert (status.state, status.attempt, status.reason) == (
        State.DEAD,
        1,
        "permanent",
    )
    assert status.last_error.message == "no such"


@pytest.mark.proves("M69")
@virtual
async def test_never_beats_on(app: App):
    both = Retry(5, on=(OSError,), never=(ConnectionError,))
    assert (await end_of(app, ConnectionError(), retry=both)).attempt == 1


@pytest.mark.proves("M83")
@virtual
async def test_a_dead_letter_is_asked_for_by_its_task(app: App):
    status = await end_of(app, DeadLetter("fraud suspected"))
    assert (status.state, status.attempt, status.reason) == (
        State.DEAD,
        1,
        "requested",
    )
    assert (status.last_error.type, status.last_error.message) == (
        "DeadLetter",
        "fraud suspected",
    )


@virtual
async def test_a_task_may_cancel_itself(app: App):
    @app.task(name="gives_up")
    async def gives_up() -> None:
        raise Cancel

    async with working(app):
        job = await gives_up.enqueue()
        with pytest.raises(JobCancelled, match=job.id):
            await job.result()
    status = await job.status()
    assert (status.state, status.last_error, status.reason) == (
        State.CANCELLED,
        None,
        None,
    )


class Item(pydantic.BaseModel):
    price: int


def pydantic_error() -> Exception:
    try:
        Item(price="x")
    except pydantic.ValidationError as error:
        return error
    raise AssertionError


class ValidationError(Exception):
    """Of some other framework: known by its name."""


class OfferInvalid(ValidationError):
    """A child of the family."""


@pytest.mark.proves("M73")
@pytest.mark.parametrize(
    "error",
    [msgspec.ValidationError("x"), pydantic_error(), ValidationError(), OfferInvalid()],
    ids=lambda error: f"{type(error).__module__}.{type(error).__name__}",
)
@virtual
async def test_the_family_of_validation_errors_is_dead_at_once(
    app: App, error: Exception
):
    status = await end_of(app, error)
    assert (status.state, status.attempt, status.reason) == (
        State.DEAD,
        1,
        "permanent",
    )


@pytest.mark.proves("M68", "M73")
@virtual
async def test_a_validation_error_that_is_on_the_list_is_retried(app: App):
    listed = Retry(1, base=1, on=(ValidationError,))
    assert (await end_of(app, ValidationError(), retry=listed)).attempt == 2


@pytest.mark.proves("M70", "M89")
@virtual
async def test_a_retry_with_its_cause_keeps_the_traceback(app: App):
    def fetch() -> None:
        raise ConnectionError("the mail server is away")

    @app.task(name="task", retry=1)
    async def task() -> None:
        try:
            fetch()
        except ConnectionError as error:
            raise Retry.after("30s", cause=error) from error

    async with working(app):
        job = await task.enqueue()
        status = await in_state(job, State.SCHEDULED)
        assert status.attempt == 2
        assert (status.last_error.type, status.last_error.message) == (
            "ConnectionError",
            "the mail server is away",
        )
        assert "in fetch" in (await job.details()).errors[-1].traceback
        status = await finished(job)
    assert (status.state, status.reason) == (State.DEAD, "exhausted")


@pytest.mark.parametrize("word", ["permanent", "retry", "deadletter"])
@virtual
async def test_a_word_is_heard_from_within_a_task_group(app: App, word: str):
    raised = {
        "permanent": Permanent("no"),
        "retry": Retry.after(5),
        "deadletter": DeadLetter("no"),
    }[word]

    async def part() -> None:
        raise raised

    @app.task(name="task", retry=1)
    async def task() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(part())

    async with working(app):
        job = await task.enqueue()
        status = await finished(job)
    assert (status.reason, status.attempt) == {
        "permanent": ("permanent", 1),
        "retry": ("exhausted", 2),
        "deadletter": ("requested", 1),
    }[word]


# --- what a failure leaves


@pytest.mark.proves("M81", "M82", "M89", "M91", "M31")
@virtual
async def test_a_dead_job_tells_its_whole_story(app: App):
    @app.task(name="charge", queue="money", retry=Retry(1, base=60, jitter=False))
    async def charge(ctx: Context, order: int) -> None:
        ctx.log.warning("charging %d", order)
        raise ConnectionError(f"try {ctx.attempt}") from OSError("socket closed")

    async with working(app) as worker:
        start = app.clock.now()
        job = await charge.options(meta={"tenant": "a"}).enqueue(7)
        status = await finished(job)
        with pytest.raises(JobDead) as caught:
            await job.result()
    assert (caught.value.reason, caught.value.job_id) == ("exhausted", job.id)
    assert f"durio jobs retry {job.id}" in caught.value.cure
    assert "ConnectionError: try 2" in str(caught.value)
    assert (status.queue, status.state) == ("money", State.DEAD)
    assert status.finished_at.timestamp() == pytest.approx(start + 60)
    row = await record_of(app, job)
    assert msgspec.json.decode(row.payload) == [[], {"order": 7}]
    assert msgspec.json.decode(row.opts)["meta"] == {"tenant": "a"}
    first, second = job_errors(row)
    assert second == caught.value.error
    assert status.last_error == LastError(
        second.type, second.message, second.attempt, second.at, second.decision
    )
    assert first.decision == "retry 1 of 1 in 60 s: network (ConnectionError)"
    assert second.decision.startswith("dead after 2 attempts, the most allowed")
    assert (first.type, first.message, first.attempt) == ("ConnectionError", "try 1", 1)
    assert (second.attempt, second.worker) == (2, worker.config.name)
    assert second.at.timestamp() - first.at.timestamp() == pytest.approx(60)
    assert "OSError: socket closed" in first.traceback  # the chain
    assert "direct cause" in first.traceback
    assert "in charge" in first.traceback
    assert "durio/worker" not in first.traceback  # none of ours
    assert first.logs == ("WARNING charging 7",)


@pytest.mark.proves("M77")
@virtual
async def test_a_retry_loop_without_a_pause_is_warned_about_at_declaration(app: App):
    listener = Listener(app)

    @app.task(name="a", retry=Retry(3, base=0))
    async def hasty() -> None: ...
    @app.task(name="b", retry=Retry(3, delays=(0, 0)))
    async def by_hand() -> None: ...
    @app.task(name="c", retry=Retry(0, base=0))
    async def once() -> None: ...
    @app.task(name="d")
    async def usual() -> None: ...

    warned = [f for name, f in listener.heard if name == "retry.unpaused"]
    assert [fields["task"] for fields in warned] == ["app.a", "app.b"]
    assert "test_ends.py:" in warned[0]["place"]


@pytest.mark.proves("M2")
@virtual
async def test_siblings_fail_and_succeed_on_their_own(app: App):
    @app.task(name="part", retry=Retry(1, base=1))
    async def part(number: int) -> int:
        if number == 2:
            raise ConnectionError
        return number

    jobs: list[Job[int]] = await part.enqueue_many([(1,), (2,), (3,)])
    async with working(app):
        ends = [await finished(job) for job in jobs]
    assert [end.state.value for end in ends] == ["done", "dead", "done"]
    assert [end.attempt for end in ends] == [1, 2, 1]


# --- raised by nobody's plan


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError("x")],
    ids=lambda error: type(error).__name__,
)
@virtual
async def test_whatever_is_raised_ends_the_attempt_and_not_the_worker(
    app: App, error: BaseException
):
    status = await end_of(app, error, retry=Retry(1, base=1))
    assert (status.state, status.attempt) == (State.DEAD, 2)
    assert status.last_error.type == type(error).__name__

    @app.task(name="next")
    async def next_one() -> int:
        return 1

    job = await next_one.enqueue()
    await drained(app)
    assert await job.result() == 1


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
@virtual
async def test_the_same_in_a_thread(app: App, error: BaseException):
    @app.task(name="raises", retry=0)
    def raises() -> None:
        raise error

    with app.clock.held():
        await drained(app)
        job = await raises.enqueue()
        await drained(app)
    status = await job.status()
    assert (status.state, status.last_error.type) == (State.DEAD, type(error).__name__)
