"""What stands beside a worker's loop must not fall silent.

A worker whose heartbeat has failed would work on past the end of its lease, and one without
its watchdog would hang for ever: where either fails, of whatever, the worker ends and says
why, and a new process takes its place.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from durio.model.errors import DurioError, OperatingError

Run = Callable[[], Coroutine[Any, Any, None]]


def guarded(name: str, run: Run, failed: Callable[[DurioError], None]) -> Run:
    """The same coroutine function; what ends it, unless it is cancelled, is told."""

    async def run_guarded() -> None:
        try:
            await run()
        except Exception as error:
            told = OperatingError(
                f"the {name} of this worker failed: {type(error).__name__}: {error}",
                cure="A new process goes on. This is a bug in Durio: please report it.",
            )
            told.__cause__ = error
            failed(told)

    return run_guarded
