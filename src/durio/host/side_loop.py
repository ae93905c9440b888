"""The machine of a worker: a thread for its heartbeat, access to its process."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from durio.host.processes import own_cpu_seconds, own_rss_bytes
from durio.host.signals import Signals, all_stacks, end_process, task_stack
from durio.host.threads import LoopThread
from durio.ports.executor import ThreadStack
from durio.telemetry.emit import Emit

STOP_SECONDS = 2.0


class ThreadSideLoop:
    """Runs coroutines on its own thread, even while the worker's loop is blocked."""

    def __init__(self) -> None:
        self._thread = LoopThread("durio-aside")

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._thread.submit(work())

    async def stop(self) -> None:
        self._thread.stop(STOP_SECONDS)


class WorkerMachine:
    """The process of a worker; created in the thread that runs its loop."""

    def __init__(self, signals: Signals | None = None) -> None:
        self._thread_id = threading.get_ident()
        self._signals = signals

    def cpu_seconds(self) -> float:
        return own_cpu_seconds()

    def rss_bytes(self) -> int:
        return own_rss_bytes()

    def stops(self) -> list[tuple[str, float]]:
        return [] if self._signals is None else self._signals.received

    def stack(self) -> str:
        return task_stack(self._thread_id)

    def stacks(self) -> list[ThreadStack]:
        return all_stacks()

    async def run_elsewhere(
        self, work: Callable[[], Coroutine[Any, Any, None]], seconds: float
    ) -> bool:
        thread = LoopThread("durio-last-word")
        running = asyncio.wrap_future(thread.submit(work()))
        done, _ = await asyncio.wait((running,), timeout=seconds)
        thread.stop(0.0)
        return bool(done)

    def end(self, code: int) -> None:
        end_process(code)


class EmbeddedMachine(WorkerMachine):
    """The process of another program, which a worker never ends."""

    def __init__(self, emit: Emit) -> None:
        super().__init__()
        self._emit = emit

    def end(self, code: int) -> None:
        """Report what would have ended a worker's own process."""
        self._emit("worker.stuck", exit_code=code, stack=self.stack())
