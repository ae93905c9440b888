"""What a store promises about places: how long a job holds them, and who gets them."""

from itertools import product

from durio.model.effects import Effects
from durio.model.gate import (
    ATTEMPT,
    FINAL,
    START,
    GateChange,
    GateSpec,
)
from durio.model.job import BLOCKED, CANCELLED, DEAD, DONE, READY, RUNNING, SCHEDULED
from durio.model.keys import replace
from durio.model.logs import OnEnd, Wait
from durio.model.outcome import OutcomeKind
from durio.ports.control import (
    CancelJobs,
    DiscardJobs,
    MoveJobs,
    RetryJobs,
    RunJobsNow,
)
from tests.conformance.gates import NARROW, OTHER_LANE, WIDE, cap, change, states
from tests.conformance.logs import LOG, append
from tests.conformance.promises import Chapter
from tests.conformance.scene import LANE, OTHER_PAYLOAD, Scene, key, outcome

chapter = Chapter("places")
OURS = ("has_transactions",)
# By kind of outcome and delay: the state, and how long places are held that are kept.
ENDS = {
    ("DONE", 0.0): (DONE, ()),
    ("DEAD", 0.0): (DEAD, ()),
    ("CANCEL", 0.0): (CANCELLED, ()),
    ("RETRY", 0.0): (READY, (ATTEMPT, FINAL)),
    ("RETRY", 20.0): (SCHEDULED, (FINAL,)),
    ("SNOOZE", 0.0): (READY, (ATTEMPT, FINAL)),
    ("SNOOZE", 20.0): (SCHEDULED, (FINAL,)),
    ("RELEASE", 0.0): (READY, (ATTEMPT, FINAL)),
    ("RELEASE", 20.0): (SCHEDULED, (FINAL,)),
    ("LOST", 0.0): (READY, (ATTEMPT, FINAL)),
}


@chapter.promise("M71")
async def a_place_is_held_as_long_as_asked(scene: Scene) -> None:
    """For the attempt, until the start, or until the end; whoever waits gets it."""
    for (kind, delay), (state, keeps) in ENDS.items():
        for held_until in (ATTEMPT, START, FINAL):
            name = f"1k:{kind}/{delay}/{held_until}"
            gates = cap(1, name, held_until=held_until)
            worker, claim = await scene.running(gates=gates)
            assert await scene.used(name) == (held_until != START)
            waiting = await scene.add(gates=gates, lane=OTHER_LANE)
            is_free = held_until == START
            assert await scene.is_ready(waiting) is is_free
            end = outcome(claim, OutcomeKind[kind], delay_seconds=delay)
            assert (await scene.exchange(worker, [end], 0)).rejected == []
            assert await scene.state(claim.id) == state
            is_free = is_free or held_until not in keeps
            assert await scene.is_ready(waiting) is is_free, name
            assert await scene.used(name) == 1
            await scene.store.act([claim.id, waiting], CancelJobs())
            assert await scene.used(name) == 0


@chapter.promise()
async def a_job_passes_again_when_it_is_due(scene: Scene) -> None:
    """It waits behind the others, but not for a place that it has kept."""
    first, last = cap(1, NARROW, held_until=FINAL), cap(1, WIDE)
    worker, claim = await scene.running(gates=first + last)
    other = await scene.add(gates=last)
    snooze = outcome(claim, OutcomeKind.SNOOZE, delay_seconds=20.0)
    answer = await scene.exchange(worker, [snooze], 9)
    (running,) = answer.claims
    assert running.id == other
    assert [await scene.used(name) for name in (NARROW, WIDE)] == [1, 1]
    scene.clock.advance(21.0)
    await scene.store.promote(9)
    assert await scene.state(claim.id) == BLOCKED
    assert (await scene.gates())[WIDE].waiting == 1
    answer = await scene.exchange(worker, [outcome(running)], 9)
    assert [each.id for each in answer.claims] == [claim.id]
    assert [await scene.used(name) for name in (NARROW, WIDE)] == [1, 1]


@chapter.promise()
async def a_due_job_passes_before_the_same_call_claims(scene: Scene) -> None:
    """Its lane is read by an exchange; a second one stays before the gate."""
    worker = await scene.worker()
    ids = await scene.add_many(2, gates=cap(1), delay=20.0)
    assert await states(scene, ids) == [SCHEDULED] * 2
    assert await scene.gates() == {}
    scene.clock.advance(21.0)
    assert [claim.id for claim in await scene.claim(worker, 9)] == ids[:1]
    assert await states(scene, ids) == [RUNNING, BLOCKED]


@chapter.promise()
async def the_wait_for_a_log_comes_before_the_gates(scene: Scene) -> None:
    """Then the delay, then the gates."""
    first = await scene.add(gates=cap(1), wait=Wait(LOG, 0))
    delayed = await scene.add(gates=cap(1), wait=Wait(LOG, 0), delay=20.0)
    held = await scene.add(gates=cap(1))
    assert (await scene.gates())[NARROW].waiting == 0
    await scene.store.commit(append(b"x"))
    assert await states(scene, [first, delayed]) == [BLOCKED, SCHEDULED]
    await scene.store.act([held], CancelJobs())
    assert await states(scene, [first, delayed]) == [READY, SCHEDULED]
    scene.clock.advance(21.0)
    await scene.store.promote(9)
    assert await states(scene, [first, delayed]) == [READY, BLOCKED]
    late = await scene.send(gates=cap(2, WIDE), wait=Wait(LOG, 0))
    assert late.state == READY  # its wait is over already


@chapter.promise()
async def run_now_leads_to_the_gate(scene: Scene) -> None:
    """A job that stands there already stays there."""
    ids = await scene.add_many(2, gates=cap(1), delay=20.0)
    acted = await scene.store.act(ids, RunJobsNow())
    assert [one.after for one in acted] == [READY, BLOCKED]
    (one,) = await scene.store.act(ids[1:], RunJobsNow())
    assert one.after == BLOCKED


@chapter.promise()
async def a_released_job_may_pass_its_gates_again(scene: Scene) -> None:
    """It gives its places back, except one that is held until the end."""
    kept = cap(1, "1k:kept", held_until=FINAL)
    breaker = (GateSpec("0b:smtp"),)
    gates = breaker + kept + cap(1, WIDE)
    worker, claim = await scene.running(gates=gates)
    assert await scene.gates("0b:") == {}
    other = await scene.add(gates=cap(1, WIDE))
    await change(scene, GateChange("0b:smtp", until_seconds=20.0))
    again = outcome(claim, OutcomeKind.RELEASE, again_from_gates=True)
    answer = await scene.exchange(worker, [again], 9)
    (running,) = answer.claims
    assert running.id == other
    record = await scene.record(claim.id)
    assert (record.state, record.retried, record.losses) == (BLOCKED, 0, 0)
    assert [await scene.used(name) for name in ("1k:kept", WIDE)] == [1, 1]
    scene.clock.advance(21.0)
    await scene.settle()
    assert (await scene.gates())[WIDE].waiting == 1
    answer = await scene.exchange(worker, [outcome(running)], 9)
    assert [each.id for each in answer.claims] == [claim.id]


@chapter.promise()
async def a_release_through_open_gates_is_queued_anew(scene: Scene) -> None:
    """Without gates it is a plain release; a cancel that was asked for wins."""
    worker, claim = await scene.running(gates=cap(1))
    plain = await scene.add()
    release = outcome(claim, OutcomeKind.RELEASE, again_from_gates=True)
    answer = await scene.exchange(worker, [release], 9)
    claims = answer.claims
    assert [each.id for each in claims] == [plain, claim.id]
    answer = await scene.exchange(worker, [release._replace(id=plain, claim_no=1)], 9)
    assert [each.id for each in answer.claims] == [plain]
    await scene.store.act([claim.id], CancelJobs())
    assert await scene.used(NARROW) == 1
    answer = await scene.exchange(worker, [release._replace(claim_no=2)], 0)
    assert answer.cancelled == [claim.id]
    assert await scene.used(NARROW) == 0


@chapter.promise("M73")
async def a_lost_worker_keeps_or_frees_the_places(scene: Scene) -> None:
    """A job that goes back keeps its place, a job that is dead gives it to the next."""
    worker, claim = await scene.running(gates=cap(1))
    waiting = await scene.add(gates=cap(1))
    for losses in range(3):
        assert await scene.state(waiting) == BLOCKED
        assert await scene.used(NARROW) == 1
        if losses:
            worker, claim = await scene.claim_one()
        await scene.finish(worker, claim, kind=OutcomeKind.ALONE)
        await scene.lose(worker)
    assert await scene.state(claim.id) == DEAD
    assert await scene.is_ready(waiting)
    assert await scene.used(NARROW) == 1


@chapter.promise()
async def a_worker_that_leaves_frees_no_place(scene: Scene) -> None:
    """Its jobs go back to the queue and keep their places."""
    worker, claim = await scene.running(gates=cap(1))
    waiting = await scene.add(gates=cap(1))
    await scene.store.leave(worker)
    assert await states(scene, [claim.id, waiting]) == [READY, BLOCKED]
    assert await scene.used(NARROW) == 1


@chapter.promise()
async def a_cancelled_job_gives_its_places_back(scene: Scene) -> None:
    """Before a gate, in its queue, scheduled or running."""
    kept, both = cap(9, NARROW, held_until=FINAL), cap(1, WIDE)
    worker, claim = await scene.running(gates=kept + both)
    ready = await scene.add(gates=kept)
    before = await scene.add(gates=kept + both)
    assert [await scene.used(name) for name in (NARROW, WIDE)] == [3, 1]
    for job_id, used in ((ready, 2), (before, 1)):
        (one,) = await scene.store.act([job_id], CancelJobs())
        assert one.after == CANCELLED
        assert await scene.used(NARROW) == used
    assert (await scene.gates())[WIDE].waiting == 0
    snooze = outcome(claim, OutcomeKind.SNOOZE, delay_seconds=20.0)
    await scene.exchange(worker, [snooze], 0)
    assert [await scene.used(name) for name in (NARROW, WIDE)] == [1, 0]
    await scene.store.act([claim.id], CancelJobs())
    assert await scene.used(NARROW) == 0
    assert await scene.claim(worker, 9) == []


@chapter.promise()
async def a_retried_job_passes_its_gates_again(scene: Scene) -> None:
    """Also one that was cancelled before it had passed; a dead one may be deleted."""
    worker, claim = await scene.running(gates=cap(1))
    waiting = await scene.add(gates=cap(1))
    await scene.store.act([waiting], CancelJobs())
    await scene.finish(worker, claim, kind=OutcomeKind.DEAD)
    for job_id, state in ((waiting, READY), (claim.id, BLOCKED)):
        (one,) = await scene.store.act([job_id], RetryJobs())
        assert one.after == state
    (running,) = await scene.claim(worker, 9)
    assert running.id == waiting
    await scene.finish(worker, running, kind=OutcomeKind.DEAD)
    assert await scene.is_ready(claim.id)
    await scene.store.act([waiting], DiscardJobs())
    assert await scene.used(NARROW) == 1


@chapter.promise("M85")
async def a_retry_with_other_arguments_keeps_its_gates(scene: Scene) -> None:
    """Its gates are those that it was stored with, whatever the new arguments say."""
    gates = cap(1, NARROW) + cap(1, WIDE)
    worker, claim = await scene.running(gates=gates)
    await scene.finish(worker, claim, kind=OutcomeKind.DEAD)
    holder = await scene.add(gates=cap(1, WIDE))
    (one,) = await scene.store.act([claim.id], RetryJobs(OTHER_PAYLOAD))
    assert one.after == BLOCKED
    assert (await scene.gates())[WIDE].waiting == 1
    assert [await scene.used(name) for name in (NARROW, WIDE)] == [1, 1]
    await scene.store.act([holder], CancelJobs())
    (again,) = await scene.claim(worker, 9)
    assert (again.id, again.payload) == (claim.id, OTHER_PAYLOAD)
    assert [await scene.used(name) for name in (NARROW, WIDE)] == [1, 1]
    await scene.finish(worker, again)
    assert [await scene.used(name) for name in (NARROW, WIDE)] == [0, 0]


@chapter.promise()
async def a_repeated_or_late_end_frees_nothing_more(scene: Scene) -> None:
    """Neither the repeat of a lost reply nor a worker that was rescued."""
    ids = await scene.add_many(3, gates=cap(1))
    worker = await scene.worker()
    (claim,) = await scene.claim(worker)
    for _ in range(2):
        await scene.exchange(worker, [outcome(claim)], 0)
        assert await states(scene, ids) == [DONE, READY, BLOCKED]
        assert await scene.used(NARROW) == 1
    (claim,) = await scene.claim(worker)
    await scene.lose(worker)
    await scene.exchange(worker, [outcome(claim)], 0)
    assert await states(scene, ids) == [DONE, READY, BLOCKED]


@chapter.promise()
async def many_ends_of_one_exchange_free_all(scene: Scene) -> None:
    """Among jobs without gates, with keys, entries and a retention of their own."""
    for n in range(40):
        fields: dict[str, object] = {"gates": cap(2, f"1k:{n % 7}")} if n % 3 else {}
        if n % 5 == 0:
            fields["key"] = key(replace, text=f"{n}")
        if n % 4 == 0:
            fields["on_end"] = (OnEnd(LOG, tag=n),)
        await scene.add(**fields)
    worker, done = await scene.worker(), 0
    claims = await scene.claim(worker, 40)
    while claims:
        done += len(claims)
        ends = [outcome(claim) for claim in claims]
        answer = await scene.exchange(worker, ends, 40)
        assert answer.rejected == []
        await scene.gates()
        claims = answer.claims
    assert done == 40
    assert {row.used for row in (await scene.gates()).values()} == {0}


@chapter.promise(needs=OURS)
async def the_end_in_a_transaction_frees_with_it(scene: Scene) -> None:
    """A rollback frees nothing."""
    worker, claim = await scene.running(gates=cap(1))
    waiting = await scene.add(gates=cap(1))
    own = await scene.store.transaction(worker)
    await own.roll_back()
    assert await scene.state(waiting) == BLOCKED
    own = await scene.store.transaction(worker)
    await own.commit(outcome(claim, result=b"1"))
    await scene.settle()
    assert await scene.is_ready(waiting)
    assert await scene.used(NARROW) == 1


@chapter.promise("M98", needs=("fault",))
async def a_fault_at_any_statement_moves_no_place(scene: Scene) -> None:
    """Neither the job nor those that wait; afterwards the same call succeeds."""
    await scene.store.declare({LANE: 9})
    gates = cap(1, held_until=FINAL) + cap(2, WIDE)
    jobs = [scene.job(gates=gates) for _ in range(2)]
    await scene.after_every_fault(lambda: scene.store.enqueue(jobs))
    worker = await scene.worker()
    answer = await scene.after_every_fault(lambda: scene.exchange(worker))
    (claim,) = answer.claims
    effects = Effects(
        [scene.job(gates=gates)], gates=[GateChange(NARROW, cap=2), GateChange("0b:x")]
    )
    again = outcome(claim, OutcomeKind.RELEASE, again_from_gates=True)
    await scene.after_every_fault(lambda: scene.exchange(worker, [again], 0))
    (claim,) = await scene.claim(worker)
    done = outcome(claim, effects=effects)
    answer = await scene.after_every_fault(lambda: scene.exchange(worker, [done], 9))
    assert [each.id for each in answer.claims] == [jobs[1].id, effects.jobs[0].id]
    claim, other = answer.claims
    await scene.after_every_fault(lambda: scene.lose(worker))
    assert await states(scene, [claim.id, other.id]) == [READY] * 2
    ids = [claim.id, await scene.add(gates=gates)]
    for action in (CancelJobs(), RetryJobs(), MoveJobs(OTHER_LANE)):
        await scene.after_every_fault(lambda a=action: scene.store.act(ids, a))
    assert [await scene.used(name) for name in (NARROW, WIDE)] == [2, 2]


@chapter.promise()
async def what_is_held_is_what_is_used(scene: Scene) -> None:
    """After every call of a long mixture, by the jobs that hold the places."""
    gates = cap(2, held_until=FINAL) + cap(2, WIDE) + cap(3, "4x:all", held_until=START)
    worker = await scene.worker()
    kinds = ("RETRY", "SNOOZE", "RELEASE", "DEAD", "DONE", "CANCEL", "LOST")
    for n, (kind, delay) in enumerate(product(kinds, (0.0, 20.0))):
        await scene.add_many(2, gates=gates[n % 3 :], delay=delay)
        await scene.gates()
        for claim in await scene.claim(worker, 2):
            await scene.gates()
            end = outcome(
                claim,
                OutcomeKind[kind],
                delay_seconds=delay,
                again_from_gates=kind == "RELEASE",
            )
            await scene.exchange(worker, [end], 0)
            await scene.gates()
        scene.clock.advance(7.0)
        await scene.store.promote(3)
        await scene.gates()
    await scene.store.act([job.id for job in await scene.records()], CancelJobs())
    assert {row.used for row in (await scene.gates()).values()} == {0}
