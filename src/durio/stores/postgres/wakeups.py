"""Wakeups: a commit that makes work for a worker wakes it, so that no worker has to poll.

Workers of this process are woken directly. Workers of other processes are woken by NOTIFY
(notify.py), which the listener of their process receives (listener.py). Every 30 s a check
tests that notifications really arrive. While they do not, a wait polls for work and for
commands to its worker: 10 ms after the last work, then less often, up to 250 ms apart.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from durio.model.errors import StoreError
from durio.model.names import namespace_span
from durio.model.queues import serves
from durio.ports.clock import Clock
from durio.ports.store import Wake
from durio.stores.postgres.connections import Connections
from durio.stores.postgres.listener import ListenCheck, NotificationListener
from durio.stores.postgres.notify import (
    LISTEN_CHECK,
    Notifier,
    channel_name,
    messages_of,
    parse_payload,
    transaction_payloads,
)
from durio.stores.postgres.statements import statement
from durio.stores.waiting import CONTROL, NOT_WOKEN, POLL_WAKE, WORK, WorkerWakeup

POLL_WORKER = statement("poll_worker")

POLL_FIRST_SECONDS, POLL_LAST_SECONDS = 0.010, 0.250
POLL_PAUSE_FACTOR = 10  # a pause lasts at least this many times the last poll
CHECK_SECONDS = 30.0
CHECK_TIMEOUT_SECONDS = 10.0
PAUSE_FIRST_SECONDS, PAUSE_LAST_SECONDS = 0.25, 5.0

WAKEUPS_LOST = (
    "Wakeups do not arrive (PgBouncer in transaction mode, or a lost connection): "
    "workers poll every 10 to 250 ms until they arrive again."
)
WAKEUPS_RESTORED = "Wakeups arrive again."


class PostgresWorkerWakeup(WorkerWakeup):
    """The wakeups of a worker; it polls while they do not arrive."""

    def __init__(
        self, worker: int, namespace: str, queues: Collection[str] | None
    ) -> None:
        super().__init__()
        self.worker = worker
        self._span = namespace_span(namespace)
        self._queues = None if queues is None else tuple(queues)
        self._poll_seconds = POLL_FIRST_SECONDS
        self._took_seconds = 0.0  # duration of the last poll
        self._seen: tuple[Any, ...] = (None, 0, ())

    def serves(self, lane: str) -> bool:
        prefix, _ = self._span
        return lane.startswith(prefix) and serves(self._queues, lane[len(prefix) :])

    # --- polling

    def reset_poll(self) -> None:
        """Poll again soon, because more work often follows."""
        self._poll_seconds = POLL_FIRST_SECONDS

    def next_poll(self, chance: float) -> float:
        """Return seconds until the next poll, longer each time.

        `chance` is the jitter, from 0 to 1.
        """
        seconds = max(self._poll_seconds, POLL_PAUSE_FACTOR * self._took_seconds)
        self._poll_seconds = min(2 * self._poll_seconds, POLL_LAST_SECONDS)
        return seconds * (0.75 + chance / 2)

    async def poll(self, connections: Connections, clock: Clock) -> Wake | None:
        """Look in the database for work, or for new commands to this worker."""
        began = clock.monotonic()
        rows = await connections.read(POLL_WORKER, self.worker, *self._span)
        self._took_seconds = min(clock.monotonic() - began, 1.0)
        command, cancels, paused, busy = rows[0]
        before, self._seen = self._seen, (command, cancels, tuple(paused))
        lanes = frozenset(lane for lane in busy if self.serves(lane)) - {*paused}
        has_changed = self._seen != before
        if not lanes and not has_changed:
            return None
        return Wake(woken=True, lanes=lanes, control=has_changed)


class PostgresWakeups:
    """Wakes workers after commits, and lets workers wait."""

    def __init__(
        self,
        connections: Connections,
        clock: Clock,
        schema: str,
        *,
        notify: bool = True,
        on_change: Callable[[bool], None] | None = None,
    ) -> None:
        """Set up wakeups for this process.

        With `notify=False` there is no NOTIFY and no LISTEN, and workers of other processes
        poll. `on_change` is called with False when wakeups of other processes no longer
        arrive, and with True when they arrive again.
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
        self._is_receiving: bool | None = None  # None: not checked yet, assumed True
        self._waiting_loops: set[asyncio.AbstractEventLoop] = set()
        self._check_task: asyncio.Task[None] | None = None
        self._check_at = self._retry_at = float("-inf")
        self._pause_seconds = PAUSE_FIRST_SECONDS
        if notify:
            self.listener.add_channel(self.channel, self._on_notification)

    @property
    def name(self) -> str:
        """The sender name of this process on the channels."""
        return self._notifier.name

    @property
    def is_notifying(self) -> bool:
        return self._notify

    @property
    def has_workers(self) -> bool:
        return bool(self._registered)

    @property
    def has_lost_wakeups(self) -> bool:
        """Whether wakeups of other processes are known not to arrive."""
        if not self._notify or self._is_receiving is False:
            return True
        return self._is_receiving is True and not self.listener.is_up

    # --- workers

    async def register(
        self, worker: int, namespace: str, queues: Collection[str] | None
    ) -> None:
        """Keep wakeups for this worker of this process, which has its lease now."""
        self._registered[worker] = PostgresWorkerWakeup(worker, namespace, queues)
        self._note_waiting_loop()
        if self._notify and not self.listener.is_listening:
            with suppress(StoreError, TimeoutError):  # `wait` tries again
                async with asyncio.timeout(CHECK_TIMEOUT_SECONDS):
                    await self.listener.ensure_listening()

    def remove(self, worker: int) -> None:
        """Forget a worker that has ended; its waits return."""
        wakeup = self._registered.pop(worker, None)
        if wakeup is not None:
            wakeup.wake(CONTROL)

    def on_renewal(self) -> None:
        """Offer this loop to the listener, unless a worker waits there and runs jobs."""
        loop = asyncio.get_running_loop()
        if loop not in self._waiting_loops:
            self.listener.offer_loop(loop)

    def on_claims(self, worker: int) -> None:
        """Make the next poll of this worker come soon, because its claim found jobs."""
        wakeup = self._registered.get(worker)
        if wakeup is not None:
            wakeup.reset_poll()

    # --- waking

    def wake(self, lanes: Mapping[str, int], workers: Collection[int]) -> None:
        """Wake workers after a commit.

        `lanes` have work, each with the worker not to wake; `workers` have to renew.
        """
        self._wake_local(lanes, workers)
        elsewhere = [worker for worker in workers if worker not in self._registered]
        if self._notify and (lanes or elsewhere):
            self._notifier.notify(messages_of(lanes, elsewhere))

    def _wake_local(self, lanes: Mapping[str, int], workers: Collection[int]) -> None:
        for wakeup in list(self._registered.values()):
            for lane, except_worker in lanes.items():
                if wakeup.worker != except_worker and wakeup.serves(lane):
                    wakeup.wake(WORK + lane)
            if wakeup.worker in workers:
                wakeup.wake(CONTROL)

    def payloads_in_transaction(self, lanes: Mapping[str, int]) -> list[str]:
        """Return payloads for `notify_in_transaction`; empty without NOTIFY."""
        return transaction_payloads(lanes) if self._notify else []

    # --- receiving, in the listener's thread

    def _on_notification(self, payload: str) -> None:
        sender, sign, word = parse_payload(payload)
        if sign == LISTEN_CHECK:
            # Behind a pooler a reply may contain the nonce, which proves nothing.
            if sender == self.name and not (
                self._connections.is_pooled and self.listener.is_in_call
            ):
                self._listen_check.on_nonce(word)
        elif sender == self.name:
            return  # this process has woken its workers directly
        elif sign == WORK:
            self._wake_local({word: 0}, ())
        elif sign == CONTROL and word.isdecimal():
            self._wake_local({}, (int(word),))

    def _on_gap(self) -> None:
        """Wake all workers and check the listener at once, because the connection is new."""
        self._check_at = float("-inf")
        for wakeup in list(self._registered.values()):
            wakeup.wake(CONTROL)

    # --- waiting

    async def wait(self, worker: int, timeout_seconds: float) -> Wake:
        """Wait until this worker is woken, a poll finds work, or the timeout."""
        loop = asyncio.get_running_loop()
        self._note_waiting_loop()
        wakeup = self._registered.get(worker)
        if wakeup is None:  # the worker is another process's, or was removed
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

    # --- checking the listener

    def check_listener(self) -> None:
        """Start a check of the listener if one is due; never waits."""
        if not self._notify:
            return
        task = self._check_task
        if task is not None and not (task.done() or task.get_loop().is_closed()):
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
                is_receiving = await self._check_listen()
        except (StoreError, TimeoutError):
            is_receiving = False
            self._check_at = self._retry_at = self._clock.monotonic() + self._pause()
        else:
            self._pause_seconds = PAUSE_FIRST_SECONDS
            self._check_at = self._clock.monotonic() + CHECK_SECONDS
            self._retry_at = self._clock.monotonic() + PAUSE_FIRST_SECONDS
        self._set_receiving(is_receiving)

    def _pause(self) -> float:
        """Return seconds before the next try; longer each time, with jitter."""
        seconds = self._pause_seconds
        self._pause_seconds = min(2 * seconds, PAUSE_LAST_SECONDS)
        return seconds * (0.75 + self._clock.random() / 2)

    async def _check_listen(self) -> bool:
        if self._connections.is_pooled and self.listener.is_on_this_loop:
            return False  # behind a pooler the nonce must use another connection
        return await self._listen_check.run(
            lambda nonce: self._notifier.send([LISTEN_CHECK + nonce])
        )

    def _set_receiving(self, is_receiving: bool) -> None:  # noqa: FBT001 - the only argument
        before, self._is_receiving = self._is_receiving, is_receiving
        if before is is_receiving:
            return
        for wakeup in list(self._registered.values()):
            wakeup.end_waits()
        if self._on_change is not None and (before is False or not is_receiving):
            self._on_change(is_receiving)

    # --- closing

    async def close(self) -> None:
        """Send the remaining messages, and end every wait."""
        for worker in list(self._registered):
            self.remove(worker)
        task, self._check_task = self._check_task, None
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait((task,))
        await self._notifier.close()
        self.listener.forget()

    def forget(self) -> None:
        """Drop all state in a forked child: workers and listener belong to the parent."""
        self._registered.clear()
        self._waiting_loops.clear()
        self._check_task = None
        self._is_receiving = None
        self._check_at = self._retry_at = float("-inf")
        self._notifier.forget()
        self.listener.forget()
