"""What a store promises to operators who act on single jobs."""

from collections.abc import Awaitable, Callable

from durio.client.bulk import BulkStep
from durio.model.codec import encoder
from durio.model.job import (
    CANCELLED,
    DEAD,
    DONE,
    READY,
    RUNNING,
    SCHEDULED,
    StoredJob,
)
from durio.model.keys import while_active, window
from durio.model.options import RowOptions
from durio.model.outcome import OutcomeKind
from durio.ports.browse import DeathCount, Query
from durio.ports.control import (
    Acted,
    Action,
    AuditNote,
    CancelJobs,
    DiscardJobs,
    MoveJobs,
    RetryJobs,
    RunJobsNow,
)
from tests.bulk_actions import move_waiting
from tests.conformance.bulk import (
    ALL_DEAD,
    WAITING,
    act_on_all,
    die,
    die_again,
    states_of,
)
from tests.conformance.keys import answer_kind
from tests.conformance.promises import Chapter
from tests.conformance.scene import (
    LANE,
    MANY,
    OTHER_PAYLOAD,
    PAYLOAD,
    TASK,
    Scene,
    key,
    outcome,
)

chapter = Chapter("hands")

DAY = 86400.0


# --- one job


@chapter.promise("M85")
async def a_dead_letter_may_be_deleted(scene: Scene) -> None:
    """Its record and its key are deleted; other jobs are not affected."""
    dead = await scene.dead(key=key(window()))
    worker, claim = await scene.running()
    await scene.finish(worker, claim)
    ready, unknown = await scene.add(), scene.clock.new_id()
    ids = [dead, claim.id, ready, unknown]
    assert await scene.store.act(ids, DiscardJobs()) == [
        Acted(dead, DEAD, None),
        Acted(claim.id, DONE, DONE),
        Acted(ready, READY, READY),
        Acted(unknown, None, None),
    ]
    assert await states_of(scene, ids) == [None, DONE, READY, None]
    assert answer_kind(await scene.send(key=key(window()))) == "new"


@chapter.promise("M85")
async def cancelled_jobs_are_deleted_if_that_is_asked_for(scene: Scene) -> None:
    """With dead ones; jobs that have not ended, and done ones, are not affected."""
    dead, cancelled = await scene.dead(), await scene.add(key=key(window()))
    worker, claim = await scene.running(lane="shop:mail")
    await scene.finish(worker, claim)
    ids = [dead, cancelled, claim.id, await scene.add()]
    await scene.store.act([cancelled], CancelJobs())
    acted = await scene.store.act([cancelled], DiscardJobs())
    assert acted == [Acted(cancelled, CANCELLED, CANCELLED)]
    await scene.store.act(ids, DiscardJobs(with_cancelled=True))
    assert await states_of(scene, ids) == [None, None, DONE, READY]
    assert answer_kind(await scene.send(key=key(window()))) == "new"


@chapter.promise("M85")
async def a_dead_letter_is_retried_with_other_arguments(scene: Scene) -> None:
    """They are stored with the retry; a job that cannot be retried keeps its own."""
    dead, ready = await scene.dead(), await scene.add()
    unknown = scene.clock.new_id()
    store = scene.store
    acted = await store.act([dead], RetryJobs(OTHER_PAYLOAD), note=AuditNote(who="ann"))
    assert acted == [Acted(dead, DEAD, READY)]
    record = await scene.record(dead)
    assert (record.payload, record.claim_no, record.retried) == (OTHER_PAYLOAD, 1, 0)
    assert await store.act([ready, unknown], RetryJobs(OTHER_PAYLOAD)) == [
        Acted(ready, READY, READY),
        Acted(unknown, None, None),
    ]
    assert (await scene.record(ready)).payload == PAYLOAD


@chapter.promise("M93")
async def an_edited_job_answers_for_its_key_with_the_new_arguments(
    scene: Scene,
) -> None:
    """A submission with the new arguments counts as the same."""
    dead = await scene.dead(key=key(while_active))
    await scene.store.act([dead], RetryJobs(OTHER_PAYLOAD))
    answer = await scene.send(key=key(while_active, OTHER_PAYLOAD))
    assert (answer_kind(answer), answer.id, answer.same_args) == (
        "existing",
        dead,
        True,
    )
    answer = await scene.send(key=key(while_active))
    assert not answer.same_args


@chapter.promise()
async def a_cancelled_job_stays_as_long_as_it_asked(scene: Scene) -> None:
    """Its own retention applies even if it never ran."""
    keeps = [(0.0, None, None), (30 * DAY, None, None), (365 * DAY, 1, "b"), None]
    ids: list[bytes] = []
    for keep in [*keeps, (365 * DAY, 1, "b")]:
        opts = None if keep is None else encode_options(keep)
        ids.append(await scene.add(opts=opts))
    ids.append(await scene.add(opts=b"damaged"))
    acted = await scene.store.act(ids, CancelJobs())
    assert {one.after for one in acted} == {CANCELLED}
    assert await states_of(scene, ids) == [None, *[CANCELLED] * 5]
    await scene.store.prune(MANY, dead_count=0)
    assert await states_of(scene, ids[1:5]) == [CANCELLED, None, CANCELLED, CANCELLED]
    scene.clock.advance(29 * DAY)
    await scene.store.prune(MANY, dead_count=0)
    assert await states_of(scene, ids[1:]) == [CANCELLED, None, None, CANCELLED, None]


def encode_options(keep: tuple[float, int | None, str | None]) -> bytes:
    """Return the stored options of a job with a retention of its own."""
    return encoder.encode(RowOptions(keep=keep))


# --- restore


@chapter.promise("M85")
async def dead_letters_come_back_from_elsewhere(scene: Scene) -> None:
    """They are restored unchanged; stored ids stay unchanged, and all can be retried."""
    error = b'{"type":"E","message":"m"}'
    ids = [await die(scene, error, lane="shop:mail"), await die(scene, error)]
    exported = await scene.store.get(ids)
    await scene.store.act(ids, DiscardJobs())
    scene.clock.advance(40 * DAY)
    kept = await scene.add()
    records = [*exported, exported[0]._replace(id=kept)]
    assert await scene.store.restore(records, AuditNote(who="ann")) == 2
    assert await scene.store.restore(records, AuditNote(who="ann")) == 0
    assert await scene.is_ready(kept)
    assert [shown(r) for r in await scene.store.get(ids)] == [
        shown(r) for r in exported
    ]
    await scene.store.prune(MANY, dead_count=0)
    assert await states_of(scene, ids) == [DEAD, DEAD]
    counted = await scene.store.count(ALL_DEAD)
    assert counted.jobs == 2
    assert await act_on_all(scene, ALL_DEAD, RetryJobs(), counted.mark) == 2
    claims = await scene.claim(await scene.worker(), 1, lane="shop:mail")
    assert [(c.id, c.claim_no) for c in claims] == [(ids[0], 2)]


def shown(record: StoredJob) -> StoredJob:
    """Return the fields that are restored."""
    return record._replace(key=None, progress=None, run_at=None)


# --- run now


@chapter.promise()
async def a_scheduled_job_is_ready_at_once(scene: Scene) -> None:
    """This includes one that waits for a retry; counters, fence, key and priority stay."""
    later = await scene.add(delay=3600.0, priority=9, key=key(while_active))
    worker, claim = await scene.running()
    fields = {"kind": OutcomeKind.RETRY, "delay_seconds": 600.0}
    await scene.finish(worker, claim, **fields, error=b'{"type":"E"}')
    before = {r.id: r for r in await scene.records()}
    scene.clock.advance(5.0)
    note, ids = AuditNote(who="ann"), [later, claim.id]
    acted = await (await scene.other()).act(ids, RunJobsNow(), note=note)
    assert acted == [Acted(job_id, SCHEDULED, READY) for job_id in ids]
    for job_id in ids:
        due = {"state": READY, "run_at": scene.clock.now()}
        assert await scene.record(job_id) == before[job_id]._replace(**due)
    (line,) = await scene.store.audit("shop", limit=MANY)
    assert (line.who, line.verb, line.jobs) == ("ann", "run_now", 2)
    (row,) = await scene.store.queues("shop", oldest=True)
    assert row.oldest_ready_at == scene.clock.now()
    claims = await scene.claim(worker, MANY)
    assert [(c.id, c.claim_no, c.retried) for c in claims] == [
        (later, 1, 0),
        (claim.id, 2, 1),
    ]
    answer = await scene.send(key=key(while_active))
    assert (answer_kind(answer), answer.id) == ("existing", later)


@chapter.promise()
async def a_job_that_does_not_wait_for_its_time_is_left_alone(scene: Scene) -> None:
    """Ready, running, final and unknown jobs stay as they are."""
    worker, claim = await scene.running()
    dead, ready = await scene.dead(), await scene.add()
    unknown = scene.clock.new_id()
    before = await scene.records()
    acted = await scene.store.act([ready, claim.id, dead, unknown], RunJobsNow())
    assert acted == [
        Acted(ready, READY, READY),
        Acted(claim.id, RUNNING, RUNNING),
        Acted(dead, DEAD, DEAD),
        Acted(unknown, None, None),
    ]
    assert await scene.records() == before
    assert [c.id for c in await scene.claim(worker, MANY)] == [ready]


@chapter.promise()
async def a_job_that_is_run_now_wakes_its_queue(scene: Scene) -> None:
    """A worker that waits for the due time of the job gets it at once."""
    worker = await scene.worker()
    later = await scene.add(delay=3600.0)
    assert await scene.claim(worker) == []
    await scene.store.wait(worker, 0.0)
    await (await scene.other()).act([later], RunJobsNow())
    assert (await scene.store.wait(worker, 50.0)).woken
    assert [claim.id for claim in await scene.claim(worker)] == [later]


# --- move


@chapter.promise()
async def waiting_jobs_move_with_all_they_have(scene: Scene) -> None:
    """Priority, order, due time, fence, key and options move too; in limited steps."""
    worker, claim = await scene.running()
    low = await scene.add(priority=1, opts=b"{}")
    high = await scene.add(priority=9)
    tried = await scene.add()
    held, first = await scene.claim(worker, 2)
    assert (held.id, first.id) == (high, tried)
    await scene.finish(worker, first, kind=OutcomeKind.RETRY, error=b'{"type":"E"}')
    later = await scene.add(delay=60.0, key=key(while_active))
    there = await scene.add(lane="shop:there")
    before = {r.id: r for r in await scene.records()}
    assert await move_waiting(scene.store, LANE, "shop:there", step_jobs=2) == BulkStep(
        3, 0
    )
    for job_id in (low, tried, later):
        moved = before[job_id]._replace(lane="shop:there")
        assert await scene.record(job_id) == moved
    for job_id in (claim.id, high, there):
        assert await scene.record(job_id) == before[job_id]
    answer = await scene.send(key=key(while_active))
    assert (answer_kind(answer), answer.id) == ("existing", later)
    claims = await scene.claim(worker, MANY, lane="shop:there")
    assert [c.id for c in claims] == [tried, there, low]
    assert claims[0].claim_no == 2
    assert [row.name for row in await scene.store.queues("shop")] == [
        LANE,
        "shop:there",
    ]


@chapter.promise()
async def a_move_rings_the_other_queue(scene: Scene) -> None:
    """This includes a queue that never had a job; moving to the same queue moves nothing."""
    await scene.add()
    worker = await scene.worker(queues=("new",))
    other = await scene.other()
    assert await move_waiting(other, LANE, LANE) == BulkStep(0, 0)
    assert await move_waiting(other, LANE, "shop:new") == BulkStep(1, 0)
    assert (await scene.store.wait(worker, 50.0)).woken
    assert len(await scene.claim(worker, lane="shop:new")) == 1
    assert await move_waiting(other, LANE, "shop:new") == BulkStep(0, 0)


# --- how many died


@chapter.promise("M86")
async def deaths_are_counted_by_kind_for_ever(scene: Scene) -> None:
    """Counts are by queue, task and last error, for every way out, and are kept forever."""
    store = scene.store
    await die(scene, b'{"type":"ValueError"}')
    twice = await die(scene, b'{"type":"ValueError"}')
    await store.act([twice], RetryJobs())
    await die_again(scene)
    await die(scene, lane="shop:mail", task="shop.mail", reason="unknown_task")
    await lost_for_good(scene)
    await scene.store.act([r.id for r in await scene.records(ALL_DEAD)], DiscardJobs())
    wanted = [
        DeathCount(LANE, TASK, "ValueError", 3),
        DeathCount(LANE, TASK, "WorkerLost", 1),
        DeathCount("shop:mail", "shop.mail", "unknown_task", 1),
    ]
    assert await (await scene.other()).tallies("shop") == wanted
    assert await store.tallies("bank") == []
    assert await store.tallies(None) == wanted


async def lost_for_good(scene: Scene) -> None:
    """Lose it a third time in a row, the last time alone."""
    job_id = await scene.add()
    for _ in range(3):
        worker, claim = await scene.claim_one()
        await scene.finish(worker, claim, kind=OutcomeKind.ALONE)
        await scene.lose(worker)
    assert await scene.state(job_id) == DEAD


# --- faults


Do = Callable[[Scene], Awaitable[object]]


def in_bulk(query: Query, action: Action) -> Do:
    """Act on all matching jobs, in one step."""

    async def do(scene: Scene) -> object:
        only = (query, (await scene.store.count(query)).mark)
        ids = [record.id for record in await scene.records(query)]
        note = AuditNote("shop", "ann", target=query.in_words())
        return await scene.store.act(ids, action, only=only, note=note)

    return do


async def one_more_restored(scene: Scene) -> object:
    """Restore the same letters under new ids."""
    records = await scene.records(ALL_DEAD)
    again = [r._replace(id=r.id[::-1]) for r in records]
    return await scene.store.restore(again, AuditNote(who="ann"))


async def edited(scene: Scene) -> object:
    """Retry one dead letter with a key and new arguments."""
    (record,) = [r for r in await scene.records(ALL_DEAD) if r.key is not None]
    return await scene.store.act(
        [record.id], RetryJobs(OTHER_PAYLOAD), note=AuditNote(who="ann")
    )


ACTS: dict[str, Do] = {
    "bulk retry": in_bulk(ALL_DEAD, RetryJobs()),
    "bulk discard": in_bulk(ALL_DEAD, DiscardJobs()),
    "purge": in_bulk(WAITING, CancelJobs()),
    "run now": in_bulk(WAITING, RunJobsNow()),
    "move": in_bulk(WAITING._replace(lane=LANE), MoveJobs("shop:there")),
    "restore": one_more_restored,
    "edited retry": edited,
}


@chapter.table(ACTS, needs=("fault",))
async def a_hand_does_all_or_nothing(scene: Scene, do: Do) -> None:
    """A fault at any statement leaves no job, key, count or audit line behind."""
    await die(scene, key=key(while_active))
    await die(scene, b'{"type":"E"}')
    await scene.running()
    await scene.add_many(2, opts=encode_options((0.0, None, None)))
    await scene.add(delay=9.0)
    await scene.store.declare({LANE: 100, "shop:there": 100})
    lines = len(await scene.store.audit(None, limit=MANY))
    assert await scene.after_every_fault(lambda: do(scene))
    assert len(await scene.store.audit(None, limit=MANY)) == lines + 1


@chapter.promise("M86", needs=("fault",))
async def a_death_is_counted_with_the_death(scene: Scene) -> None:
    """Both are written or neither."""
    worker, claim = await scene.running()
    words = [
        outcome(claim, OutcomeKind.DEAD, error=b'{"type":"E"}', reason="permanent")
    ]
    exchanged = await scene.after_every_fault(
        lambda: scene.store.exchange(worker, words, (), 0)
    )
    assert exchanged.rejected == []
    assert await scene.store.tallies("shop") == [DeathCount(LANE, TASK, "E", 1)]
