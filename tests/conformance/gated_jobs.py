"""What a store promises about jobs at gates in all its other calls."""

from durio.model.effects import Effects
from durio.model.errors import UsageError
from durio.model.gate import GATES_MAX, START, GateChange, GateSpec
from durio.model.job import BLOCKED, CANCELLED, READY, RUNNING, SCHEDULED
from durio.model.keys import debounce, replace
from durio.model.logs import OnEnd
from durio.model.outcome import OutcomeKind
from durio.ports.browse import GatedJob, Query
from durio.ports.control import CancelJobs, MoveJobs, RetryJobs
from tests.bulk_actions import run_bulk
from tests.conformance.gates import NARROW, OTHER_LANE, WIDE, cap, change, states
from tests.conformance.logs import OTHER_LOG
from tests.conformance.promises import Chapter
from tests.conformance.scene import LANE, OTHER_PAYLOAD, Scene, key
from tests.job_counts import count_jobs

chapter = Chapter("gated_jobs")
MIDDLE = "3f:mail/anna"


@chapter.promise()
async def jobs_before_gates_are_found_and_counted(scene: Scene) -> None:
    """A job before a gate is blocked, one that has passed is ready."""
    ids = await scene.add_many(3, gates=cap(2))
    for job_id, state in zip(ids, (READY, READY, BLOCKED), strict=True):
        assert (await scene.record(job_id)).state == state
    for state, wanted in ((READY, ids[:2]), (BLOCKED, ids[2:])):
        query = Query(states=(state,), lane=LANE)
        assert {job.id for job in await scene.records(query)} == set(wanted)
        assert {job.state for job in await scene.records(query)} == {state}
        assert (await scene.store.count(query)).jobs == len(wanted)
    both = Query(states=(READY, BLOCKED, RUNNING))
    assert [job.id for job in await scene.records(both)] == ids[::-1]
    assert await count_jobs(scene.store, "shop") == {LANE: {READY: 2, BLOCKED: 1}}
    (lane,) = await scene.store.queues("shop", busy=True, oldest=True, heads=9)
    assert lane.oldest_ready_at == scene.clock.now()
    assert lane.head_tasks == {"shop.pay": 2}


@chapter.promise()
async def a_job_says_where_it_is(scene: Scene) -> None:
    """Before which of its gates, and where it holds a place; not what its arguments say."""
    gates = (*cap(1, NARROW), *cap(2, MIDDLE, held_until=START), *cap(1, WIDE))
    names = (NARROW, MIDDLE, WIDE)
    worker, running = await scene.running(gates=gates)
    narrow = await scene.add(gates=gates)
    wide = await scene.add(gates=gates[:0:-1])
    delayed, plain = await scene.add(gates=gates, delay=20.0), await scene.add()
    asked = [plain, wide, narrow, delayed, running.id, scene.clock.new_id()]
    assert await scene.store.gated(asked) == [
        GatedJob(wide, names[1:], WIDE, (MIDDLE,)),
        GatedJob(narrow, names, NARROW, ()),
        GatedJob(delayed, names, None, ()),
        GatedJob(running.id, names, None, (NARROW, WIDE)),
    ]
    await scene.store.act([narrow], MoveJobs(OTHER_LANE))
    await scene.finish(worker, running, kind=OutcomeKind.DEAD)
    await scene.store.act([running.id], RetryJobs(OTHER_PAYLOAD))
    assert await scene.store.gated([wide, narrow, running.id]) == [
        GatedJob(wide, names[1:], None, (MIDDLE, WIDE)),
        GatedJob(narrow, names, WIDE, (NARROW, MIDDLE)),
        GatedJob(running.id, names, NARROW, ()),
    ]


@chapter.promise()
async def waiting_counts_from_the_pass(scene: Scene) -> None:
    """`oldest` is the time since which a job could have run."""
    worker, running = await scene.running(gates=cap(1))
    await scene.add(gates=cap(1))
    scene.clock.advance(50.0)
    await scene.finish(worker, running)
    (lane,) = await scene.store.queues("shop", oldest=True)
    assert lane.oldest_ready_at == scene.clock.now()


@chapter.promise()
async def bulk_actions_reach_jobs_at_gates(scene: Scene) -> None:
    """Those that have passed and those that wait; the rest passes as they go."""
    ids = await scene.add_many(7, gates=cap(3))
    late = await scene.add(gates=cap(3), lane=OTHER_LANE)
    for state in (BLOCKED, READY):
        query = Query(lane=LANE, states=(state,))
        counted = await scene.store.count(query)
        await run_bulk(scene.store, query, CancelJobs(), counted.mark, 2)
    assert set(await states(scene, ids)) == {CANCELLED}
    assert await scene.is_ready(late)
    assert await scene.used(NARROW) == 1


@chapter.promise()
async def a_job_is_moved_with_its_places(scene: Scene) -> None:
    """Before a gate or behind it; it is claimed from its new queue."""
    ids = await scene.add_many(2, gates=cap(1))
    acted = await scene.store.act(ids, MoveJobs(OTHER_LANE))
    assert [one.after for one in acted] == [READY, BLOCKED]
    counts = await count_jobs(scene.store, "shop")
    assert counts.get(OTHER_LANE) == {READY: 1, BLOCKED: 1}
    worker = await scene.worker()
    assert await scene.claim(worker, 9) == []
    for job_id in ids:
        (claim,) = await scene.claim(worker, 9, lane=OTHER_LANE)
        assert claim.id == job_id
        await scene.finish(worker, claim)


@chapter.promise()
async def a_bound_counts_jobs_at_gates(scene: Scene) -> None:
    """They need room as all others; passing changes nothing."""
    await scene.add_many(2, gates=cap(1))
    await scene.store.declare({LANE: 3})
    ids = await scene.add_many(1, gates=cap(1))
    full = (await scene.send(gates=cap(1))).full
    assert full is not None
    assert (full.depth, full.limit) == (3, 3)
    await change(scene, GateChange(NARROW, cap=2))
    assert (await scene.send()).full is not None
    await scene.store.act(ids, CancelJobs())
    assert (await scene.send()).created
    worker = await scene.worker()
    assert len(await scene.claim(worker, 9)) == 3
    assert (await scene.send(gates=cap(9))).created


@chapter.promise()
async def a_repeat_finds_the_job_at_its_gate(scene: Scene) -> None:
    """It is stored once, and counted once."""
    jobs = [scene.job(gates=cap(1)) for _ in range(2)]
    for created in (True, False):
        answers = await scene.store.enqueue(jobs, again=not created)
        assert [(a.created, a.state) for a in answers] == [
            (created, READY),
            (created, BLOCKED),
        ]
        rows = await scene.gates()
        assert (rows[NARROW].used, rows[NARROW].waiting) == (1, 1)


@chapter.promise()
async def a_replaced_job_passes_the_gates_of_its_new_arguments(scene: Scene) -> None:
    """It gives back what it had; a node of a plan keeps its gates."""
    other = cap(1, "1k:mail/bob")
    policy = {"key": key(replace), "gates": cap(1)}
    job_id = await scene.add(**policy)
    waiting = await scene.add(gates=cap(1))
    new = {"key": key(replace, OTHER_PAYLOAD), "payload": OTHER_PAYLOAD}
    answer = await scene.send(**new, gates=other)
    assert (answer.id, answer.replaced, answer.state) == (job_id, True, READY)
    rows = await scene.gates()
    assert [(row.used, row.waiting) for row in rows.values()] == [(1, 0), (1, 0)]
    assert await scene.is_ready(waiting)
    answer = await scene.send(**new, gates=cap(1))
    assert (answer.id, answer.state) == (job_id, BLOCKED)
    answer = await scene.send(**new, delay=20.0)
    assert (answer.id, answer.state) == (job_id, SCHEDULED)
    assert (await scene.gates())[NARROW].waiting == 0
    node = await scene.add(
        key=key(replace, text="n"), gates=cap(1), on_end=(OnEnd(OTHER_LOG),)
    )
    answer = await scene.send(key=key(replace, text="n"), gates=other)
    assert (answer.id, answer.state) == (node, BLOCKED)
    assert (await scene.gates())[NARROW].waiting == 1


@chapter.promise()
async def a_debounced_job_goes_to_its_gates_when_it_is_due(scene: Scene) -> None:
    """Each call postpones it."""
    fields = {"key": key(debounce(10.0)), "gates": cap(1)}
    job_id = await scene.add(**fields)
    scene.clock.advance(6.0)
    assert (await scene.send(**fields)).state == SCHEDULED
    scene.clock.advance(6.0)
    await scene.store.promote(9)
    assert await scene.state(job_id) == SCHEDULED
    scene.clock.advance(6.0)
    await scene.store.promote(9)
    assert await scene.is_ready(job_id)
    assert await scene.used(NARROW) == 1


@chapter.promise()
async def gates_that_cannot_be_are_refused(scene: Scene) -> None:
    """Nothing is stored."""
    many = tuple(GateSpec(f"1k:{n}", cap=1) for n in range(GATES_MAX + 1))
    twice = cap(1) * 2
    for gates in (many, twice, many[1::-1], cap(0), cap(1, ""), cap(1, "a\0b")):
        await refused(scene, Effects([scene.job(gates=gates)]))
    for spec in (
        GateSpec("a", rate=0.0),
        GateSpec("a", rate=float("nan")),
        GateSpec("a", burst=float("inf")),
        GateSpec("a", held_until=3),
        GateSpec("a", cost=-1.0),
        GateSpec("a", rate=1.0, burst=2.0, cost=2.5),
    ):
        await refused(scene, Effects([scene.job(gates=(spec,))]))
    for bad in (
        GateChange("", cap=1),
        GateChange("a", cap=-2),
        GateChange("a", rate=0.0),
        GateChange("a", until_seconds=float("inf")),
        GateChange("a", add=float("nan")),
        GateChange("a", is_prefix=True, add=1.0),
        GateChange("a", is_prefix=True, until_seconds=1.0),
    ):
        await refused(scene, Effects(gates=[bad]))
    await refused(scene, Effects(gates=[GateChange("a", cap=1)] * 2))
    assert await scene.records() == []
    assert await scene.gates() == {}


async def refused(scene: Scene, effects: Effects) -> None:
    try:
        await scene.store.commit(effects)
    except UsageError:
        return
    raise AssertionError(f"{effects} was stored")
