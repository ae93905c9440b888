"""Beside a simulated worker: tasks of its own loop in place of a thread and a process."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, final

from durio.ports.executor import ThreadStack


@final
class TaskSideLoop:
    """Runs heartbeat and watchdog as tasks like any other: they share virtual time."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run this coroutine function until `stop`."""
        self.tasks.append(asyncio.get_running_loop().create_task(work()))

    async def stop(self) -> None:
        """Cancel what runs, and wait for its end."""
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class FakeMachine:
    """A process that needs nothing and is never ended: it only notes what was asked."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.stopped: list[tuple[str, float]] = []

    def cpu_seconds(self) -> float:
        """Simulated work is free."""
        return 0.0

    def rss_bytes(self) -> int:
        """It needs no memory of its own either."""
        return 0

    def stops(self) -> list[tuple[str, float]]:
        """The signals that a test has put here."""
        return self.stopped

    def stack(self) -> str:
        """There is no thread to look at."""
        return ""

    def stacks(self) -> list[ThreadStack]:
        """The one thread of a simulated world has nothing to tell."""
        return []

    async def run_elsewhere(
        self, work: Callable[[], Coroutine[Any, Any, None]], seconds: float
    ) -> bool:
        """Here: there is nowhere else."""
        try:
            async with asyncio.timeout(seconds):
                await work()
        except TimeoutError:
            return False
        return True

    def end(self, code: int) -> None:
        """Note what a real process would have ended with."""
        self.ends.append(code)
