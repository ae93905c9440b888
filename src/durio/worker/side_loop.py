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

ANSWER_SECONDS = 2.0  # for the loop to take the word

CoroutineFunction = Callable[[], Coroutine[Any, Any, None]]


class FailStop:
    """Runs what stands beside, and ends the worker where that fails."""

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
                self._loop.call_soon_threadsafe(self._fail, told)
                if finally_run is not None:
                    await finally_run()
                await self._clock.sleep(ANSWER_SECONDS)
                await self._watch_ending()

        return run_kept

    async def _watch_ending(self) -> None:
        """While the worker ends, which cancels this: nobody else watches its loop now."""
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
