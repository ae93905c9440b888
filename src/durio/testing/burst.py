"""Run a worker on the caller's event loop until no job is ready."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from durio.app.app import App
from durio.app.embed import without_group
from durio.app.worker_builder import make_worker
from durio.host.side_loop import EmbeddedMachine


async def run_burst(app: App) -> bool:
    """Run jobs until none is ready; return whether any attempt was made.

    It waits for no gate: the clock of a box stands still, so no gate opens.
    """
    worker = await make_worker(
        app,
        is_burst=True,
        waits_for_gates=False,
        side_loop=TaskSideLoop(),
        machine=EmbeddedMachine(app.emit),
    )
    try:
        await worker.run()
    except BaseExceptionGroup as group:
        raise without_group(group) from None
    if worker.broken is not None:
        raise worker.broken
    return worker.slots.ended > 0


class TaskSideLoop:
    """Runs heartbeat and watchdog on the worker's own event loop, without a thread."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work()))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
