"""Schedulers and requests that come late: after the schedule was changed or created again."""

from typing import Any

import pytest

from durio.testing.clock import STARTED_SECONDS
from tests.simulation import schedule_world
from tests.simulation.network import SimulatedLink, unavailable
from tests.simulation.schedule_workload import ScheduleAct, ScheduleSpec, ScheduleWish
from tests.simulation.schedule_world import SchedulerRecorder, SchedulerWorld
from tests.simulation.workload import Wish
from tests.simulation.world import Node, World

ZOMBIE, OTHER = "scheduler-0", "scheduler-1"
LATE_SECONDS = 12.0


class StoppedAt(SchedulerRecorder):
    """Stops a scheduler when it has read a schedule that is due."""

    def __init__(self, scene: SchedulerWorld, point: str) -> None:
        super().__init__(scene.store, scene.ledger)
        self.point = point
        self.is_stopped = False
        self.refused = 0  # commits of this scheduler
        self.held: Any = None  # a future that lets its commit go

    def executed(
        self, node: Node, method: str, args: tuple[Any, ...], answer: Any
    ) -> None:
        super().executed(node, method, args, answer)
        if node.name != ZOMBIE:
            return
        if method == "commit" and answer.conflict is not None:
            self.refused += 1
        is_due = method == "due_records" and answer.records
        if self.point == "read" and is_due and not self.is_stopped:
            self.is_stopped = True
            node.world.pause(node)

    def wake(self, node: Node) -> None:
        if self.point == "read":
            node.world.resume(node)
        else:
            node.main.call_soon(self.held.set_result, None)


class LateCommit(SimulatedLink):
    """A connection on which the first commit of that scheduler gets stuck."""

    async def _do(
        self, method: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        recorder: Any = self.server
        if method == "commit" and self.node.name == ZOMBIE and not recorder.is_stopped:
            recorder.is_stopped = True
            recorder.held = self.node.main.create_future()
            await recorder.held
        return await super()._do(method, args, options)


OLD, NEW = ScheduleSpec(every=1.0), ScheduleSpec(every=5.0)
CHANGES = {
    "deleted and created": ("delete", "create"),
    "changed": ("change",),
    "paused, changed and resumed": ("pause", "change", "resume"),
}


def wish_for(acts: list[ScheduleAct]) -> Wish:
    """A schedule with a tick each second, for 40 s, and what is done to it."""
    schedule = ScheduleWish(OLD, STARTED_SECONDS + 40.0, tuple(acts))
    return Wish(1, STARTED_SECONDS, "schedule", schedule=schedule)


@pytest.mark.proves("M159")
@pytest.mark.parametrize("others", ["alone", "another makes ticks"])
@pytest.mark.parametrize("point", ["read", "commit"])
@pytest.mark.parametrize("change", CHANGES)
def test_scheduler_that_wakes_up_after_a_change_makes_nothing_by_the_old_rule(
    change: str, point: str, others: str, monkeypatch: pytest.MonkeyPatch
):
    if point == "commit":
        monkeypatch.setattr(schedule_world, "SimulatedLink", LateCommit)
    pauses = (2.0, 0.1, 0.1)  # the first tick is due after a second
    acts = [
        ScheduleAct(what, pause, 1, NEW)
        for what, pause in zip(CHANGES[change], pauses, strict=False)
    ]
    scene = SchedulerWorld(World(1), [wish_for(acts)], is_led=False)
    recorder = scene.recorder = StoppedAt(scene, point)

    async def story() -> None:
        await scene.store.open()
        sleep = scene.world.director.clock.sleep
        zombie, _ = scene.start(ZOMBIE), scene.start("producer-0")
        await sleep(4.0)
        assert recorder.is_stopped
        assert len(scene.ledger.of("sched.ok")) == 1 + len(acts)
        if others != "alone":
            scene.start(OTHER)
            await sleep(12.0)
        recorder.wake(zombie)
        scene.healed_at = scene.world.seconds
        await sleep(100.0)

    assert scene.run(story()) == []
    assert recorder.refused
    lines = scene.ledger.of("schedule")
    made = [job.mark for line in lines for job in line.fields["made"]]
    assert made == [1] * len(made), "nothing by the old rule"
    assert len(made) == 7, "each tick of the new rule"
    assert {"I13", "S2"} <= scene.exercised


class LateDeletion(SimulatedLink):
    """A connection that breaks under the first deletion; the server executes it late."""

    is_broken = False

    async def _do(
        self, method: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        is_deletion = method == "commit" and args[0].puts[0].body is None
        if not is_deletion or LateDeletion.is_broken:
            return await super()._do(method, args, options)
        LateDeletion.is_broken = True
        director = self.node.world.director

        async def do_late() -> None:
            await director.clock.sleep(LATE_SECONDS)
            await super(LateDeletion, self)._do(method, args, options)

        director.main.create_task(do_late())
        raise unavailable(method, unknown=True)


def test_late_deletion_spares_a_schedule_that_was_created_after_it(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(schedule_world, "SimulatedLink", LateDeletion)
    monkeypatch.setattr(LateDeletion, "is_broken", False)
    acts = [ScheduleAct("delete", 2.0, 1, NEW), ScheduleAct("create", 1.0, 1, NEW)]
    scene = SchedulerWorld(World(1), [wish_for(acts)], is_led=False)

    async def story() -> None:
        await scene.store.open()
        scene.start("producer-0")
        scene.start(OTHER)
        await scene.world.director.clock.sleep(120.0)

    assert scene.run(story()) == []
    assert [line.fields["act"] for line in scene.ledger.of("sched.ok")] == [
        *("create", "delete", "create")
    ]
    assert len(scene.ledger.of("sched.info")) == 1, "one deletion had no answer"
