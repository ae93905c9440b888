"""What a store promises about bulk actions: exact counts, each job changed at most once."""

from durio.client.bulk import BulkStep
from durio.model.errors import UsageError
from durio.model.job import CANCELLED, DEAD, DONE, READY, RUNNING, SCHEDULED
from durio.model.keys import while_active
from durio.model.outcome import OutcomeKind
from durio.ports.browse import Query
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
from tests.bulk_actions import bulk_steps, run_bulk
from tests.conformance.promises import Chapter
from tests.conformance.scene import LANE, MANY, TASK, Scene, key

chapter = Chapter("bulk")

ALL_DEAD = Query(namespace="shop", states=(DEAD,))
WAITING = Query(namespace="shop", states=(READY, SCHEDULED))


async def die(scene: Scene, error: bytes | None = None, **fields: object) -> bytes:
    """Make a job that died of this error."""
    reason = str(fields.pop("reason", "permanent"))
    worker, claim = await scene.running(**fields)
    await scene.finish(worker, claim, kind=OutcomeKind.DEAD, error=error, reason=reason)
    return claim.id


async def die_again(scene: Scene) -> bytes:
    """Let the one ready job die."""
    worker, claim = await scene.claim_one()
    await scene.finish(worker, claim, kind=OutcomeKind.DEAD, reason="permanent")
    return claim.id


async def act_on_all(
    scene: Scene, query: Query, action: Action, mark: str, step_jobs: int = 2
) -> int:
    """Act step by step, until no job is left."""
    done = await run_bulk(scene.store, query, action, mark, step_jobs)
    assert done.held == 0
    return done.jobs


async def states_of(scene: Scene, ids: list[bytes]) -> list[int | None]:
    """Return one state each; None for deleted jobs."""
    states = await scene.store.states(ids)
    return [states.get(job_id) for job_id in ids]


# --- counting


async def check_counts(scene: Scene, queries: dict[Query, int]) -> None:
    """Compare counts with the numbers, and with what `find` shows."""
    for query, jobs in queries.items():
        for store in (scene.store, await scene.other()):
            assert (await store.count(query)).jobs == jobs, query
            assert await store.count(query, most=100) == (jobs, ""), query
            assert await store.count(query, most=2) == (min(jobs, 2), ""), query
        found = await scene.store.find(query, limit=200, cursor=None)
        assert len(found.jobs) == jobs, query


@chapter.promise("M85", "M91", "L16")
async def jobs_are_counted_exactly_by_every_filter(scene: Scene) -> None:
    """The count is what `find` would show, for every query and from another process."""
    await die(scene, b'{"type":"ValueError","message":"no such order"}')
    await die(scene, b'{"type":"OSError","message":"100% full_"}', task="shop.mail")
    await die(scene, lane="shop:mail", reason="exhausted")
    scene.clock.advance(100.0)
    late = scene.clock.now()
    await die(scene, b'{"type":"Timeout","message":"\xc3\x9cber"}', lane="bank:x")
    worker, claim = await scene.running()
    await scene.add_many(3)
    await scene.add_many(2, delay=9.0, lane="shop:mail")
    await scene.store.act([await scene.add()], CancelJobs())
    queries = {
        Query(): 11,
        Query(states=()): 0,
        Query(namespace="shop"): 10,
        ALL_DEAD: 3,
        Query(states=(DEAD,)): 4,
        Query(states=(DEAD, READY)): 7,
        Query(states=(SCHEDULED,)): 2,
        Query(states=(RUNNING,)): 1,
        Query(states=(CANCELLED, DONE)): 1,
        Query(worker=worker): 1,
        Query(worker=worker, states=(DEAD,)): 0,
        Query(worker=worker + 1): 0,
        Query(lane="shop:mail"): 3,
        Query(lane="shop:mail", states=(DEAD, SCHEDULED)): 3,
        Query(states=(DEAD,), task="shop.mail"): 1,
        Query(states=(DEAD,), reason="exhausted"): 1,
        Query(states=(DEAD,), error="valueERROR"): 1,
        Query(states=(DEAD,), error="SUCH order"): 1,
        Query(states=(DEAD,), error="ValueError: no"): 1,
        Query(states=(DEAD,), error="\u00fcBER"): 1,
        Query(states=(DEAD,), error="e"): 3,
        Query(states=(DEAD,), error="100%"): 1,
        Query(states=(DEAD,), error="1%f"): 0,
        Query(states=(DEAD,), error="L_"): 1,
        Query(states=(DEAD,), error="r_e"): 0,
        Query(states=(DEAD,), error="\\"): 0,
        Query(states=(DEAD,), error="'"): 0,
        Query(error="order", task=TASK): 1,
        Query(states=(DEAD,), before=late): 3,
        Query(states=(DEAD,), after=late - 1): 1,
        Query(states=(DEAD,), after=late): 0,
    }
    await check_counts(scene, queries)
    await scene.finish(worker, claim)


@chapter.promise()
async def jobs_are_found_by_id_and_age(scene: Scene) -> None:
    """A job is as old as its end or, if it has not ended, as its creation."""
    dead = await die(scene)
    scene.clock.advance(100.0)
    late = scene.clock.now()
    _, claim = await scene.running()
    await scene.add_many(3)
    await scene.add_many(2, delay=9.0)
    await scene.store.act([await scene.add()], CancelJobs())
    queries = {
        Query(after=late - 1, before=late + 1): 7,
        Query(before=late): 1,
        Query(states=(DEAD, CANCELLED), after=late - 1): 1,
        Query(states=(RUNNING, SCHEDULED), after=late - 1): 3,
        Query(states=(READY,), before=late): 0,
        Query(states=(READY,), before=late + 1): 3,
        Query(ids=()): 0,
        Query(ids=(claim.id, dead, bytes(16))): 2,
        Query(states=(DEAD,), ids=(claim.id, dead)): 1,
        Query(states=(RUNNING,), ids=(claim.id, dead)): 1,
    }
    await check_counts(scene, queries)


@chapter.promise("M91")
async def only_the_newest_error_counts(scene: Scene) -> None:
    """A job whose earlier attempt failed with another error does not match that error."""
    await scene.add()
    for kind, name in ((OutcomeKind.RETRY, b"Old"), (OutcomeKind.DEAD, b"New")):
        worker, claim = await scene.claim_one()
        error = b'{"type":"%s","message":"m"}' % name
        await scene.finish(worker, claim, kind=kind, error=error)
    assert (await scene.store.count(Query(error="new"))).jobs == 1
    assert (await scene.store.count(Query(error="old"))).jobs == 0


# --- in bulk


@chapter.promise("M85")
async def a_bulk_retry_sends_back_what_was_counted(scene: Scene) -> None:
    """It runs in steps, in any process; jobs that died later stay dead, whatever the clock."""
    ids = [await die(scene) for _ in range(5)]
    counted = await scene.store.count(ALL_DEAD)
    assert counted.jobs == 5
    scene.clock.step(-3600.0)
    late = await die(scene)
    first = bulk_steps(scene.store, ALL_DEAD, RetryJobs(), counted.mark, 2)
    assert await anext(first) == BulkStep(2, 0)
    other = await scene.other()
    assert await run_bulk(other, ALL_DEAD, RetryJobs(), counted.mark, 2) == BulkStep(
        3, 0
    )
    assert [step async for step in first] == []
    assert await states_of(scene, ids) == [READY] * 5
    assert await scene.state(late) == DEAD
    worker = await scene.worker()
    assert [c.id for c in await scene.claim(worker, MANY)] == ids


@chapter.promise("M85")
async def a_bulk_act_meets_no_job_twice(scene: Scene) -> None:
    """A job that is retried and dies again has died after the count."""
    first, second, third = [await die(scene) for _ in range(3)]
    counted = await scene.store.count(ALL_DEAD)
    steps = bulk_steps(scene.store, ALL_DEAD, RetryJobs(), counted.mark, 1)
    assert await anext(steps) == BulkStep(1, 0)
    assert await die_again(scene) == first
    assert [step.jobs async for step in steps] == [1, 1]
    ids = [first, second, third]
    assert await states_of(scene, ids) == [DEAD, READY, READY]
    assert await act_on_all(scene, ALL_DEAD, RetryJobs(), counted.mark) == 0
    assert (await scene.record(first)).claim_no == 2


@chapter.promise("M85")
async def a_bulk_retry_rings_the_queues(scene: Scene) -> None:
    """Workers that wait for jobs of these queues are woken."""
    await die(scene)
    counted = await scene.store.count(ALL_DEAD)
    worker = await scene.worker()
    other = await scene.other()
    await run_bulk(other, ALL_DEAD, RetryJobs(), counted.mark)
    assert (await scene.store.wait(worker, 50.0)).woken


@chapter.promise("M85")
async def a_bulk_discard_deletes_what_was_counted(scene: Scene) -> None:
    """This holds with every filter; the other jobs are kept."""
    bad = [await die(scene, b'{"type":"Bad","message":""}') for _ in range(4)]
    good = await die(scene, b'{"type":"Good","message":""}')
    query = ALL_DEAD._replace(error="bad")
    counted = await scene.store.count(query)
    late = await die(scene, b'{"type":"Bad","message":""}')
    assert counted.jobs == 4
    assert await act_on_all(scene, query, DiscardJobs(), counted.mark, 3) == 4
    assert await scene.store.get(bad) == []
    assert await states_of(scene, [good, late]) == [DEAD, DEAD]


@chapter.promise("M85")
async def a_purge_cancels_what_waited(scene: Scene) -> None:
    """Ready and scheduled jobs of that queue that had arrived; running jobs if included."""
    worker, claim = await scene.running()
    ids = await scene.add_many(4)
    ids += await scene.add_many(3, delay=9.0)
    beside = await scene.add(lane="shop:beside")
    query = Query(lane=LANE, states=(READY, SCHEDULED))
    counted = await scene.store.count(query)
    late = await scene.add()
    assert counted.jobs == 7
    assert await act_on_all(scene, query, CancelJobs(), counted.mark, 3) == 7
    assert await states_of(scene, ids) == [CANCELLED] * 7
    assert await states_of(scene, [late, beside]) == [READY, READY]
    assert await scene.state(claim.id) == RUNNING
    running = Query(lane=LANE, states=(RUNNING,))
    counted = await scene.store.count(running)
    assert await act_on_all(scene, running, CancelJobs(), counted.mark) == 1
    assert await act_on_all(scene, running, CancelJobs(), counted.mark) == 0
    renewed = await scene.store.renew(worker, 30.0)
    assert renewed.cancels == [(claim.id, 1)]


@chapter.promise()
async def no_job_slips_through_a_purge(scene: Scene) -> None:
    """A job that becomes due between two steps is still cancelled."""
    ids = [await scene.add(delay=5.0, priority=9) for _ in range(3)]
    ids += await scene.add_many(3)
    counted = await scene.store.count(WAITING)
    steps = bulk_steps(scene.store, WAITING, CancelJobs(), counted.mark, 2)
    assert await anext(steps) == BulkStep(2, 0)
    scene.clock.advance(5.0)
    await scene.store.promote(9)
    assert sum([step.jobs async for step in steps]) == 4
    assert await states_of(scene, ids) == [CANCELLED] * 6


@chapter.promise()
async def a_bulk_act_changes_only_what_the_verb_can_change(scene: Scene) -> None:
    """A query without states matches jobs in every state."""
    dead = await die(scene)
    worker, claim = await scene.running()
    await scene.finish(worker, claim)
    ready = await scene.add()
    everything = Query(namespace="shop")
    counted = await scene.store.count(everything)
    assert counted.jobs == 3
    assert await act_on_all(scene, everything, CancelJobs(), counted.mark) == 1
    assert await states_of(scene, [dead, ready, claim.id]) == [DEAD, CANCELLED, DONE]
    assert await act_on_all(scene, everything, DiscardJobs(), counted.mark) == 1
    assert await act_on_all(scene, everything, RetryJobs(), counted.mark) == 1
    assert await states_of(scene, [dead, ready, claim.id]) == [None, READY, DONE]


@chapter.promise("M93")
async def a_bulk_retry_passes_by_jobs_whose_key_is_taken(scene: Scene) -> None:
    """The action still completes."""
    first = await die(scene, key=key(while_active))
    second = await die(scene, key=key(while_active))
    third = await die(scene)
    counted = await scene.store.count(ALL_DEAD)
    assert counted.jobs == 3
    assert await act_on_all(scene, ALL_DEAD, RetryJobs(), counted.mark, 1) == 2
    assert await states_of(scene, [first, second, third]) == [READY, DEAD, READY]


@chapter.promise()
async def a_step_with_nothing_to_do_writes_nothing(scene: Scene) -> None:
    """It does not even write an audit line."""
    dead = await die(scene)
    counted = await scene.store.count(Query(states=(DEAD,), task="shop.none"))
    before = await scene.everything()
    query = Query(states=(DEAD,), task="shop.none")
    note = AuditNote("shop", "ann", target="dead letters")
    actions = (CancelJobs(), RetryJobs(), DiscardJobs(), RunJobsNow())
    for action in (*actions, MoveJobs("shop:b")):
        assert await run_bulk(scene.store, query, action, counted.mark) == BulkStep(
            0, 0
        )
        only = (query, counted.mark)
        assert await scene.store.act([dead], action, only=only, note=note) == []
    assert await scene.everything() == before


MARKS = {"words": "no mark", "empty": "", "numbers": "1:2", "parts": "1:2:3:4"}


@chapter.promise()
async def a_clock_that_was_ahead_hides_no_job(scene: Scene) -> None:
    """Jobs with a time in the future are counted and changed like others."""
    await scene.add()
    scene.clock.step(3600.0)
    ahead = await scene.add_many(2)
    scene.clock.step(-3600.0)
    await scene.add_many(2)
    query = Query(lane=LANE, states=(READY,))
    counted = await scene.store.count(query)
    assert counted.jobs == 5
    done = await run_bulk(scene.store, query, CancelJobs(), counted.mark)
    assert done.jobs == 5
    assert await scene.store.states(ahead) == dict.fromkeys(ahead, CANCELLED)


@chapter.table(MARKS)
async def a_mark_that_nobody_gave_is_refused(scene: Scene, mark: str) -> None:
    """The store does not guess what was meant."""
    job_id = await scene.add()
    before = await scene.everything()
    query, store = WAITING._replace(states=(READY,)), scene.store
    for call in (
        store.act([job_id], CancelJobs(), only=(query, mark)),
        store.find(query, limit=9, cursor=None, mark=mark),
    ):
        try:
            await call
        except UsageError:
            continue
        raise AssertionError("it was taken")
    assert await scene.everything() == before


# --- what a bulk action is made of


@chapter.promise("M85")
async def only_counted_jobs_are_changed(scene: Scene) -> None:
    """Whatever ids are given, jobs are checked in the transaction that acts."""
    first, second = await scene.add_many(2)
    beside = await scene.add(lane="shop:beside")
    worker, claim = await scene.running(lane="shop:run")
    query = Query(lane=LANE, states=(READY,))
    only = (query, (await scene.store.count(query)).mark)
    late, unknown = await scene.add(), scene.clock.new_id()
    ids = [unknown, late, second, claim.id, beside, first]
    acted = await scene.store.act(ids, CancelJobs(), only=only)
    assert acted == [Acted(second, READY, CANCELLED), Acted(first, READY, CANCELLED)]
    assert await states_of(scene, [late, beside, claim.id]) == [READY, READY, RUNNING]
    assert await scene.store.act(ids, CancelJobs(), only=only) == []
    assert (await scene.store.renew(worker, 30.0)).cancels == []


@chapter.promise("M85")
async def counted_jobs_are_found_page_by_page(scene: Scene) -> None:
    """Each job is found once, the longest dead first, without those that came later."""
    dead = [await die(scene) for _ in range(5)]
    ready = await scene.add_many(3)
    mark = (await scene.store.count(Query())).mark
    await die(scene, lane="shop:late")
    await scene.add(priority=9)
    for state, wanted in ((DEAD, dead), (READY, ready), (RUNNING, [])):
        query, cursor = Query(namespace="shop", states=(state,)), None
        found: list[bytes] = []
        for _ in range(MANY):
            page = await scene.store.find(query, limit=2, cursor=cursor, mark=mark)
            assert (page.jobs, len(page.ids) <= 2) == ([], True)
            found += page.ids
            cursor = page.cursor
            if cursor is None:
                break
        assert found == wanted
    query = Query(states=(READY,))
    for bad in ("no cursor", "[]", "[1]"):
        try:
            await scene.store.find(query, limit=2, cursor=bad, mark=mark)
        except UsageError:
            continue
        raise AssertionError("it was taken")


@chapter.promise("M85")
async def calls_with_one_note_are_one_line(scene: Scene) -> None:
    """The store adds up the numbers of jobs in one audit line."""
    ids = await scene.add_many(3)
    note = AuditNote("shop", "ann", target="all of it")
    await scene.store.act(ids[:1], CancelJobs(), note=note)
    line = note.line
    assert line is not None
    await (await scene.other()).act(ids, CancelJobs(), note=note)
    assert note.line == line
    (written,) = await scene.store.audit("shop", limit=MANY)
    assert (written.who, written.verb) == ("ann", "cancel")
    assert (written.target, written.jobs) == ("all of it", 3)
