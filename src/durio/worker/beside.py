"""What stands beside a worker's loop must not fall silent.

A worker without its watchdog would hang for ever, and one whose heartbeat has failed must
not work on past the end of its lease. Where either fails, of whatever, the worker ends and
says why, and a new process takes its place. Most of what can go wrong beside the loop goes
wrong while the loop is blocked: where it does not hear of its end, the process is ended.
So it is where the loop heard, drains, and is blocked after all, for longer than the grace.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from durio.model.errors import DurioError, OperatingError
from durio.ports.clock import Clock
from durio.worker.watchdog import EXIT_BLOCKED, Machine

HEARD_SECONDS = 2.0  # for the loop to take the word

Run = Callable[[], Coroutine[Any, Any, None]]


class Keeper:
    """Runs what stands beside, and ends the worker where that fails."""

    def __init__(
        self,
        clock: Clock,
        machine: Machine,
        breaks: Callable[[DurioError], None],
        grace_seconds: float,
    ) -> None:
        self._clock = clock
        self._machine = machine
        self._breaks = breaks
        self._grace_seconds = max(grace_seconds, HEARD_SECONDS)
        self._loop = asyncio.get_running_loop()
        self._is_heard = False

    def keeps(self, name: str, run: Run, last: Run | None = None) -> Run:
        """The same coroutine function; when it fails `last` is run, and then the end."""

        async def run_kept() -> None:
            try:
                await run()
            except Exception as error:
                told = OperatingError(
                    f"the {name} of this worker failed: {type(error).__name__}: {error}",
                    cure="A new process goes on. This is a bug in Durio: please report "
                    "it.",
                )
                told.__cause__ = error
                self._loop.call_soon_threadsafe(self._break, told)
                if last is not None:
                    await last()
                await self._clock.sleep(HEARD_SECONDS)
                await self._see_out()

        return run_kept

    async def _see_out(self) -> None:
        """While the worker ends, which cancels this: nobody else watches its loop now."""
        while self._is_heard:
            self._is_heard = False
            self._loop.call_soon_threadsafe(self._hear)
            await self._clock.sleep(self._grace_seconds)
        self._machine.end(EXIT_BLOCKED)

    def _hear(self) -> None:
        self._is_heard = True

    def _break(self, error: DurioError) -> None:
        self._hear()
        self._breaks(error)
