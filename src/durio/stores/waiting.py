"""Waits on any event loop that any thread of the process can end; wakeups of a worker."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from durio.ports.store import Wake

WORK, CONTROL = "+", "!"  # `+<lane>`: it has work; `!`: the worker should renew
NOT_WOKEN: Final = Wake(woken=False, lanes=frozenset(), control=False)
POLL_WAKE: Final = Wake(woken=True, lanes=frozenset(), control=False)


def wake_from_messages(messages: Sequence[str]) -> Wake:
    lanes = frozenset(message[1:] for message in messages if message.startswith(WORK))
    return Wake(woken=True, lanes=lanes, control=CONTROL in messages)


def complete(future: "asyncio.Future[None]") -> None:
    """Set a future that may have been set or cancelled meanwhile."""
    if not future.done():
        future.set_result(None)


class EndableWaits:
    """The waits for one thing; several loops may wait for it."""

    def __init__(self) -> None:
        self._wakes: list[Callable[[], None]] = []

    def end_waits(self) -> None:
        for wake in list(self._wakes):
            wake()

    async def wait(self, seconds: float, is_over: Callable[[], bool]) -> None:
        """Wait until `end_waits` or the timeout; if `is_over`, return at once."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            with suppress(RuntimeError):  # that loop is closed: nothing waits there
                loop.call_soon_threadsafe(complete, ended)

        # Register, then check, so that what comes in between may be seen twice but is never
        # missed.
        self._wakes.append(wake)
        timer = loop.call_later(seconds, complete, ended)
        try:
            if not is_over():
                await ended
        finally:
            timer.cancel()
            self._wakes.remove(wake)


class WorkerWakeup:
    """Wakeups of one worker: sent from any thread, waited for on any loop."""

    def __init__(self) -> None:
        self._messages: dict[str, None] = {}
        self._waits = EndableWaits()

    def wake(self, message: str) -> None:
        """Keep the message and end the waits, unless it is already kept."""
        if message not in self._messages:
            self._messages[message] = None
            self._waits.end_waits()

    def end_waits(self) -> None:
        """End every wait, also without a message."""
        self._waits.end_waits()

    @property
    def is_woken(self) -> bool:
        return bool(self._messages)

    async def wait(self, seconds: float) -> None:
        """Wait for a message or `end_waits`, or until the timeout."""
        await self._waits.wait(seconds, lambda: self.is_woken)

    def take(self) -> Wake | None:
        """Return all wakeups since the last call; None if there are none."""
        messages: list[str] = []
        with suppress(KeyError):  # empty; other threads may add messages meanwhile
            while True:
                messages.append(self._messages.popitem()[0])
        return wake_from_messages(messages) if messages else None
