"""What a store promises about gates: jobs wait before them, pass, and hold places."""

import asyncio

from durio.model.effects import Effects, Put
from durio.model.gate import (
    GateChange,
    GateSpec,
)
from durio.model.job import BLOCKED, CANCELLED, READY, RUNNING
from durio.model.outcome import OutcomeKind
from durio.ports.browse import GateRow
from durio.ports.control import (
    AuditNote,
    CancelJobs,
    QueueChange,
)
from durio.ports.store import Store
from tests.conformance.promises import Chapter
from tests.conformance.records import KIND
from tests.conformance.scene import LANE, Scene, outcome
from tests.job_counts import count_jobs

chapter = Chapter("gates")
OTHER_LANE = "shop:other"
NARROW, WIDE = "1k:mail/anna", "4w:mail"
HOUR = 3600.0


def cap(most: int, name: str = NARROW, **fields: object) -> tuple[GateSpec, ...]:
    """Return the gates of a job with one gate."""
    return (GateSpec(name, cap=most)._replace(**fields),)  # pyright: ignore[reportArgumentType]


async def change(scene: Scene, *changes: GateChange) -> list[int]:
    """Commit these changes; return how many gates each has changed."""
    committed = await scene.store.commit(Effects(gates=changes))
    assert committed.conflict is None
    await scene.settle()
    return list(committed.gates)


async def states(scene: Scene, ids: list[bytes]) -> list[int]:
    found = await scene.store.states(ids)
    return [found[job_id] for job_id in ids]


@chapter.promise("M71", "L14")
async def so_many_pass_as_there_are_places(scene: Scene) -> None:
    """The others are blocked; a job that ends lets the next one pass, in their order."""
    jobs = [scene.job(gates=cap(2)) for _ in range(5)]
    answers = await scene.store.enqueue(jobs)
    assert [each.state for each in answers] == [READY, READY, *[BLOCKED] * 3]
    ids = [job.id for job in jobs]
    assert await states(scene, ids) == [READY, READY, *[BLOCKED] * 3]
    assert await scene.gates() == {
        NARROW: GateRow(NARROW, 2, 2, None, 1.0, 1.0, None, 3)
    }
    worker = await scene.worker()
    first, second = await scene.claim(worker, 9)
    assert [first.id, second.id] == ids[:2]
    for claim, follower in zip((second, first), ids[2:4], strict=True):
        answer = await scene.exchange(worker, [outcome(claim)], 9)
        assert [each.id for each in answer.claims] == [follower]
        assert await scene.used(NARROW) == 2
    assert await scene.state(ids[4]) == BLOCKED


@chapter.promise()
async def many_workers_and_producers_never_exceed_a_cap(scene: Scene) -> None:
    """Through two objects on the same data, with ends of all kinds."""
    spec, total, running, peak, done = cap(3), 60, 0, 0, 0

    async def produce(store: Store) -> None:
        for _ in range(total // 4):
            await store.enqueue([scene.job(gates=spec)])

    async def consume(own: Scene) -> None:
        nonlocal running, peak, done
        worker = await own.worker()
        while done < total:
            for claim in await own.claim(worker, 2):
                running += 1
                peak = max(peak, running)
                assert await own.state(claim.id) == RUNNING
                running -= 1
                kinds = OutcomeKind.DONE, OutcomeKind.DEAD, OutcomeKind.RELEASE
                kind = kinds[claim.claim_no % 3]
                await own.exchange(worker, [outcome(claim, kind)], 0)
                done += kind != OutcomeKind.RELEASE
            await own.settle()

    other = Scene(await scene.other(), scene.clock, scene.subject, scene.stack)
    scenes = scene, other
    await asyncio.gather(
        *(produce(each.store) for each in scenes for _ in range(2)),
        *(consume(each) for each in scenes for _ in range(2)),
    )
    assert 1 <= peak <= 3
    assert await scene.used(NARROW) == 0
    assert (await scene.gates())[NARROW].waiting == 0


@chapter.promise()
async def urgent_jobs_pass_first(scene: Scene) -> None:
    """Then those that came first."""
    worker, running = await scene.running(gates=cap(1))
    ids = [
        await scene.add(gates=cap(1), priority=priority) for priority in (5, 9, 5, 9)
    ]
    order: list[bytes] = []
    claims = [running]
    for _ in ids:
        ends = [outcome(claim) for claim in claims]
        claims = (await scene.exchange(worker, ends, 9)).claims
        order += [claim.id for claim in claims]
    assert order == [ids[1], ids[3], ids[0], ids[2]]


@chapter.promise()
async def a_job_is_queued_when_it_passes(scene: Scene) -> None:
    """After the jobs that are there at that moment, before those that come later."""
    worker, running = await scene.running(gates=cap(1))
    waiting = await scene.add(gates=cap(1))
    before = await scene.add_many(2)
    await scene.finish(worker, running)
    assert await scene.is_ready(waiting)
    after = await scene.add_many(2)
    urgent = await scene.add(priority=9)
    order = [urgent, *before, waiting, *after]
    for want in (1, 3, 9):
        claims = await scene.claim(worker, want)
        assert [claim.id for claim in claims] == order[:want]
        del order[:want]
    assert order == []


@chapter.promise()
async def jobs_that_passed_are_claimed_in_turn(scene: Scene) -> None:
    """Also by a worker that asks for its known tasks only, or for many at once."""
    ids = await scene.add_many(12, gates=cap(3))
    other = await scene.add(task="shop.other", gates=cap(3))
    worker = await scene.worker()
    claims = await scene.claim(worker, 2, known=["shop.pay"])
    assert [claim.id for claim in claims] == ids[:2]
    await change(scene, GateChange(NARROW, cap=None))
    claims = await scene.claim(worker, 9, known=["shop.pay"])
    assert [claim.id for claim in claims] == ids[2:11]
    claims = await scene.claim(worker, 99)
    assert [claim.id for claim in claims] == [ids[11], other]


@chapter.promise()
async def a_paused_queue_keeps_the_places(scene: Scene) -> None:
    """Its jobs are ready, and others wait."""
    ids = await scene.add_many(2, gates=cap(1))
    await scene.store.set_queue(LANE, QueueChange(paused=True), AuditNote(who="ann"))
    worker = await scene.worker()
    assert await scene.claim(worker, 9) == []
    assert await states(scene, ids) == [READY, BLOCKED]
    assert await scene.used(NARROW) == 1
    await scene.store.set_queue(LANE, QueueChange(paused=False), AuditNote(who="ann"))
    assert [claim.id for claim in await scene.claim(worker, 9)] == ids[:1]


@chapter.promise()
async def two_gates_are_passed_one_after_the_other(scene: Scene) -> None:
    """A job that waits for the narrow one holds no place of the wide one."""
    others = "1k:mail/bob"

    def gates(name: str) -> tuple[GateSpec, ...]:
        return cap(2, name) + cap(3, WIDE)

    ids = await scene.add_many(4, gates=gates(NARROW))
    rows = await scene.gates()
    assert [(rows[n].used, rows[n].waiting) for n in (NARROW, WIDE)] == [(2, 2), (2, 0)]
    more = await scene.add_many(3, gates=gates(others))
    rows = await scene.gates()
    assert [(row.used, row.waiting) for row in rows.values()] == [
        (2, 2),
        (2, 1),
        (3, 1),
    ]
    worker = await scene.worker()
    claims = await scene.claim(worker, 9)
    assert [claim.id for claim in claims] == [*ids[:2], more[0]]
    # One of the narrow places is free, and the wide one goes to the job that waits there.
    answer = await scene.exchange(worker, [outcome(claims[0])], 9)
    assert [claim.id for claim in answer.claims] == [more[1]]
    rows = await scene.gates()
    assert [(row.used, row.waiting) for row in rows.values()] == [
        (2, 1),
        (2, 1),
        (3, 1),
    ]
    assert await states(scene, [ids[2], more[2]]) == [BLOCKED, BLOCKED]


@chapter.promise("M71")
async def a_changed_cap_holds_at_once(scene: Scene) -> None:
    """A higher one lets jobs pass, a lower one nobody until places are free."""
    ids = await scene.add_many(6, gates=cap(1))
    assert await change(scene, GateChange(NARROW, cap=3)) == [1]
    assert await states(scene, ids) == [READY] * 3 + [BLOCKED] * 3
    assert await change(scene, GateChange(NARROW, cap=1)) == [1]
    worker = await scene.worker()
    for claim in await scene.claim(worker, 2):
        await scene.finish(worker, claim)
    assert await states(scene, ids[2:]) == [READY, *[BLOCKED] * 3]
    (claim,) = await scene.claim(worker, 9)
    await scene.finish(worker, claim)
    assert await states(scene, ids[3:]) == [READY, BLOCKED, BLOCKED]
    await change(scene, GateChange(NARROW, cap=0))
    await scene.store.act(ids[3:4], CancelJobs())
    assert await states(scene, ids[4:]) == [BLOCKED] * 2
    await change(scene, GateChange(NARROW, cap=None))
    assert await states(scene, ids[4:]) == [READY] * 2
    assert await scene.used(NARROW) == 0


@chapter.promise()
async def an_arriving_job_does_not_change_a_gate(scene: Scene) -> None:
    """Its spec counts if the gate has no limit: at first, and after a drop."""
    await scene.add_many(2, gates=cap(1))
    ids = await scene.add_many(2, gates=cap(5))
    assert (await scene.gates())[NARROW].cap == 1
    assert await change(scene, GateChange(NARROW, drop=True)) == [1]
    assert await states(scene, ids) == [READY] * 2
    row = (await scene.gates())[NARROW]
    assert (row.cap, row.used, row.waiting) == (None, 1, 0)
    ids = await scene.add_many(3, gates=cap(2))
    assert await states(scene, ids) == [READY, BLOCKED, BLOCKED]
    row = (await scene.gates())[NARROW]
    assert (row.cap, row.used, row.waiting) == (2, 2, 2)


@chapter.promise()
async def a_closed_gate_opens_at_its_time(scene: Scene) -> None:
    """Or when it is opened; no row means open."""
    gates = (GateSpec("0b:smtp"),)
    assert (await scene.send(gates=gates)).state == READY
    assert await scene.gates() == {}
    assert await change(scene, GateChange("0b:smtp", until_seconds=20.0)) == [1]
    ids = await scene.add_many(2, gates=gates)
    assert await states(scene, ids) == [BLOCKED] * 2
    (row,) = (await scene.gates()).values()
    assert (row.cap, row.used, row.until, row.waiting) == (
        *(None, 0, scene.clock.now() + 20.0, 2),
    )
    due = (await scene.store.settle(9)).next_due_seconds
    assert due is not None
    assert abs(due - 20.0) < 0.001
    scene.clock.advance(19.0)
    await scene.settle()
    assert await states(scene, ids) == [BLOCKED] * 2
    scene.clock.advance(1.0)
    await scene.settle()
    assert await states(scene, ids) == [READY] * 2
    assert (await scene.store.settle(9)).next_due_seconds is None
    await change(scene, GateChange("0b:smtp", until_seconds=20.0))
    late = await scene.add(gates=gates)
    await change(scene, GateChange("0b:smtp", until_seconds=None, cap=2))
    assert await scene.is_ready(late)
    assert await scene.used("0b:smtp") == 1


@chapter.promise()
async def gates_are_changed_by_prefix(scene: Scene) -> None:
    """Those that exist and become different, and no other."""
    names = ["1k:mail/", "1k:mail/a", "1k:mail/b", "1k:mail0", "1k:mai"]
    ids = [(await scene.add_many(2, gates=cap(1, name)))[1] for name in names]
    await change(scene, GateChange("1k:mail/b", cap=2))
    prefix = GateChange("1k:mail/", is_prefix=True, cap=2)
    assert await change(scene, prefix) == [2]
    assert await states(scene, ids) == [READY] * 3 + [BLOCKED] * 2
    assert await change(scene, prefix) == [0]
    assert await change(scene, GateChange("1k:", is_prefix=True, drop=True)) == [5]
    assert await states(scene, ids) == [READY] * 5
    assert len(await scene.store.gates("1k:mail/", limit=2)) == 2


@chapter.promise()
async def changes_are_written_with_the_rest_or_not(scene: Scene) -> None:
    """A conflict leaves the gate, and so does a fenced outcome."""
    worker, claim = await scene.running(gates=cap(1))
    waiting = await scene.add(gates=cap(1))
    opens = GateChange(NARROW, cap=2)
    puts = [Put(KIND, "a", b"1", if_version=7)]
    committed = await scene.store.commit(Effects(puts=puts, gates=[opens]))
    assert committed.conflict is not None
    effects = Effects(puts=puts, gates=[opens])
    answer = await scene.exchange(worker, [outcome(claim, effects=effects)], 0)
    assert answer.rejected[0].conflict is not None
    late = outcome(claim, effects=Effects(gates=[opens]))._replace(claim_no=9)
    await scene.exchange(worker, [late], 0)
    assert (await scene.gates())[NARROW].cap == 1
    assert await scene.state(waiting) == BLOCKED


@chapter.promise("M54")
async def a_change_comes_before_the_jobs_that_it_concerns(scene: Scene) -> None:
    """A job that closes its gate as it ends gives its place to nobody."""
    worker, claim = await scene.running(gates=cap(1))
    waiting = await scene.add(gates=cap(1))
    closed = Effects(gates=[GateChange(NARROW, until_seconds=20.0)])
    answer = await scene.exchange(worker, [outcome(claim, effects=closed)], 9)
    assert (answer.rejected, answer.claims) == ([], [])
    assert await scene.used(NARROW) == 0
    job = scene.job(gates=cap(1, WIDE))
    shut = Effects([job], gates=[GateChange(WIDE, cap=0)])
    committed = await scene.store.commit(shut)
    assert [each.state for each in committed.enqueued] == [BLOCKED]
    opened = Effects(gates=[GateChange(WIDE, cap=1)])
    await scene.store.act([waiting], CancelJobs(), effects=opened)
    assert await states(scene, [waiting, job.id]) == [CANCELLED, READY]


@chapter.promise()
async def jobs_of_effects_stand_before_gates(scene: Scene) -> None:
    """As those of any call; two jobs of one commit are counted together."""
    worker, claim = await scene.running()
    jobs = [scene.job(gates=cap(1)) for _ in range(2)]
    answer = await scene.exchange(worker, [outcome(claim, effects=Effects(jobs))], 9)
    assert [each.id for each in answer.claims] == [jobs[0].id]
    assert await scene.state(jobs[1].id) == BLOCKED


@chapter.promise()
async def nobody_is_left_before_an_open_gate(scene: Scene) -> None:
    """One transaction lets 1,000 jobs pass; `settle` goes on."""
    await scene.add(gates=cap(1))
    for start in range(0, 2500, 500):
        await scene.add_many(500, gates=cap(1), rank=start // 500)
    committed = await scene.store.commit(Effects(gates=[GateChange(NARROW, cap=9999)]))
    assert list(committed.gates) == [1]
    assert (await count_jobs(scene.store, "shop"))[LANE][BLOCKED] == 1500
    settled = await scene.store.settle(500)
    assert (settled.count, settled.next_due_seconds) == (500, 0.0)
    await scene.settle()
    assert await count_jobs(scene.store, "shop") == {LANE: {READY: 2501}}
    assert await scene.used(NARROW) == 2501
    assert await scene.store.settle(500) == (0, None, False)


@chapter.promise()
async def a_gate_without_use_is_deleted(scene: Scene) -> None:
    """After an hour; one that limits nothing at once; one that is used never."""
    worker, claim = await scene.running(gates=cap(1))
    await scene.add(gates=cap(1, "1k:done"))
    (done,) = await scene.claim(worker, 9)
    await scene.finish(worker, done)
    slow = (GateSpec("2r:slow", rate=1 / HOUR / 24.0),)
    await scene.add(gates=slow)
    await change(
        scene,
        GateChange("0b:open", until_seconds=0.0),
        GateChange("0b:shut", until_seconds=9 * HOUR),
    )
    await scene.store.prune(9, dead_count=9)
    assert set(await scene.gates()) == {NARROW, "0b:shut", "1k:done", "2r:slow"}
    scene.clock.advance(2 * HOUR)
    await scene.store.prune(9, dead_count=9)
    assert set(await scene.gates()) == {NARROW, "0b:shut", "2r:slow"}
    scene.clock.advance(24 * HOUR)
    await scene.finish(worker, claim)
    await scene.store.prune(9, dead_count=9)
    assert await scene.gates() == {}
