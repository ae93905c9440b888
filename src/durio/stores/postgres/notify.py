"""Ringing other processes: one NOTIFY channel per schema, said rarely and in few words.

NOTIFY takes one lock of the whole database, so nothing is said twice within 10 ms: the
first ring of a lane goes out at once (the leading edge), and whatever was rung while that
was fresh goes out once more when it no longer is (the trailing edge), so that nobody
sleeps over the last job of a burst. Rings go in a transaction of their own, on the line of
the loop that rings. A lost ring costs one safety poll, never a job.

A payload is who says it (12 letters, so that a process does not wake itself), one sign and
one word: `+` and a lane with work, `!` and a worker that should renew, `=` and a nonce that
proves that somebody hears.
"""

import asyncio
import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from durio.model.errors import StoreError
from durio.ports.clock import Clock
from durio.stores.postgres.connections import Connections
from durio.stores.postgres.statements import statement

NOTIFY = statement("notify")
NOTIFY_IN_TRANSACTION = statement(
    "notify_in_transaction"
)  # with `Bell.payloads_inside`

WORK, CONTROL, LISTEN_CHECK = "+", "!", "="
NAME_LENGTH = 12
NO_SENDER = "-" * NAME_LENGTH  # said in a user's transaction: nobody knows it before
QUIET_SECONDS = 0.010
TRAILING_LATE_SECONDS = 0.1  # a trailing edge whose loop has ended never comes
FRESH_MAX = 1000
NOTIFICATIONS_MAX = 1000  # in one statement
CLOSE_SECONDS = 1.0
CHANNEL_BYTES_MAX = 40  # of 63: a name or two go before and behind


def channel_name(schema: str, kind: str) -> str:
    """The channel of a schema for rings, or for live events."""
    name = schema
    if len(schema.encode()) > CHANNEL_BYTES_MAX:
        name = hashlib.blake2b(schema.encode(), digest_size=16).hexdigest()
    return f"durio.{name}.{kind}"


def messages_of(lanes: Iterable[str], workers: Iterable[int]) -> list[str]:
    """What there is to say, without who says it."""
    # Control first: whoever is woken by the first word then knows to renew.
    told = [f"{CONTROL}{worker}" for worker in workers]
    return told + [WORK + lane for lane in lanes]


@dataclass(slots=True)
class UnsentNotifications:
    """What one loop is about to say; only that loop touches it."""

    messages: dict[str, None] = field(default_factory=dict[str, None])
    sending: "asyncio.Task[None] | None" = None


class Notifier:
    """Says rings, from whichever loop has them."""

    def __init__(self, connections: Connections, clock: Clock, channel: str) -> None:
        self._connections = connections
        self._clock = clock
        self._channel = channel
        self.name = new_sender_name(clock)
        # Word -> until when it is fresh; -> when its trailing edge is due.
        self._fresh: dict[str, float] = {}
        self._trailing: dict[str, float] = {}
        self._unsent: dict[asyncio.AbstractEventLoop, UnsentNotifications] = {}
        self._is_closed = False

    def notify(self, messages: Collection[str]) -> None:
        """Say these now, or when they are no longer fresh; never waits, never raises."""
        now, loop = self._clock.monotonic(), asyncio.get_running_loop()
        for word in messages:
            fresh_until = self._fresh.get(word, now)
            # People are rare, and wait for an answer: control is said at once.
            if fresh_until <= now or word.startswith(CONTROL):
                self._trailing.pop(word, None)  # should have come by now
                self._send_later(loop, word)
            elif self._trailing.get(word, now - 1) + TRAILING_LATE_SECONDS < now:
                self._trailing[word] = fresh_until
                loop.call_later(fresh_until - now, self._send_trailing, loop, word)

    def _send_trailing(self, loop: asyncio.AbstractEventLoop, message: str) -> None:
        # First off the list: a ring from another thread is then said once more.
        self._trailing.pop(message, None)
        self._send_later(loop, message)

    def _send_later(self, loop: asyncio.AbstractEventLoop, message: str) -> None:
        if self._is_closed:
            return  # a trailing edge: what it would say was said at the end
        if len(self._fresh) >= FRESH_MAX:
            self._forget_old()
        self._fresh[message] = self._clock.monotonic() + QUIET_SECONDS
        out = self._unsent.get(loop)
        if out is None:
            out = self._unsent[loop] = UnsentNotifications()
        out.messages[message] = None
        if out.sending is None or out.sending.done():
            out.sending = loop.create_task(self._send(out))

    async def _send(self, unsent: UnsentNotifications) -> None:
        """Until nothing is left: what comes in meanwhile goes together."""
        while unsent.messages:
            words = list(unsent.messages)[:NOTIFICATIONS_MAX]
            for word in words:
                del unsent.messages[word]
            try:
                await self.send(words)
            except StoreError:
                unsent.messages.clear()  # only hints: the safety poll finds the work

    async def send(self, messages: Iterable[str]) -> None:
        """One statement, now; as a read, for a hint may be said twice."""
        payloads = [self.name + word for word in messages]
        await self._connections.read(NOTIFY, self._channel, payloads)

    def _forget_old(self) -> None:
        """Forget what is over: words that are not fresh, loops that have ended."""
        now = self._clock.monotonic()
        self._fresh = {w: at for w, at in list(self._fresh.items()) if at > now}
        for loop in [loop for loop in list(self._unsent) if loop.is_closed()]:
            self._unsent.pop(loop, None)

    async def close(self) -> None:
        """Say what is still to be said, also by loops that end with us, a bounded time."""
        here = asyncio.get_running_loop()
        for word in list(self._trailing):
            self._send_later(here, word)
        self._is_closed = True
        sending = [out.sending for loop, out in self._unsent.items() if loop is here]
        for task in sending:
            if task is not None:
                await asyncio.wait((task,), timeout=CLOSE_SECONDS)
                task.cancel()
                await asyncio.wait((task,))

    def forget(self) -> None:
        """In a forked child: somebody else, who has said nothing yet."""
        self.name = new_sender_name(self._clock)
        self._fresh.clear()
        self._trailing.clear()
        self._unsent.clear()
        self._is_closed = False


def new_sender_name(clock: Clock) -> str:
    """Who we are on the channel."""
    return clock.new_id().hex()[-NAME_LENGTH:]


def parse_payload(payload: str) -> tuple[str, str, str]:
    """Who, the sign, the word; what a newer version says has a sign we do not know."""
    head = payload[:NAME_LENGTH]
    return head, payload[NAME_LENGTH : NAME_LENGTH + 1], payload[NAME_LENGTH + 1 :]


def transaction_payloads(lanes: Mapping[str, int]) -> list[str]:
    """The payloads to say in a user's own transaction, for its commit to deliver."""
    return [NO_SENDER + word for word in messages_of(lanes, ())]
