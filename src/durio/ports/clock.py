"""Time, sleep, randomness and ids: the only access to them."""

from typing import Protocol


class Clock(Protocol):
    """Time and randomness for the engine; tests inject their own."""

    def now(self) -> float:
        """Wall-clock seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, common to all processes of one boot."""
        ...

    def boot_id(self) -> str:
        """The id of this boot of the host: monotonic times compare only within it."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let other tasks run for this time."""
        ...

    def random(self) -> float:
        """A random number from 0 to below 1, for jitter."""
        ...

    def new_id(self) -> bytes:
        """A new job id: increasing within a process, unique everywhere."""
        ...
