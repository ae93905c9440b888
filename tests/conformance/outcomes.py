"""What a store promises about outcomes: one exit, one fence, nothing half-written."""

from itertools import product
from typing import NamedTuple

import msgspec

from durio.model.job import (
    CANCELLED,
    CODE_BY_STATE,
    DEAD,
    DONE,
    READY,
    RUNNING,
    SCHEDULED,
    Claim,
)
from durio.model.outcome import OutcomeKind
from durio.model.transitions import LOST_MAX, way_out
from durio.ports.control import CancelJobs
from durio.ports.exchange import Lane, Rejected
from tests.conformance.promises import Chapter
from tests.conformance.scene import MANY, PAYLOAD, Scene, outcome

chapter = Chapter("outcomes")

ERROR = b'{"type":"ValueError","message":"no"}'


@chapter.promise("M109", "M165", "M166")
async def done_is_state_result_and_end_together(scene: Scene) -> None:
    """One read returns all of it, and the job has no worker any more."""
    worker, claim = await scene.running()
    started = scene.clock.now()
    scene.clock.advance(2.0)
    refused = (
        await scene.store.exchange(
            worker,
            [outcome(claim, result=b'{"paid":true}', result_seconds=600.0)],
            (),
            0,
        )
    ).rejected
    assert refused == []
    record = await scene.record(claim.id)
    assert (record.state, record.result, record.worker) == (
        DONE,
        b'{"paid":true}',
        None,
    )
    assert (record.started_at, record.finished_at) == (started, started + 2)
    assert record.result_until == started + 602
    assert (record.claim_no, record.reason, record.errors) == (1, None, None)


@chapter.promise()
async def no_outcomes_is_no_work(scene: Scene) -> None:
    """An empty call returns an empty result."""
    assert (await scene.store.exchange(await scene.worker(), [], (), 0)).rejected == []


@chapter.promise("M2", "M70")
async def a_retry_counts_and_comes_back_in_time(scene: Scene) -> None:
    """One retry is used, the job is due after the delay, and the error is stored."""
    worker, claim = await scene.running()
    await scene.finish(
        worker, claim, kind=OutcomeKind.RETRY, delay_seconds=30.0, error=ERROR
    )
    record = await scene.record(claim.id)
    assert (record.state, record.run_at) == (SCHEDULED, scene.clock.now() + 30)
    assert (record.retried, record.losses, record.snoozed) == (1, 0, 0)
    assert (record.worker, record.finished_at) == (None, None)
    scene.clock.advance(29.75)
    assert await scene.claim(worker) == []
    scene.clock.advance(0.25)
    _, again = await scene.claim_one()
    assert (again.id, again.claim_no, again.retried) == (claim.id, 2, 1)


@chapter.promise()
async def a_retry_without_a_delay_is_ready_at_once(scene: Scene) -> None:
    """Zero means now for retries too."""
    worker, claim = await scene.running()
    await scene.finish(worker, claim, kind=OutcomeKind.RETRY)
    assert await scene.is_ready(claim.id)


@chapter.promise("M81", "M89")
async def every_failed_attempt_is_kept_oldest_first(scene: Scene) -> None:
    """The last error of a dead job comes after those of its retries."""
    job_id = await scene.add()
    for number in range(3):
        worker, claim = await scene.claim_one()
        kind = OutcomeKind.DEAD if number == 2 else OutcomeKind.RETRY
        error = msgspec.json.encode({"type": "E", "message": f"ä{number}"})
        await scene.finish(worker, claim, kind=kind, error=error, reason="exhausted")
    record = await scene.record(job_id)
    assert record.errors is not None
    told = msgspec.json.decode(record.errors)
    assert [error["message"] for error in told] == ["ä0", "ä1", "ä2"]


@chapter.promise()
async def a_snooze_costs_no_attempt(scene: Scene) -> None:
    """It is counted separately, and the job is due after its delay."""
    worker, claim = await scene.running()
    await scene.finish(worker, claim, kind=OutcomeKind.SNOOZE, delay_seconds=5.0)
    record = await scene.record(claim.id)
    assert (record.retried, record.losses, record.snoozed) == (0, 0, 1)
    assert (record.state, record.run_at) == (SCHEDULED, scene.clock.now() + 5)


@chapter.promise("M57", "M118")
async def release_keeps_the_attempt(scene: Scene) -> None:
    """The job is ready at once, nothing is charged, and only the fence has increased."""
    worker, claim = await scene.running()
    await scene.finish(worker, claim, kind=OutcomeKind.RELEASE)
    record = await scene.record(claim.id)
    assert (record.state, record.worker) == (READY, None)
    assert (record.retried, record.losses, record.lost, record.snoozed) == (0, 0, 0, 0)
    _, again = await scene.claim_one()
    assert (again.id, again.claim_no) == (claim.id, 2)


@chapter.promise()
async def a_released_job_is_first_in_line_again(scene: Scene) -> None:
    """It arrived first, so it is claimed first."""
    ids = await scene.add_many(3)
    worker = await scene.worker()
    (claim,) = await scene.claim(worker, 1)
    await scene.finish(worker, claim, kind=OutcomeKind.RELEASE)
    assert [claim.id for claim in await scene.claim(worker, MANY)] == ids


@chapter.promise("M80", "M81", "M91")
async def a_dead_job_keeps_everything(scene: Scene) -> None:
    """Payload, queue, error, reason, attempts and times are kept: it can be retried."""
    worker, claim = await scene.running(opts=b'{"meta":{"a":1}}')
    await scene.finish(
        worker, claim, kind=OutcomeKind.DEAD, error=ERROR, reason="exhausted"
    )
    record = await scene.record(claim.id)
    assert (record.state, record.reason) == (DEAD, "exhausted")
    assert (record.payload, record.lane) == (PAYLOAD, claim.lane)
    assert (record.opts, record.task) == (b'{"meta":{"a":1}}', claim.task)
    assert record.errors is not None
    assert msgspec.json.decode(record.errors) == [msgspec.json.decode(ERROR)]
    assert record.finished_at == scene.clock.now()
    assert await scene.claim(worker) == []


@chapter.promise()
async def a_task_may_cancel_itself(scene: Scene) -> None:
    """There is no error, and the job does not run again."""
    worker, claim = await scene.running()
    await scene.finish(worker, claim, kind=OutcomeKind.CANCEL)
    record = await scene.record(claim.id)
    assert (record.state, record.worker) == (CANCELLED, None)
    assert record.finished_at == scene.clock.now()


@chapter.promise("M168")
async def progress_is_a_note_about_a_running_job(scene: Scene) -> None:
    """The newest progress counts; the job runs on."""
    worker, claim = await scene.running()
    for note in (b'{"done":1}', b'{"done":2}'):
        await scene.finish(worker, claim, kind=OutcomeKind.PROGRESS, progress=note)
        record = await scene.record(claim.id)
        assert (record.state, record.progress) == (RUNNING, note)
        assert (record.worker, record.claim_no) == (worker, 1)
    await scene.finish(worker, claim)


# --- the fence

OUTCOME_KINDS = {
    kind.name.lower(): kind
    for kind in OutcomeKind
    if kind is not OutcomeKind.LOST  # only a rescuer reports this
}


@chapter.table(OUTCOME_KINDS, "M112")
async def a_stale_word_is_refused_and_named(scene: Scene, kind: OutcomeKind) -> None:
    """After a rescue: while the job waits again, while another runs it, when it has ended."""
    zombie, claim = await scene.running()
    word = outcome(
        claim, kind, result=b"1", progress=b"{}", reason="permanent", error=ERROR
    )
    await scene.lose(zombie)

    async def refused() -> None:
        before = await scene.everything()
        wanted = [Rejected(claim.id, 1, False)]
        assert (await scene.store.exchange(zombie, [word], (), 0)).rejected == wanted
        exchanged = await scene.store.exchange(zombie, [word], [Lane("shop:x", 1)], 1)
        assert exchanged.rejected == wanted
        assert await scene.everything() == before

    await refused()
    worker, again = await scene.claim_one()
    await refused()
    await scene.finish(worker, again, result=b"2")
    await refused()
    assert (await scene.record(claim.id)).result == b"2"


@chapter.table(OUTCOME_KINDS, "M112")
async def a_word_about_an_earlier_claim_of_ones_own_is_refused(
    scene: Scene, kind: OutcomeKind
) -> None:
    """The same worker has the same job again: an outcome of the first claim is refused."""
    worker, first = await scene.running()
    await scene.finish(worker, first, kind=OutcomeKind.RELEASE)
    (second,) = await scene.claim(worker)
    before = await scene.everything()
    late = outcome(first, kind, progress=b"{}", reason="permanent", error=ERROR)
    refused = (await scene.store.exchange(worker, [late], (), 0)).rejected
    assert [r[:2] for r in refused] == [(first.id, 1)]
    assert await scene.everything() == before
    await scene.finish(worker, second)


class Wrong(NamedTuple):
    """A wrong fence, by how much each part differs."""

    claim_no: int = 0
    worker: int = 0


WRONGS = {
    "an older claim": Wrong(claim_no=-1),
    "a claim to come": Wrong(claim_no=1),
    "another worker's": Wrong(worker=1),
}


@chapter.table(WRONGS, "M112")
async def the_fence_is_job_claim_and_worker(scene: Scene, wrong: Wrong) -> None:
    """All three must match."""
    worker, claim = await scene.running()
    await scene.worker()
    stale = claim._replace(claim_no=claim.claim_no + wrong.claim_no)
    refused = (
        await scene.store.exchange(worker + wrong.worker, [outcome(stale)], (), 0)
    ).rejected
    assert [r[:2] for r in refused] == [(claim.id, stale.claim_no)]
    assert await scene.state(claim.id) == RUNNING
    await scene.finish(worker, claim)


@chapter.promise("M112")
async def a_word_about_nothing_is_refused(scene: Scene) -> None:
    """There is no such job, and there is none afterwards."""
    worker, claim = await scene.running()
    unknown = claim._replace(id=scene.clock.new_id())
    refused = (await scene.store.exchange(worker, [outcome(unknown)], (), 0)).rejected
    assert [r[:2] for r in refused] == [(unknown.id, 1)]
    assert [record.id for record in await scene.records()] == [claim.id]


# --- the exit, compared with the pure rule


class ExitCase(NamedTuple):
    """How an attempt ends: the columns of the rule."""

    kind: OutcomeKind
    delayed: bool
    cancel_asked: bool
    alone: bool = False
    killed_process: bool = False


ENDS = (
    OutcomeKind.DONE,
    OutcomeKind.RETRY,
    OutcomeKind.SNOOZE,
    OutcomeKind.RELEASE,
    OutcomeKind.DEAD,
    OutcomeKind.CANCEL,
)
BOOLS = (False, True)
BY_OUTCOME = [ExitCase(*row) for row in product(ENDS, BOOLS, BOOLS)]
BY_LOSS = [
    ExitCase(OutcomeKind.LOST, False, *row)  # a loss is never delayed
    for row in product(BOOLS, BOOLS, BOOLS)
]


async def lose_all(scene: Scene, times: int) -> tuple[int, list[Claim]]:
    """Claim everything and lose the worker this often.

    Each job is the known cause below two.
    """
    worker = await scene.worker()
    claims = await scene.claim(worker, MANY)
    for _ in range(times):
        await scene.lose(worker)
        worker = await scene.worker()
        claims = await scene.claim(worker, MANY)
    return worker, claims


async def same_as_the_rule(
    scene: Scene, lost: int, claim: Claim, attempt: ExitCase
) -> None:
    """Compare one stored job with what `way_out` says of its attempt."""
    kind, delayed, asked, alone, guilty = attempt
    way = way_out(
        kind,
        lost=lost,
        delayed=delayed,
        cancel_asked=asked,
        alone=alone,
        killed_process=guilty,
    )
    record = await scene.record(claim.id)
    wanted = (
        CODE_BY_STATE[way.state],
        claim.retried + way.retried,
        claim.snoozed + way.snoozed,
        claim.losses + way.losses,
        way.lost,
    )
    counted = (record.retried, record.snoozed, record.losses, record.lost)
    assert (record.state, *counted) == wanted, f"{attempt} at lost={lost}"
    assert (record.worker, record.claim_no) == (None, claim.claim_no)
    assert record.state == DONE or not record.cancel_asked


LOSSES = {f"lost {lost} times": lost for lost in range(LOST_MAX)}


@chapter.table(LOSSES, "M110")
async def every_end_goes_through_one_gate(scene: Scene, lost: int) -> None:
    """A worker's outcomes: each kind, with and without a delay and a requested cancel."""
    await scene.add_many(len(BY_OUTCOME))
    worker, claims = await lose_all(scene, lost)
    pairs = list(zip(claims, BY_OUTCOME, strict=True))
    await scene.store.act(
        [c.id for c, attempt in pairs if attempt.cancel_asked], CancelJobs()
    )
    words = [
        outcome(
            claim,
            attempt.kind,
            delay_seconds=60.0 if attempt.delayed else 0.0,
            reason="permanent",
        )
        for claim, attempt in pairs
    ]
    assert (await scene.store.exchange(worker, words, (), 0)).rejected == []
    for claim, attempt in pairs:
        await same_as_the_rule(scene, lost, claim, attempt)


@chapter.table(LOSSES, "M110", "M112")
async def every_loss_goes_through_the_same_gate(scene: Scene, lost: int) -> None:
    """Losses reported by a rescuer or by the worker; with a mark or not; with a cancel."""
    await scene.add_many(len(BY_LOSS))
    worker, claims = await lose_all(scene, lost)
    for claim, attempt in zip(claims, BY_LOSS, strict=True):
        # One by one, because a rescuer takes all jobs of a worker.
        await scene.finish(worker, claim, kind=OutcomeKind.RELEASE)
        single = await scene.worker()
        (mine,) = await scene.claim(single, 1)
        assert mine.id == claim.id
        if attempt.alone:
            await scene.finish(single, mine, kind=OutcomeKind.ALONE)
        if attempt.cancel_asked:
            await scene.store.act([mine.id], CancelJobs())
        if attempt.killed_process:
            await scene.crash_child(single, mine)
        else:
            await scene.lose(single)
        await same_as_the_rule(scene, lost, mine, attempt)
        if await scene.is_ready(mine.id):
            await scene.store.act([mine.id], CancelJobs())


@chapter.promise()
async def a_parked_job_is_read_with_its_time(scene: Scene) -> None:
    """The time of the first park stays until the job leaves in another way."""
    worker, claim = await scene.running()
    assert (await scene.record(claim.id)).parked_at is None
    began = scene.clock.now()
    for _ in range(2):
        await scene.finish(
            worker, claim, kind=OutcomeKind.RELEASE, delay_seconds=5.0, parks=True
        )
        parked = (await scene.record(claim.id)).parked_at
        assert parked is not None
        assert 0 <= parked - began < 5.0
        scene.clock.advance(6.0)
        await scene.store.promote(9)
        (claim,) = await scene.claim(worker)
    await scene.finish(worker, claim, kind=OutcomeKind.RETRY, delay_seconds=5.0)
    assert (await scene.record(claim.id)).parked_at is None
