"""What a store promises about `settle`: nothing that is left is lost, or done twice."""

from durio.model.effects import Append, Effects, NewEntry
from durio.model.errors import StoreError
from durio.model.gate import GateChange, GateSpec
from durio.model.job import BLOCKED, READY
from durio.model.logs import Wait
from tests.conformance.logs import LOG, OTHER_LOG, append
from tests.conformance.promises import Chapter
from tests.conformance.scene import LANE, MANY, Scene, outcome
from tests.job_counts import count_jobs

chapter = Chapter("settle")
NAME = "5r:shop/mail"


async def settle_after_faults(scene: Scene) -> int:
    """Fail at each statement of `settle` once, then settle; return how often it failed."""
    assert scene.subject.fault is not None
    fault = scene.subject.fault(scene.store)
    for nth in range(1, MANY):
        fault.arm(nth)
        try:
            await scene.store.settle(MANY)
        except StoreError:
            assert fault.disarm(), "the store failed by itself"
        else:
            fault.disarm()
            await scene.settle()
            return nth - 1
    raise AssertionError("the fault never ended")


@chapter.promise("M98", needs=("fault",))
async def a_fault_at_any_statement_of_settle_forgets_no_waiter(scene: Scene) -> None:
    """Each job that a marked log has left is let go once."""
    for log in (LOG, OTHER_LOG):
        await scene.add_many(502, wait=Wait(log, 0))
    appends = [Append(log, [NewEntry(b"x")]) for log in (LOG, OTHER_LOG)]
    await scene.store.commit(Effects(appends=appends))
    assert (await count_jobs(scene.store, "shop"))[LANE][READY] == 1000
    assert await settle_after_faults(scene) > 0
    assert await count_jobs(scene.store, "shop") == {LANE: {READY: 1004}}
    assert len(await scene.log(LOG)) == len(await scene.log(OTHER_LOG)) == 1


@chapter.promise("M95", "M98", needs=("fault", "has_transactions"))
async def a_fault_at_any_statement_of_settle_loses_no_entry(scene: Scene) -> None:
    """Entries of a caller's transaction are appended once, and let their waiters go."""
    waiting = await scene.add(wait=Wait(LOG, 1))
    worker, claim = await scene.running()
    own = await scene.store.transaction(worker)
    await scene.store.commit(append(b"0", b"1"), tx=own.connection)
    await own.commit(outcome(claim))
    await settle_after_faults(scene)  # SQLite defers nothing, and has nothing to do
    assert [entry.body for entry in await scene.log(LOG)] == [b"0", b"1"]
    assert await scene.state(waiting) == READY


@chapter.promise()
async def queues_count_their_jobs_before_gates(scene: Scene) -> None:
    """Not those that wait for a log, nor those that have passed."""
    gates = (GateSpec(NAME, rate=1.0),)
    await scene.add_many(3, gates=gates)
    await scene.add(gates=gates, lane="shop:other")
    await scene.add(wait=Wait(LOG, 0), gates=gates)
    await scene.add(gates=gates, lane="mail:default")
    rows = await scene.store.queues("shop", gates=True)
    assert {row.name: row.before_gates for row in rows} == {LANE: 2, "shop:other": 1}
    rows = await scene.store.queues("shop", counts=True)
    assert [row.before_gates for row in rows] == [0, 0]
    assert [row.jobs(BLOCKED) for row in rows] == [3, 1]


@chapter.promise()
async def only_what_goes_on_now_is_left(scene: Scene) -> None:
    """A gate that time opens is due later."""
    await scene.add_many(2, gates=(GateSpec(NAME, rate=0.1),))
    settled = await scene.store.settle(MANY)
    assert (settled.count, settled.has_left) == (0, False)
    assert settled.next_due_seconds is not None
    await scene.store.commit(Effects(gates=[GateChange(NAME, rate=None)]))
    scene.clock.advance(10.0)
    await scene.settle()
    assert (await count_jobs(scene.store, "shop"))[LANE] == {READY: 2}
