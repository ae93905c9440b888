"""Live events for subscribers on any host: NOTIFY on a channel of their own.

A process with subscribers keeps a row `ear:<name>` alive. A process that has workers, or
that was asked for subscribers in the last 60 s, reads these rows once a second. While there
are none, nothing is sent. Events published within 20 ms are sent together, split into
payloads of less than 8000 bytes. Publishing never waits: events that do not fit are
counted, and the count is sent after the events that did fit.

Each batch has a stamp that increases with time, so that a subscriber reads the events of
several processes in the order in which they happened, as far as their clocks agree.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from durio.model.errors import StoreError
from durio.ports.clock import Clock
from durio.stores.event_buffer import EventBuffer, bounded_event, missed_event
from durio.stores.postgres.connections import Connections
from durio.stores.postgres.notify import NOTIFY, channel_name
from durio.stores.postgres.statements import statement
from durio.stores.postgres.wakeups import PostgresWakeups

FIND_SUBSCRIBERS = statement("find_subscribers")
KEEP_SUBSCRIBER = statement("keep_subscriber")
DROP_SUBSCRIBER = statement("drop_subscriber")

SUBSCRIBER_CHECK_SECONDS = 1.0
FRESH_SECONDS = 1.4  # an older check does not count
ASKED_SECONDS = 60.0  # how long checks continue after `has_subscribers`
ROW_SECONDS = 3.0
GATHER_SECONDS = 0.02  # between two batches of one loop
LINGER_SECONDS = 0.02  # wait for simultaneous events of other processes
CLOSE_SECONDS = 1.0

BATCH_BYTES_MAX = 256 * 1024
FRAME_BYTES_MAX = 7900  # PostgreSQL allows less than 8000, the stamp included
STAMP_LENGTH = 32
LAST, NOT_LAST = ".", "+"


def frames_of(stamp: str, text: bytes) -> list[str]:
    """Split one batch into payloads, never inside a UTF-8 character."""
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
    return byte & 0b1100_0000 == 0b1000_0000  # noqa: PLR2004 - as UTF-8 defines it


@dataclass(slots=True)
class LiveEventBatch:
    """Events that one loop has not sent yet; only that loop uses it."""

    stamp: str = ""
    events: list[bytes] = field(default_factory=list[bytes])
    size: int = 0
    missed: int = 0
    sending: "asyncio.Task[None] | None" = None

    def add(self, event: bytes) -> None:
        """Add the event, or count it as missed."""
        taken = bounded_event(event)
        # Keep the order: after one event without room, all later ones count as missed.
        if self.missed or self.size + len(taken) >= BATCH_BYTES_MAX:
            self.missed += 1
        else:
            self.events.append(taken)
            self.size += len(taken) + 1

    def take(self) -> tuple[list[str], int]:
        """Return the payloads of all events, and the number of events in them."""
        events, count = self.events, len(self.events) + self.missed
        if self.missed:
            events.append(missed_event(self.missed))
        frames = frames_of(self.stamp, b"\n".join(events))
        self.events, self.size, self.missed = [], 0, 0
        return frames, count


class PostgresSubscriber(EventBuffer):
    """A subscriber whose buffer is filled in the listener's thread."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    async def wait(self, timeout_seconds: float) -> None:
        """Wait also for events of other processes, which may be older than the first."""
        await super().wait(timeout_seconds)
        if self._events and not self._is_closed:
            await self._clock.sleep(LINGER_SECONDS)


class PostgresLiveEvents:
    """Publishes events of this schema, and subscribes to them."""

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
        self._frames = ("", "")  # stamp and text of an incomplete batch
        self._has_remote_subscribers = False
        self._checked_at = self._asked_at = float("-inf")
        self._checking_loop: asyncio.AbstractEventLoop | None = None
        self._check_task: asyncio.Task[None] | None = None
        self._batches: dict[asyncio.AbstractEventLoop, LiveEventBatch] = {}

    # --- publishing

    def has_subscribers(self) -> bool:
        """Whether any process has subscribers, as of the last check."""
        now = self._clock.monotonic()
        self._asked_at = now
        self.keep_checking()
        return bool(self._subscribers) or (
            self._has_remote_subscribers and now - self._checked_at < FRESH_SECONDS
        )

    def publish(self, events: Sequence[bytes]) -> bool:
        """Send these events to all subscribers; return whether there are any. Never waits."""
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
                return  # the next `publish` tries again
            await self._clock.sleep(GATHER_SECONDS)

    def _drop_closed_loops(self) -> None:
        for loop in [loop for loop in list(self._batches) if loop.is_closed()]:
            self._batches.pop(loop, None)

    # --- subscribing

    async def subscribe(self) -> PostgresSubscriber:
        """Receive every event from now on; raises a StoreError if that fails."""
        subscriber = PostgresSubscriber(self._clock)
        if not self._wakeups.is_notifying:
            return subscriber  # the subscriber never receives an event
        self._subscribers.append(subscriber)
        try:
            self._wakeups.listener.add_channel(self._channel, self._on_notification)
            await self._wakeups.listener.ensure_listening()
            await self._keep_row()
        except BaseException:
            await self.unsubscribe(subscriber)
            raise
        self.keep_checking()
        return subscriber

    async def unsubscribe(self, subscriber: PostgresSubscriber) -> None:
        subscriber.close()
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)
        if self._subscribers:
            return
        self._wakeups.listener.remove_channel(self._channel)
        with suppress(StoreError):  # its row expires within ROW_SECONDS
            await self._connections.read(DROP_SUBSCRIBER, self._row())
            await self._wakeups.listener.ensure_listening()

    def _on_notification(self, payload: str) -> None:
        """Collect the payloads of a batch, which arrive in sequence.

        This runs in the listener's thread.
        """
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
        for subscriber in list(self._subscribers):
            subscriber.receive(stamp, events)

    # --- finding subscribers of other processes

    async def check_subscribers(self) -> None:
        """Look for other processes with subscribers; keep the row of this process alive."""
        if not self._wakeups.is_notifying:
            return
        with suppress(StoreError):  # the next check tries again
            if self._subscribers:
                await self._keep_row()
                self._wakeups.check_listener()
            found = await self._connections.read(
                FIND_SUBSCRIBERS, self._row(), self._connections.now
            )
            self._has_remote_subscribers = bool(found)
            self._checked_at = self._clock.monotonic()

    def keep_checking(self) -> None:
        """Check once a second on the caller's loop, unless another loop does it."""
        if not self._wakeups.is_notifying:
            return
        if self._checking_loop is not None and not self._checking_loop.is_closed():
            return
        with suppress(RuntimeError):  # no loop here; a later call may have one
            loop = asyncio.get_running_loop()
            self._checking_loop = loop
            self._check(loop)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check now and again in 1 s, by timers, so that the loop may end at any time."""
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

    # --- closing

    async def close(self) -> None:
        """Send the remaining events, for up to CLOSE_SECONDS, and unsubscribe all."""
        self._checking_loop = None
        for subscriber in list(self._subscribers):
            await self.unsubscribe(subscriber)
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
        """Drop all state in a forked child: the subscribers belong to the parent."""
        self._subscribers.clear()
        self._batches.clear()
        self._checking_loop = self._check_task = None
        self._has_remote_subscribers = False
