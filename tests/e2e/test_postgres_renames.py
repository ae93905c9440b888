"""A rename meets a key, or a job, that an open transaction holds: it passes over it."""

import pytest

from durio.client.bulk import BulkStep
from durio.model.codec import encoder
from durio.model.job import NewJob
from durio.model.keys import key_claim, while_active
from durio.model.options import RowOptions
from durio.ports.browse import Query
from durio.ports.control import RenameJobs
from tests.bulk_actions import run_bulk
from tests.conformance.postgres import ScratchSchema
from tests.conformance.scene import LANE, PAYLOAD, SHOP, TASK
from tests.e2e.open_transaction import clock
from tests.e2e.test_postgres_locked_actions import Scene, play

NEW_TASK = "shop.pay_order"
OLD_JOBS = Query(namespace=SHOP, task=TASK)
HOLD_READY = "select 1 from durio.ready where id = $1::uuid for update"


def keyed(key: str, task: str = TASK) -> NewJob:
    claim = key_claim(while_active, task, key, PAYLOAD)
    opts = encoder.encode(RowOptions(key=key))
    return NewJob(clock.new_id(), LANE, 4, task, PAYLOAD, opts=opts, key=claim)


async def tasks(scene: Scene, jobs: list[NewJob]) -> list[str]:
    return [row.task for row in await scene.other.get([job.id for job in jobs])]


@pytest.mark.parametrize(("ends", "renamed"), [("rollback", 1), ("commit", 0)])
def test_a_key_that_a_transaction_takes_under_the_new_name(
    grounds: ScratchSchema, ends: str, renamed: int
) -> None:
    async def story(scene: Scene) -> None:
        jobs = [keyed("held"), keyed("free")]
        await scene.other.enqueue(jobs)
        new = keyed("held", NEW_TASK)
        (answer,) = await scene.other.enqueue([new], tx=scene.caller)
        assert answer.created
        action = RenameJobs(NEW_TASK)
        assert await run_bulk(scene.operator, OLD_JOBS, action) == BulkStep(1, 1)
        assert await tasks(scene, jobs) == [TASK, NEW_TASK]
        await scene.caller.execute(ends)
        left = BulkStep(renamed, 1 - renamed)
        assert await run_bulk(scene.operator, OLD_JOBS, action) == left
        # However it ended, the key under the new name has one live holder.
        (again,) = await scene.other.enqueue([keyed("held", NEW_TASK)])
        assert (again.created, again.id) == (False, (jobs[0] if renamed else new).id)

    play(grounds, story, call_seconds=5.0)


def test_a_job_that_a_transaction_holds(grounds: ScratchSchema) -> None:
    async def story(scene: Scene) -> None:
        jobs = [keyed("held"), keyed("free")]
        await scene.other.enqueue(jobs)
        await scene.hold(HOLD_READY, jobs[0].id)
        action = RenameJobs(NEW_TASK)
        assert await run_bulk(scene.operator, OLD_JOBS, action) == BulkStep(1, 1)
        await scene.caller.execute("rollback")
        assert await run_bulk(scene.operator, OLD_JOBS, action) == BulkStep(1, 0)
        assert await tasks(scene, jobs) == [NEW_TASK, NEW_TASK]

    play(grounds, story, call_seconds=5.0)
