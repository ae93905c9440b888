"""Jobs before gates: what a burst, `drained()` and `box.drain()` do about them."""

from typing import Any

import pytest

from durio import App
from durio.model.effects import Effects
from durio.model.gate import GateChange, GateSpec
from durio.model.job import NewJob
from durio.model.names import lane
from durio.ports.control import AuditNote, QueueChange
from durio.testing import testing
from tests.unit.app.app_harness import MEMORY, drained, virtual
from tests.unit.app.test_embed import embedded

LONG = 300.0  # seconds
QUICK = {"worker": {"poll_seconds": 60, "lease_seconds": 600, "heartbeat_seconds": 60}}


def rate(per_second: float) -> tuple[GateSpec, ...]:
    return (GateSpec("5r:app/note", rate=per_second, burst=1.0),)


def cap(places: int) -> tuple[GateSpec, ...]:
    return (GateSpec("4w:app/note", cap=places),)


class Notes:
    """A task whose jobs pass gates, and when they ran."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.ran: list[tuple[int, float]] = []
        self.began = app.clock.now()

        @app.task(name="note")
        async def note(n: int) -> None:
            self.ran.append((n, round(self.app.clock.now() - self.began, 2)))
            await app.clock.sleep(0)

    async def enqueue(
        self, count: int, gates: tuple[GateSpec, ...], queue: str = "default"
    ) -> None:
        store, name = await self.app.store(), self.app.name
        jobs = [
            NewJob(
                self.app.clock.new_id(),
                lane(name, queue),
                4,
                f"{name}.note",
                b"[[%d],{}]" % n,
                gates=gates,
            )
            for n in range(count)
        ]
        assert (await store.commit(Effects(jobs))).conflict is None

    async def close(self, gate: str, seconds: float) -> None:
        change = GateChange(gate, until_seconds=seconds)
        await (await self.app.store()).commit(Effects(gates=[change]))


@virtual(settings=QUICK)
async def test_a_burst_waits_for_a_rate(app: App, caplog: Any) -> None:
    notes = Notes(app)
    await notes.enqueue(4, rate(1 / LONG))
    with caplog.at_level("INFO", "durio"):
        await drained(app)
    assert notes.ran == [(0, 0.0), (1, LONG), (2, 2 * LONG), (3, 3 * LONG)]
    said = [line for line in caplog.messages if "worker.waiting" in line]
    assert len(said) == 1, "once"


@virtual(settings=QUICK)
async def test_a_burst_waits_for_a_gate_that_is_closed(app: App) -> None:
    notes = Notes(app)
    await notes.close("4w:app/note", LONG)
    await notes.enqueue(2, cap(1))
    await drained(app)
    assert [n for n, _ in notes.ran] == [0, 1]
    assert [at for _, at in notes.ran] == pytest.approx([LONG, LONG], abs=1.0)


@virtual(settings=QUICK)
async def test_a_burst_leaves_gates_of_other_queues_and_of_paused_ones(
    app: App,
) -> None:
    notes = Notes(app)
    await notes.enqueue(2, rate(1 / LONG), "night")
    await notes.enqueue(2, (GateSpec("5r:app/paused", rate=1 / LONG),), "paused")
    store = await app.store()
    await store.set_queue("app:paused", QueueChange(paused=True), AuditNote(who="ann"))
    await drained(app, queues=["default", "paused"])
    assert notes.ran == []
    assert app.clock.now() - notes.began < 60
    rows = await store.queues(app.name, gates=True)
    assert {row.name: row.before_gates for row in rows} == {
        "app:night": 1,
        "app:paused": 1,
    }


@virtual(settings=QUICK)
async def test_a_drained_worker_waits_for_a_rate(app: App) -> None:
    notes = Notes(app)
    await notes.enqueue(3, rate(1 / LONG))
    async with embedded(app) as worker:
        await worker.drained()
        assert [n for n, _ in notes.ran] == [0, 1, 2]


@virtual(settings=QUICK)
async def test_entries_that_are_left_do_not_wait_for_a_gate(app: App) -> None:
    """The worker sleeps until a gate opens; a job that it lets go runs at once."""
    notes = Notes(app)
    await notes.enqueue(2, rate(1 / LONG))
    store: Any = await app.store()
    settle, calls = store.settle, list[float]()

    async def noted(limit: int) -> Any:
        calls.append(app.clock.now() - notes.began)
        return await settle(limit)

    store.settle = noted
    async with embedded(app) as worker:
        await app.clock.sleep(10)
        settler = worker._worker.claims.settler
        settler.start(0.01)
        settler.start(20)  # later: nothing to do
        await app.clock.sleep(0.1)
        assert any(at == pytest.approx(10.01) for at in calls)
    assert settler._running is None or settler._running.done()


def test_a_box_leaves_jobs_before_gates_until_their_time() -> None:
    """Its clock stands still: only `until` brings the time at which a gate opens."""
    with testing(App(MEMORY, name="app")) as box:
        notes = Notes(box._apps[0])
        box._ask(notes.enqueue(3, rate(1 / LONG)))
        box.drain_sync()
        assert [n for n, _ in notes.ran] == [0]
        box.drain_sync(until=1.5 * LONG)
        assert [n for n, _ in notes.ran] == [0, 1]
        box.drain_sync(until=2 * LONG)
        assert [n for n, _ in notes.ran] == [0, 1, 2]


def test_a_box_does_not_wait_for_a_gate_that_opens_soon() -> None:
    with testing(App(MEMORY, name="app")) as box:
        notes = Notes(box._apps[0])
        box._ask(notes.enqueue(9, rate(50.0)))
        box.drain_sync()
        assert len(notes.ran) < 9
        box.drain_sync(until="1s")
        assert [n for n, _ in notes.ran] == [*range(9)]


def test_a_box_runs_jobs_that_wait_for_a_place() -> None:
    with testing(App(MEMORY, name="app")) as box:
        notes = Notes(box._apps[0])
        box._ask(notes.enqueue(5, cap(1)))
        box.drain_sync()
        assert [n for n, _ in notes.ran] == [0, 1, 2, 3, 4]
