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
from durio.stores.postgres.bell import Bell
from durio.stores.postgres.lines import Lines
from durio.stores.postgres.proof import settle
from durio.stores.postgres.ringing import RING, channel_of
from durio.stores.postgres.statements import statement

FIND_EARS = statement("ears_find")
KEEP_EAR = statement("ear_keep")
DROP_EAR = statement("ear_drop")

LOOK_SECONDS = 1.0
FRESH_SECONDS = 1.4  # what was seen longer ago says nothing
ASKED_SECONDS = 60.0  # whoever asked so long ago will ask again
ROW_SECONDS = 3.0
GATHER_SECONDS = 0.02  # between two batches of one loop
LINGER_SECONDS = 0.02  # for what others told at the same time
LAST_WORD_SECONDS = 1.0

BATCH_BYTES_MAX = 256 * 1024
EVENT_BYTES_MAX = 16 * 1024
FRAME_BYTES_MAX = 7900  # PostgreSQL takes less than 8000, head included
LINE_MAX = 10_000  # events kept for a listener that is slow to read
STAMP_LENGTH = 32
LAST, NOT_LAST = ".", "+"


def missed(events: int) -> bytes:
    """What a listener reads in place of events that it did not get."""
    return msgspec.json.encode({"event": "live.missed", "events": events})


def frames_of(stamp: str, text: bytes) -> list[str]:
    """One batch as payloads; characters stay whole."""
    frames: list[str] = []
    start = 0
    while start < len(text):
        end = min(start + FRAME_BYTES_MAX, len(text))
        while end < len(text) and is_within(text[end]):
            end -= 1
        mark = LAST if end == len(text) else NOT_LAST
        frames.append(f"{stamp}{mark}{text[start:end].decode()}")
        start = end
    return frames


def is_within(byte: int) -> bool:
    """Whether it continues a character of UTF-8."""
    return byte & 0b1100_0000 == 0b1000_0000  # noqa: PLR2004 - as the standard has it


@dataclass(slots=True)
class Batch:
    """What one loop is about to tell; only that loop touches it."""

    stamp: str = ""
    events: list[bytes] = field(default_factory=list[bytes])
    size: int = 0
    missed: int = 0
    sending: "asyncio.Task[None] | None" = None

    def add(self, event: bytes) -> None:
        """Take it, or count it."""
        taken = event if len(event) <= EVENT_BYTES_MAX else missed(1)
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
            events.append(missed(self.missed))
        frames = frames_of(self.stamp, b"\n".join(events))
        self.events, self.size, self.missed = [], 0, 0
        return frames, count


class ChannelEar:
    """A bounded line, filled in the thread that hears and read on any loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._line: deque[tuple[str, bytes]] = deque()
        self._missed = 0
        self._wake: Callable[[], None] | None = None
        self._is_closed = False

    def hear(self, stamp: str, events: Sequence[bytes]) -> None:
        """Take what there is room for, and wake the reader."""
        room = max(0, LINE_MAX - len(self._line))
        self._line.extend((stamp, event) for event in events[:room])
        self._missed += len(events[room:])
        if self._wake is not None:
            self._wake()

    async def read(self, timeout_seconds: float) -> list[bytes]:
        """What came in, oldest first; none when the time is over."""
        await self._until_heard(timeout_seconds)
        if self._line and not self._is_closed:
            await self._clock.sleep(LINGER_SECONDS)
        heard = [self._line.popleft() for _ in range(len(self._line))]
        heard.sort(key=lambda told: told[0])
        found = [event for _, event in heard]
        if self._missed:
            found.append(missed(self._missed))
            self._missed = 0
        return found

    async def _until_heard(self, timeout_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            with suppress(RuntimeError):  # that loop is closed
                loop.call_soon_threadsafe(settle, ended)

        # First listen, then look.
        self._wake = wake
        timer = loop.call_later(timeout_seconds, settle, ended)
        try:
            if not self._line and not self._is_closed:
                await ended
        finally:
            timer.cancel()
            self._wake = None

    def close(self) -> None:
        """Take no more, and let the reader go."""
        self._is_closed = True
        if self._wake is not None:
            self._wake()


class Ears:
    """Everybody who listens on this schema, and a way to join them."""

    def __init__(self, lines: Lines, clock: Clock, bell: Bell, schema: str) -> None:
        self._lines = lines
        self._clock = clock
        self._bell = bell
        self._channel = channel_of(schema, "live")
        self._mine: list[ChannelEar] = []
        self._frames = ("", "")  # of a batch that is not complete: its stamp, its text
        self._others = False
        self._looked_at = self._asked_at = float("-inf")
        self._looking: asyncio.AbstractEventLoop | None = None
        self._glance: asyncio.Task[None] | None = None
        self._batches: dict[asyncio.AbstractEventLoop, Batch] = {}

    # --- telling

    def is_heard(self) -> bool:
        """Whether anybody listens, here or elsewhere, as of a moment ago."""
        now = self._clock.monotonic()
        self._asked_at = now
        self.keep_looking()
        return bool(self._mine) or (
            self._others and now - self._looked_at < FRESH_SECONDS
        )

    def tell(self, events: Sequence[bytes]) -> None:
        """Give these to everybody who listens; never waits, never raises."""
        if not events or not self.is_heard():
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # a thread without a loop: nobody there to say it
            return
        batch = self._batches.get(loop)
        if batch is None:
            self._sweep()
            batch = self._batches[loop] = Batch()
        if not batch.events and not batch.missed:
            batch.stamp = self._clock.new_id().hex()
        for event in events:
            batch.add(event)
        if batch.sending is None or batch.sending.done():
            batch.sending = loop.create_task(self._send(batch))

    async def _send(self, batch: Batch) -> None:
        while batch.events or batch.missed:
            frames, count = batch.take()
            try:
                await self._lines.read(RING, self._channel, frames)
            except StoreError:
                batch.missed += count
                return  # the next that is told tries again
            await self._clock.sleep(GATHER_SECONDS)

    def _sweep(self) -> None:
        for loop in [loop for loop in list(self._batches) if loop.is_closed()]:
            self._batches.pop(loop, None)

    # --- listening

    async def open_ear(self) -> ChannelEar:
        """Hear everything from now on; raises what the store raises."""
        ear = ChannelEar(self._clock)
        if not self._bell.is_notifying:
            return ear  # one that nobody reaches
        self._mine.append(ear)
        try:
            self._bell.ear.tune(self._channel, self._hear)
            await self._bell.ear.settle()
            await self._keep_row()
        except BaseException:
            await self.close_ear(ear)
            raise
        self.keep_looking()
        return ear

    async def close_ear(self, ear: ChannelEar) -> None:
        """One listener less."""
        ear.close()
        if ear in self._mine:
            self._mine.remove(ear)
        if self._mine:
            return
        self._bell.ear.tune_out(self._channel)
        with suppress(StoreError):  # its row is over in a moment
            await self._lines.read(DROP_EAR, self._row())
            await self._bell.ear.settle()

    def _hear(self, payload: str) -> None:
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
        for ear in list(self._mine):
            ear.hear(stamp, events)

    # --- looking for others

    async def look(self) -> None:
        """Whether anybody else listens; keeps our own row alive, too."""
        if not self._bell.is_notifying:
            return
        with suppress(StoreError):  # the next look may do
            if self._mine:
                await self._keep_row()
                self._bell.attend()
            found = await self._lines.read(FIND_EARS, self._row(), self._lines.now)
            self._others = bool(found)
            self._looked_at = self._clock.monotonic()

    def keep_looking(self) -> None:
        """Once a second, on the loop that asks, unless another does it."""
        if not self._bell.is_notifying:
            return
        if self._looking is not None and not self._looking.is_closed():
            return
        with suppress(RuntimeError):  # no loop here: the next who asks has one
            loop = asyncio.get_running_loop()
            self._looking = loop
            self._take_a_look(loop)

    def _take_a_look(self, loop: asyncio.AbstractEventLoop) -> None:
        """One look, and the next in a second: timers, so that a loop may just end."""
        if self._looking is not loop:
            return
        asked = self._clock.monotonic() - self._asked_at < ASKED_SECONDS
        if not (asked or self._mine or self._bell.has_workers):
            self._looking = None
            return
        if self._glance is None or self._glance.done():
            self._glance = loop.create_task(self.look())
        loop.call_later(LOOK_SECONDS, self._take_a_look, loop)

    async def _keep_row(self) -> None:
        now = self._lines.now
        await self._lines.read(KEEP_EAR, self._row(), ROW_SECONDS, now)

    def _row(self) -> str:
        return f"ear:{self._bell.name}"

    # --- ends

    async def close(self) -> None:
        """Say what is left to say, and listen no more."""
        self._looking = None
        for ear in list(self._mine):
            await self.close_ear(ear)
        batch = self._batches.get(asyncio.get_running_loop())
        ours = [] if batch is None or batch.sending is None else [batch.sending]
        if self._glance is not None and not self._glance.get_loop().is_closed():
            ours.append(self._glance)
        here = [task for task in ours if task.get_loop() is asyncio.get_running_loop()]
        if here:
            await asyncio.wait(here, timeout=LAST_WORD_SECONDS)
            for task in here:
                task.cancel()
            await asyncio.wait(here)

    def forget(self) -> None:
        """In a forked child: the ears are the parent's."""
        self._mine.clear()
        self._batches.clear()
        self._looking = self._glance = None
        self._others = False
