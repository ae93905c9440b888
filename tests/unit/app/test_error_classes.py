"""What becomes of jobs by the class of their errors: in the store, in the log, in time."""

import itertools
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import httpx
import pytest

from durio import App, JobDead, Retry, Snooze, State
from durio.cli.job_output import attempt_fields, attempt_lines
from durio.doctor.code import code_checks
from durio.limits import Poll
from durio.model.finding import Finding
from tests.unit.app.app_harness import finished, in_state, virtual, working
from tests.unit.app.test_ends import Listener

REQUEST = httpx.Request("GET", "https://example.org")
NO_JITTER = Retry(5, jitter=False)


def answer(status: int, **headers: str) -> httpx.HTTPStatusError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = httpx.Response(status, headers=named, request=REQUEST)
    return httpx.HTTPStatusError(f"answer {status}", request=REQUEST, response=response)


@pytest.mark.proves("M72")
@pytest.mark.parametrize("form", ["seconds", "date"])
@virtual
async def test_retry_after_burns_no_attempt_and_is_kept_to(app: App, form: str):
    starts: list[float] = []
    asked_until: list[float] = []

    @app.task(name="call", retry=Retry(1, base=500, jitter=False))
    async def call() -> str:
        starts.append(app.clock.now())
        if len(starts) > 4:
            return "done"
        if form == "seconds":
            asked_until.append(app.clock.now() + 2)
            raise answer(429, Retry_After="2")
        # A date has whole seconds.
        until = datetime.fromtimestamp(int(app.clock.now()) + 3, UTC)
        asked_until.append(until.timestamp())
        raise answer(503, Retry_After=format_datetime(until, usegmt=True))

    async with working(app):
        job = await call.enqueue()
        status = await finished(job)
    assert status.state is State.DONE
    # Four answers, with one retry allowed: none of them is used.
    assert (status.attempt, len(starts)) == (1, 5)
    for until, start in zip(asked_until, starts[1:], strict=True):
        assert until <= start < until + 2


@pytest.mark.proves("M72")
@virtual(settings={"worker": {"retry_after_max_seconds": 90}})
async def test_a_long_retry_after_is_cut(app: App):
    starts: list[float] = []

    @app.task(name="call")
    async def call() -> None:
        starts.append(app.clock.now())
        if len(starts) == 1:
            raise answer(429, Retry_After="86400")

    async with working(app):
        await finished(await call.enqueue())
    assert 90 <= starts[1] - starts[0] < 100


@pytest.mark.proves("M72")
@virtual
async def test_a_person_sees_what_was_decided(app: App):
    heard = Listener(app)

    @app.task(name="call")
    async def call(status: int) -> None:
        headers = {"Retry_After": "600"} if status == 429 else {}
        raise answer(status, **headers)

    async with working(app):
        missing = await call.enqueue(404)
        dead = await finished(missing)
        with pytest.raises(JobDead):
            await missing.result()
        waiting = await in_state(await call.enqueue(429), State.SCHEDULED)
    assert (dead.reason, dead.attempt) == ("permanent", 1)
    assert dead.last_error is not None
    assert dead.last_error.decision == "dead at once: HTTP 404"
    assert waiting.last_error is not None
    text = "snoozed for 10 min: HTTP 429 with Retry-After"
    assert waiting.last_error.decision == text
    (told,) = [fields for name, fields in heard.heard if name == "job.dead"]
    assert told["decision"] == "dead at once: HTTP 404"
    (told,) = [fields for name, fields in heard.heard if name == "job.snoozed"]
    assert (told["decision"], told["error_type"]) == (text, "HTTPStatusError")
    details = await missing.details()
    lines = attempt_lines(attempt_fields(details.errors[0]))
    assert "  dead at once: HTTP 404" in lines


@virtual
async def test_a_snooze_of_the_task_is_no_failure(app: App):
    @app.task(name="look")
    async def look() -> None:
        raise Snooze("1h")

    async with working(app):
        status = await in_state(await look.enqueue(), State.SCHEDULED)
    assert status.last_error is None


@pytest.mark.proves("M75")
@virtual
async def test_an_exhausted_pool_is_tried_again_after_five_seconds(app: App):
    starts: list[float] = []

    @app.task(name="call", retry=Retry(20, base=1000))
    async def call() -> None:
        starts.append(app.clock.now())
        raise httpx.PoolTimeout("no connection was free")

    async with working(app):
        status = await finished(await call.enqueue())
    assert (status.state, status.reason) == (State.DEAD, "exhausted")
    assert len(starts) == 4
    pauses = [after - before for before, after in itertools.pairwise(starts)]
    assert all(5 <= pause < 7 for pause in pauses)


@pytest.mark.proves("M70")
@virtual(
    retry=NO_JITTER,
    errors={"transient": Retry(1, delays=("7s",), jitter=False), 404: "retry"},
)
async def test_the_numbers_of_app_task_and_call(app: App):
    @app.task(name="of_app")
    async def of_app(status: int) -> None:
        raise answer(status)

    @app.task(name="of_task", retry=Retry(2, base=20, jitter=False))
    async def of_task(status: int) -> None:
        raise answer(status)

    @app.task(name="of_task_errors", errors={503: "dead"})
    async def of_task_errors(status: int) -> None:
        raise answer(status)

    async def decision(task: Any, status: int) -> str:
        job = await task.enqueue(status)
        async with working(app):
            while (error := (await job.status()).last_error) is None:
                await app.clock.sleep(0.1)
        await job.cancel()
        return error.decision

    rule = "by a rule of errors="
    assert await decision(of_app, 503) == f"retry 1 of 1 in 7 s: HTTP 503, {rule}"
    assert await decision(of_app, 404) == f"retry 1 of 5 in 60 s: HTTP 404, {rule}"
    assert await decision(of_task, 503) == "retry 1 of 2 in 20 s: HTTP 503"
    assert await decision(of_task, 404) == f"retry 1 of 2 in 20 s: HTTP 404, {rule}"
    assert await decision(of_task_errors, 503) == f"dead at once: HTTP 503, {rule}"
    call = of_app.options(retry=Retry(4, base=30, jitter=False))
    assert await decision(call, 503) == "retry 1 of 4 in 30 s: HTTP 503"
    assert await decision(call, 404) == f"retry 1 of 4 in 30 s: HTTP 404, {rule}"


@pytest.mark.proves("M160", "L20")
@virtual
async def test_a_poll_slows_down_while_nothing_happens(app: App):
    poll, starts = Poll(), list[float]()
    news: list[datetime] = []

    @app.task(name="watch")
    async def watch() -> str:
        starts.append(app.clock.now())
        if len(starts) == 12:
            return "enough"
        if len(starts) == 6:
            news.append(datetime.fromtimestamp(app.clock.now(), UTC))
        raise poll.again(news[-1] if news else None)

    async with working(app):
        status = await finished(await watch.enqueue())
    assert (status.state, status.attempt) == (State.DONE, 1)
    pauses = [after - before for before, after in itertools.pairwise(starts)]
    expected = [30, 60, 120, 240, 300, 30, 60, 120, 240, 300, 300]
    assert all(
        wanted <= pause < wanted + 6
        for wanted, pause in zip(expected, pauses, strict=True)
    ), pauses


@pytest.mark.proves("M77", "M214")
def test_rules_without_a_pause_are_reported() -> None:
    app = App("sqlite:///:memory:", name="shop")
    heard = Listener(app)

    @app.task(name="hurried", errors={404: Retry(3, base=0)})
    async def hurried() -> None: ...

    @app.task(name="calm", errors={404: Retry(3)})
    async def calm() -> None: ...

    tasks = [f["task"] for name, f in heard.heard if name == "retry.unpaused"]
    assert tasks == ["shop.hurried"]
    found: list[Finding] = list(
        code_checks(list(app.registry.handlers.values()))["code.backoff"]()
    )
    assert [finding.evidence for finding in found] == [
        "retried without a pause: shop.hurried"
    ]
