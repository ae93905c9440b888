"""A clock that only a test advances, so that leases and delays are exact."""

import asyncio
from typing import final

from durio.model.ids import uuid7

START = 1_800_000_000.0


@final
class ManualClock:
    """Time, random numbers and ids for a test; only `advance` moves it."""

    def __init__(self) -> None:
        self.wall_seconds = START
        self.monotonic_seconds = 1_000.0
        self.boot = "boot-1"
        self.ids_made = 0
        self.sleepers: list[tuple[float, asyncio.Future[None]]] = []

    # --- for tests

    def advance(self, seconds: float) -> None:
        """Let this much time pass for all users of the clock."""
        self.wall_seconds += seconds
        self.monotonic_seconds += seconds
        due = [s for s in self.sleepers if s[0] <= self.monotonic_seconds]
        self.sleepers = [s for s in self.sleepers if s not in due]
        for _, future in due:
            future.get_loop().call_soon_threadsafe(wake, future)

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back; no time passes."""
        self.wall_seconds += seconds

    def reboot(self) -> None:
        """Restart the machine: earlier monotonic times mean nothing now."""
        self.boot = f"{self.boot}+"
        self.monotonic_seconds = 5.0

    # --- ports.clock.Clock

    def now(self) -> float:
        """Return wall-clock seconds since 1970."""
        return self.wall_seconds

    def monotonic(self) -> float:
        """Return seconds that never go back within one boot."""
        return self.monotonic_seconds

    def boot_id(self) -> str:
        """Return the name of this boot."""
        return self.boot

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was advanced this much, or this much real time passed.

        A store's threads run in real time, so code that polls them must wake up again.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self.sleepers.append((self.monotonic_seconds + seconds, future))
        loop.call_later(seconds, wake, future)
        await future

    def random(self) -> float:
        """Return 0.5 always."""
        return 0.5

    def new_id(self) -> bytes:
        """Return an id above every earlier one, whatever the time does."""
        self.ids_made += 1
        return uuid7(int(START * 1000) + self.ids_made, 0, self.ids_made)

    def secret_bytes(self, size: int) -> bytes:
        """Return the bytes of a counter: no two calls return the same ones."""
        self.ids_made += 1
        return self.ids_made.to_bytes(size, "big")


def wake(future: "asyncio.Future[None]") -> None:
    """End a sleep that was not cancelled meanwhile."""
    if not future.done():
        future.set_result(None)
