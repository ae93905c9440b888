"""Time, sleep, randomness and ids: the only access to them."""

from typing import Protocol


class Clock(Protocol):
    """Time and randomness for the engine; tests inject their own."""

    def now(self) -> float:
        """Return wall-clock seconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back, common to all processes of one boot."""
        ...

    def boot_id(self) -> str:
        """Return the id of this boot of the host; monotonic times compare only within it."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let other tasks run for this time."""
        ...

    def random(self) -> float:
        """Return a random number, at least 0 and below 1, for jitter."""
        ...

    def new_id(self) -> bytes:
        """Return a new job id: increasing within a process, unique everywhere."""
        ...

    def secret_bytes(self, size: int) -> bytes:
        """Return random bytes that cannot be guessed, for credentials."""
        ...
