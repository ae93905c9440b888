"""Fakes for a worker's side thread and process: tasks of its own loop instead."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, final

from durio.ports.executor import ThreadStack


@final
class TaskSideLoop:
    """Runs heartbeat and watchdog as ordinary tasks: they share virtual time."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work()))

    async def stop(self) -> None:
        """Cancel the tasks, and wait for their end."""
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class FakeMachine:
    """A process that uses no resources and never ends: it records exit codes."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.stopped: list[tuple[str, float]] = []

    def cpu_seconds(self) -> float:
        """Always 0: simulated work uses no CPU time."""
        return 0.0

    def rss_bytes(self) -> int:
        """Always 0."""
        return 0

    def stops(self) -> list[tuple[str, float]]:
        """Return the signals that a test has put here."""
        return self.stopped

    def stack(self) -> str:
        """Empty: there is no thread to look at."""
        return ""

    def stacks(self) -> list[ThreadStack]:
        return []

    async def run_elsewhere(
        self, work: Callable[[], Coroutine[Any, Any, None]], seconds: float
    ) -> bool:
        """Run it on this loop: there is no other thread."""
        try:
            async with asyncio.timeout(seconds):
                await work()
        except TimeoutError:
            return False
        return True

    def end(self, code: int) -> None:
        """Record the exit code of a real process."""
        self.ends.append(code)
