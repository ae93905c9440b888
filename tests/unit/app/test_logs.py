"""Log records of tasks carry their job; the ends of jobs are told once, with figures."""

import io
import logging  # noqa: TID251 - what tasks log with
import re
from collections.abc import Iterator

import msgspec
import pytest

from durio import App, Context, Job, Retry, State
from durio.errors import InvalidName
from durio.host.child_log import wanted_level
from durio.model.settings import LogSettings
from durio.telemetry.emit import Emitter, JobEvent
from durio.telemetry.frames import LIBRARY, OUR_FRAMES
from durio.telemetry.log import LogWriter, configure
from durio.telemetry.names import JOB_DEAD, JOB_DONE, JOB_RETRIED, MEANINGS
from tests.unit.app.app_harness import drained, finished, real, virtual, working


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, put back afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("durio")
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:], root.level = handlers, level
    ours.handlers.clear()
    ours.propagate, ours.level = True, logging.NOTSET


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
    stream = written(root, "text", "DEBUG")
    job = await noisy_job(app)
    lines = stream.getvalue().splitlines()
    for words in ("by ctx 5", "by module", "job.done", "job.started"):
        line = next(line for line in lines if words in line)
        assert job.id in line
        for told in ("shop.noisy", "queue=mail", "attempt 1"):
            assert told in line
    assert "duration_ms=" in next(line for line in lines if "job.done" in line)


@virtual(name="shop")
async def test_the_end_of_an_attempt_comes_before_the_next_start(
    app: App, root: logging.Logger
):
    """One reply of the store accepts the retry and has the next claim of the job."""
    stream = written(root, "text", "DEBUG")

    @app.task(name="flaky", retry=Retry(2, base=0))
    async def flaky(ctx: Context) -> None:
        if ctx.attempt < 3:
            raise OSError("not yet")

    await flaky.enqueue()
    await drained(app)
    names = [word for line in stream.getvalue().splitlines() for word in line.split()]
    attempts = ["job.started", "job.retried"] * 2 + ["job.started", "job.done"]
    assert [name for name in names if name in attempts] == attempts


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
    assert {line["logger"] for line in lines} == {"durio"}


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


# --- text


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def _colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def on_screen(root: logging.Logger) -> Screen:
    root.handlers.clear()
    stream = Screen()
    configure(LogSettings(), stream)
    return stream


@pytest.mark.usefixtures("_colours")
@virtual(name="shop")
async def test_a_terminal_gets_colours_and_short_times(app: App, root: logging.Logger):
    screen = on_screen(root)
    await noisy_job(app)
    logging.getLogger("my.module").error("red")
    lines = screen.getvalue().splitlines()
    done = next(line for line in lines if "job.done" in line)
    assert re.match(r"\d\d:\d\d:\d\d INFO    \x1b\[32mjob.done     \x1b\[0m shop", done)
    assert re.fullmatch(r"\d\d:\d\d:\d\d \x1b\[31mERROR  \x1b\[0m red", lines[-1])


@virtual(name="shop")
async def test_an_error_sends_no_codes_to_the_terminal(app: App, root: logging.Logger):
    async def fail() -> None:
        text = "\x1b[2J\x9b31m\u202eno such\torder"
        raise ValueError(text)

    stream = io.StringIO()
    root.handlers.clear()
    configure(LogSettings(format="text"), stream)
    await app.task(name="fail", retry=0)(fail).enqueue()
    await drained(app)
    said = stream.getvalue()
    assert (
        said.count(r"\x1b[2J\x9b31m\u202eno such") == 2
    )  # on the line, in the traceback
    assert not set("\x1b\x9b\u202e\t") & set(said)


@pytest.mark.usefixtures("_colours")
@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_switched_off(
    root: logging.Logger, monkeypatch: pytest.MonkeyPatch, name: str, value: str
):
    monkeypatch.setenv(name, value)
    screen = on_screen(root)
    logging.getLogger("my.module").error("plain")
    assert re.fullmatch(r"\d\d:\d\d:\d\d ERROR   plain\n", screen.getvalue())


@virtual(name="shop")
async def test_a_failure_is_told_over_several_lines(app: App, root: logging.Logger):
    stream = written(root, "text")

    @app.task(name="fails", retry=Retry(5, base=1, jitter=False))
    async def fails(ctx: Context) -> None:
        if ctx.attempt < 2:
            raise ConnectionError("away")

    async with working(app):
        await finished(await fails.enqueue())
    lines = stream.getvalue().splitlines()
    at = next(n for n, line in enumerate(lines) if "job.retried" in line)
    assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z WARNING job.retried ", lines[at])
    assert "attempt 1 of 6" in lines[at]
    assert lines[at + 1] == "    Traceback (most recent call last):"
    assert lines[at + 2].endswith("in fails")
    assert "test_logs.py" in lines[at + 2]
    folded = next(line for line in lines[at:] if "of durio" in line)
    assert re.fullmatch(r"      \.\.\. and \d frames? of durio", folded)
    assert lines[lines.index(folded) + 1] == "    ConnectionError: away"
    assert "/durio/worker/" not in stream.getvalue()
    assert "attempt 2 of 6" in next(line for line in lines if "job.done" in line)


@virtual(name="shop")
async def test_a_raised_retry_says_its_own_number_of_attempts(
    app: App, root: logging.Logger
):
    stream = written(root, "text")

    @app.task(name="asks", retry=0)
    async def asks(ctx: Context) -> None:
        if ctx.attempt < 2:
            raise Retry(3, base=1, jitter=False)

    async with working(app):
        await finished(await asks.enqueue())
    retried, done = (
        next(line for line in stream.getvalue().splitlines() if name in line)
        for name in ("job.retried", "job.done")
    )
    assert "attempt 1 of 4" in retried
    assert "attempt 2 duration_ms" in done  # not "2 of 1"


def test_traceback_of_a_record_is_told_below_it(root: logging.Logger):
    stream = written(root, "text")
    try:
        App(name="No name")
    except InvalidName:
        logging.getLogger("my.module").exception("failed")
    first, *trace = stream.getvalue().splitlines()
    assert first.endswith("ERROR   failed")
    assert trace[0] == "    Traceback (most recent call last):"
    assert "test_logs.py" in trace[1]
    assert any(line.endswith("of durio") for line in trace)


def test_a_blocked_loop_shows_the_users_frames(root: logging.Logger):
    stream = written(root, "text")
    stack = (
        f'  File "{OUR_FRAMES}worker/worker.py", line 1, in run\n    work()\n'
        f'  File "{LIBRARY}asyncio/runners.py", line 2, in run\n'
        '  File "/shop/jobs.py", line 3, in send\n    time.sleep(9)\n'
    )
    Emitter(LogWriter())("loop.blocked", seconds=1.0, task="shop.send", stack=stack)
    _, *trace = stream.getvalue().splitlines()
    assert trace == [
        '      File "/shop/jobs.py", line 3, in send',
        "        time.sleep(9)",
        "      ... and 2 frames of durio",
    ]


# --- beside the logging of a host


class Kept(logging.Handler):
    """A handler of a host."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.names.append(record.name)
        self.texts.append(record.getMessage())


@pytest.fixture
def host(root: logging.Logger) -> Kept:
    """A host that has set logging up, as `basicConfig` does."""
    root.handlers[:] = [Kept()]
    root.setLevel("WARNING")
    return root.handlers[0]


@pytest.mark.parametrize("form", ["text", "json"])
def test_nothing_is_doubled_under_a_host(host: Kept, form: str):
    stream = io.StringIO()
    configure(LogSettings(format=form), stream)
    logging.getLogger("durio").info("engine")
    logging.getLogger("durio.task.shop.send").info("task")
    logging.getLogger("my.module").warning("other")
    assert [line.count("engine") for line in stream.getvalue().splitlines()] == [1, 0]
    assert "other" not in stream.getvalue()
    assert host.names == ["my.module"]


def test_batches_of_a_host_are_written_at_once(host: Kept):
    stream = io.StringIO()
    configure(LogSettings(format="json"), stream)
    LogWriter().on_jobs([JobEvent(JOB_DONE, b"\0" * 16, "shop.send", "shop:mail", 1)])
    assert stream.getvalue().count("job.done") == 1
    assert host.names == []


def test_format_none_leaves_all_to_the_host(host: Kept, root: logging.Logger):
    configure(LogSettings(format="json"), io.StringIO())
    configure(LogSettings(format="none"), io.StringIO())
    logging.getLogger("durio").warning("engine")
    LogWriter().on_event("store.failed", MEANINGS["store.failed"], {"call": "claim"})
    LogWriter().on_jobs([JobEvent(JOB_DEAD, b"\0" * 16, "shop.send", "shop:mail", 1)])
    assert host.names == ["durio"] * 3
    assert root.level == logging.WARNING


def test_host_gets_the_traceback_below_the_event(host: Kept):
    event = JobEvent(
        *(JOB_DEAD, b"\0" * 16, "shop.send", "shop:mail", 1),
        error="away\nand gone",
        traceback="Traceback:\n  in send\n",
    )
    LogWriter().on_jobs([event])
    first, *trace = host.texts[0].split("\n")
    assert first.startswith("job.dead job_id=")
    assert r"error=away\nand gone" in first
    assert "traceback=" not in first
    assert trace == ["    Traceback:", "      in send"]


def test_wait_before_a_retry_has_few_digits(root: logging.Logger):
    event = JobEvent(
        *(JOB_RETRIED, b"\0" * 16, "shop.send", "shop:mail", 1),
        delay_seconds=0.27222706605,
    )
    stream = written(root, "text")
    LogWriter().on_jobs([event])
    assert stream.getvalue().endswith(" delay_seconds=0.3\n")
    stream = written(root, "json")
    LogWriter().on_jobs([event])
    assert msgspec.json.decode(stream.getvalue())["delay_seconds"] == 0.272


def test_host_with_its_own_handler_of_durio(root: logging.Logger):
    kept = Kept()
    root.handlers.clear()
    logging.getLogger("durio").addHandler(kept)
    stream = io.StringIO()
    configure(LogSettings(), stream)
    logging.getLogger("durio").warning("engine")
    assert (kept.names, stream.getvalue()) == (["durio"], "")


def test_loggers_that_a_host_disabled_log_again(host: Kept):
    logging.getLogger("durio.task.shop.send").disabled = True
    logging.getLogger("durio").disabled = True
    stream = io.StringIO()
    configure(LogSettings(), stream)
    logging.getLogger("durio.task.shop.send").info("task")
    assert "task" in stream.getvalue()
    assert not host.names


def test_a_child_sends_what_its_worker_logs(host: Kept):
    configure(LogSettings(level="DEBUG"), io.StringIO())
    assert wanted_level() == logging.DEBUG
    configure(LogSettings(format="none"), io.StringIO())
    logging.getLogger("durio").setLevel(logging.NOTSET)
    assert wanted_level() == logging.WARNING
    assert not host.names


@virtual
async def test_a_job_that_ends_well_keeps_no_lines(app: App):
    job = await noisy_job(app)
    assert (await job.status()).last_error is None
