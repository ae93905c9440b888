"""Send calls that are made at the same time in one transaction.

While one batch is being written, later calls collect and become the next batch. A call
never waits for other calls: an idle batcher sends at once. Batches are sent one after the
other, so calls with the same key are stored in the order in which they were made.

A batch may find a lock that an open transaction holds. The store then writes what needs no
lock and returns `locked` for the other calls. These go to the waiting list
(waiting_list.py), and every later call with the same key waits behind them there.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from durio.client.calls import Answers, CallSender, EnqueueCall, RestartingTask
from durio.client.reliable_write import ReliableWriter
from durio.client.waiting_list import WaitingList
from durio.model.job import NewJob
from durio.ports.clock import Clock
from durio.ports.enqueue import Locked


class Batcher:
    """Sends the calls of one event loop, one batch at a time."""

    def __init__(self, writer: ReliableWriter, clock: Clock) -> None:
        self._clock = clock
        self._sender = CallSender(writer)
        self._waiting_list = WaitingList(self._sender, clock, self._send_first)
        self._calls: deque[EnqueueCall] = deque()
        self._batch: list[EnqueueCall] = []
        self._task = RestartingTask(self._run, self._recover)

    def submit(self, jobs: Sequence[NewJob]) -> "asyncio.Future[Answers]":
        """Send the jobs of one call; wait if they need a lock that is not free."""
        call = self._new_call(jobs, waits_if_locked=True)
        self._calls.append(call)
        self._task.start()
        return call.future

    def try_once(
        self, jobs: Sequence[NewJob], locked: Locked | None, deadline: float
    ) -> "asyncio.Future[Answers]":
        """Send the jobs of one call; if a lock is not free, the result says so.

        `locked` is the result of the last try with these jobs, if they were locked
        then. After the deadline they do not wait for their turn on the waiting list.
        """
        call = self._new_call(jobs, waits_if_locked=False)
        call.deadline = deadline
        if locked is not None:
            self._waiting_list.add(call, locked)
        else:
            self._calls.append(call)
            self._task.start()
        return call.future

    def _new_call(
        self, jobs: Sequence[NewJob], *, waits_if_locked: bool
    ) -> EnqueueCall:
        future: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        key = jobs[0].key  # a call with several jobs has no key
        wait_key = jobs[0].lane if key is None else key.key
        made_at = self._clock.monotonic()
        return EnqueueCall(jobs, future, wait_key, made_at, waits_if_locked)

    def _send_first(self, calls: Iterable[EnqueueCall]) -> None:
        """Send these before all others: they are older than any call with their key."""
        self._calls.extendleft(reversed([*calls]))
        if self._calls:
            self._task.start()

    async def _run(self) -> None:
        while batch := self._next_batch():
            self._batch = batch
            for call, locked in await self._sender.send(batch):
                self._waiting_list.add(call, locked)
            self._batch = []

    def _next_batch(self) -> list[EnqueueCall]:
        takes_over = (
            self._waiting_list.takes_over if self._waiting_list.queues else None
        )
        return self._sender.take_batch(self._calls, takes_over)

    def _recover(self) -> bool:
        """End the calls that were being written; their outcome is unknown."""
        batch, self._batch = self._batch, []
        for call in batch:
            self._sender.end(call)
        return bool(self._calls)
