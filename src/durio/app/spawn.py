"""`app.spawn(coro)`: tracked work of this process that needs no durability.

It is a plain asyncio.Task with a strong reference, logged errors and a limited number.
Closing the App waits for it. Nothing is stored, so it is lost with the process. Work that
must not be lost should be a job.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from durio.model.errors import SpawnFull, UsageError
from durio.model.failure import failure_of
from durio.telemetry.emit import Emit
from durio.telemetry.log import in_job

T = TypeVar("T")

CANCEL_SECONDS = 2.0  # time for cancelled work to clean up

Tasks = set[asyncio.Task[Any]]


class Spawner:
    """The spawned work of an App, by event loop; forks and threads share none."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Tasks]
        self._by_loop = WeakKeyDictionary()

    def spawn(
        self, coro: Coroutine[Any, Any, T], name: str | None, running_max: int
    ) -> "asyncio.Task[T]":
        """Run a coroutine on this loop; raises SpawnFull at the limit."""
        loop = _running_loop(coro)
        tasks = self._by_loop.setdefault(loop, set())
        if len(tasks) >= running_max:
            coro.close()  # or Python warns that it was never awaited
            raise SpawnFull(
                f"{len(tasks)} spawned calls run at once: no room for {_name(coro)}",
                cure="Enqueue a job instead, wait for some of them, or raise "
                "worker.spawned_max.",
                limit=running_max,
            )
        # Spawned work has no slot and outlives the attempt that spawned it, so its log
        # records do not name that job.
        context = copy_context()
        context.run(in_job.set, None)
        task = loop.create_task(coro, name=name or _name(coro), context=context)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(self._report_failure)
        return task

    def _report_failure(self, task: "asyncio.Task[Any]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            failure = failure_of(error)
            self._emit(
                "spawn.failed",
                spawned=task.get_name(),
                error=f"{failure.type}: {failure.message}",
                stack=failure.traceback,
            )

    def cancel_all(self) -> None:
        """Cancel the work of all loops, from any thread, and do not wait for it."""
        for loop, tasks in list(self._by_loop.items()):
            for task in list(tasks):
                if not loop.is_closed():
                    loop.call_soon_threadsafe(task.cancel)

    async def end(self, grace_seconds: float) -> None:
        """Wait up to `grace_seconds` for the work of this loop, then cancel it.

        Cancelling this call cancels the work too.
        """
        tasks = self._by_loop.get(asyncio.get_running_loop())
        if not tasks:
            return
        try:
            async with asyncio.timeout(grace_seconds):
                while others := _others(tasks):  # spawned work may spawn more
                    await asyncio.wait(others)
        except TimeoutError:
            self._emit(
                "spawn.cancelled",
                running=len(tasks),
                spawned=", ".join(sorted(task.get_name() for task in tasks)[:8]),
            )
        finally:
            others = _others(tasks)
            for task in others:
                task.cancel()
            if others:
                await asyncio.wait(others, timeout=CANCEL_SECONDS)


def _others(tasks: Tasks) -> Tasks:
    """Return all but the current task, because spawned work may close the App."""
    return tasks - {asyncio.current_task()}


def _running_loop(coro: object) -> asyncio.AbstractEventLoop:
    if not asyncio.iscoroutine(coro):
        raise UsageError(
            f"app.spawn takes a coroutine, not {_describe(coro)}",
            cure="Call the async function: app.spawn(warm_up(cache)).",
        )
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        coro.close()
        raise UsageError(
            f"app.spawn({_name(coro)}) needs a running event loop",
            cure="Call it from async code, or use app.run_sync(coro) to wait for it.",
        ) from None


def _describe(given: object) -> str:
    if callable(given):
        return f"the function {getattr(given, '__qualname__', given)}"
    return f"a {type(given).__name__}"


def _name(coro: object) -> str:
    return getattr(coro, "__qualname__", type(coro).__qualname__)
