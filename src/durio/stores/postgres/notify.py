"""Send wakeups to other processes: one NOTIFY channel per schema, few and short messages.

NOTIFY takes one lock of the whole database, so a message is not repeated within 10 ms. The
first wakeup of a lane is sent at once (the leading edge). If the lane is woken again within
10 ms, one more message follows at the end of this time (the trailing edge), so that no
worker misses the last job of a burst. Wakeups are sent in a transaction of their own, on
the connection of the sending loop. A lost wakeup causes one safety poll; no job is lost.

A payload is the sender's name (12 letters, so that a process does not wake itself), one
sign and one word: `+` and a lane with work, `!` and a worker that should renew, `=` and a
nonce that proves that notifications arrive.
"""

import asyncio
import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from durio.model.errors import StoreError
from durio.ports.clock import Clock
from durio.stores.postgres.connections import Connections
from durio.stores.postgres.statements import statement
from durio.stores.waiting import CONTROL, WORK

NOTIFY = statement("notify")

LISTEN_CHECK = "="
NAME_LENGTH = 12
NO_SENDER = (
    "-" * NAME_LENGTH
)  # sent by a caller's transaction: no process was woken directly
QUIET_SECONDS = 0.010
TRAILING_LATE_SECONDS = 0.1  # later than this, the loop of a trailing edge has ended
FRESH_MAX = 1000
NOTIFICATIONS_MAX = 1000  # per statement
CLOSE_SECONDS = 1.0
CHANNEL_BYTES_MAX = 40  # of 63 bytes: a prefix and a suffix are added


def channel_name(schema: str, kind: str) -> str:
    """Return the channel of a schema; `kind` is `rings` (wakeups) or `live`."""
    name = schema
    if len(schema.encode()) > CHANNEL_BYTES_MAX:
        name = hashlib.blake2b(schema.encode(), digest_size=16).hexdigest()
    return f"durio.{name}.{kind}"


def messages_of(lanes: Iterable[str], workers: Iterable[int]) -> list[str]:
    """Return messages without the sender's name."""
    # Control messages first: a worker that the first message wakes then knows it has to
    # renew.
    control = [f"{CONTROL}{worker}" for worker in workers]
    return control + [WORK + lane for lane in lanes]


@dataclass(slots=True)
class UnsentNotifications:
    """Messages that one loop has not sent yet; only that loop uses it."""

    messages: dict[str, None] = field(default_factory=dict[str, None])
    sending: "asyncio.Task[None] | None" = None


class Notifier:
    def __init__(self, connections: Connections, clock: Clock, channel: str) -> None:
        self._connections = connections
        self._clock = clock
        self._channel = channel
        self.name = new_sender_name(clock)
        # By message: until when it is not repeated, and when its trailing edge is due.
        self._fresh: dict[str, float] = {}
        self._trailing: dict[str, float] = {}
        self._unsent: dict[asyncio.AbstractEventLoop, UnsentNotifications] = {}
        self._is_closed = False

    def notify(self, messages: Collection[str]) -> None:
        """Send these now, or 10 ms after they were last sent.

        This never waits and never raises.
        """
        now, loop = self._clock.monotonic(), asyncio.get_running_loop()
        for message in messages:
            fresh_until = self._fresh.get(message, now)
            # Control messages are rare, and people wait for their effect: send them at
            # once.
            if fresh_until <= now or message.startswith(CONTROL):
                self._trailing.pop(message, None)  # overdue: its loop may have ended
                self._send_later(loop, message)
            elif self._trailing.get(message, now - 1) + TRAILING_LATE_SECONDS < now:
                self._trailing[message] = fresh_until
                loop.call_later(fresh_until - now, self._send_trailing, loop, message)

    def _send_trailing(self, loop: asyncio.AbstractEventLoop, message: str) -> None:
        # Remove the message first: a wakeup from another thread is then sent again.
        self._trailing.pop(message, None)
        self._send_later(loop, message)

    def _send_later(self, loop: asyncio.AbstractEventLoop, message: str) -> None:
        if self._is_closed:
            return  # `close` has already sent this trailing message
        if len(self._fresh) >= FRESH_MAX:
            self._forget_old()
        self._fresh[message] = self._clock.monotonic() + QUIET_SECONDS
        unsent = self._unsent.get(loop)
        if unsent is None:
            unsent = self._unsent[loop] = UnsentNotifications()
        unsent.messages[message] = None
        if unsent.sending is None or unsent.sending.done():
            unsent.sending = loop.create_task(self._send(unsent))

    async def _send(self, unsent: UnsentNotifications) -> None:
        """Send until nothing is left; messages that are added meanwhile are sent together."""
        while unsent.messages:
            messages = list(unsent.messages)[:NOTIFICATIONS_MAX]
            for message in messages:
                del unsent.messages[message]
            try:
                await self.send(messages)
            except StoreError:
                # Wakeups are only hints: the safety poll finds the work.
                unsent.messages.clear()

    async def send(self, messages: Iterable[str]) -> None:
        """Send the messages in one statement.

        It runs as a read, because a hint may be sent twice.
        """
        payloads = [self.name + message for message in messages]
        await self._connections.read(NOTIFY, self._channel, payloads)

    def _forget_old(self) -> None:
        """Forget messages that may be repeated, and loops that have ended."""
        now = self._clock.monotonic()
        self._fresh = {w: at for w, at in list(self._fresh.items()) if at > now}
        for loop in [loop for loop in list(self._unsent) if loop.is_closed()]:
            self._unsent.pop(loop, None)

    async def close(self) -> None:
        """Send every trailing message, also of other loops, for up to CLOSE_SECONDS."""
        here = asyncio.get_running_loop()
        for message in list(self._trailing):
            self._send_later(here, message)
        self._is_closed = True
        sending = [
            unsent.sending for loop, unsent in self._unsent.items() if loop is here
        ]
        for task in sending:
            if task is not None:
                await asyncio.wait((task,), timeout=CLOSE_SECONDS)
                task.cancel()
                await asyncio.wait((task,))

    def forget(self) -> None:
        """Start anew in a forked child, as a sender that has sent nothing yet."""
        self.name = new_sender_name(self._clock)
        self._fresh.clear()
        self._trailing.clear()
        self._unsent.clear()
        self._is_closed = False


def new_sender_name(clock: Clock) -> str:
    return clock.new_id().hex()[-NAME_LENGTH:]


def parse_payload(payload: str) -> tuple[str, str, str]:
    """Return sender, sign and word; newer code may send a sign that is unknown here."""
    head = payload[:NAME_LENGTH]
    return head, payload[NAME_LENGTH : NAME_LENGTH + 1], payload[NAME_LENGTH + 1 :]


def transaction_payloads(lanes: Mapping[str, int]) -> list[str]:
    """Return payloads to send in a caller's transaction; its commit delivers them."""
    return [NO_SENDER + message for message in messages_of(lanes, ())]
