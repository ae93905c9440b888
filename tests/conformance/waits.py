"""What a store promises about jobs that wait for a log: blocked until it is long enough."""

from typing import Any

from durio.model.effects import Append, Effects, Extend, NewEntry, Put
from durio.model.errors import InvalidName
from durio.model.gate import GateSpec
from durio.model.ids import id_text
from durio.model.job import BLOCKED, CANCELLED, DONE, READY, SCHEDULED, NewJob
from durio.model.keys import replace
from durio.model.logs import OnEnd, Wait
from durio.ports.browse import Query
from durio.ports.conflicts import Conflict
from durio.ports.control import (
    AuditNote,
    CancelJobs,
    MoveJobs,
    QueueChange,
    RetryJobs,
    RunJobsNow,
)
from durio.ports.enqueue import Full
from tests.bulk_actions import run_bulk
from tests.conformance.logs import LOG, OTHER_LOG, append
from tests.conformance.promises import Chapter
from tests.conformance.records import KIND
from tests.conformance.scene import LANE, MANY, OTHER_PAYLOAD, Scene, key, outcome
from tests.job_counts import count_jobs

chapter = Chapter("waits")
OTHER_LANE = "shop:other"
WAKE_SECONDS = 20.0
FIRST = Wait(LOG, 0)


@chapter.promise("M144")
async def a_job_is_blocked_until_the_log_is_longer(scene: Scene) -> None:
    """Then it is ready, and its workers are woken."""
    worker = await scene.worker()
    answer = await scene.send(wait=Wait(LOG, 1))
    assert (answer.created, answer.state) == (True, BLOCKED)
    await scene.store.wait(worker, 0.01)
    for entries, state in ((1, BLOCKED), (2, READY)):
        await (await scene.other()).commit(append(b"x"))
        assert await scene.store.log_lengths([LOG]) == {LOG: entries}
        assert await scene.state(answer.id) == state
        ids = [claim.id for claim in await scene.claim(worker)]
        assert ids == ([answer.id] if state == READY else [])
    assert (await scene.store.wait(worker, WAKE_SECONDS)).woken


@chapter.promise()
async def a_job_that_comes_late_does_not_wait(scene: Scene) -> None:
    """The log is long enough already."""
    await scene.store.commit(append(b"x"))
    assert (await scene.send(wait=FIRST)).state == READY
    assert (await scene.send(wait=Wait(LOG, 1))).state == BLOCKED
    assert (await scene.send(wait=FIRST, delay=60.0)).state == SCHEDULED


@chapter.promise()
async def a_blocked_job_is_found_and_counted(scene: Scene) -> None:
    """By state, by lane, and as a waiting job."""
    job_id = await scene.add(wait=FIRST)
    await scene.add()
    found = await scene.records(Query(states=(BLOCKED,)))
    assert [(job.id, job.state, job.run_at) for job in found] == [
        (job_id, BLOCKED, None)
    ]
    assert [job.id for job in await scene.records(Query(lane=LANE))][1] == job_id
    assert await count_jobs(scene.store, "shop") == {LANE: {BLOCKED: 1, READY: 1}}
    assert (await scene.store.count(Query(states=(BLOCKED,)))).jobs == 1
    assert (await scene.store.promote(9)).next_due_seconds is None
    (lane,) = await scene.store.queues("shop", oldest=True)
    assert lane.oldest_ready_at == scene.clock.now()


@chapter.promise()
async def all_that_wait_go_together(scene: Scene) -> None:
    """They start in the order of their arrival, with the others of their rank."""
    first = await scene.add(wait=FIRST)
    later = await scene.add()
    urgent = await scene.add(wait=FIRST, priority=9)
    await scene.store.commit(append(b"x"))
    worker = await scene.worker()
    ids = [claim.id for claim in await scene.claim(worker, 9)]
    assert ids == [urgent, first, later]


@chapter.promise()
async def a_delay_begins_when_the_wait_ends(scene: Scene) -> None:
    """A time is absolute; the later of both counts."""
    delayed = await scene.add(wait=FIRST, delay=60.0)
    dated = await scene.add(wait=FIRST, run_at=scene.clock.now() + 200.0)
    past = await scene.add(wait=FIRST, run_at=scene.clock.now() + 50.0)
    scene.clock.advance(100.0)
    assert (await scene.store.promote(9)).count == 0
    await scene.store.commit(append(b"x"))
    states = await scene.store.states([delayed, dated, past])
    assert states == {delayed: SCHEDULED, dated: SCHEDULED, past: READY}
    assert (await scene.record(delayed)).run_at == scene.clock.now() + 60.0
    assert (await scene.record(dated)).run_at == scene.clock.now() + 100.0
    scene.clock.advance(61.0)
    worker = await scene.worker()
    assert {claim.id for claim in await scene.claim(worker, 9)} == {delayed, past}


@chapter.promise()
async def run_now_leaves_a_blocked_job(scene: Scene) -> None:
    """Only its time could be skipped."""
    job_id = await scene.add(wait=FIRST, delay=60.0)
    (acted,) = await scene.store.act([job_id], RunJobsNow())
    assert acted.after == BLOCKED


@chapter.promise()
async def a_cancelled_job_waits_no_longer(scene: Scene) -> None:
    """A retry waits again, unless the log is long enough by then."""
    ids = [await scene.add(wait=FIRST) for _ in range(2)]
    for job_id in ids:
        (acted,) = await scene.store.act([job_id], CancelJobs("plan_cancelled"))
        assert acted.after == CANCELLED
        assert (await scene.record(job_id)).reason == "plan_cancelled"
    assert await count_jobs(scene.store, "shop") in ({}, {LANE: {}})
    (acted,) = await scene.store.act(ids[:1], RetryJobs())
    assert acted.after == BLOCKED
    await scene.store.commit(append(b"x"))
    assert await scene.state(ids[1]) == CANCELLED
    (acted,) = await scene.store.act(ids[1:], RetryJobs())
    assert acted.after == READY
    worker = await scene.worker()
    assert [claim.id for claim in await scene.claim(worker, 9)] == ids


@chapter.promise()
async def many_blocked_jobs_are_cancelled_by_a_query(scene: Scene) -> None:
    """They are counted first, as all others."""
    ids = [await scene.add(wait=FIRST) for _ in range(5)]
    query = Query(lane=LANE, states=(BLOCKED,))
    counted = await scene.store.count(query)
    assert counted.jobs == 5
    await run_bulk(scene.store, query, CancelJobs(), counted.mark, 2)
    assert set((await scene.store.states(ids)).values()) == {CANCELLED}


@chapter.promise()
async def a_blocked_job_can_be_moved(scene: Scene) -> None:
    """It becomes ready in its new queue."""
    job_id = await scene.add(wait=FIRST)
    (acted,) = await scene.store.act([job_id], MoveJobs(OTHER_LANE))
    assert (acted.before, acted.after) == (BLOCKED, BLOCKED)
    counts = await count_jobs(scene.store, "shop")
    assert counts.get(OTHER_LANE) == {BLOCKED: 1}
    await scene.store.commit(append(b"x"))
    worker = await scene.worker()
    assert await scene.claim(worker) == []
    assert [c.id for c in await scene.claim(worker, lane=OTHER_LANE)] == [job_id]


@chapter.promise()
async def a_bound_counts_blocked_jobs_and_lets_them_in(scene: Scene) -> None:
    """A closed queue refuses them; the depth does not change when they become ready."""
    await scene.add(wait=FIRST)
    await scene.store.declare({LANE: 2})
    jobs = [scene.job(), scene.job(wait=FIRST), scene.job(wait=FIRST)]
    assert all(answer.created for answer in await scene.store.enqueue(jobs))
    assert (await scene.send()).full == Full(LANE, 4, 2)
    assert (await scene.send(wait=FIRST)).created
    assert (await scene.store.commit(Effects([scene.job(wait=FIRST)]))).conflict is None
    await scene.store.commit(append(b"x"))
    assert (await scene.send()).full == Full(LANE, 6, 2)
    assert (await scene.send(wait=FIRST)).created  # its wait is over already
    worker = await scene.worker()
    assert len(await scene.claim(worker, 9)) == 7
    assert (await scene.send()).full is None
    await scene.store.set_queue(LANE, QueueChange(closed=True), AuditNote(who="ann"))
    full = (await scene.send(wait=FIRST)).full
    assert full is not None
    assert full.is_closed


@chapter.promise()
async def a_repeat_finds_a_blocked_job(scene: Scene) -> None:
    """It is answered as it is, and stored once."""
    job = scene.job(wait=FIRST, on_end=(OnEnd(OTHER_LOG),))
    for created in (True, False):
        (answer,) = await scene.store.enqueue([job], again=not created)
        assert (answer.created, answer.state) == (created, BLOCKED)
        committed = await scene.store.commit(Effects([job]), all_new=True)
        assert [a.created for a in committed.enqueued] == [False]
    await scene.store.commit(append(b"x"))
    worker, claim = await scene.claim_one()
    await scene.finish(worker, claim)
    assert len(await scene.log(OTHER_LOG)) == 1


@chapter.promise("M144", "M148")
async def new_jobs_are_committed_with_the_logs_they_wait_for(scene: Scene) -> None:
    """As a plan is, with its record; a repeat is refused, and changes nothing."""
    worker = await scene.worker()
    late = scene.job(wait=Wait(OTHER_LOG, 0), delay=60.0)
    jobs = [
        scene.job(on_end=(OnEnd(LOG), OnEnd(OTHER_LOG))),
        scene.job(delay=60.0, lane=OTHER_LANE),
        scene.job(wait=FIRST, opts=b'{"meta":{"a":1}}'),
        late,
    ]
    puts = [
        Put(KIND, "b", b"1", if_version=0, due_at=5.0),
        Put(KIND, "a", b"2", if_version=0, ttl_seconds=60.0),
    ]
    other = await scene.other()
    answer = await other.commit(Effects(jobs, puts), all_new=True)
    states = [READY, SCHEDULED, BLOCKED, BLOCKED]
    assert [told.state for told in answer.enqueued] == states
    assert all(told.created for told in answer.enqueued)
    found = {record.name: record for record in await scene.store.list_records(KIND)}
    assert [found[put.name].version for put in puts] == answer.versions
    assert [found[put.name].due_at for put in puts] == [5.0, None]
    told = (await scene.store.commit(Effects(jobs, puts), all_new=True)).conflict
    assert told == Conflict("record", "b", found["b"])
    assert len(await scene.records()) == 4
    assert LANE in (await scene.store.wait(worker, WAKE_SECONDS)).lanes
    (claim,) = await scene.claim(worker, 9)
    assert claim.id == jobs[0].id
    await scene.finish(worker, claim)
    states = [DONE, SCHEDULED, READY, SCHEDULED]
    assert [await scene.state(job.id) for job in jobs] == states
    assert (await scene.record(late.id)).run_at == scene.clock.now() + 60.0
    assert (await scene.record(jobs[2].id)).opts == b'{"meta":{"a":1}}'
    scene.clock.advance(60.0)
    assert [record.name for record in await scene.store.list_records(KIND)] == ["b"]


@chapter.promise("M148", needs=("fault",))
async def a_commit_of_new_jobs_is_whole(scene: Scene) -> None:
    """A fault leaves nothing; so do a record, a full queue and a closed one."""
    await scene.store.commit(append(b"x"))
    puts = [Put(KIND, "a", b"1", if_version=0)]

    def jobs() -> list[NewJob]:
        return [scene.job(), scene.job(wait=FIRST), scene.job(wait=Wait(OTHER_LOG, 0))]

    async def refused(effects: Effects) -> Conflict:
        before = await scene.everything()
        answer = await (await scene.other()).commit(effects, all_new=True)
        assert answer.conflict is not None
        assert await scene.everything() == before
        return answer.conflict

    effects = Effects(jobs(), puts)
    answer = await scene.after_every_fault(
        lambda: scene.store.commit(effects, all_new=True)
    )
    states = [READY, READY, BLOCKED]  # one of the logs is long enough already
    assert [told.state for told in answer.enqueued] == states
    others = [Put(KIND, "b", b"1", if_version=0)]
    assert (await refused(Effects(jobs(), others + puts))).name == "a"
    assert (await refused(Effects(effects.jobs, puts))).name == "a"
    await scene.store.declare({LANE: 4})
    told = await refused(Effects([scene.job(), scene.job()], others))
    assert told == Conflict("full", LANE, full=Full(LANE, 3, 4))
    await scene.store.declare({LANE: None})
    await scene.store.set_queue(LANE, QueueChange(closed=True), AuditNote(who="ann"))
    assert (await refused(Effects(jobs()[2:], others))).what == "full"
    assert len(await scene.records()) == 3


@chapter.promise()
async def a_replace_changes_only_the_arguments_of_a_node(scene: Scene) -> None:
    """It goes on waiting, counts its own delay from there, and passes its own gates."""
    node: dict[str, Any] = {
        "wait": FIRST,
        "on_end": (OnEnd(OTHER_LOG),),
        "opts": b'{"meta":{"a":1}}',
        "delay": 300.0,
        "gates": (GateSpec("4w:shop/node", cap=1),),
    }
    job_id = await scene.add(key=key(replace), **node)
    worker, other = await scene.running(gates=node["gates"], lane=OTHER_LANE)
    answer = await scene.send(
        key=key(replace, OTHER_PAYLOAD), payload=OTHER_PAYLOAD, delay=60.0, priority=9
    )
    assert (answer.id, answer.replaced, answer.state) == (job_id, True, BLOCKED)
    record = await scene.record(job_id)
    assert (record.payload, record.opts, record.rank) == (
        OTHER_PAYLOAD,
        b'{"meta":{"a":1}}',
        4,
    )
    await scene.store.commit(append(b"x"))
    for seconds, state in ((60.0, SCHEDULED), (239.0, SCHEDULED), (1.0, BLOCKED)):
        scene.clock.advance(seconds)
        await scene.store.promote(MANY)
        assert await scene.state(job_id) == state
    assert (await scene.gates("4w:"))["4w:shop/node"].waiting == 1
    await scene.finish(worker, other)
    worker, claim = await scene.claim_one()
    assert claim.payload == OTHER_PAYLOAD
    await scene.finish(worker, claim)
    assert len(await scene.log(OTHER_LOG)) == 1


@chapter.promise()
async def nobody_is_left_when_many_wait(scene: Scene) -> None:
    """One transaction lets 1,000 jobs go; `settle` goes on, with every log."""
    counts = {LOG: 2500, OTHER_LOG: 700}
    for log, count in counts.items():
        for start in range(0, count, 1000):
            some = min(1000, count - start)
            await scene.add_many(some, wait=Wait(log, 0))
    both = [Append(log, [NewEntry(b"x")]) for log in counts]
    await scene.store.commit(Effects(appends=both))
    ready = (await count_jobs(scene.store, "shop"))[LANE][READY]
    assert ready == 1000
    settled = await scene.store.settle(500)
    assert (settled.count, settled.next_due_seconds) == (500, 0.0)
    await scene.settle()
    assert await count_jobs(scene.store, "shop") == {LANE: {READY: 3200}}
    assert await scene.store.settle(500) == (0, None, False)


@chapter.promise()
async def the_end_of_a_job_that_frees_many_says_so(scene: Scene) -> None:
    """The worker then calls `settle`."""
    for _ in range(2):
        await scene.add_many(1000, wait=FIRST)
    worker, claim = await scene.running(on_end=(OnEnd(LOG),))
    answer = await scene.exchange(worker, [outcome(claim)], 0)
    assert answer.settle_in_seconds is not None
    await scene.settle()
    assert (await count_jobs(scene.store, "shop"))[LANE] == {READY: 2000}


@chapter.promise()
async def a_dropped_log_leaves_its_waiters(scene: Scene) -> None:
    """They wait for entries that come later."""
    await scene.store.commit(append(b"x"))
    job_id = await scene.add(wait=Wait(LOG, 1))
    await scene.store.drop_logs([LOG])
    await scene.store.commit(append(b"x"))
    assert await scene.state(job_id) == BLOCKED
    await scene.store.commit(append(b"x"))
    assert await scene.state(job_id) == READY


@chapter.promise()
async def a_wait_can_be_extended(scene: Scene) -> None:
    """Also that of a cancelled job, for its retry."""
    ids = [await scene.add(wait=FIRST) for _ in range(2)]
    await scene.store.act(ids[1:], CancelJobs())
    extends = Effects(extends=[Extend(job_id, 2) for job_id in ids])
    assert (await scene.store.commit(extends)).conflict is None
    await scene.store.act(ids[1:], RetryJobs())
    for state in (BLOCKED, BLOCKED, READY):
        await scene.store.commit(append(b"x"))
        assert set((await scene.store.states(ids)).values()) == {state}


@chapter.promise()
async def an_outcome_extends_a_wait_before_its_own_entry(scene: Scene) -> None:
    """The waiter does not start in between; the same outcome sent again is `stored`."""
    waiter = await scene.add(wait=FIRST)
    worker, claim = await scene.running(on_end=(OnEnd(LOG),))
    done = outcome(claim)._replace(effects=Effects(extends=[Extend(waiter, 1)]))
    assert (await scene.exchange(worker, [done], 0)).rejected == []
    assert await scene.state(waiter) == BLOCKED
    await scene.store.commit(append(b"x"))
    await scene.settle()
    assert await scene.state(waiter) == READY
    again = (await scene.exchange(worker, [done], 0)).rejected
    assert [(refused.already_stored, refused.conflict) for refused in again] == [
        (True, None)
    ]


@chapter.promise()
async def a_job_that_does_not_wait_cannot_wait_longer(scene: Scene) -> None:
    """The conflict names it, and nothing is written."""
    worker, claim = await scene.running(wait=None)
    await scene.store.commit(append(b"x"))
    ready = await scene.add(wait=FIRST)
    await scene.finish(worker, claim)
    assert (await scene.record(claim.id)).state == DONE
    for job_id in (ready, claim.id, scene.clock.new_id()):
        effects = append(b"y")._replace(extends=[Extend(job_id, 1)])
        answer = await scene.store.commit(effects)
        assert answer.conflict == Conflict("job_ended", id_text(job_id))
    assert await scene.store.log_lengths([LOG]) == {LOG: 1}


@chapter.promise()
async def a_wait_for_a_name_that_cannot_be_is_refused(scene: Scene) -> None:
    """Nothing is stored."""
    for fields in ({"wait": Wait("", 0)}, {"on_end": (OnEnd("a\0b"),)}):
        try:
            await scene.store.commit(Effects([scene.job(**fields)]))
        except InvalidName:
            continue
        raise AssertionError(f"{fields} was stored")
    assert await scene.records() == []


@chapter.promise("M98", needs=("fault",))
async def a_fault_at_any_statement_lets_no_job_go(scene: Scene) -> None:
    """Afterwards all of them go, and new ones wait."""
    await scene.store.declare({LANE: 9})
    ids = [await scene.add(wait=FIRST, delay=delay) for delay in (0.0, 60.0)]
    effects = append(b"x")._replace(
        jobs=[scene.job(wait=Wait(OTHER_LOG, 0), key=key(replace))],
        extends=[Extend(await scene.add(wait=Wait(OTHER_LOG, 0)), 1)],
    )
    await scene.after_every_fault(lambda: scene.store.commit(effects))
    assert await scene.store.states(ids) == {ids[0]: READY, ids[1]: SCHEDULED}
    assert await scene.state(effects.jobs[0].id) == BLOCKED
