"""The clock of a testing box: the machine's clock, which a test can move forward.

During a drain it stands still. So `drain(until="7d")` runs a job that a task of this drain
has enqueued with `delay="7d"`, however long the tasks before it took.
"""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import final

from durio.host.clock import HostClock
from durio.model.errors import UsageError
from durio.model.quantities import Duration, seconds


@final
class BoxClock:
    """The clock of the Apps and the store in a box; `asyncio.sleep` takes real time."""

    __module__ = "durio.testing"

    def __init__(self) -> None:
        self._host = HostClock()
        self._ahead_seconds = 0.0  # of the machine's clock
        self._stands_at: float | None = None

    def advance(self, duration: Duration) -> None:
        """Move the clock forward, as in `advance("1h")`.

        The next `drain` runs the jobs that are due then. Raises UsageError for a negative
        duration.
        """
        if is_negative(duration):
            raise UsageError(
                f"the clock of a box cannot go back: advance({duration!r})",
                cure="Advance by a positive duration; a new box starts at the real time.",
            )
        self.advance_to(self.now() + seconds(duration, "advance"))

    def advance_to(self, at: float) -> None:
        """Move the clock forward to this time; do nothing if it is later already."""
        if self._stands_at is None:
            self._ahead_seconds = max(self._ahead_seconds, at - self._host.now())
        else:
            self._stands_at = max(self._stands_at, at)

    @contextmanager
    def standing_still(self) -> Generator[None]:
        """Stop the clock for the length of a block; it continues from there."""
        self._stands_at = self.now()
        try:
            yield
        finally:
            self._ahead_seconds = self._stands_at - self._host.now()
            self._stands_at = None

    # --- ports.clock.Clock

    def now(self) -> float:
        """Return the time in seconds since 1970."""
        if self._stands_at is not None:
            return self._stands_at
        return self._host.now() + self._ahead_seconds

    def monotonic(self) -> float:
        """Return the machine's monotonic time; moving this clock ends no lease."""
        return self._host.monotonic()

    def boot_id(self) -> str:
        """Return the machine's boot id."""
        return self._host.boot_id()

    async def sleep(self, seconds: float) -> None:
        """Sleep in real time."""
        await self._host.sleep(seconds)

    def random(self) -> float:
        """Return a random number from 0 to below 1."""
        return self._host.random()

    def new_id(self) -> bytes:
        """Return a new job id; ids grow in the order of enqueue."""
        return self._host.new_id()

    def secret_bytes(self, size: int) -> bytes:
        """Return random bytes that cannot be guessed."""
        return self._host.secret_bytes(size)


def is_negative(duration: object) -> bool:
    if isinstance(duration, timedelta):
        return duration < timedelta(0)
    if isinstance(duration, str):
        return duration.lstrip().startswith("-")
    return isinstance(duration, int | float) and duration < 0
