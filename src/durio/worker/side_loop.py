"""End the worker when its heartbeat or its watchdog fails.

Without a watchdog a blocked worker would hang forever; without a heartbeat it must not work
past the end of its lease. When either fails, for any reason, the worker drains and reports
why, and a new process takes its place. Most of these failures happen while the worker's
loop is blocked. If the loop does not handle the request within 2 s, the process is ended.
The same happens if the worker drains and its loop is then blocked for longer than the
grace.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from durio.model.errors import DurioError, OperatingError
from durio.ports.clock import Clock
from durio.worker.watchdog import EXIT_BLOCKED, Machine

ANSWER_SECONDS = 2.0  # time for the worker's loop to handle the request

CoroutineFunction = Callable[[], Coroutine[Any, Any, None]]


class FailStop:
    """Guards the coroutines on the side loop."""

    def __init__(
        self,
        clock: Clock,
        machine: Machine,
        on_failure: Callable[[DurioError], None],
        grace_seconds: float,
    ) -> None:
        self._clock = clock
        self._machine = machine
        self._on_failure = on_failure
        self._grace_seconds = max(grace_seconds, ANSWER_SECONDS)
        self._loop = asyncio.get_running_loop()
        self._is_answered = False

    def guard(
        self,
        name: str,
        run: CoroutineFunction,
        finally_run: CoroutineFunction | None = None,
    ) -> CoroutineFunction:
        """Return `run`, guarded: if it fails, the worker stops and `finally_run` runs."""

        async def run_kept() -> None:
            try:
                await run()
            except Exception as error:
                failure = OperatingError(
                    f"the {name} of this worker failed: {type(error).__name__}: {error}",
                    cure="A new process takes over. This is a bug in Durio: please "
                    "report it.",
                )
                failure.__cause__ = error
                self._loop.call_soon_threadsafe(self._fail, failure)
                if finally_run is not None:
                    await finally_run()
                await self._clock.sleep(ANSWER_SECONDS)
                await self._watch_ending()

        return run_kept

    async def _watch_ending(self) -> None:
        """Watch the worker's loop while it drains; the end of the worker cancels this."""
        while self._is_answered:
            self._is_answered = False
            self._loop.call_soon_threadsafe(self._answer)
            await self._clock.sleep(self._grace_seconds)
        self._machine.end(EXIT_BLOCKED)

    def _answer(self) -> None:
        self._is_answered = True

    def _fail(self, error: DurioError) -> None:
        self._answer()
        self._on_failure(error)
