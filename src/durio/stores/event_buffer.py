"""A buffer of live events for a subscriber of this process."""

from collections import deque
from collections.abc import Sequence

import msgspec

from durio.stores.waiting import EndableWaits

EVENT_BYTES_MAX = 16 * 1024
EVENTS_MAX = 10_000  # kept for a subscriber that is slow to read


def missed_event(events: int) -> bytes:
    """Return the event that stands for events a subscriber did not get."""
    return msgspec.json.encode({"event": "live.missed", "events": events})


def bounded_event(event: bytes) -> bytes:
    """Return the event; one that is too long counts as missed."""
    return event if len(event) <= EVENT_BYTES_MAX else missed_event(1)


class EventBuffer:
    """A bounded queue, filled from any thread and read on any loop."""

    def __init__(self) -> None:
        self._events: deque[tuple[str, bytes]] = deque()
        self._missed = 0
        self._waits = EndableWaits()
        self._is_closed = False

    def receive(self, stamp: str, events: Sequence[bytes]) -> None:
        """Keep the events that fit, count the rest, wake the reader."""
        room = max(0, EVENTS_MAX - len(self._events))
        self._events.extend((stamp, event) for event in events[:room])
        self._missed += len(events[room:])
        self._waits.end_waits()

    async def read(self, timeout_seconds: float) -> list[bytes]:
        """Return the received events, by their stamps; empty after a timeout."""
        await self.wait(timeout_seconds)
        received = [self._events.popleft() for _ in range(len(self._events))]
        received.sort(key=lambda event: event[0])
        found = [event for _, event in received]
        if self._missed:
            found.append(missed_event(self._missed))
            self._missed = 0
        return found

    async def wait(self, timeout_seconds: float) -> None:
        """Wait until there is something to read, or nothing can arrive any more."""
        await self._waits.wait(
            timeout_seconds, lambda: bool(self._events) or self._is_closed
        )

    def close(self) -> None:
        """Let the reader return at once."""
        self._is_closed = True
        self._waits.end_waits()
