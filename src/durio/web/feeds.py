"""Feeds: one producer for each topic that is watched, whatever the number of viewers.

1. The first viewer of a topic starts its producer; it ends 10 s after the last one.
2. It reads the state of the topic, and sends a message when that has changed. A message is
   encoded once. After a read it rests 5 times as long as the read took.
3. Every viewer has up to 64 messages that wait to be sent. One that is slower is told to read
   everything again (`resync`), and is closed.
4. A message holds a whole state, so only the newest one of a topic matters. A viewer that
   comes back with the id of its last message gets the newest ones since then, as long as the
   feeds are remembered: 60 s after their last viewer.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from durio.model.errors import DurioError
from durio.web.figures import Figures
from durio.web.problems import Refusal
from durio.web.topics import KINDS, TopicSource, Watched

if TYPE_CHECKING:
    from durio.app.app import App

LINGER_SECONDS = 10.0
RESUME_SECONDS = 60.0
WAITING_MAX = 64
VIEWERS_MAX = 1_000
FEEDS_MAX = 4_000
REST_FACTOR = 5  # reads are small; what is counted has a rest of its own
REST_SECONDS_MAX = 30.0
FAILED_SECONDS = 5.0  # until the next try, if a read failed
FIRST_READ_SECONDS = 2.0  # that a new viewer waits for
ID_PARTS = 3

RESYNC = b'event: resync\ndata: {"topic":"*"}\n\n'
BYE = b'event: bye\ndata: {"topic":"*"}\n\n'


class FeedMessage(NamedTuple):
    """A message of a topic, encoded once for all viewers."""

    id: str
    number: int
    topic: str
    data: Any
    text: bytes  # as the stream sends it

    def as_event(self) -> dict[str, Any]:
        """Return the message as `admin/poll` answers it."""
        named = {"event": "message", "id": self.id, "topic": self.topic}
        return {**named, "data": self.data}


class Viewer:
    """One open stream: the messages that wait to be sent to it."""

    def __init__(self) -> None:
        self.waiting: deque[bytes] = deque()
        self.is_ended = False
        self._news = asyncio.Event()

    def send(self, text: bytes) -> None:
        """Add a message; a viewer with too many is ended with `resync`."""
        if self.is_ended:
            return
        if len(self.waiting) >= WAITING_MAX:
            self.waiting.clear()
            self.end(RESYNC)
            return
        self.waiting.append(text)
        self._news.set()

    def end(self, text: bytes = b"") -> None:
        """Send what waits, then this, then nothing more."""
        if not self.is_ended:
            self.is_ended = True
            if text:
                self.waiting.append(text)
            self._news.set()

    async def next(self) -> bytes | None:
        """Return what waits; None at the end."""
        while not self.waiting:
            if self.is_ended:
                return None
            self._news.clear()
            await self._news.wait()
        text = b"".join(self.waiting)
        self.waiting.clear()
        return text


@dataclass(eq=False)
class Feed:
    """One topic: what was read last, and who watches."""

    topic: Watched
    known_from: int  # the number of messages when it began: ids before it are too old
    viewers: set[Viewer] = field(default_factory=set[Viewer])
    wanted_until: float = 0.0  # without viewers; by the monotonic clock
    state: bytes | None = None  # a digest; None: not read yet
    newest: FeedMessage | None = None
    is_read: asyncio.Event = field(default_factory=asyncio.Event)
    is_late: bool = False  # a viewer did not wait for the first read
    is_failing: bool = False
    producer: "asyncio.Task[None] | None" = None


class Feeds:
    """The feeds of one dashboard, on one event loop."""

    def __init__(
        self, app: "App", figures: Figures, report: Callable[[BaseException], None]
    ) -> None:
        self.clock = app.clock
        self.report = report
        self.source = TopicSource(app, figures)
        self.epoch = self.clock.new_id().hex()[-12:]  # of this process and loop
        self.number = 0
        self.feeds: dict[Watched, Feed] = {}
        self.viewers: set[Viewer] = set()
        self.is_ended = False

    async def watch(self, topics: Sequence[Watched], last_id: str | None) -> Viewer:
        """Return a new viewer of these topics; `last_id`: of the last message it has."""
        if self.is_ended or len(self.viewers) >= VIEWERS_MAX:
            raise Refusal(
                503,
                "no_stream",
                "this dashboard is ending"
                if self.is_ended
                else f"this dashboard has {VIEWERS_MAX} open streams",
                "Use admin/poll, or try again.",
                headers={"Retry-After": "5"},
            )
        viewer = Viewer()
        feeds = self.feeds_of(topics)
        self.viewers.add(viewer)
        try:
            since = self.resumed(feeds, last_id)
            for feed in feeds:
                feed.viewers.add(viewer)
                self.produce(feed)
            if last_id is not None and since is None:
                viewer.send(RESYNC)
            # What the producers send from now on is in the viewer already.
            sent = self.newest(feeds, since)
            for message in sent:
                viewer.send(message.text)
            await self.first_reads(feeds)
            viewer.send(f"id: {self.mark()}\n\n".encode())
        except BaseException:
            self.leave(viewer)
            raise
        return viewer

    async def poll(
        self, topics: Sequence[Watched], since: str | None
    ) -> tuple[list[dict[str, Any]], str]:
        """Return the newest messages since an id, and the id for the next call."""
        feeds = self.feeds_of(topics)
        number = self.resumed(feeds, since)
        until = self.clock.monotonic() + LINGER_SECONDS
        for feed in feeds:
            feed.wanted_until = max(feed.wanted_until, until)
            self.produce(feed)
        await self.first_reads(feeds)
        if since and number is None:
            return [{"event": "resync", "topic": "*"}], self.mark()
        events = [each.as_event() for each in self.newest(feeds, number)]
        return events, self.mark()

    def leave(self, viewer: Viewer) -> None:
        """Forget a viewer; the producers that it watched go on for a while."""
        viewer.end()
        self.viewers.discard(viewer)
        until = self.clock.monotonic() + LINGER_SECONDS
        for feed in self.feeds.values():
            if viewer in feed.viewers:
                feed.viewers.discard(viewer)
                feed.wanted_until = max(feed.wanted_until, until)

    def end(self) -> None:
        """End all streams and producers, before the server waits for them."""
        self.is_ended = True
        for viewer in self.viewers:
            viewer.end(BYE)
        for feed in self.feeds.values():
            if feed.producer is not None:
                feed.producer.cancel()

    # --- ids and what follows them

    def mark(self) -> str:
        """Return the id of now: a viewer with it has seen all messages so far."""
        return f"{self.epoch}-{self.number}-{int(self.clock.monotonic())}"

    def resumed(self, feeds: Iterable[Feed], last_id: str | None) -> int | None:
        """Return the number of a message, if all that followed it is known here."""
        parts = (last_id or "").split("-")
        if len(parts) != ID_PARTS or parts[0] != self.epoch:
            return None
        if not all(part.isascii() and part.isdigit() for part in parts[1:]):
            return None
        number, at = int(parts[1][:18]), int(parts[2][:18])
        age = self.clock.monotonic() - at
        if number > self.number or not 0 <= age <= RESUME_SECONDS + 1:
            return None
        return number if all(feed.known_from <= number for feed in feeds) else None

    def newest(self, feeds: Iterable[Feed], since: int | None) -> list[FeedMessage]:
        """Return the newest message of each topic after a number, in order.

        Without a number: the states that are known, of topics that send them.
        """
        found = [
            feed.newest
            for feed in feeds
            if feed.newest is not None
            and (
                feed.newest.number > since
                if since is not None
                else not KINDS[feed.topic.kind].is_list
            )
        ]
        return sorted(found, key=lambda message: message.number)

    # --- producers

    def feeds_of(self, topics: Iterable[Watched]) -> list[Feed]:
        """Return the feeds of topics; new ones are made."""
        self.forget_old()
        found: list[Feed] = []
        for topic in dict.fromkeys(topics):
            feed = self.feeds.get(topic)
            if feed is None:
                if len(self.feeds) >= FEEDS_MAX:
                    raise Refusal(503, "too_many_topics", "too much is watched here")
                self.number += 1  # ids that are given before it do not know the feed
                feed = self.feeds[topic] = Feed(topic, self.number)
            found.append(feed)
        return found

    def forget_old(self) -> None:
        """Drop feeds whose last viewer left so long ago that it cannot be resumed."""
        now = self.clock.monotonic()
        kept = RESUME_SECONDS + LINGER_SECONDS
        for topic, feed in list(self.feeds.items()):
            is_idle = not feed.viewers and feed.producer is None
            if is_idle and now > feed.wanted_until + kept:
                del self.feeds[topic]

    def produce(self, feed: Feed) -> None:
        """Start the producer of a feed that has none."""
        if feed.producer is None and not self.is_ended:
            loop = asyncio.get_running_loop()
            feed.producer = loop.create_task(self._produce(feed))

    async def _produce(self, feed: Feed) -> None:
        kind = KINDS[feed.topic.kind]
        try:
            while feed.viewers or self.clock.monotonic() < feed.wanted_until:
                began = self.clock.monotonic()
                is_read = await self._read(feed)
                took = self.clock.monotonic() - began
                rest = min(REST_FACTOR * took, REST_SECONDS_MAX)
                least = kind.seconds if is_read else FAILED_SECONDS
                await self.clock.sleep(max(least, rest))
        finally:
            feed.producer = None

    async def _read(self, feed: Feed) -> bool:
        """Read the state and send it if it has changed; return False if that failed."""
        try:
            state = await self.source.read(feed.topic)
        except DurioError:
            return False  # a store that is away; requests say so
        except Exception as error:
            if not feed.is_failing:
                self.report(error)
            feed.is_failing = True
            return False
        feed.is_failing = False
        encoded = msgspec.json.encode(state, enc_hook=str)
        digest = blake2b(encoded, digest_size=16).digest()
        is_first = feed.state is None
        if digest != feed.state:
            feed.state = digest
            is_list = KINDS[feed.topic.kind].is_list
            if not (is_first and is_list and not feed.is_late):
                self.send(feed, {"changed": True} if is_list else state)
        feed.is_read.set()
        return True

    def send(self, feed: Feed, data: Any) -> None:
        """Number and encode a message, and give it to all viewers of the topic."""
        self.number += 1
        message_id, name = self.mark(), feed.topic.name
        data = msgspec.to_builtins(data)
        body = msgspec.json.encode({"topic": name, "data": data}).decode()
        text = f"id: {message_id}\ndata: {body}\n\n".encode()
        feed.newest = FeedMessage(message_id, self.number, name, data, text)
        for viewer in feed.viewers:
            viewer.send(text)

    async def first_reads(self, feeds: Iterable[Feed]) -> None:
        """Wait until all states are known once, but not for long.

        What changes after that leads to a message.
        """
        unread = [feed for feed in feeds if not feed.is_read.is_set()]
        try:
            async with asyncio.timeout(FIRST_READ_SECONDS):
                for feed in unread:
                    await feed.is_read.wait()
        except TimeoutError:
            for feed in unread:
                feed.is_late = True
