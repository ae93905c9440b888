"""How long final jobs and their results stay, through the App."""

import pytest

from durio import App, JobNotFound, Keep, State
from durio.errors import ResultExpired
from durio.maintenance.pruner import IDLE_SECONDS, Pruner
from tests.faults.faulty_store import FaultyStore
from tests.unit.app.app_harness import drained, finished, records, virtual, working

HOUR = 3600


async def echo(value: int) -> int:
    return value


async def fail(value: int) -> None:
    raise ValueError(value)


async def kept(app: App) -> int:
    """How many jobs are left after the pruner has looked."""
    async with working(app):
        await app.clock.sleep(60)
    return len(await records(app))


@pytest.mark.proves("M41", "M39")
@virtual
async def test_a_job_stays_for_its_age_and_then_goes(app: App):
    task = app.task(retention="48h", result_ttl="48h")(echo)
    job = await task.enqueue(7)
    await drained(app)
    await app.clock.sleep(47.9 * HOUR)
    assert await kept(app) == 1
    assert await job.result() == 7
    await app.clock.sleep(0.2 * HOUR)
    assert await kept(app) == 0
    with pytest.raises(JobNotFound):
        await job.status()


@pytest.mark.proves("M39")
@virtual
async def test_the_last_hundred_of_a_task_stay(app: App):
    task = app.task(retention=Keep(100))(echo)
    other = app.task(name="other")(echo)
    jobs = await task.enqueue_many([(n,) for n in range(150)])
    await other.enqueue_many([(n,) for n in range(20)])
    await drained(app)
    assert await kept(app) == 120
    assert await jobs[-1].result() == 149


@pytest.mark.proves("M39")
@virtual
async def test_a_queue_keeps_what_its_tasks_do_not_say(app: App):
    app.queue("mail", retention=Keep(10))
    task = app.task(queue="mail")(echo)
    own = app.task(name="own", queue="mail", retention=Keep(5))(echo)
    await task.enqueue_many([(n,) for n in range(30)])
    await own.enqueue_many([(n,) for n in range(30)])
    await task.options(queue="else").enqueue_many([(n,) for n in range(30)])
    await drained(app)
    assert await kept(app) == 10 + 5 + 30


@pytest.mark.proves("M39")
@virtual
async def test_a_call_may_keep_its_job_longer_or_not_at_all(app: App):
    task = app.task(retention="1h")(echo)
    long = await task.options(retention="10h").enqueue(1)
    gone = await task.options(retention=Keep(0)).enqueue(2)
    await drained(app)
    with pytest.raises(JobNotFound):
        await gone.status()
    await app.clock.sleep(2 * HOUR)
    assert await kept(app) == 1
    assert (await long.status()).state is State.DONE


@pytest.mark.proves("M40", "M91")
@virtual(settings={"retention": {"dead_seconds": HOUR, "done_seconds": HOUR}})
async def test_the_newest_dead_stay_even_when_they_are_old(app: App):
    dead = app.task(retry=0)(fail)
    done = app.task(echo)
    await dead.enqueue_many([(n,) for n in range(20)])
    await done.enqueue_many([(n,) for n in range(20)])
    await drained(app)
    await app.clock.sleep(2 * HOUR)
    assert await kept(app) == 20
    assert {row.state for row in await records(app)} == {5}


@pytest.mark.proves("M40")
@virtual(settings={"retention": {"dead_seconds": HOUR, "dead_count": 5}})
async def test_dead_jobs_over_their_count_go_with_their_age(app: App):
    dead = app.task(retry=0)(fail)
    for second in range(20):
        await dead.options(delay=second).enqueue(second)
    assert await kept(app) == 20
    await app.clock.sleep(2 * HOUR)
    assert await kept(app) == 5


@pytest.mark.proves("M165", "M166")
@virtual
async def test_a_result_lives_for_an_hour_unless_told_otherwise(app: App):
    usual = app.task(echo)
    long = app.task(name="long", result_ttl="5h")(echo)
    jobs = [await usual.enqueue(1), await long.enqueue(2)]
    jobs.append(await usual.options(result_ttl="5h").enqueue(3))
    await drained(app)
    await app.clock.sleep(HOUR - 1)
    assert [await job.result() for job in jobs] == [1, 2, 3]
    await app.clock.sleep(2)
    with pytest.raises(ResultExpired):
        await jobs[0].result()
    assert [await job.result() for job in jobs[1:]] == [2, 3]
    assert {(await job.status()).state for job in jobs} == {State.DONE}


@pytest.mark.proves("M165")
@virtual(settings={"retention": {"result_seconds": 60}})
async def test_the_time_to_live_of_results_can_be_set_for_all(app: App):
    job = await app.task(echo).enqueue(1)
    await drained(app)
    await app.clock.sleep(61)
    with pytest.raises(ResultExpired):
        await job.result()


@pytest.mark.proves("M165", "M34")
@virtual
async def test_a_result_lives_at_least_as_long_as_its_key(app: App):
    calls = app.task(echo).options(key="k")
    job = await calls.enqueue(5)
    await drained(app)
    await app.clock.sleep(23 * HOUR)
    again = await calls.enqueue(5)
    assert (again, again.created) == (job, False)
    assert await again.result() == 5
    assert (await finished(again)).attempt == 1


@virtual
async def test_a_backlog_is_pruned_as_fast_as_the_store_deletes(app: App):
    """A fixed pause would be a rate: whoever finishes more than that fills the disk."""
    await app.task(retention="1h")(echo).enqueue_many([(n,) for n in range(25)])
    await drained(app)
    await app.clock.sleep(2 * HOUR)
    faulty = FaultyStore(await app.store(), app.clock)
    pruner = Pruner(faulty, app.clock, app.emit, dead_count=100, batch_max=10)
    faulty.slow("prune", seconds=0.02, times=1)
    assert await pruner.turn() == pytest.approx(0.06)
    faulty.slow("prune", seconds=5, times=1)
    assert await pruner.turn() == pytest.approx(0.5)
    assert await pruner.turn() == IDLE_SECONDS
    assert await records(app) == []
