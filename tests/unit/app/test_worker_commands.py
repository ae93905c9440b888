"""What a worker answers when somebody asks it through the store."""

import asyncio
import json
from typing import Any

import pytest

from durio import App, Context, State
from durio.app.worker_commands import read_answers, send_command
from durio.ports.lease import Command
from durio.worker.worker import Worker
from durio.worker.worker_commands import AnswerBudget, CommandResponder
from tests.unit.app.app_harness import in_state, real, virtual, working

QUICK = {"worker": {"heartbeat_seconds": 1, "lease_seconds": 30, "poll_seconds": 1}}


async def answer(app: App, worker: Worker, verb: str) -> dict[str, Any]:
    store = await app.store()
    (row,) = [r for r in await store.workers(None) if r.id == worker.identity.id]
    command = await send_command(store, app.clock, row, verb, by="me")
    for _ in range(1000):
        answers = await read_answers(store, {row.id: command})
        if row.id in answers:
            return json.loads(answers[row.id])
        await app.clock.sleep(0.05)
    raise AssertionError("never answered")


async def wait_inside(gate: asyncio.Event) -> None:
    await gate.wait()


@pytest.mark.proves("L35")
@virtual(settings=QUICK)
async def test_report(app: App) -> None:
    """Active, reserved, registered, stats: what a person on call asks first."""
    gate = asyncio.Event()

    @app.task(name="wait", queue="mail", timeout=(60, 90))
    async def wait(ctx: Context) -> None:
        await ctx.progress(1, 3, message="so far")
        await wait_inside(gate)

    async with working(app) as worker:
        job = await wait.enqueue()
        await in_state(job, State.RUNNING)
        await app.clock.sleep(20)
        report = await answer(app, worker, "report")
        (active,) = report["active"]
        assert (active["job_id"], active["task"]) == (job.id, "app.wait")
        assert (active["queue"], active["attempt"]) == ("mail", 1)
        assert active["hard_seconds"] == 90
        assert 20 <= active["seconds"] < 30
        assert active["progress"]["message"] == "so far"
        assert report["registered"] == ["app.wait"]
        assert report["stats"]["running"] == 1
        assert report["stats"]["concurrency"] == 10
        assert report["reserved"] == []
        assert report["loop_lag_seconds"] is not None
        gate.set()


@virtual(settings=QUICK)
async def test_stack_of_a_coroutine_that_waits(app: App) -> None:
    """The frames of the task itself, down to where it waits; none of the engine's."""
    gate = asyncio.Event()

    @app.task(name="wait")
    async def wait() -> None:
        await wait_inside(gate)

    async with working(app) as worker:
        await in_state(await wait.enqueue(), State.RUNNING)
        (attempt,) = (await answer(app, worker, "stack"))["attempts"]
        assert attempt["where"] == "loop"
        assert "await wait_inside(gate)" in attempt["stack"]
        assert "await gate.wait()" in attempt["stack"]
        assert "durio/worker" not in attempt["stack"]
        gate.set()


@virtual(settings=QUICK, middleware=())
async def test_drain(app: App) -> None:
    gate = asyncio.Event()

    @app.task(name="wait")
    async def wait() -> None:
        await gate.wait()

    async with working(app) as worker:
        first = await wait.enqueue()
        await in_state(first, State.RUNNING)
        told = await answer(app, worker, "drain")
        assert (told["draining"], told["running"]) == (True, 1)
        second = await wait.enqueue()
        # A second one is the same wish, not the last warning.
        await answer(app, worker, "drain")
        gate.set()
        await in_state(first, State.DONE)
        assert not worker.was_cut_short
    assert (await second.status()).state is State.READY


@virtual(settings=QUICK)
async def test_an_order_of_a_later_release(app: App) -> None:
    async with working(app) as worker:
        await worker.started.wait()
        assert (
            "does not know the command 'dance'"
            in (await answer(app, worker, "dance"))["error"]
        )


@virtual(settings=QUICK)
async def test_a_look_that_fails_is_answered_too(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with working(app) as worker:
        await worker.started.wait()

        def broken() -> None:
            raise RuntimeError("it moved")

        monkeypatch.setattr(worker.watchdog._machine, "stacks", broken)
        told = await answer(app, worker, "stack")
        assert told["error"] == "RuntimeError: it moved"


@real(settings=QUICK)
async def test_stack_of_a_function_in_a_thread(app: App) -> None:
    import threading  # noqa: PLC0415, TID251 - what a sync task waits for

    gate, begun = threading.Event(), threading.Event()

    @app.task(name="hold")
    def hold() -> None:
        begun.set()
        gate.wait(60)

    from durio.app.worker_builder import make_worker  # noqa: PLC0415

    worker = await make_worker(app)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        await hold.enqueue()
        await asyncio.to_thread(begun.wait, 60)  # noqa: TID251 - a thread of the task
        told = await answer(app, worker, "stack")
        (attempt,) = told["attempts"]
        assert attempt["where"] == "thread"
        assert "gate.wait(60)" in attempt["stack"]
        names = {thread["name"] for thread in told["threads"]}
        assert {"MainThread", "durio-aside"} <= names
        gate.set()
        worker.stop()


@virtual(settings=QUICK)
async def test_an_order_is_answered_once(app: App) -> None:
    """It comes with every renewal until the answer is stored."""
    async with working(app) as worker:
        await worker.started.wait()
        orders: CommandResponder = worker.heartbeat._on_commands.__self__  # type: ignore[attr-defined]
        started: list[Any] = []
        orders._side_loop = type(
            "Aside", (), {"start": lambda _s, work: started.append(work)}
        )()
        orders.receive(
            [
                Command("7", "report", 1),
                Command("7", "report", 1),
                Command("8", "stack", 2),
            ]
        )
        orders.receive([Command("7", "report", 1)])
        assert len(started) == 2


def test_answers_have_a_bound() -> None:
    left = AnswerBudget(100)
    assert left.take([{"a": "x" * 40}, {"a": "y" * 200}, {"a": "z"}]) == [
        {"a": "x" * 40},
        {"a": "z"},
    ]
    assert left.left_out == 1
