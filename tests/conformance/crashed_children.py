"""What a store promises about a job that killed its own process: only that job is charged."""

import msgspec

from durio.model.job import DEAD, READY, RUNNING
from durio.model.outcome import OutcomeKind
from durio.model.transitions import LOST_MAX
from durio.ports.exchange import Rejected
from tests.conformance.promises import Chapter
from tests.conformance.scene import Scene, outcome

chapter = Chapter("guilt")


@chapter.promise("M110")
async def a_job_that_kills_its_own_process_is_convicted_at_the_third(
    scene: Scene,
) -> None:
    """Two losses are charged and the job is ready again.

    The third makes it dead, with a reason.
    """
    job_id = await scene.add()
    worker = await scene.worker()
    for number in range(1, LOST_MAX + 1):
        (claim,) = await scene.claim(worker, 1)
        assert (claim.lost, claim.losses) == (number - 1, number - 1)
        error = msgspec.json.encode({"type": "ChildLost", "message": f"{number}"})
        await scene.finish(
            worker, claim, kind=OutcomeKind.LOST, killed_process=True, error=error
        )
        assert await scene.is_ready(job_id) is (number < LOST_MAX)
    record = await scene.record(job_id)
    assert (record.state, record.reason, record.worker) == (DEAD, "worker_lost", None)
    assert (record.losses, record.retried, record.claim_no) == (2, 0, LOST_MAX)
    assert record.errors is not None
    told = msgspec.json.decode(record.errors)
    assert [error["message"] for error in told] == ["1", "2", "3"]


@chapter.promise("M110")
async def a_guilty_loss_is_nobody_elses(scene: Scene) -> None:
    """Other jobs of the same worker run on, uncharged."""
    await scene.add_many(3)
    worker = await scene.worker()
    guilty, *others = await scene.claim(worker, 3)
    await scene.finish(worker, guilty, kind=OutcomeKind.LOST, killed_process=True)
    assert [await scene.state(other.id) for other in others] == [RUNNING] * 2
    await scene.store.leave(worker)
    for other in others:
        record = await scene.record(other.id)
        assert (record.state, record.losses, record.lost) == (READY, 0, 0)


@chapter.promise()
async def a_repeated_guilty_loss_has_landed(scene: Scene) -> None:
    """The reply was lost and the outcome is sent again: it is charged once, and recognised."""
    worker, claim = await scene.running()
    word = outcome(claim, OutcomeKind.LOST, killed_process=True)
    assert (await scene.store.exchange(worker, [word], (), 0)).rejected == []
    assert (await scene.store.exchange(worker, [word], (), 0)).rejected == [
        Rejected(claim.id, claim.claim_no, already_stored=True)
    ]
    assert (await scene.record(claim.id)).losses == 1
