"""Who listens to what happens, on any host: events by NOTIFY on a channel of their own.

A process that listens keeps a row `ear:<name>` alive; whoever has something to tell looks
for such rows once a second, as long as it has workers or is asked. While there are none,
nothing is said at all. What is told within a moment goes together, cut into payloads of
less than 8000 bytes, and nobody ever waits: what does not fit is counted, and the number
rides behind the events that did.

Each batch has a stamp that grows with time, so that a listener reads what several
processes told in the order in which it happened, as far as their clocks agree.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from durio.model.errors import StoreError
from durio.ports.clock import Clock
from durio.stores.postgres.connections import Connections
from durio.stores.postgres.listener import complete
from durio.stores.postgres.notify import NOTIFY, channel_name
from durio.stores.postgres.statements import statement
from durio.stores.postgres.wakeups import PostgresWakeups

FIND_SUBSCRIBERS = statement("find_subscribers")
KEEP_SUBSCRIBER = statement("keep_subscriber")
DROP_SUBSCRIBER = statement("drop_subscriber")

SUBSCRIBER_CHECK_SECONDS = 1.0
FRESH_SECONDS = 1.4  # what was seen longer ago says nothing
ASKED_SECONDS = 60.0  # whoever asked so long ago will ask again
ROW_SECONDS = 3.0
GATHER_SECONDS = 0.02  # between two batches of one loop
LINGER_SECONDS = 0.02  # for what others told at the same time
CLOSE_SECONDS = 1.0

BATCH_BYTES_MAX = 256 * 1024
EVENT_BYTES_MAX = 16 * 1024
FRAME_BYTES_MAX = 7900  # PostgreSQL takes less than 8000, head included
EVENTS_MAX = 10_000  # events kept for a listener that is slow to read
STAMP_LENGTH = 32
LAST, NOT_LAST = ".", "+"


def missed_event(events: int) -> bytes:
    """What a listener reads in place of events that it did not get."""
    return msgspec.json.encode({"event": "live.missed", "events": events})


def frames_of(stamp: str, text: bytes) -> list[str]:
    """One batch as payloads; characters stay whole."""
    frames: list[str] = []
    start = 0
    while start < len(text):
        end = min(start + FRAME_BYTES_MAX, len(text))
        while end < len(text) and is_continuation_byte(text[end]):
            end -= 1
        mark = LAST if end == len(text) else NOT_LAST
        frames.append(f"{stamp}{mark}{text[start:end].decode()}")
        start = end
    return frames


def is_continuation_byte(byte: int) -> bool:
    """Whether it continues a character of UTF-8."""
    return byte & 0b1100_0000 == 0b1000_0000  # noqa: PLR2004 - as the standard has it


@dataclass(slots=True)
class LiveEventBatch:
    """What one loop is about to tell; only that loop touches it."""

    stamp: str = ""
    events: list[bytes] = field(default_factory=list[bytes])
    size: int = 0
    missed: int = 0
    sending: "asyncio.Task[None] | None" = None

    def add(self, event: bytes) -> None:
        """Take it, or count it."""
        taken = event if len(event) <= EVENT_BYTES_MAX else missed_event(1)
        # In order: once one has found no room, those behind it find none either.
        if self.missed or self.size + len(taken) >= BATCH_BYTES_MAX:
            self.missed += 1
        else:
            self.events.append(taken)
            self.size += len(taken) + 1

    def take(self) -> tuple[list[str], int]:
        """The payloads of what there is, and how many events they stand for."""
        events, count = self.events, len(self.events) + self.missed
        if self.missed:
            events.append(missed_event(self.missed))
        frames = frames_of(self.stamp, b"\n".join(events))
        self.events, self.size, self.missed = [], 0, 0
        return frames, count


class PostgresSubscriber:
    """A bounded line, filled in the thread that hears and read on any loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: deque[tuple[str, bytes]] = deque()
        self._missed = 0
        self._wake: Callable[[], None] | None = None
        self._is_closed = False

    def receive(self, stamp: str, events: Sequence[bytes]) -> None:
        """Take what there is room for, and wake the reader."""
        room = max(0, EVENTS_MAX - len(self._events))
        self._events.extend((stamp, event) for event in events[:room])
        self._missed += len(events[room:])
        if self._wake is not None:
            self._wake()

    async def read(self, timeout_seconds: float) -> list[bytes]:
        """What came in, oldest first; none when the time is over."""
        await self._wait(timeout_seconds)
        if self._events and not self._is_closed:
            await self._clock.sleep(LINGER_SECONDS)
        heard = [self._events.popleft() for _ in range(len(self._events))]
        heard.sort(key=lambda event: event[0])
        found = [event for _, event in heard]
        if self._missed:
            found.append(missed_event(self._missed))
            self._missed = 0
        return found

    async def _wait(self, timeout_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            with suppress(RuntimeError):  # that loop is closed
                loop.call_soon_threadsafe(complete, ended)

        # First listen, then look.
        self._wake = wake
        timer = loop.call_later(timeout_seconds, complete, ended)
        try:
            if not self._events and not self._is_closed:
                await ended
        finally:
            timer.cancel()
            self._wake = None

    def close(self) -> None:
        """Take no more, and let the reader go."""
        self._is_closed = True
        if self._wake is not None:
            self._wake()


class PostgresLiveEvents:
    """Everybody who listens on this schema, and a way to join them."""

    def __init__(
        self,
        connections: Connections,
        clock: Clock,
        wakeups: PostgresWakeups,
        schema: str,
    ) -> None:
        self._connections = connections
        self._clock = clock
        self._wakeups = wakeups
        self._channel = channel_name(schema, "live")
        self._subscribers: list[PostgresSubscriber] = []
        self._frames = ("", "")  # of a batch that is not complete: its stamp, its text
        self._has_remote_subscribers = False
        self._checked_at = self._asked_at = float("-inf")
        self._checking_loop: asyncio.AbstractEventLoop | None = None
        self._check_task: asyncio.Task[None] | None = None
        self._batches: dict[asyncio.AbstractEventLoop, LiveEventBatch] = {}

    # --- telling

    def has_subscribers(self) -> bool:
        """Whether anybody listens, here or elsewhere, as of a moment ago."""
        now = self._clock.monotonic()
        self._asked_at = now
        self.keep_checking()
        return bool(self._subscribers) or (
            self._has_remote_subscribers and now - self._checked_at < FRESH_SECONDS
        )

    def publish(self, events: Sequence[bytes]) -> bool:
        """Give these to all subscribers; whether there are any."""
        has_subscribers = self.has_subscribers()
        if events and has_subscribers:
            with suppress(RuntimeError):  # a thread without a loop cannot send
                self._publish_on(asyncio.get_running_loop(), events)
        return has_subscribers

    def _publish_on(
        self, loop: asyncio.AbstractEventLoop, events: Sequence[bytes]
    ) -> None:
        batch = self._batches.get(loop)
        if batch is None:
            self._drop_closed_loops()
            batch = self._batches[loop] = LiveEventBatch()
        if not batch.events and not batch.missed:
            batch.stamp = self._clock.new_id().hex()
        for event in events:
            batch.add(event)
        if batch.sending is None or batch.sending.done():
            batch.sending = loop.create_task(self._send(batch))

    async def _send(self, batch: LiveEventBatch) -> None:
        while batch.events or batch.missed:
            frames, count = batch.take()
            try:
                await self._connections.read(NOTIFY, self._channel, frames)
            except StoreError:
                batch.missed += count
                return  # the next that is told tries again
            await self._clock.sleep(GATHER_SECONDS)

    def _drop_closed_loops(self) -> None:
        for loop in [loop for loop in list(self._batches) if loop.is_closed()]:
            self._batches.pop(loop, None)

    # --- listening

    async def subscribe(self) -> PostgresSubscriber:
        """Hear everything from now on; raises what the store raises."""
        ear = PostgresSubscriber(self._clock)
        if not self._wakeups.is_notifying:
            return ear  # one that nobody reaches
        self._subscribers.append(ear)
        try:
            self._wakeups.listener.add_channel(self._channel, self._on_notification)
            await self._wakeups.listener.ensure_listening()
            await self._keep_row()
        except BaseException:
            await self.unsubscribe(ear)
            raise
        self.keep_checking()
        return ear

    async def unsubscribe(self, subscriber: PostgresSubscriber) -> None:
        """One listener less."""
        subscriber.close()
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)
        if self._subscribers:
            return
        self._wakeups.listener.remove_channel(self._channel)
        with suppress(StoreError):  # its row is over in a moment
            await self._connections.read(DROP_SUBSCRIBER, self._row())
            await self._wakeups.listener.ensure_listening()

    def _on_notification(self, payload: str) -> None:
        """In the thread of the ear's home; the payloads of a batch come in a row."""
        stamp, mark = payload[:STAMP_LENGTH], payload[STAMP_LENGTH : STAMP_LENGTH + 1]
        text = payload[STAMP_LENGTH + 1 :]
        before, begun = self._frames
        if before == stamp:
            text = begun + text
        if mark == NOT_LAST:
            self._frames = (stamp, text)
            return
        self._frames = ("", "")
        events = [line for line in text.encode().split(b"\n") if line]
        for ear in list(self._subscribers):
            ear.receive(stamp, events)

    # --- looking for others

    async def check_subscribers(self) -> None:
        """Whether anybody else listens; keeps our own row alive, too."""
        if not self._wakeups.is_notifying:
            return
        with suppress(StoreError):  # the next look may do
            if self._subscribers:
                await self._keep_row()
                self._wakeups.check_listener()
            found = await self._connections.read(
                FIND_SUBSCRIBERS, self._row(), self._connections.now
            )
            self._has_remote_subscribers = bool(found)
            self._checked_at = self._clock.monotonic()

    def keep_checking(self) -> None:
        """Once a second, on the loop that asks, unless another does it."""
        if not self._wakeups.is_notifying:
            return
        if self._checking_loop is not None and not self._checking_loop.is_closed():
            return
        with suppress(RuntimeError):  # no loop here: the next who asks has one
            loop = asyncio.get_running_loop()
            self._checking_loop = loop
            self._check(loop)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        """One look, and the next in a second: timers, so that a loop may just end."""
        if self._checking_loop is not loop:
            return
        asked = self._clock.monotonic() - self._asked_at < ASKED_SECONDS
        if not (asked or self._subscribers or self._wakeups.has_workers):
            self._checking_loop = None
            return
        if self._check_task is None or self._check_task.done():
            self._check_task = loop.create_task(self.check_subscribers())
        loop.call_later(SUBSCRIBER_CHECK_SECONDS, self._check, loop)

    async def _keep_row(self) -> None:
        now = self._connections.now
        await self._connections.read(KEEP_SUBSCRIBER, self._row(), ROW_SECONDS, now)

    def _row(self) -> str:
        return f"ear:{self._wakeups.name}"

    # --- ends

    async def close(self) -> None:
        """Say what is left to say, and listen no more."""
        self._checking_loop = None
        for ear in list(self._subscribers):
            await self.unsubscribe(ear)
        batch = self._batches.get(asyncio.get_running_loop())
        ours = [] if batch is None or batch.sending is None else [batch.sending]
        if self._check_task is not None and not self._check_task.get_loop().is_closed():
            ours.append(self._check_task)
        here = [task for task in ours if task.get_loop() is asyncio.get_running_loop()]
        if here:
            await asyncio.wait(here, timeout=CLOSE_SECONDS)
            for task in here:
                task.cancel()
            await asyncio.wait(here)

    def forget(self) -> None:
        """In a forked child: the ears are the parent's."""
        self._subscribers.clear()
        self._batches.clear()
        self._checking_loop = self._check_task = None
        self._has_remote_subscribers = False
