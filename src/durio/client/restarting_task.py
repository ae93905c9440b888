"""A task that survives when all tasks of its event loop are cancelled.

A loop that is being closed, or a Ctrl-C, cancels every task, even one that has not started.
The callers that depend on the task may continue, because they may catch their cancellation.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class RestartingTask:
    """Runs `work` in a task, and again after a cancellation if `recover` returns True."""

    def __init__(
        self, work: Callable[[], Coroutine[Any, Any, None]], recover: Callable[[], bool]
    ) -> None:
        self._work = work
        self._recover = recover
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None

    def start(self) -> None:
        """Start the task, unless it runs; `work` returns when there is nothing left."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._restart_if_cancelled)

    async def _run(self) -> None:
        await self._work()
        self._task = None

    def _restart_if_cancelled(self, task: "asyncio.Task[None]") -> None:
        if self._task is task:
            self._task = None
            if self._recover():
                self.start()
