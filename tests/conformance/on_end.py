"""What a store promises about the entries that a job appends when it ends."""

from typing import NamedTuple

from durio.model.effects import Append, Effects, NewEntry, Put
from durio.model.ids import id_text
from durio.model.job import (
    CANCELLED,
    DEAD,
    DONE,
    READY,
    RUNNING,
    SCHEDULED,
    Claim,
)
from durio.model.keys import while_active
from durio.model.logs import (
    ANY_END,
    CANCELLED_END,
    DEAD_END,
    DONE_END,
    FAILED_END,
    OnEnd,
    Wait,
)
from durio.model.outcome import KeepRule, OutcomeKind
from durio.model.ties import ENTRY_BODY_MAX
from durio.model.transitions import LOST_MAX
from durio.ports.conflicts import Conflict, EffectsRefused
from durio.ports.control import (
    AuditNote,
    CancelJobs,
    DiscardJobs,
    QueueChange,
    RetryJobs,
)
from durio.ports.logs import Entry
from tests.conformance.logs import LOG, OTHER_LOG
from tests.conformance.promises import Chapter
from tests.conformance.records import KIND
from tests.conformance.scene import LANE, Scene, key, outcome

chapter = Chapter("on_end")
OURS = ("has_transactions",)
ERROR = b'{"type":"ValueError","message":"no"}'
EVERY = tuple(
    OnEnd(f"t:shop/{when}", when, when)
    for when in (DONE_END, DEAD_END, CANCELLED_END, FAILED_END, ANY_END)
)


async def entries(scene: Scene) -> dict[int, list[tuple[int | None, bytes | None]]]:
    """Return by `when` what the ends of one job with EVERY have appended: state, body."""
    found: dict[int, list[tuple[int | None, bytes | None]]] = {}
    for end in EVERY:
        if some := await scene.log(end.log):
            assert {entry.tag for entry in some} == {end.tag}
            found[end.when] = [(entry.state, entry.body) for entry in some]
    return found


def all_of(state: int, body: bytes | None, *bits: int) -> dict[int, list[object]]:
    return {bit: [(state, body)] for bit in bits}


async def end(
    scene: Scene, worker: int, claim: Claim, kind: OutcomeKind, **fields: object
) -> int:
    await scene.exchange(worker, [outcome(claim, kind, **fields)], 0)
    return await scene.state(claim.id)


@chapter.promise("M144", "M146")
async def a_done_job_appends_its_result(scene: Scene) -> None:
    """In the transaction of its end: with its tag, state and id."""
    blocked = await scene.add(wait=Wait(LOG, 0))
    worker, claim = await scene.running(on_end=(OnEnd(LOG, tag=7),))
    scene.clock.advance(1.0)
    answer = await scene.exchange(worker, [outcome(claim, result=b"42")], 0)
    assert answer.settle_in_seconds is None
    now = scene.clock.now()
    assert await scene.log(LOG) == [Entry(0, now, 7, DONE, claim.id, None, b"42")]
    assert await scene.is_ready(blocked)


@chapter.promise()
async def done_appends_what_is_for_done(scene: Scene) -> None:
    """Also without a result."""
    worker, claim = await scene.running(on_end=EVERY)
    assert await end(scene, worker, claim, OutcomeKind.DONE) == DONE
    assert await entries(scene) == all_of(DONE, None, DONE_END, ANY_END)


@chapter.promise("M149")
async def dead_appends_the_error(scene: Scene) -> None:
    """With the state and the last error."""
    worker, claim = await scene.running(on_end=EVERY)
    state = await end(
        scene, worker, claim, OutcomeKind.DEAD, error=ERROR, reason="permanent"
    )
    assert state == DEAD
    assert await entries(scene) == all_of(DEAD, ERROR, DEAD_END, FAILED_END, ANY_END)


@chapter.promise()
async def a_cancel_appends_whoever_does_it(scene: Scene) -> None:
    """The task itself, an operator before the start, or one while it runs."""
    cancelled = all_of(CANCELLED, None, CANCELLED_END, FAILED_END, ANY_END)
    worker, claim = await scene.running(on_end=EVERY)
    assert await end(scene, worker, claim, OutcomeKind.CANCEL) == CANCELLED
    assert await entries(scene) == cancelled
    await scene.store.drop_logs([end.log for end in EVERY])
    for fields in ({}, {"delay": 60.0}, {"wait": Wait(LOG, 0)}):
        job_id = await scene.add(on_end=EVERY, **fields)
        await scene.store.act([job_id], CancelJobs())
        assert await entries(scene) == cancelled
        await scene.store.drop_logs([end.log for end in EVERY])
    worker, claim = await scene.running(on_end=EVERY)
    await scene.store.act([claim.id], CancelJobs())
    assert await entries(scene) == {}
    state = await end(scene, worker, claim, OutcomeKind.RETRY, error=ERROR)
    assert state == CANCELLED
    assert {each[0][0] for each in (await entries(scene)).values()} == {CANCELLED}


@chapter.promise("M149")
async def a_rescue_that_ends_a_job_appends(scene: Scene) -> None:
    """Here no code of the job's App runs."""
    job_id = await scene.add(on_end=EVERY)
    for n in range(LOST_MAX):
        worker, claim = await scene.claim_one()
        if n == LOST_MAX - 1:
            await end(scene, worker, claim, OutcomeKind.ALONE)
        assert await entries(scene) == {}
        await scene.lose(worker)
    assert await scene.state(job_id) == DEAD
    found = await entries(scene)
    assert set(found) == {DEAD_END, FAILED_END, ANY_END}
    ((state, body),) = found[ANY_END]
    assert state == DEAD
    assert b"WorkerLost" in (body or b"")


@chapter.promise()
async def what_runs_again_appends_nothing(scene: Scene) -> None:
    """Retry, snooze, release and loss are no ends."""
    for kind in ("RETRY", "SNOOZE", "RELEASE", "LOST"):
        worker, claim = await scene.running(on_end=EVERY)
        for delay in (0.0, 60.0):
            state = await end(
                scene, worker, claim, OutcomeKind[kind], delay_seconds=delay
            )
            assert state == (SCHEDULED if delay else READY)
            if not delay:
                (claim,) = await scene.claim(worker)
        assert await entries(scene) == {}
        await scene.store.act([claim.id], CancelJobs(is_quiet=True))


@chapter.promise()
async def a_retried_job_appends_no_second_any(scene: Scene) -> None:
    """It appends its `done`, and each failure if asked for failures alone."""
    worker, claim = await scene.running(on_end=EVERY)
    await end(scene, worker, claim, OutcomeKind.DEAD, error=ERROR)
    await scene.store.act([claim.id], RetryJobs())
    (claim,) = await scene.claim(worker)
    await end(scene, worker, claim, OutcomeKind.DEAD, error=ERROR)
    await scene.store.act([claim.id], RetryJobs())
    (claim,) = await scene.claim(worker)
    assert await end(scene, worker, claim, OutcomeKind.DONE, result=b"1") == DONE
    assert await entries(scene) == {
        DONE_END: [(DONE, b"1")],
        DEAD_END: [(DEAD, ERROR)] * 2,
        FAILED_END: [(DEAD, ERROR)] * 2,
        ANY_END: [(DEAD, ERROR)],
    }


@chapter.promise()
async def a_long_result_is_left_in_the_job(scene: Scene) -> None:
    """An entry contains at most 4 KiB of it."""
    fits, long = b"1" * ENTRY_BODY_MAX, b"1" * (ENTRY_BODY_MAX + 1)
    for result in (fits, long):
        worker, claim = await scene.running(on_end=(OnEnd(LOG),))
        await scene.finish(worker, claim, result=result)
    found = await scene.log(LOG)
    assert [entry.body for entry in found] == [fits, None]
    assert (await scene.record(found[1].job or b"")).result == long


@chapter.promise()
async def a_log_takes_one_entry_of_a_tag_if_asked(scene: Scene) -> None:
    """The first one counts; entries without `once` are not concerned."""
    once = (OnEnd(LOG, ANY_END, 1, once=True), OnEnd(OTHER_LOG, ANY_END, 1))
    for kind in (OutcomeKind.DEAD, OutcomeKind.DONE):
        worker, claim = await scene.running(on_end=once)
        await end(scene, worker, claim, kind)
    worker, claim = await scene.running(on_end=(OnEnd(LOG, tag=2, once=True),))
    await scene.finish(worker, claim)
    assert [(e.tag, e.state) for e in await scene.log(LOG)] == [(1, DEAD), (2, DONE)]
    assert [e.state for e in await scene.log(OTHER_LOG)] == [DEAD, DONE]


@chapter.promise()
async def a_quiet_end_appends_nothing(scene: Scene) -> None:
    """A waiting job that is cancelled quietly keeps its entries for a retry."""
    worker, claim = await scene.running(on_end=EVERY)
    assert await end(scene, worker, claim, OutcomeKind.DONE, is_quiet=True) == DONE
    job_id = await scene.add(on_end=EVERY)
    await scene.store.act([job_id], CancelJobs("parent_dead", is_quiet=True))
    assert await entries(scene) == {}
    await scene.store.act([job_id], RetryJobs())
    (claim,) = await scene.claim(worker)
    assert await end(scene, worker, claim, OutcomeKind.DONE) == DONE
    assert set(await entries(scene)) == {DONE_END, ANY_END}


@chapter.promise()
async def a_running_job_that_is_cancelled_quietly_appends_nothing(scene: Scene) -> None:
    """However it ends then; its reason is stored, and it keeps its entries for a retry."""
    quiet = CancelJobs("plan_cancelled", is_quiet=True)
    worker, claim = await scene.running(on_end=EVERY)
    for kind in (OutcomeKind.CANCEL, OutcomeKind.DEAD, OutcomeKind.LOST):
        await scene.store.act([claim.id], quiet)
        assert await end(scene, worker, claim, kind, error=ERROR) == CANCELLED
        assert await entries(scene) == {}
        assert (await scene.record(claim.id)).reason == quiet.reason
        await scene.store.act([claim.id], RetryJobs())
        (claim,) = await scene.claim(worker)
    await scene.store.act([claim.id], CancelJobs())  # the quiet one was for one run
    assert await end(scene, worker, claim, OutcomeKind.CANCEL) == CANCELLED
    assert set(await entries(scene)) == {CANCELLED_END, FAILED_END, ANY_END}
    worker, claim = await scene.running(on_end=(OnEnd(LOG),))
    await scene.store.act([claim.id], quiet)
    assert await end(scene, worker, claim, OutcomeKind.DONE, result=b"1") == DONE
    assert [entry.body for entry in await scene.log(LOG)] == [b"1"]


@chapter.promise()
async def many_ends_of_one_exchange_append_all(scene: Scene) -> None:
    """Among jobs without ties, with keys, and with a retention of their own."""
    for n in range(40):
        fields = {"key": key(while_active, text=f"{n}")} if n % 5 == 0 else {}
        await scene.add(on_end=(OnEnd(LOG, tag=n),) if n % 2 else (), **fields)
    worker = await scene.worker()
    claims = await scene.claim(worker, 40)
    outcomes = [
        outcome(
            claim,
            result=b"%d" % n,
            keep=None if n % 3 else KeepRule(0.0 if n % 2 else 60.0),
        )
        for n, claim in enumerate(claims)
    ]
    assert (await scene.exchange(worker, outcomes, 0)).rejected == []
    found = await scene.log(LOG)
    assert sorted((e.tag, e.body) for e in found) == [
        (n, b"%d" % n) for n in range(1, 40, 2)
    ]


@chapter.promise()
async def a_repeated_or_late_end_appends_nothing(scene: Scene) -> None:
    """Neither the repeat of a lost reply nor a worker that was rescued."""
    worker, claim = await scene.running(on_end=EVERY)
    await scene.finish(worker, claim)
    answer = await scene.exchange(worker, [outcome(claim)], 0)
    assert [r.already_stored for r in answer.rejected] == [True]
    assert await entries(scene) == all_of(DONE, None, DONE_END, ANY_END)
    worker, claim = await scene.running(on_end=(OnEnd(LOG),))
    await scene.lose(worker)
    answer = await scene.exchange(worker, [outcome(claim)], 0)
    assert [r.already_stored for r in answer.rejected] == [False]
    assert await scene.log(LOG) == []


@chapter.promise()
async def a_deleted_job_appends_nothing_more(scene: Scene) -> None:
    """It has appended when it died."""
    worker, claim = await scene.running(on_end=EVERY)
    await end(scene, worker, claim, OutcomeKind.DEAD)
    before = await entries(scene)
    await scene.store.act([claim.id], DiscardJobs())
    assert await entries(scene) == before


@chapter.promise("M95", needs=OURS)
async def the_end_in_a_transaction_appends_with_it(scene: Scene) -> None:
    """A rollback appends nothing; the job's own entry is before those of its effects."""
    worker, claim = await scene.running(on_end=(OnEnd(LOG),))
    blocked = await scene.add(wait=Wait(LOG, 0))
    own = await scene.store.transaction(worker)
    await own.roll_back()
    assert await scene.log(LOG) == []
    own = await scene.store.transaction(worker)
    effects = Effects(appends=[Append(LOG, [NewEntry(b"x")])])
    await own.commit(outcome(claim, result=b"42", effects=effects))
    await scene.settle()
    assert [entry.body for entry in await scene.log(LOG)] == [b"42", b"x"]
    assert await scene.is_ready(blocked)


# --- effects


class Follow(NamedTuple):
    """Effects, and the job in them."""

    effects: Effects
    job: bytes


def follow_up(scene: Scene, version: int | None = 0) -> Follow:
    job = scene.job()
    put = Put(KIND, "a", b"1", if_version=version)
    append = Append(LOG, [NewEntry(b"x")])
    return Follow(Effects([job], [put], [append]), job.id)


@chapter.promise("M92")
async def effects_are_written_with_the_outcome(scene: Scene) -> None:
    """Jobs, records and entries; the job can be claimed."""
    worker, claim = await scene.running()
    effects, job_id = follow_up(scene)
    answer = await scene.exchange(worker, [outcome(claim, effects=effects)], 9)
    assert answer.rejected == []
    assert [each.id for each in answer.claims] == [job_id]
    assert [record.body for record in await scene.store.list_records(KIND)] == [b"1"]
    assert [entry.body for entry in await scene.log(LOG)] == [b"x"]


@chapter.promise()
async def the_own_entry_of_a_job_is_before_those_of_its_effects(scene: Scene) -> None:
    """Both are in the same log."""
    worker, claim = await scene.running(on_end=(OnEnd(LOG),))
    await scene.finish(worker, claim, result=b"42", effects=follow_up(scene).effects)
    assert [entry.body for entry in await scene.log(LOG)] == [b"42", b"x"]


@chapter.promise()
async def a_fenced_outcome_has_no_effects(scene: Scene) -> None:
    """Nor has the repeat of one that was stored."""
    worker, claim = await scene.running()
    await scene.lose(worker)
    before = await scene.everything()
    word = outcome(claim, effects=follow_up(scene).effects)
    assert len((await scene.exchange(worker, [word], 0)).rejected) == 1
    assert await scene.everything() == before
    worker, claim = await scene.claim_one()
    word = outcome(claim, effects=follow_up(scene).effects)
    await scene.exchange(worker, [word], 0)
    before = await scene.everything()
    answer = await scene.exchange(worker, [word], 0)
    assert [r.already_stored for r in answer.rejected] == [True]
    assert await scene.everything() == before


@chapter.promise()
async def a_condition_that_fails_refuses_the_outcome(scene: Scene) -> None:
    """The job runs on, other outcomes are recorded, and a later outcome may end it."""
    await scene.store.commit(Effects(puts=[Put(KIND, "a", b"0")]))
    await scene.add_many(2)
    worker = await scene.worker()
    refused, other = await scene.claim(worker, 2)
    effects, job_id = follow_up(scene)
    words = [outcome(refused, effects=effects, result=b"1"), outcome(other)]
    answer = await scene.exchange(worker, words, 0)
    (rejected,) = answer.rejected
    assert (rejected.id, rejected.already_stored) == (refused.id, False)
    assert rejected.conflict is not None
    assert (rejected.conflict.what, rejected.conflict.name) == ("record", "a")
    states = await scene.store.states([refused.id, other.id, job_id])
    assert states == {refused.id: RUNNING, other.id: DONE}
    assert await scene.log(LOG) == []
    assert await end(scene, worker, refused, OutcomeKind.DEAD, error=ERROR) == DEAD


@chapter.promise()
async def jobs_of_effects_enter_every_queue(scene: Scene) -> None:
    """Full and closed queues too: they continue accepted work."""
    worker, claim = await scene.running()
    await scene.store.declare({LANE: 1})
    await scene.add()
    await scene.store.set_queue(LANE, QueueChange(closed=True), AuditNote(who="ann"))
    effects, job_id = follow_up(scene)
    answer = await scene.exchange(worker, [outcome(claim, effects=effects)], 0)
    assert answer.rejected == []
    assert await scene.is_ready(job_id)
    (lane,) = await scene.store.queues("shop", counts=True)
    assert lane.counts == {READY: 2}


@chapter.promise()
async def a_key_that_is_held_refuses_the_outcome(scene: Scene) -> None:
    """The conflict names the holder."""
    holder = await scene.add(key=key(while_active), lane="shop:other")
    worker, claim = await scene.running()
    effects = Effects([scene.job(key=key(while_active))])
    answer = await scene.exchange(worker, [outcome(claim, effects=effects)], 0)
    (rejected,) = answer.rejected
    (job,) = effects.jobs
    assert rejected.conflict == Conflict("key", id_text(holder), job=job)
    assert await scene.state(claim.id) == RUNNING


@chapter.promise()
async def an_action_is_written_with_its_effects(scene: Scene) -> None:
    """Or neither is."""
    ids = await scene.add_many(2)
    effects, job_id = follow_up(scene)
    acted = await scene.store.act(ids[:1], CancelJobs(), effects=effects)
    assert [one.after for one in acted] == [CANCELLED]
    assert await scene.is_ready(job_id)
    before = await scene.everything()
    conflict: Conflict | None = None
    try:
        await scene.store.act(ids[1:], CancelJobs(), effects=follow_up(scene).effects)
    except EffectsRefused as refused:
        conflict = refused.conflict
    assert conflict is not None
    assert (conflict.what, conflict.name) == ("record", "a")
    assert await scene.everything() == before


@chapter.promise("M98", needs=("fault",))
async def a_fault_at_any_statement_ends_nothing(scene: Scene) -> None:
    """Neither the job, nor a wait, nor its effects; afterwards the same call succeeds."""
    await scene.store.declare({LANE: 9})
    ties = (OnEnd(LOG, once=True), OnEnd(OTHER_LOG, ANY_END))
    worker, claim = await scene.running(on_end=ties, key=key(while_active))
    ids = [await scene.add(wait=Wait(OTHER_LOG, 0)) for _ in range(2)]
    await scene.store.act(ids[1:], CancelJobs(is_quiet=True))
    word = outcome(claim, result=b"1", effects=follow_up(scene).effects)
    answer = await scene.after_every_fault(lambda: scene.exchange(worker, [word], 0))
    assert answer.rejected == []
    assert await scene.is_ready(ids[0])
    assert [e.body for e in await scene.log(LOG)] == [b"1", b"x"]
    await scene.after_every_fault(lambda: scene.store.act(ids[1:], RetryJobs()))
    dead = await scene.add(on_end=ties, delay=60.0)
    await scene.after_every_fault(lambda: scene.store.act([dead], CancelJobs()))
    worker, claim = await scene.running(on_end=ties, lane="shop:other")
    await scene.store.act([claim.id], CancelJobs())
    await scene.after_every_fault(lambda: scene.lose(worker))
    states = [e.state for e in await scene.log(OTHER_LOG)]
    assert states == [DONE, CANCELLED, CANCELLED]
