"""Calls that wait for a lock which an open transaction holds.

A store returns `locked` for all calls with keys of a batch, because it does not know which
key was locked. They wait here in one queue per key, in the order in which they were made.
Each key is tried by itself, in turn, for at most 100 ms. So a call whose key is free waits
at most 100 ms for each other key on the list. All calls with one key are sent in one
transaction. When they are written, the calls that were added meanwhile leave the list too.

A call without a key may also find a lock, that of a bounded queue: it waits here in the
queue of its lane.

A call that was not written within `locked.wait_seconds` after it was made, or before its
deadline, gets the last error of the store.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from durio.client.calls import (
    CallSender,
    EnqueueCall,
    LockedCall,
    RestartingTask,
    WaitKey,
)
from durio.ports.clock import Clock
from durio.ports.enqueue import Locked

# A store waits about as long for a lock. If it returns sooner, the list waits for the rest
# of this time, so that a key is not tried more often.
TURN_SECONDS = 0.1


@dataclass(slots=True)
class KeyQueue:
    """The calls that wait for one key, oldest first."""

    locked: Locked  # the last refusal
    is_certain: bool = False  # the key was tried by itself and is locked
    calls: deque[EnqueueCall] = field(default_factory=deque[EnqueueCall])


class WaitingList:
    """Tries one key after the other until no call waits.

    `release` gets the calls that need not wait any longer and have not been sent.
    """

    def __init__(
        self,
        sender: CallSender,
        clock: Clock,
        release: Callable[[Iterable[EnqueueCall]], None],
    ) -> None:
        self.queues: dict[WaitKey, KeyQueue] = {}  # in the order of their turns
        self._sender = sender
        self._clock = clock
        self._release = release
        self._batch: list[EnqueueCall] = []
        self._task = RestartingTask(self._run, self._recover)

    def add(self, call: EnqueueCall, locked: Locked) -> None:
        queue = self.queues.get(call.wait_key)
        if queue is None:
            queue = self.queues[call.wait_key] = KeyQueue(locked)
        self._add(call, queue)

    def takes_over(self, call: EnqueueCall) -> bool:
        """Put a new call behind the others with its key; return False if there are none."""
        queue = self.queues.get(call.wait_key)
        if queue is not None:
            self._add(call, queue)
        return queue is not None

    def _add(self, call: EnqueueCall, queue: KeyQueue) -> None:
        if self._keeps(call, queue):
            queue.calls.append(call)
        self._task.start()

    def _keeps(self, call: EnqueueCall, queue: KeyQueue) -> bool:
        """Whether this call continues to wait; if not, it has its result."""
        locked = queue.locked
        end = min(call.made_at + locked.wait_seconds, call.deadline)
        left = end - self._clock.monotonic()
        if call.future.done():
            self._sender.end(call)
        elif queue.is_certain and not call.waits_if_locked:
            self._sender.answer_locked(call, locked)
        elif left <= 0:
            self._sender.fail(call, locked.error)
        elif call.timer is None:
            loop = asyncio.get_running_loop()
            call.timer = loop.call_later(left, self._expire, call, queue)
        return not call.future.done()

    def _expire(self, call: EnqueueCall, queue: KeyQueue) -> None:
        if not call.is_sent:  # a sent call gets its result soon
            self._sender.fail(call, queue.locked.error)

    # --- trying keys

    async def _run(self) -> None:
        while self.queues:
            began = self._clock.monotonic()
            if not await self._try_next_key():
                passed = self._clock.monotonic() - began
                await self._clock.sleep(max(TURN_SECONDS - passed, 0.0))

    async def _try_next_key(self) -> bool:
        """Send the calls with the first key; if it is locked, return False and try it last."""
        wait_key, queue = next(iter(self.queues.items()))
        refused: list[LockedCall] = []
        self._batch = self._sender.take_batch(queue.calls)
        if self._batch:
            refused = await self._sender.send(self._batch, apart=True)
            self._batch = []
        del self.queues[wait_key]
        if not refused:
            self._release_calls(queue)
            return True
        queue.locked = refused[-1].locked
        queue.is_certain = True
        calls = [*(call for call, _ in refused), *queue.calls]
        queue.calls = deque(call for call in calls if self._keeps(call, queue))
        if queue.calls:
            self.queues[wait_key] = queue
        return False

    def _release_calls(self, queue: KeyQueue) -> None:
        for call in queue.calls:
            if call.timer is not None:
                call.timer.cancel()
                call.timer = None
        self._release(queue.calls)

    def _recover(self) -> bool:
        """End the calls that were being written; their outcome is unknown."""
        batch, self._batch = self._batch, []
        for call in batch:
            self._sender.end(call)
        return bool(self.queues)
