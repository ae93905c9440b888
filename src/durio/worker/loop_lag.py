"""How late the event loop of a worker runs what is due: measured by the watchdog."""

from durio.ports.clock import Clock


class LoopLag:
    """The time from a call to the loop until it runs, of the last call."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked_at: float | None = None
        self._seconds: float | None = None  # of the last call that has run

    def asked(self) -> None:
        """Note that a call was given to the loop, unless an earlier one still waits."""
        if self._asked_at is None:
            self._asked_at = self._clock.monotonic()

    def answered(self) -> None:
        """Note that the loop runs the call."""
        if self._asked_at is not None:
            self._seconds = self._clock.monotonic() - self._asked_at
            self._asked_at = None

    def seconds(self) -> float | None:
        """Return the last lag, or how long a call waits if that is longer; None at first."""
        asked_at = self._asked_at
        waits = 0.0 if asked_at is None else self._clock.monotonic() - asked_at
        if self._seconds is None:
            return None
        return round(max(self._seconds, waits), 4)
