"""What a rescue says of the workers that are gone."""

from durio import App
from durio.maintenance.rescuer import Rescuer
from durio.model.names import lane
from durio.ports.exchange import Lane
from durio.ports.lease import WorkerInfo
from tests.unit.app.lab import virtual
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
    await Rescuer(store, app.emit, lambda _: None, app.name).turn()
    told = [fields for name, fields in listener.heard if name == "worker.rescued"]
    assert told == [
        {"worker": workers[0], "jobs": 3},
        {"worker": workers[1], "jobs": 1},
    ]


async def work() -> None:
    pass
