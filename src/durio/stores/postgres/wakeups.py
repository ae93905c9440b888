"""Doorbells: a commit that made work for somebody rings them, and nobody has to poll.

Workers of this process are rung directly; all others by NOTIFY (ringing.py), which the ear
of their process hears (ear.py). Whether it really does is proved again and again
(proof.py). While it is not, a wait looks by itself, for work and for acts on its worker:
after 10 ms where there was work of late, and up to 250 ms where there was none.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from durio.model.errors import StoreError
from durio.model.queues import serves
from durio.ports.clock import Clock
from durio.ports.store import Wake
from durio.stores.postgres.connections import Connections
from durio.stores.postgres.listener import ListenCheck, NotificationListener, complete
from durio.stores.postgres.notify import (
    CONTROL,
    LISTEN_CHECK,
    WORK,
    Notifier,
    channel_name,
    messages_of,
    parse_payload,
    transaction_payloads,
)
from durio.stores.postgres.statements import statement

POLL_WORKER = statement("poll_worker")

POLL_FIRST_SECONDS, POLL_LAST_SECONDS = 0.010, 0.250
POLL_PAUSE_FACTOR = 10  # pauses are so many times as long as looks
CHECK_SECONDS = 30.0
CHECK_TIMEOUT_SECONDS = 10.0
PAUSE_FIRST_SECONDS, PAUSE_LAST_SECONDS = 0.25, 5.0

WAKEUPS_LOST = (
    "Wakeups do not arrive (PgBouncer in transaction mode, or a lost connection): workers "
    "look for work by themselves, every 10 to 250 ms, until they do."
)
WAKEUPS_RESTORED = "Wakeups arrive again."

NOT_WOKEN: Final = Wake(woken=False, lanes=frozenset(), control=False)
POLL_WAKE: Final = Wake(woken=True, lanes=frozenset(), control=False)


class PostgresWorkerWakeup:
    """One worker's bell: rung from any thread, waited for on any loop."""

    def __init__(
        self, worker: int, namespace: str, queues: Collection[str] | None
    ) -> None:
        self.worker = worker
        self._prefix = f"{namespace}:"
        self._queues = None if queues is None else tuple(queues)
        self._messages: dict[str, None] = {}
        self._waiters: list[Callable[[], None]] = []
        self._poll_seconds = POLL_FIRST_SECONDS
        self._took_seconds = 0.0  # the last look
        self._seen: tuple[Any, ...] = (None, 0, ())

    def serves(self, lane: str) -> bool:
        """Whether its worker may claim from this lane."""
        prefix = self._prefix
        return lane.startswith(prefix) and serves(self._queues, lane[len(prefix) :])

    # --- ringing

    def wake(self, message: str) -> None:
        """Note it, and wake whoever waits; a word that is noted has woken them."""
        if message not in self._messages:
            self._messages[message] = None
            self.notify_waiters()

    def notify_waiters(self) -> None:
        """Let whoever waits look around."""
        for wake in list(self._waiters):
            wake()

    @property
    def is_woken(self) -> bool:
        """Whether there is something to take."""
        return bool(self._messages)

    def take(self) -> Wake | None:
        """What was rung since the last time."""
        words: list[str] = []
        with suppress(KeyError):  # empty: rings of other threads may come meanwhile
            while True:
                words.append(self._messages.popitem()[0])
        if not words:
            return None
        lanes = frozenset(word[1:] for word in words if word.startswith(WORK))
        return Wake(woken=True, lanes=lanes, control=CONTROL in words)

    async def wait(self, seconds: float) -> None:
        """Until something is rung or stirred, or the time is over."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            with suppress(RuntimeError):  # that loop is closed: nobody waits any more
                loop.call_soon_threadsafe(complete, ended)

        # First listen, then look: a ring in between is seen twice, never missed.
        self._waiters.append(wake)
        timer = loop.call_later(seconds, complete, ended)
        try:
            if not self._messages:
                await ended
        finally:
            timer.cancel()
            self._waiters.remove(wake)

    # --- polling

    def reset_poll(self) -> None:
        """There was work: there may be more of it soon."""
        self._poll_seconds = POLL_FIRST_SECONDS

    def next_poll(self, chance: float) -> float:
        """How long until the next look; longer each time."""
        seconds = max(self._poll_seconds, POLL_PAUSE_FACTOR * self._took_seconds)
        self._poll_seconds = min(2 * self._poll_seconds, POLL_LAST_SECONDS)
        return seconds * (0.75 + chance / 2)

    async def poll(self, connections: Connections, clock: Clock) -> Wake | None:
        """In place of a ring: is there work, or an act on this worker, since last time?"""
        began = clock.monotonic()
        span = self._prefix, f"{self._prefix[:-1]};"  # the sign behind the colon
        rows = await connections.read(POLL_WORKER, self.worker, *span)
        self._took_seconds = min(clock.monotonic() - began, 1.0)
        order, cancels, paused, busy = rows[0]
        before, self._seen = self._seen, (order, cancels, tuple(paused))
        lanes = frozenset(lane for lane in busy if self.serves(lane)) - {*paused}
        has_changed = self._seen != before
        if not lanes and not has_changed:
            return None
        return Wake(woken=True, lanes=lanes, control=has_changed)


class PostgresWakeups:
    """Rings after commits, and lets workers wait until they are rung."""

    def __init__(
        self,
        connections: Connections,
        clock: Clock,
        schema: str,
        *,
        notify: bool = True,
        on_change: Callable[[bool], None] | None = None,
    ) -> None:
        """`notify=False`: no NOTIFY, no LISTEN; whoever is elsewhere polls.

        `changed` is told when rings no longer reach us (False), and when they do again.
        """
        self._connections = connections
        self._clock = clock
        self._notify = notify
        self._on_change = on_change
        self.channel = channel_name(schema, "rings")
        self.listener = NotificationListener(connections, self._on_gap)
        self._notifier = Notifier(connections, clock, self.channel)
        self._listen_check = ListenCheck(clock)
        self._registered: dict[int, PostgresWorkerWakeup] = {}
        self._is_receiving: bool | None = None  # None: nobody knows yet, so we hope
        self._waiting_loops: set[asyncio.AbstractEventLoop] = set()
        self._check_task: asyncio.Task[None] | None = None
        self._check_at = self._retry_at = float("-inf")
        self._pause_seconds = PAUSE_FIRST_SECONDS
        if notify:
            self.listener.add_channel(self.channel, self._on_notification)

    @property
    def name(self) -> str:
        """Who this process is on the channels."""
        return self._notifier.name

    @property
    def is_notifying(self) -> bool:
        """Whether NOTIFY is used at all."""
        return self._notify

    @property
    def has_workers(self) -> bool:
        """Whether workers of this process wait for rings."""
        return bool(self._registered)

    @property
    def has_lost_wakeups(self) -> bool:
        """Whether rings of other processes are known not to reach us."""
        if not self._notify or self._is_receiving is False:
            return True
        return self._is_receiving is True and not self.listener.is_up

    # --- workers

    async def register(
        self, worker: int, namespace: str, queues: Collection[str] | None
    ) -> None:
        """A worker of this process has its lease: remember its rings from now on."""
        self._registered[worker] = PostgresWorkerWakeup(worker, namespace, queues)
        self._note_waiting_loop()
        if self._notify and not self.listener.is_listening:
            with suppress(StoreError, TimeoutError):  # its waits try again
                async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
                    await self.listener.ensure_listening()

    def remove(self, worker: int) -> None:
        """A worker is gone; whoever still waits for its rings is let go."""
        wakeup = self._registered.pop(worker, None)
        if wakeup is not None:
            wakeup.wake(CONTROL)

    def on_renewal(self) -> None:
        """A renewal came from this loop: where no job runs, the ear is best at home."""
        loop = asyncio.get_running_loop()
        if loop not in self._waiting_loops:
            self.listener.offer_loop(loop)

    def on_claims(self, worker: int) -> None:
        """A claim of this worker found jobs: if it has to poll, then soon again."""
        wakeup = self._registered.get(worker)
        if wakeup is not None:
            wakeup.reset_poll()

    # --- ringing

    def wake(self, lanes: Mapping[str, int], workers: Collection[int]) -> None:
        """After the commit: lanes with work (-> whom not to tell), workers to renew."""
        self._wake_local(lanes, workers)
        elsewhere = [worker for worker in workers if worker not in self._registered]
        if self._notify and (lanes or elsewhere):
            self._notifier.notify(messages_of(lanes, elsewhere))

    def _wake_local(self, lanes: Mapping[str, int], workers: Collection[int]) -> None:
        for wakeup in list(self._registered.values()):
            for lane, but in lanes.items():
                if wakeup.worker != but and wakeup.serves(lane):
                    wakeup.wake(WORK + lane)
            if wakeup.worker in workers:
                wakeup.wake(CONTROL)

    def payloads_in_transaction(self, lanes: Mapping[str, int]) -> list[str]:
        """For `notify_in_transaction` in a caller's transaction; empty: workers poll."""
        return transaction_payloads(lanes) if self._notify else []

    # --- hearing, in the thread of the ear's home

    def _on_notification(self, payload: str) -> None:
        who, sign, word = parse_payload(payload)
        if sign == LISTEN_CHECK:
            # Behind a pooler an answer may bring it along: that proves nothing.
            if who == self.name and not (
                self._connections.is_pooled and self.listener.is_in_call
            ):
                self._listen_check.on_nonce(word)
        elif who == self.name:
            return  # rung directly, long ago
        elif sign == WORK:
            self._wake_local({word: 0}, ())
        elif sign == CONTROL and word.isdecimal():
            self._wake_local({}, (int(word),))

    def _on_gap(self) -> None:
        """The connection is a new one: look, and prove that it hears."""
        self._check_at = float("-inf")
        for wakeup in list(self._registered.values()):
            wakeup.wake(CONTROL)

    # --- waiting

    async def wait(self, worker: int, timeout_seconds: float) -> Wake:
        """Until somebody rings this worker, or the time is over, or it should look."""
        loop = asyncio.get_running_loop()
        self._note_waiting_loop()
        wakeup = self._registered.get(worker)
        if wakeup is None:  # of another process, or gone
            await self._clock.sleep(min(timeout_seconds, POLL_LAST_SECONDS))
            return POLL_WAKE
        end = loop.time() + timeout_seconds
        while True:
            wake = wakeup.take()
            if wake is not None:
                wakeup.reset_poll()
                return wake
            left = end - loop.time()
            if left <= 0:
                return NOT_WOKEN
            self.check_listener()
            if not self.has_lost_wakeups:
                await wakeup.wait(left)
                continue
            poll = wakeup.next_poll(self._clock.random())
            await wakeup.wait(min(left, poll))
            if poll < left and not wakeup.is_woken:
                wake = await wakeup.poll(self._connections, self._clock)
                if wake is not None:
                    return wake

    def _note_waiting_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if loop not in self._waiting_loops:
            self._waiting_loops = {
                each for each in self._waiting_loops if not each.is_closed()
            }
            self._waiting_loops.add(loop)

    # --- keeping the ear in order

    def check_listener(self) -> None:
        """See to it that the ear listens, and now and then that it hears; never waits."""
        if not self._notify:
            return
        job = self._check_task
        if job is not None and not (job.done() or job.get_loop().is_closed()):
            return
        now = self._clock.monotonic()
        if now >= self._check_at or (
            now >= self._retry_at and not self.listener.is_listening
        ):
            self._check_task = asyncio.get_running_loop().create_task(
                self._check_listener()
            )

    async def _check_listener(self) -> None:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
                if not self.listener.is_listening:
                    await self.listener.ensure_listening()
                is_hearing = await self._check_listen()
        except (StoreError, TimeoutError):
            is_hearing = False
            self._check_at = self._retry_at = self._clock.monotonic() + self._pause()
        else:
            self._pause_seconds = PAUSE_FIRST_SECONDS
            self._check_at = self._clock.monotonic() + CHECK_SECONDS
            self._retry_at = self._clock.monotonic() + PAUSE_FIRST_SECONDS
        self._set_receiving(is_hearing)

    def _pause(self) -> float:
        """Before the next try; longer each time, and jittered."""
        seconds = self._pause_seconds
        self._pause_seconds = min(2 * seconds, PAUSE_LAST_SECONDS)
        return seconds * (0.75 + self._clock.random() / 2)

    async def _check_listen(self) -> bool:
        if self._connections.is_pooled and self.listener.is_on_this_loop:
            return False  # one line cannot prove anything about itself there
        return await self._listen_check.run(
            lambda nonce: self._notifier.send([LISTEN_CHECK + nonce])
        )

    def _set_receiving(self, is_receiving: bool) -> None:  # noqa: FBT001 - the one thing to note
        before, self._is_receiving = self._is_receiving, is_receiving
        if before is is_receiving:
            return
        for wakeup in list(self._registered.values()):
            wakeup.notify_waiters()
        if self._on_change is not None and (before is False or not is_receiving):
            self._on_change(is_receiving)

    # --- ends

    async def close(self) -> None:
        """Say what is still to be said, and let every waiter go."""
        for worker in list(self._registered):
            self.remove(worker)
        job, self._check_task = self._check_task, None
        if job is not None and job.get_loop() is asyncio.get_running_loop():
            job.cancel()
            await asyncio.wait((job,))
        await self._notifier.close()
        self.listener.forget()

    def forget(self) -> None:
        """In a forked child: workers and ear are the parent's."""
        self._registered.clear()
        self._waiting_loops.clear()
        self._check_task = None
        self._is_receiving = None
        self._check_at = self._retry_at = float("-inf")
        self._notifier.forget()
        self.listener.forget()
