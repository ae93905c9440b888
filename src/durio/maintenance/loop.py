"""Run a maintenance loop: an error of one turn is reported, and the loop continues."""

from collections.abc import Awaitable, Callable

from durio.ports.clock import Clock
from durio.telemetry.emit import Emit

PAUSE_SECONDS = 1.0


async def run_forever(
    name: str, turn: Callable[[], Awaitable[float]], clock: Clock, emit: Emit
) -> None:
    """Take turns until cancelled; a turn returns the seconds to sleep after it."""
    while True:
        try:
            pause = await turn()
        except Exception as error:
            emit("upkeep.failed", loop=name, error=f"{type(error).__name__}: {error}")
            pause = PAUSE_SECONDS * (1 + clock.random())
        await clock.sleep(pause)
