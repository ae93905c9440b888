"""Report events to subscribers: the log and live events.

`emit` is a field, passed like the clock, so that two Apps, or two simulated nodes in one
process, never share it. An error in a subscriber affects neither the caller nor other
subscribers.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from durio.model.gate import GateChange
from durio.telemetry.names import MEANINGS, EmissionMeaning


class JobEvent(NamedTuple):
    """An event of one job; each exchange reports a batch of them."""

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
    max_attempts: int = 0  # 0: not known
    decision: str = ""  # what happens after an error, and why, for people
    settles: tuple[
        GateChange, ...
    ] = ()  # changes of gates by what the attempt has spent of budgets


class Emit(Protocol):
    """Reports events; passed to every part."""

    def __call__(self, name: str, **fields: Any) -> None:
        """Report one event that is not about a single job."""
        ...

    def jobs(self, events: Sequence[JobEvent]) -> None:
        """Report events of jobs in one batch."""
        ...

    def wants(self, name: str) -> bool:
        """Whether a subscriber would get the event; if not, it need not be built."""
        ...


class EmissionSubscriber(Protocol):
    def on_event(
        self, name: str, meaning: EmissionMeaning, fields: dict[str, Any]
    ) -> None: ...

    def on_jobs(self, events: Sequence[JobEvent]) -> None: ...

    def wants(self, meaning: EmissionMeaning) -> bool:
        """Whether this subscriber would get an event of this level."""
        ...


class Emitter:
    def __init__(self, *subscribers: EmissionSubscriber) -> None:
        self.subscribers = list(subscribers)

    def __call__(self, name: str, **fields: Any) -> None:
        meaning = MEANINGS[name]
        for subscriber in self.subscribers:
            _guarded(subscriber.on_event, name, meaning, fields)

    def jobs(self, events: Sequence[JobEvent]) -> None:
        for subscriber in self.subscribers:
            _guarded(subscriber.on_jobs, events)

    def wants(self, name: str) -> bool:
        meaning = MEANINGS[name]
        return any(subscriber.wants(meaning) for subscriber in self.subscribers)


def _guarded(call: Callable[..., None], *args: Any) -> None:
    # A full disk for the log must not stop jobs.
    with suppress(Exception):
        call(*args)
