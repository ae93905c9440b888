"""Log records of tasks carry their job; the ends of jobs are told once, with figures."""

import io
import logging  # noqa: TID251 - what tasks log with
from collections.abc import Iterator

import msgspec
import pytest

from durio import App, Context, Job, Retry, State
from durio.model.settings import LogSettings
from durio.telemetry.log import configure
from tests.unit.app.app_harness import drained, finished, real, virtual, working


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, put back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:], root.level = handlers, level


def written(root: logging.Logger, form: str, level: str = "INFO") -> io.StringIO:
    """Log our way into a text, and nowhere else."""
    stream = io.StringIO()
    root.handlers.clear()
    configure(LogSettings(format=form, level=level), stream)
    return stream


async def noisy_job(app: App) -> Job[None]:
    @app.task(name="noisy", queue="mail", retry=Retry(0))
    async def noisy(ctx: Context, number: int) -> None:
        ctx.log.info("by ctx %d", number)
        logging.getLogger("my.module").warning("by module", extra={"order": 7})

    job = await noisy.enqueue(5)
    await drained(app)
    assert (await job.status()).state is State.DONE
    return job


@pytest.mark.proves("M23", "M24")
@virtual(name="shop")
async def test_every_record_of_a_task_carries_its_job_as_json(
    app: App, root: logging.Logger
):
    stream = written(root, "json")
    job = await noisy_job(app)
    lines = [msgspec.json.decode(line) for line in stream.getvalue().splitlines()]
    told = {"job_id": job.id, "task": "shop.noisy", "queue": "mail", "attempt": 1}
    by_ctx = next(line for line in lines if line.get("message") == "by ctx 5")
    by_module = next(line for line in lines if line.get("message") == "by module")
    done = next(line for line in lines if line.get("event") == "job.done")
    for line in (by_ctx, by_module, done):
        assert told.items() <= line.items()
        assert line["ts"].endswith("Z")
    assert by_ctx["logger"] == "durio.task.shop.noisy"
    assert (by_module["order"], by_module["level"]) == (7, "WARNING")  # extra= survives
    assert done["duration_ms"] >= 0
    assert not [line for line in lines if line.get("event") == "job.started"]


@pytest.mark.proves("M23")
@virtual(name="shop")
async def test_every_record_of_a_task_carries_its_job_for_people(
    app: App, root: logging.Logger
):
    stream = written(root, "human", "DEBUG")
    job = await noisy_job(app)
    lines = stream.getvalue().splitlines()
    for words in ("by ctx 5", "by module", "job.done", "job.started"):
        line = next(line for line in lines if words in line)
        assert job.id in line
        for told in ("shop.noisy", "queue=mail", "attempt=1"):
            assert told in line
    assert "duration_ms=" in next(line for line in lines if "job.done" in line)


@pytest.mark.proves("M23")
@real(name="shop")
async def test_the_same_from_a_thread(app: App, root: logging.Logger):
    stream = written(root, "json")

    @app.task(name="sync")
    def sync() -> None:
        logging.getLogger("my.module").warning("from a thread")

    async with working(app):
        job = await sync.enqueue()
        await job.result(timeout=60)
    lines = [msgspec.json.decode(line) for line in stream.getvalue().splitlines()]
    line = next(line for line in lines if line.get("message") == "from a thread")
    assert (line["job_id"], line["task"]) == (job.id, "shop.sync")


@pytest.mark.proves("M23")
@virtual
async def test_records_outside_of_a_task_carry_no_job(app: App, root: logging.Logger):
    stream = written(root, "json")
    await noisy_job(app)
    logging.getLogger("my.module").warning("outside")
    line = msgspec.json.decode(stream.getvalue().splitlines()[-1])
    assert line["message"] == "outside"
    assert "job_id" not in line


@pytest.mark.proves("M89", "M31")
@virtual
async def test_a_death_is_told_with_its_error_and_meta(app: App, root: logging.Logger):
    stream = written(root, "json")

    @app.task(name="fails", retry=Retry(1, base=1, jitter=False))
    async def fails() -> None:
        raise ConnectionError("away")

    async with working(app):
        await finished(await fails.options(meta={"tenant": "a"}).enqueue())
    lines = [msgspec.json.decode(line) for line in stream.getvalue().splitlines()]
    retried = next(line for line in lines if line.get("event") == "job.retried")
    dead = next(line for line in lines if line.get("event") == "job.dead")
    assert (retried["level"], retried["delay_seconds"]) == ("WARNING", 1)
    assert (dead["level"], dead["reason"], dead["attempt"]) == ("ERROR", "exhausted", 2)
    assert (dead["error_type"], dead["error"]) == ("ConnectionError", "away")
    assert dead["meta"] == {"tenant": "a"}
    assert "in fails" in dead["traceback"]


@pytest.mark.proves("M89")
@virtual
async def test_the_last_fifty_lines_stay_with_a_failure(app: App):
    @app.task(name="chatty", retry=Retry(1, base=1))
    async def chatty(ctx: Context) -> None:
        for number in range(60):
            ctx.log.warning("attempt %d line %d", ctx.attempt, number)
        ctx.log.warning("x" * 5000)
        raise ValueError

    async with working(app):
        job = await chatty.enqueue()
        await finished(job)
    logs = (await job.details()).errors[-1].logs
    assert len(logs) == 50
    assert logs[0] == "WARNING attempt 2 line 11"  # this attempt's own
    assert logs[48] == "WARNING attempt 2 line 59"
    assert len(logs[49]) == 1000


@virtual
async def test_a_job_that_ends_well_keeps_no_lines(app: App):
    job = await noisy_job(app)
    assert (await job.status()).last_error is None
