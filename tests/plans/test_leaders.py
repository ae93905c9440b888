"""Two leaders at the same plan: one is late, or has died half-way."""

import asyncio
from typing import Any

from durio import App
from durio.client.plan_actions import stored_plan
from durio.maintenance.plans import IDLE_SECONDS, PlanKeeper
from durio.model.effects import Effects
from durio.model.gate import GateChange, GateSpec
from durio.model.ids import id_bytes
from durio.model.job import BLOCKED, CANCELLED, NewJob
from durio.model.outcome import OutcomeKind
from durio.model.plan_record import FirstFailure, PlanState
from durio.plans import PlanJob
from durio.ports.exchange import Lane
from durio.ports.plan_reader import StoredPlan, has_plan_work
from durio.ports.store import Store
from tests.conformance.scene import info, outcome
from tests.faults.faulty_store import FaultyStore
from tests.unit.app.app_harness import records, virtual

LATE_SECONDS = 30.0


def keeper(app: App, store: Store) -> PlanKeeper:
    return PlanKeeper(store, app.clock, app.emit, app.name, 3600.0)


async def failed_chain(app: App) -> tuple[PlanJob[Any], StoredPlan]:
    """Return a plan of two jobs, of which the first is dead; no leader has seen that."""

    @app.task(name="leaf")
    async def leaf(name: str) -> str:
        return name

    chain = (leaf.s("a") | leaf.si("b")).on_error(leaf.si("handler"))
    plan = await chain.enqueue()
    store = await app.store()
    worker = await store.register(info(app.name), 3600.0, ())
    lanes = [Lane(f"{app.name}:default", 1)]
    (claim,) = (await store.exchange(worker, (), lanes, 1)).claims
    dead = outcome(claim, OutcomeKind.DEAD, reason="permanent")
    assert (await store.exchange(worker, [dead], (), 0)).rejected == []
    return plan, await stored_plan(store, app.name, id_bytes(plan.id))


async def state_of(app: App, plan: StoredPlan, node: int) -> int:
    (job_id,) = plan.ids([node])
    return (await (await app.store()).states([job_id]))[job_id]


@virtual
async def test_late_leader_does_not_touch_a_resumed_plan(app: App):
    plan, stored = await failed_chain(app)
    store = await app.store()
    slow: Any = FaultyStore(store, app.clock)
    slow.slow("act", seconds=LATE_SECONDS, times=1)
    async with asyncio.TaskGroup() as tasks:
        turn = tasks.create_task(keeper(app, slow).turn())
        await app.clock.sleep(LATE_SECONDS / 2)
        await keeper(app, store).turn()
        assert (await plan.status()).state == "failed"
        assert await plan.retry() == 2
        assert not turn.done()
    assert await state_of(app, stored, 1) == BLOCKED
    assert (await plan.status()).state == "running"


@virtual
async def test_leader_goes_on_where_another_one_has_died(app: App):
    plan, stored = await failed_chain(app)
    store = await app.store()
    slow: Any = FaultyStore(store, app.clock)
    slow.slow("commit", seconds=LATE_SECONDS, times=1)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(keeper(app, slow).turn())
        await app.clock.sleep(LATE_SECONDS / 2)
        failure = FirstFailure(0, "Permanent", "a")
        failing = stored.put(state=PlanState.FAILING, failure=failure)
        assert (await store.commit(Effects(puts=[failing]))).conflict is None
    assert (await plan.status()).state == "failed"
    assert await state_of(app, stored, 1) == CANCELLED


@virtual
async def test_failure_before_a_cancel_runs_no_handler(app: App):
    """The leader sees the failure when the plan is cancelled already."""
    plan, _ = await failed_chain(app)
    await plan.cancel()
    await keeper(app, await app.store()).turn()
    assert (await plan.status()).state == "cancelled"
    assert len(await records(app)) == 2


@virtual
async def test_failure_that_is_read_again_does_not_fail_a_resumed_plan(app: App):
    """A leader dies after it has handled a failure, before it stores how far it has read."""
    plan, stored = await failed_chain(app)
    store = await app.store()
    entries = await store.read_log("pf:app", 0)
    jobs = {job.id: job for job in await store.get([entries[0].job or b""])}
    dying = keeper(app, store)
    assert await dying._failed(entries, jobs) == []
    assert (await plan.status()).state == "failed"
    # The record is resumed before the failed job is retried: both are separate writes.
    found = await stored_plan(store, app.name, stored.id)
    running = found.put(state=PlanState.RUNNING, failure=None, resumed=1)
    assert (await store.commit(Effects(puts=[running]))).conflict is None
    await keeper(app, store).turn()
    assert (await plan.status()).state == "running"


@virtual
async def test_leader_comes_back_when_a_gate_opens(app: App):
    """It neither spins until a gate opens, nor counts a gate that opens later as work."""
    store = await app.store()
    for seconds, pause in ((3600.0, IDLE_SECONDS), (0.25, 0.25)):
        name = f"0b:{seconds}"
        closed = GateChange(name, until_seconds=seconds)
        lane = f"{app.name}:default"
        job = NewJob(app.clock.new_id(), lane, 4, "shop.pay", b"[[],{}]")
        gated = job._replace(gates=(GateSpec(name),))
        await store.commit(Effects([gated], gates=[closed]))
        assert abs(await keeper(app, store).turn() - pause) < 0.001
        assert not await has_plan_work(store, app.name)
