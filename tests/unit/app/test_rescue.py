"""What a rescue says of the workers that are gone."""

from durio import App
from durio.maintenance.rescuer import Rescuer
from durio.model.names import lane
from durio.ports.exchange import Lane
from durio.ports.lease import WorkerInfo
from durio.worker.worker_config import WorkerIdentity
from tests.unit.app.app_harness import virtual
from tests.unit.app.test_ends import Listener


@virtual
async def test_each_worker_is_told_with_its_own_jobs(app: App) -> None:
    store = await app.store()
    await app.task(name="work")(work).enqueue_many([()] * 4)
    workers: list[int] = []
    for jobs in (3, 1):
        info = WorkerInfo(app.name, "x/1", "x", 1, (), jobs, "0", {})
        workers.append(await store.register(info, 30))
        lanes = [Lane(lane(app.name, "default"), jobs)]
        await store.exchange(workers[-1], [], lanes, jobs)
    await app.clock.sleep(60)
    listener = Listener(app)
    await Rescuer(store, app.emit, lambda _: None, app.name, lambda: True).turn()
    told = [fields for name, fields in listener.heard if name == "worker.rescued"]
    assert told == [
        {"worker": workers[0], "jobs": 3},
        {"worker": workers[1], "jobs": 1},
    ]


@virtual
async def test_jobs_that_come_back_in_batches_are_told_together(app: App) -> None:
    store = await app.store()
    await app.task(name="work")(work).enqueue_many([()] * 5)
    info = WorkerInfo(app.name, "x/1", "x", 1, (), 5, "0", {})
    worker = await store.register(info, 30)
    await store.exchange(worker, [], [Lane(lane(app.name, "default"), 5)], 5)
    await app.clock.sleep(60)
    listener = Listener(app)
    rescuer = Rescuer(
        store, app.emit, lambda _: None, app.name, lambda: True, batch_max=2
    )
    await rescuer.turn()
    told = [fields for name, fields in listener.heard if name == "worker.rescued"]
    assert told == [{"worker": worker, "jobs": 5}]


async def work() -> None:
    pass


def test_who_could_not_renew_does_not_judge_others() -> None:
    """Nobody could write for a while: others need the time of one renewal, too."""
    me = WorkerIdentity(1, renewed_at=100.0, resumed_at=10.0)
    assert me.may_rescue(105.0, 5.0)
    assert not me.may_rescue(111.0, 5.0), "its own lease was not renewed of late"
    me.renewed_at = me.resumed_at = 150.0
    assert not me.may_rescue(155.0, 5.0), "it has only just been able to"
    assert me.may_rescue(156.5, 5.0)
