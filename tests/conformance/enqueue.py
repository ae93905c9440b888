"""What a store promises about accepting jobs."""

import asyncio
from typing import NamedTuple

from durio.model.job import CANCELLED, DEAD, DONE, READY, RUNNING, SCHEDULED, NewJob
from durio.model.keys import replace, while_active
from durio.model.outcome import OutcomeKind
from tests.conformance.promises import Chapter
from tests.conformance.scene import LANE, PAYLOAD, TASK, Scene, key, outcome

chapter = Chapter("enqueue")


@chapter.promise("M2", "M26", "M80")
async def a_job_is_stored_whole(scene: Scene) -> None:
    """Every field can be read back, and nothing has happened to the job yet."""
    job = scene.job(priority=7, opts=b'{"meta":{"a":1}}')
    (answer,) = await scene.store.enqueue([job])
    assert (answer.id, answer.created, answer.state) == (job.id, True, READY)
    assert (answer.same_args, answer.conflict, answer.replaced) == (True, False, False)
    record = await scene.record(job.id)
    assert (record.lane, record.rank, record.task) == (LANE, 2, TASK)
    assert (record.payload, record.opts) == (PAYLOAD, b'{"meta":{"a":1}}')
    assert record.created_at == scene.clock.now()
    counters = (record.retried, record.losses, record.lost, record.snoozed)
    assert (counters, record.claim_no) == ((0, 0, 0, 0), 0)
    assert (record.worker, record.result, record.finished_at) == (None, None, None)
    assert not record.cancel_asked


PAYLOADS = {
    "one mebibyte": b'[["' + b"x" * 2**20 + b'"],{}]',
    "not ASCII": '[["Grüße 👋"],{}]'.encode(),
    "not even text": bytes(range(256)),
    "nothing": b"",
}


@chapter.table(PAYLOADS)
async def payloads_come_back_byte_for_byte(scene: Scene, payload: bytes) -> None:
    """This holds for reads and for claims."""
    job_id = await scene.add(payload=payload, opts=payload[:100])
    assert (await scene.record(job_id)).payload == payload
    _, claim = await scene.claim_one()
    assert (claim.payload, claim.opts) == (payload, payload[:100])


@chapter.promise("M26")
async def many_jobs_are_answered_in_the_order_asked(scene: Scene) -> None:
    """One call returns a thousand results, each in its place.

    Another process sees the jobs.
    """
    jobs = [scene.job(lane=f"shop:q{n % 3}", priority=n % 10) for n in range(1000)]
    answers = await scene.store.enqueue(jobs)
    assert [answer.id for answer in answers] == [job.id for job in jobs]
    assert all(answer.created for answer in answers)
    states = await (await scene.other()).states([job.id for job in jobs])
    assert list(states.values()) == [READY] * 1000


@chapter.promise()
async def no_jobs_is_no_work(scene: Scene) -> None:
    """An empty call returns an empty result, and changes nothing."""
    assert await scene.store.enqueue([]) == []
    assert await scene.records() == []


@chapter.promise()
async def concurrent_enqueues_are_all_kept(scene: Scene) -> None:
    """Two processes enqueue at once, and each caller gets its own result."""
    jobs = [scene.job() for _ in range(60)]
    stores = (scene.store, await scene.other())
    calls = (stores[n % 2].enqueue([job]) for n, job in enumerate(jobs))
    answers = await asyncio.gather(*calls)
    assert [answer.id for (answer,) in answers] == [job.id for job in jobs]
    assert {record.id for record in await scene.records()} == {job.id for job in jobs}


class When(NamedTuple):
    """How a due time is given."""

    delay: float = 0.0
    run_at_from_now: float | None = None


NOW = {
    "no word about it": When(),
    "an absolute time, right now": When(run_at_from_now=0.0),
    "an absolute time, long ago": When(run_at_from_now=-3600.0),
}
LATER = {
    "a delay": When(delay=10.0),
    "an absolute time": When(run_at_from_now=10.0),
}


def due(scene: Scene, when: When) -> NewJob:
    """Return a job that is due then."""
    ahead = when.run_at_from_now
    run_at = None if ahead is None else scene.clock.now() + ahead
    return scene.job(delay=when.delay, run_at=run_at)


@chapter.table(NOW, "M28")
async def due_now_is_ready_now(scene: Scene, when: When) -> None:
    """Zero means now, and so does a time in the past."""
    (answer,) = await scene.store.enqueue([due(scene, when)])
    assert answer.state == READY
    _, claim = await scene.claim_one()
    assert claim.id == answer.id


@chapter.table(LATER, "M28")
async def a_delayed_job_is_ready_at_its_time_and_not_before(
    scene: Scene, when: When
) -> None:
    """The time is exact by the store's clock; until then the job delays no other job."""
    worker = await scene.worker()
    (answer,) = await scene.store.enqueue([due(scene, when)])
    assert answer.state == SCHEDULED
    assert (await scene.record(answer.id)).run_at == scene.clock.now() + 10
    scene.clock.advance(9.75)
    assert await scene.claim(worker) == []
    scene.clock.advance(0.25)
    (claim,) = await scene.claim(worker)
    assert claim.id == answer.id


LIVES = {
    "ready": (READY, None),
    "scheduled": (SCHEDULED, None),
    "running": (RUNNING, None),
    "done": (DONE, OutcomeKind.DONE),
    "dead": (DEAD, OutcomeKind.DEAD),
    "cancelled": (CANCELLED, OutcomeKind.CANCEL),
}


@chapter.table(LIVES)
async def repeat_of_an_enqueue(
    scene: Scene, life: tuple[int, OutcomeKind | None]
) -> None:
    """The reply was lost: for the same id the current state is returned, whatever it is."""
    state, end = life
    job = scene.job(delay=60.0 if state == SCHEDULED else 0.0)
    await scene.store.enqueue([job])
    if state >= RUNNING:
        worker, claim = await scene.claim_one()
        if end is not None:
            await scene.finish(worker, claim, kind=end, reason="permanent")
    before = await scene.everything()
    (answer,) = await (await scene.other()).enqueue([job], again=True)
    assert (answer.id, answer.created, answer.state) == (job.id, False, state)
    assert await scene.everything() == before


@chapter.promise("M98")
async def repeat_of_a_finished_enqueue(scene: Scene) -> None:
    """The job ended before the repeat came: it exists already, and has run once."""
    job = scene.job()
    await scene.store.enqueue([job])
    worker, claim = await scene.claim_one()
    await scene.store.exchange(worker, [outcome(claim, result=b"1")], [], 0)
    (answer,) = await scene.store.enqueue([job], again=True)
    assert (answer.created, answer.state) == (False, DONE)
    assert await scene.claim(worker) == []
    assert (await scene.record(job.id)).result == b"1"


@chapter.promise("M98")
async def a_first_try_that_comes_after_its_repeat(scene: Scene) -> None:
    """Its repeat was stored and ended meanwhile: nothing is inserted."""
    jobs = [scene.job(), scene.job(key=key(while_active))]
    for job in jobs:
        (answer,) = await scene.store.enqueue([job], again=True)
        assert (answer.created, answer.state) == (True, READY)
        worker, claim = await scene.claim_one()
        await scene.finish(worker, claim, result=b"1")
    before = await scene.everything()
    late = await (await scene.other()).enqueue(jobs)
    assert [(told.id, told.created, told.state) for told in late] == [
        (job.id, False, DONE) for job in jobs
    ]
    assert await scene.everything() == before
    assert await scene.claim(await scene.worker()) == []


@chapter.promise("M98")
async def a_repeat_stores_what_is_missing(scene: Scene) -> None:
    """Some of its jobs are stored and some are not: afterwards each is stored once."""
    jobs = [scene.job() for _ in range(4)]
    await scene.store.enqueue(jobs[:2])
    worker = await scene.worker()
    await scene.finish(worker, (await scene.claim(worker))[0])
    answers = await scene.store.enqueue(jobs, again=True)
    assert [answer.created for answer in answers] == [False, False, True, True]
    assert [answer.state for answer in answers] == [DONE, READY, READY, READY]
    claims = await scene.claim(worker, 10)
    assert [claim.id for claim in claims] == [job.id for job in jobs[1:]]


@chapter.promise()
async def a_job_twice_in_one_call_is_one_job(scene: Scene) -> None:
    """The second result is that of the first."""
    job = scene.job()
    first, second = await scene.store.enqueue([job, job])
    assert (first.created, second.created) == (True, False)
    assert len(await scene.records()) == 1


@chapter.promise(needs=("fault",))
async def a_failed_call_stores_nothing(scene: Scene) -> None:
    """Whichever statement fails, all jobs of the call are stored or none."""
    jobs = [scene.job(delay=5.0 * n) for n in range(2)]
    jobs += [scene.job(key=key(policy)) for policy in (while_active, replace)]
    answers = await scene.after_every_fault(lambda: scene.store.enqueue(jobs))
    assert [answer.created for answer in answers] == [True, True, True, False]
