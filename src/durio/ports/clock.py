"""Time, sleep, randomness and ids: the only door to them."""

from typing import Protocol


class Clock(Protocol):
    """What the engine may know of time and chance; tests inject their own."""

    def now(self) -> float:
        """Wall-clock seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, common to all processes of one boot."""
        ...

    def boot_id(self) -> str:
        """Names this boot of this machine: monotonic times compare only within it."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let others run for so long."""
        ...

    def random(self) -> float:
        """An even share from 0 to below 1, for jitter."""
        ...

    def new_id(self) -> bytes:
        """A new job id: grows within a process, unique everywhere."""
        ...
