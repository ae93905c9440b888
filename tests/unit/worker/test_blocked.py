"""A call blocks the event loop: who pays for it, and who does not. By the real clock."""

import asyncio
import logging
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from durio import App, JobStatus, SoftTimeLimit, State
from durio.app.worker_builder import make_worker
from durio.host.side_loop import ThreadSideLoop, WorkerMachine
from durio.limits import Batch
from durio.model.ids import id_text
from durio.model.settings import merged
from durio.telemetry.log import in_job
from durio.worker import watchdog
from durio.worker.inflight import Attempt
from durio.worker.middleware import HookEvent
from durio.worker.watchdog import Machine
from durio.worker.worker import Worker
from tests.simulation.fake_machine import FakeMachine
from tests.unit.app.app_harness import finished, real, records

pytestmark = pytest.mark.slow  # real processes, servers or seconds

log = logging.getLogger(__name__)

QUICK = {"worker": {"block_seconds": 0.2, "poll_seconds": 0.1}}
LIMITS = (0.6, 0.8)
BLOCK_SECONDS = 1.5


class Noting(WorkerMachine):
    """A real machine that notes its end in place of ending."""

    def __init__(self, told: list[str]) -> None:
        super().__init__()
        self._told = told
        self.ended = threading.Event()

    def end(self, code: int) -> None:
        """Whatever comes later, a real process would not do."""
        self._told.append(f"exit {code}")
        self.ended.set()


async def on_side_loop(
    app: App, machine: Machine, **names: Any
) -> dict[str, JobStatus]:
    """Run one job of each task in one worker; their statuses."""
    worker = await make_worker(app, side_loop=ThreadSideLoop(), machine=machine)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        jobs = {name: await task.enqueue() for name, task in names.items()}
        statuses = {name: await finished(job) for name, job in jobs.items()}
        for status in await records(app):
            await finished(await app.job(id_text(status.id)))
        worker.stop()
    return statuses


@pytest.mark.parametrize("inner", ["", "in a task of it"])
@real(settings=QUICK)
async def test_neighbours_do_not_pay_for_a_blocked_loop(app: App, inner: str):
    async def block() -> None:
        time.sleep(BLOCK_SECONDS)

    @app.task(name="blocks", timeout=(20, 30))
    async def blocks() -> None:
        await asyncio.sleep(0.1)
        await (asyncio.create_task(block()) if inner else block())

    @app.task(name="waits", timeout=LIMITS, retry=0)
    async def waits() -> str:
        await asyncio.sleep(0.3)
        return "ended"

    @app.task(name="threaded", timeout=LIMITS, retry=0)
    def threaded() -> str:
        time.sleep(0.3)
        return "ended"

    machine = FakeMachine()
    ends = await on_side_loop(
        app, machine, blocks=blocks, waits=waits, threaded=threaded
    )
    assert {name: status.state for name, status in ends.items()} == {
        "blocks": State.DONE,
        "waits": State.DONE,
        "threaded": State.DONE,
    }
    assert [status.attempt for status in ends.values()] == [1, 1, 1]
    assert machine.ends == []


@real(settings=QUICK)
async def test_the_guilty_is_known_in_a_task_of_it(app: App):
    """It is past its hard limit: the process would end, it alone would be charged."""

    async def block() -> None:
        time.sleep(BLOCK_SECONDS)

    @app.task(name="blocks", timeout=LIMITS, retry=0)
    async def blocks() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(block())

    @app.task(name="waits", timeout=LIMITS, retry=0)
    async def waits() -> str:
        await asyncio.sleep(0.3)
        return "ended"

    told: list[tuple[str, str]] = []
    app.hooks.dead(lambda event: told.append((event.task, event.error_type)))
    machine = FakeMachine()
    ends = await on_side_loop(app, machine, blocks=blocks, waits=waits)
    assert told == [("app.blocks", "HardTimeLimit")]
    assert (ends["blocks"].state, ends["blocks"].last_error.type) == (
        State.DEAD,
        "HardTimeLimit",
    )
    assert (ends["waits"].state, ends["waits"].attempt) == (State.DONE, 1)
    assert machine.ends == [70]


@real(settings=QUICK)
async def test_small_blocks_do_not_stretch_a_limit_for_ever(app: App):
    """Each is excused to the others; all of them together only as long again."""

    @app.task(name="stutters", timeout=LIMITS, retry=0)
    async def stutters() -> None:
        while True:
            time.sleep(0.3)
            await asyncio.sleep(0)

    ends = await on_side_loop(app, FakeMachine(), stutters=stutters)
    assert (ends["stutters"].state, ends["stutters"].reason) == (
        State.DEAD,
        "exhausted",
    )


@real(settings=merged(QUICK, {"worker": {"block_seconds": 0.1}}))
async def test_abandoned_code_that_blocks_ends_the_process(app: App):
    """It is over and charged; whoever runs beside it now has nothing to do with it."""

    @app.task(name="haunts", timeout=(0.1, 0.2), retry=0)
    async def haunts() -> None:
        try:
            while True:
                with suppress(SoftTimeLimit):
                    await asyncio.sleep(60)
        finally:
            time.sleep(BLOCK_SECONDS)

    @app.task(name="waits", timeout=(20, 30), retry=0)
    async def waits() -> str:
        await asyncio.sleep(0.5)
        return "ended"

    told: list[str] = []
    app.hooks.dead(lambda event: told.append(event.task))
    machine = Noting(told)
    ends = await on_side_loop(app, machine, haunts=haunts, waits=waits)
    assert ends["haunts"].last_error.type == "HardTimeLimit"
    assert (ends["waits"].state, ends["waits"].attempt) == (State.DONE, 1)
    assert told == ["app.haunts", "exit 70"], "a real process has no later word"


@real(settings=QUICK)
async def test_a_hook_that_blocks_does_not_keep_the_process(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(watchdog, "FINAL_WRITE_SECONDS", 0.2)
    told: list[str] = []
    machine = Noting(told)

    @app.task(name="blocks", timeout=LIMITS, retry=0)
    async def blocks() -> None:
        machine.ended.wait(60)

    @app.hooks.dead
    def hangs(_event: HookEvent) -> None:
        told.append("hook")
        machine.ended.wait(60)
        told.append("the hook ended")

    ends = await on_side_loop(app, machine, blocks=blocks)
    assert ends["blocks"].last_error.type == "HardTimeLimit"
    assert told[:2] == ["hook", "exit 70"]


@real(settings=QUICK)
async def test_what_ended_before_the_block_stays_ended(app: App):
    """Its outcome waits for the loop: the last word carries it, and its hook is told."""
    gate = asyncio.Event()
    told: list[str] = []
    app.hooks.after(lambda event: told.append(event.task))
    machine = Noting(told)

    @app.task(name="quick", retry=0)
    async def quick() -> None:
        told.append("runs")
        gate.set()

    @app.task(name="blocks", timeout=LIMITS, retry=0)
    async def blocks() -> None:
        await gate.wait()
        machine.ended.wait(60)

    ends = await on_side_loop(app, machine, blocks=blocks, quick=quick)
    assert (ends["quick"].state, ends["quick"].attempt) == (State.DONE, 1)
    assert told == ["runs", "app.quick", "exit 70"]


@real(settings=QUICK)
async def test_one_block_right_after_another_is_judged_by_its_own_time(app: App):
    """Both began together, one had to wait for the other: that does not count."""

    @app.task(name="first", timeout=(20, 30))
    async def first() -> None:
        time.sleep(BLOCK_SECONDS)

    @app.task(name="second", timeout=LIMITS, retry=0)
    async def second() -> str:
        time.sleep(0.5)
        return "ended"

    machine = FakeMachine()
    jobs = [await first.enqueue(), await second.enqueue()]  # claimed in one go
    await on_side_loop(app, machine)
    assert [(await finished(job)).state for job in jobs] == [State.DONE, State.DONE]
    assert machine.ends == []


class Mute(Noting):
    """A machine on which the last word fails in a way that nobody thought of."""

    async def run_elsewhere(self, *_: object) -> bool:
        raise RuntimeError("can't start new thread")


@real(settings=merged(QUICK, {"worker": {"grace_seconds": 1}}))
async def test_a_process_ends_also_when_its_last_word_fails(app: App):
    """Nobody else would end it: its loop is blocked, and its lease is gone."""

    @app.task(name="blocks", timeout=LIMITS, retry=0)
    async def blocks() -> None:
        time.sleep(3 * BLOCK_SECONDS)

    told: list[str] = []
    machine = Mute(told)
    job = await blocks.enqueue()
    worker = await make_worker(app, side_loop=ThreadSideLoop(), machine=machine)
    await worker.run()  # it breaks: the watchdog is gone
    assert set(told) == {"exit 70"}
    assert worker.broken is not None
    assert "can't start new thread" in worker.broken.what
    assert (await job.status()).state is State.DEAD


class Chatty:
    """Formatting it logs one more line: what another thread does now and then."""

    def __str__(self) -> str:
        log.warning("and one more")
        return "chatty"


@real(settings=merged(QUICK, {"worker": {"grace_seconds": 1}}))
async def test_who_blocks_and_logs_is_ended_all_the_same(app: App):
    """The lines of its failure are read while its code writes more of them."""

    @app.task(name="blocks", timeout=LIMITS, retry=0)
    async def blocks() -> None:
        log.warning("%s", Chatty())
        time.sleep(3 * BLOCK_SECONDS)

    told: list[str] = []
    job = await blocks.enqueue()
    worker = await make_worker(app, side_loop=ThreadSideLoop(), machine=Noting(told))
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        status = await finished(job)
        worker.stop()
    assert told == ["exit 70"]
    assert status.state is State.DEAD
    assert "WARNING chatty" in (await job.details()).errors[-1].logs


def break_watchdog(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """It fails when it looks next; this tells that it has."""
    failed = threading.Event()

    def broken(*_: object) -> None:
        failed.set()
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(watchdog.Watchdog, "_is_stop_due", broken)
    return failed


async def check_ends_itself(worker: Worker, told: list[str]) -> None:
    await worker.run()
    assert told == ["exit 70"]
    assert "watchdog" in worker.broken.what


@real(settings=merged(QUICK, {"worker": {"grace_seconds": 1}}))
async def test_a_watchdog_that_fails_while_the_loop_is_blocked_ends_the_process(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    """The loop does not hear of it, and nobody else would ever end it."""
    machine = Noting(told := [])

    @app.task(name="blocks", timeout=None)
    async def blocks() -> None:
        machine.ended.wait(60)

    break_watchdog(monkeypatch)
    await blocks.enqueue()
    worker = await make_worker(app, side_loop=ThreadSideLoop(), machine=machine)
    await check_ends_itself(worker, told)


@real(settings=merged(QUICK, {"worker": {"grace_seconds": 1}}))
async def test_a_loop_that_is_blocked_after_its_watchdog_failed_ends_the_process(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    """It has heard of that and drains; the lease is renewed beside, and nobody looks."""
    machine, failed = Noting(told := []), break_watchdog(monkeypatch)

    @app.task(name="blocks", timeout=None)
    async def blocks() -> None:
        failed.wait(20)
        await worker.stop_control.requested.wait()
        machine.ended.wait(20)

    await blocks.enqueue()
    worker = await make_worker(app, side_loop=ThreadSideLoop(), machine=machine)
    await check_ends_itself(worker, told)


@real(settings=QUICK)
async def test_a_limit_that_cannot_be_kept_costs_nobody_else_his(app: App):
    @app.task(name="long", timeout=LIMITS, retry=0)
    async def long() -> None:
        await asyncio.sleep(60)

    worker = await make_worker(app, side_loop=ThreadSideLoop(), machine=FakeMachine())
    met: list[str] = []
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        await worker.started.wait()
        give_up = worker.slots.deadlines._give_up

        def stumble(attempt: Any) -> None:
            if not met:
                met.append("a bug")
                raise ZeroDivisionError("a bug")
            give_up(attempt)

        worker.slots.deadlines._give_up = stumble
        jobs = [await long.enqueue() for _ in range(2)]
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        await asyncio.wait(
            [asyncio.create_task(finished(job)) for job in jobs],
            return_when=asyncio.FIRST_COMPLETED,
        )
        worker.stop()
        worker.stop()
    states = {(await job.status()).state for job in jobs}
    assert State.DEAD in states


@real(settings=QUICK)
async def test_a_call_that_blocks_the_loop_is_charged_to_its_jobs(app: App):
    @app.task(name="blocks", batch=Batch(8, "50ms"), timeout=LIMITS, retry=0)
    async def blocks(items: list[int]) -> list[int]:
        await asyncio.sleep(0.01)
        time.sleep(BLOCK_SECONDS)
        return items

    told: list[str] = []
    worker = await make_worker(app, side_loop=ThreadSideLoop(), machine=Noting(told))
    jobs = [await blocks.enqueue(n) for n in range(3)]
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        for job in jobs:
            status = await finished(job)
            assert (status.state, status.reason) == (State.DEAD, "exhausted")
            assert status.last_error is not None
            assert status.last_error.type == "HardTimeLimit"
        worker.stop()
    assert told[:1] == ["exit 70"]


@real(settings=QUICK)
async def test_a_block_before_a_call_does_not_extend_its_limits(app: App):
    """The time of a call begins with the call, not when its first job is claimed."""
    excused: list[float] = []

    @app.task(name="together", batch=Batch(8, "500ms"), timeout=LIMITS)
    async def together(items: list[int]) -> list[int]:
        attempt = in_job.get()
        assert isinstance(attempt, Attempt)
        excused.append(attempt.excused_seconds)
        return items

    @app.task(name="blocks", timeout=(20, 30))
    async def blocks() -> None:
        time.sleep(BLOCK_SECONDS)

    jobs = [await together.enqueue(1), await blocks.enqueue()]  # claimed in one go
    await on_side_loop(app, FakeMachine())
    assert [(await finished(job)).state for job in jobs] == [State.DONE, State.DONE]
    assert excused == [0.0]
