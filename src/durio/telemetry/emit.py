"""One emission per transition; logs, metrics and hooks subscribe.

`emit` is a field, passed like the clock: two Apps, or two simulated nodes in one process,
never share it. A subscriber that fails is told about, and fails nobody else.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from durio.telemetry.names import MEANINGS, EmissionMeaning


class JobEvent(NamedTuple):
    """Something happened to a job; a batch of these goes out per exchange."""

    name: str
    id: bytes
    task: str
    lane: str
    attempt: int
    duration_seconds: float = 0.0
    worker: str = ""
    error_type: str = ""
    error: str = ""
    traceback: str = ""
    reason: str = ""
    delay_seconds: float = 0.0
    meta: Any = None


class Emit(Protocol):
    """What rooms hold to say what happened."""

    def __call__(self, name: str, **fields: Any) -> None:
        """One thing happened."""
        ...

    def jobs(self, events: Sequence[JobEvent]) -> None:
        """These things happened to jobs: one write."""
        ...

    def wants(self, name: str) -> bool:
        """Whether anybody would see it: what nobody sees need not be built."""
        ...


class EmissionSubscriber(Protocol):
    """Somebody who listens."""

    def on_event(
        self, name: str, meaning: EmissionMeaning, fields: dict[str, Any]
    ) -> None:
        """One thing happened."""
        ...

    def on_jobs(self, events: Sequence[JobEvent]) -> None:
        """Things happened to jobs."""
        ...

    def wants(self, meaning: EmissionMeaning) -> bool:
        """Whether this level is listened to."""
        ...


class Emitter:
    """Gives every emission to every subscriber."""

    def __init__(self, *subscribers: EmissionSubscriber) -> None:
        self.subscribers = list(subscribers)

    def __call__(self, name: str, **fields: Any) -> None:
        """One thing happened."""
        meaning = MEANINGS[name]
        for subscriber in self.subscribers:
            _guarded(subscriber.on_event, name, meaning, fields)

    def jobs(self, events: Sequence[JobEvent]) -> None:
        """These things happened to jobs."""
        for subscriber in self.subscribers:
            _guarded(subscriber.on_jobs, events)

    def wants(self, name: str) -> bool:
        """Whether anybody would see it."""
        meaning = MEANINGS[name]
        return any(subscriber.wants(meaning) for subscriber in self.subscribers)


def _guarded(call: Callable[..., None], *args: Any) -> None:
    # A full disk under the log must not stop jobs.
    with suppress(Exception):
        call(*args)
