"""Send calls to the store together, and give each its own result."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from durio.client.reliable_write import Answers, ReliableWriter, closed_before_stored
from durio.model.job import READY, NewJob
from durio.ports.enqueue import Enqueued, Locked

BATCH_MAX = 1000  # jobs per batch
BATCH_BYTES = 4 << 20  # bytes of arguments per batch

WaitKey = bytes | str  # a call may wait for its key, or without a key for its lane


@dataclass(eq=False, slots=True)
class EnqueueCall:
    """The jobs of one caller; all of them are stored or none."""

    jobs: Sequence[NewJob]
    future: "asyncio.Future[Answers]"
    wait_key: WaitKey
    made_at: float  # monotonic seconds
    waits_if_locked: bool  # False: the result may be `locked`
    deadline: float = float("inf")  # monotonic; the latest end of a wait for a lock
    is_sent: bool = False
    timer: asyncio.TimerHandle | None = None  # ends the wait for a lock


class LockedCall(NamedTuple):
    """A call that the store did not write because a lock was not free."""

    call: EnqueueCall
    locked: Locked


class CallSender:
    """Sends batches of calls and gives each caller its own result or exception."""

    def __init__(self, writer: ReliableWriter) -> None:
        self._writer = writer

    def take_batch(
        self,
        calls: "deque[EnqueueCall]",
        takes_over: Callable[[EnqueueCall], bool] | None = None,
    ) -> list[EnqueueCall]:
        """Take calls from the front, as many as fit one store call.

        Calls whose caller was cancelled are dropped, and so are calls that `takes_over`
        takes.
        """
        batch: list[EnqueueCall] = []
        jobs = size = 0
        while calls:
            call = calls[0]
            if call.future.done():
                self.end(calls.popleft())
                continue
            if takes_over is not None and takes_over(call):
                calls.popleft()
                continue
            jobs += len(call.jobs)
            size += sum(len(job.payload) for job in call.jobs)
            if batch and (jobs > BATCH_MAX or size > BATCH_BYTES):
                break
            call.is_sent = True
            batch.append(calls.popleft())
        return batch

    async def send(
        self, batch: Sequence[EnqueueCall], *, apart: bool = False
    ) -> list[LockedCall]:
        """Write these calls and complete them; return those that found a lock.

        An error is passed to the callers and not raised here. `apart` is that of the
        store's `enqueue`.
        """
        jobs = [job for call in batch for job in call.jobs]
        sizes = [len(call.jobs) for call in batch]
        try:
            answers = await self._writer.write(jobs, sizes, apart=apart)
        except Exception as error:
            for call in batch:
                self.fail(call, error)
            return []
        refused: list[LockedCall] = []
        start = 0
        for call in batch:
            answer = answers[start : start + len(call.jobs)]
            start += len(call.jobs)
            locked = answer[0].locked
            if locked is None:
                self.answer(call, answer)
            else:
                call.is_sent = False
                refused.append(LockedCall(call, locked))
        return refused

    def answer(self, call: EnqueueCall, answers: Answers) -> None:
        if not call.future.done():
            call.future.set_result(answers)
        self.end(call)

    def answer_locked(self, call: EnqueueCall, locked: Locked) -> None:
        """Complete a call with the result for jobs that are locked."""
        self.answer(
            call, [Enqueued(job.id, False, READY, locked=locked) for job in call.jobs]
        )

    def fail(self, call: EnqueueCall, error: Exception) -> None:
        if not call.future.done():
            call.future.set_exception(error)
        self.end(call)

    def end(self, call: EnqueueCall) -> None:
        """Forget a call that has a result, or whose caller or sending was cancelled."""
        if call.timer is not None:
            call.timer.cancel()
        if not call.future.done():
            call.future.set_exception(closed_before_stored())
        elif call.future.cancelled():
            self._writer.forget(call.jobs)


class RestartingTask:
    """Runs `work` in a task, and again after a cancellation if `recover` returns True.

    A loop that is being closed, or a Ctrl-C, cancels every task, even one that has not
    started. The callers that depend on the task may continue, because they may catch their
    cancellation.
    """

    def __init__(
        self, work: Callable[[], Coroutine[Any, Any, None]], recover: Callable[[], bool]
    ) -> None:
        self._work = work
        self._recover = recover
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None

    def start(self) -> None:
        """Start the task, unless it runs; `work` returns when there is nothing left."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._restart_if_cancelled)

    async def _run(self) -> None:
        await self._work()
        self._task = None

    def _restart_if_cancelled(self, task: "asyncio.Task[None]") -> None:
        if self._task is task:
            self._task = None
            if self._recover():
                self.start()
