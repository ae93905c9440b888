"""When a job runs: delays, moments, priorities and backoff, exact in virtual time."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest

from durio import App, Context, JobDead, Retry, Snooze, State
from tests.unit.app.app_harness import drained, finished, in_state, virtual, working

pytestmark = pytest.mark.slow  # real processes, servers or seconds

ONE_SLOT = {"worker": {"concurrency": 1, "prefetch": 0}}


class Diary:
    """A task that notes when it runs."""

    def __init__(self, app: App) -> None:
        self.start = app.clock.now()
        self.runs: list[tuple[str, float]] = []

        @app.task(name="note")
        async def note(name: str) -> None:
            self.runs.append((name, app.clock.now() - self.start))

        self.note = note


# --- delays


@pytest.mark.proves("M28")
@pytest.mark.parametrize(
    ("delay", "seconds"),
    [(90, 90), (0.25, 0.25), (timedelta(minutes=20), 1200), ("90s", 90), ("5m", 300)],
)
@pytest.mark.parametrize("kept", ["a worker waits", "a worker comes late"])
@virtual
async def test_a_delayed_job_runs_at_its_moment_and_not_before(
    app: App, delay: object, seconds: float, kept: str
):
    diary = Diary(app)
    job = await diary.note.options(delay=delay).enqueue("later")
    status = await job.status()
    assert status.state is State.SCHEDULED
    assert status.run_at.timestamp() == diary.start + seconds
    if kept == "a worker comes late":
        await app.clock.sleep(seconds)
    async with working(app):
        await finished(job)
    assert diary.runs == [("later", seconds)]


@pytest.mark.proves("M28")
@virtual
async def test_a_moment_in_any_zone_is_the_same_moment(app: App):
    diary = Diary(app)
    due = datetime.fromtimestamp(diary.start + 3600, UTC)
    async with working(app):
        jobs = [
            await diary.note.options(at=due).enqueue("utc"),
            await diary.note.options(
                at=due.astimezone(timezone(timedelta(hours=-7)))
            ).enqueue("far"),
        ]
        for job in jobs:
            await finished(job)
    assert sorted(diary.runs) == [("far", 3600), ("utc", 3600)]


@pytest.mark.proves("M28")
@pytest.mark.parametrize(
    "options",
    [{"delay": 0}, {"delay": "0s"}, {"at": datetime(2000, 1, 1, tzinfo=UTC)}],
    ids=str,
)
@virtual
async def test_zero_and_the_past_are_now(app: App, options: dict[str, object]):
    job = await Diary(app).note.options(**options).enqueue("now")
    assert (await job.status()).state is State.READY


@pytest.mark.proves("M28")
@virtual(settings=ONE_SLOT)
async def test_a_delayed_job_takes_no_slot(app: App):
    diary = Diary(app)
    for _ in range(3):
        await diary.note.options(delay="1h").enqueue("later")
    async with working(app):
        await finished(await diary.note.enqueue("now"))
    assert diary.runs == [("now", 0)]


@virtual
async def test_many_delays_come_in_their_order(app: App):
    diary = Diary(app)
    async with working(app):
        jobs = [
            await diary.note.options(delay=seconds).enqueue(str(seconds))
            for seconds in (30, 10, 0.5, 20, 10)
        ]
        for job in jobs:
            await finished(job)
    assert diary.runs == [
        ("0.5", 0.5),
        ("10", 10),
        ("10", 10),
        ("20", 20),
        ("30", 30),
    ]


# --- order


@pytest.mark.proves("M52", "M53")
@virtual(settings=ONE_SLOT)
async def test_the_most_urgent_runs_first_then_the_oldest(app: App):
    diary = Diary(app)
    for round_ in "ab":
        for priority in (5, 0, 9, 3, 7):
            await diary.note.options(priority=priority).enqueue(f"{priority}{round_}")
    await drained(app)
    assert [name for name, _ in diary.runs] == [
        *("9a", "9b", "7a", "7b", "5a", "5b", "3a", "3b", "0a", "0b")
    ]


@virtual(settings=ONE_SLOT)
async def test_rows_of_one_call_keep_their_order(app: App):
    diary = Diary(app)
    await diary.note.enqueue_many([(str(n),) for n in range(50)])
    await drained(app)
    assert [name for name, _ in diary.runs] == [str(n) for n in range(50)]


# --- backoff


async def pauses_of(app: App, policy: Retry, **options: object) -> list[float]:
    """Seconds between the attempts of a job that always fails."""
    started: list[float] = []

    @app.task(name="fails", retry=policy)
    async def fails() -> None:
        started.append(app.clock.now())
        raise ConnectionError("away")

    async with working(app):
        job = await fails.options(**options).enqueue()
        status = await finished(job)
    assert (status.state, status.reason) == (State.DEAD, "exhausted")
    assert status.attempt == status.max_attempts == len(started)
    return [after - before for before, after in pairwise(started)]


SEQUENCES = {
    "M62": (Retry(5, base=30, jitter=False), [30, 60, 120, 240, 480]),
    "M63": (Retry(3, base=60, jitter=False), [60, 120, 240]),
    "M64": (Retry(3, base=1, jitter=False), [1, 2, 4]),
    "the default base is a minute": (Retry(2, jitter=False), [60, 120]),
    "M65": (Retry(2, base=2400, jitter=False), [2400, 3600]),
    "a cap of its own": (Retry(4, base=1, max_delay=3, jitter=False), [1, 2, 3, 3]),
    "another factor": (Retry(3, base=2, factor=3, jitter=False), [2, 6, 18]),
    "fixed, asked for": (Retry(3, base="10s", factor=1, jitter=False), [10, 10, 10]),
    "by hand": (Retry(4, delays=(1, "5s", 30), jitter=False), [1, 5, 30, 30]),
    "none": (Retry(0), []),
}


@pytest.mark.proves("M62", "M63", "M64", "M65", "M66", "M80")
@pytest.mark.parametrize("what", SEQUENCES)
@virtual
async def test_backoff_is_exact_with_jitter_off(app: App, what: str):
    retry, wanted = SEQUENCES[what]
    assert await pauses_of(app, retry) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.proves("M60", "M61")
@virtual
async def test_a_call_may_have_a_backoff_of_its_own(app: App):
    own = Retry(3, base=1, jitter=False)
    pauses = await pauses_of(app, Retry(5, base=30, jitter=False), retry=own)
    assert pauses == pytest.approx([1, 2, 4])


@pytest.mark.proves("M67")
@pytest.mark.parametrize("seed", range(5))
def test_jitter_stays_within_the_delay(seed: int):
    @virtual(seed=seed)
    async def run(app: App) -> None:
        pauses = await pauses_of(app, Retry(5, base=30))
        for pause, bound in zip(pauses, (30, 60, 120, 240, 480), strict=True):
            assert 0 <= pause <= bound

    run()


@pytest.mark.proves("M67")
@virtual
async def test_two_jobs_that_fail_together_do_not_come_back_together(app: App):
    @app.task(name="fails")
    async def fails() -> None:
        raise ConnectionError

    async with working(app):
        jobs = [await fails.enqueue() for _ in range(10)]
        due = {(await in_state(job, State.SCHEDULED)).run_at for job in jobs}
    assert len(due) == 10


@pytest.mark.proves("M70")
@virtual
async def test_a_task_says_itself_when_to_retry(app: App):
    started: list[float] = []

    @app.task(name="asks", retry=2)
    async def asks(ctx: Context) -> int:
        started.append(app.clock.now())
        if ctx.attempt <= 2:
            raise Retry.after("30s")
        return ctx.attempt

    async with working(app):
        job = await asks.enqueue()
        assert await job.result() == 3
    assert [t - started[0] for t in started] == pytest.approx([0, 30, 60])


@virtual
async def test_a_snooze_costs_no_attempt(app: App):
    started: list[float] = []

    @app.task(name="asks", retry=0)
    async def asks(ctx: Context) -> int:
        started.append(app.clock.now())
        if len(started) < 4:
            raise Snooze("10m")
        return ctx.attempt

    async with working(app):
        job = await asks.enqueue()
        assert await job.result() == 1
        status = await job.status()
    assert (status.attempt, status.last_error) == (1, None)
    assert [t - started[0] for t in started] == pytest.approx([0, 600, 1200, 1800])


@virtual
async def test_a_result_that_is_waited_for_has_a_limit_and_the_job_goes_on(app: App):
    diary = Diary(app)
    async with working(app):
        job = await diary.note.options(delay=60).enqueue("later")
        with pytest.raises(TimeoutError, match="state: scheduled; 1 worker"):
            await job.result(timeout="30s")
        assert app.clock.now() - diary.start == pytest.approx(30)
        assert await job.result(timeout=31) is None


@pytest.mark.proves("M80")
@virtual
async def test_a_dead_job_starts_again_with_a_full_budget(app: App):
    attempts: list[int] = []

    @app.task(name="fails", retry=Retry(1, base=1))
    async def fails(ctx: Context) -> int:
        attempts.append(ctx.attempt)
        if len(attempts) < 4:
            raise ConnectionError
        return len(attempts)

    async with working(app):
        job = await fails.enqueue()
        with pytest.raises(JobDead):
            await job.result()
        await job.retry()
        assert await job.result() == 4
    assert len(attempts) == 4
