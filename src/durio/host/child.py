"""One child process as its worker sees it: its state, its job, its stacks."""

import asyncio
from collections.abc import Collection
from enum import Enum
from typing import Any, Protocol, final

import msgspec

from durio.host.child_log import replay
from durio.host.child_process import ChildProcess
from durio.host.child_wire import (
    ChildRun,
    Finished,
    ForwardedRecord,
    Interrupt,
    Leaving,
    LoadFailed,
    ProgressUpdate,
    Ready,
    Setup,
    StackReply,
    StackRequest,
    Warn,
    from_child,
)
from durio.host.processes import cpu_seconds_of, rss_bytes_of
from durio.model.job import Claim
from durio.ports.executor import ChildAttemptCallbacks


async def stacks_of(
    children: Collection["Child"], timeout_seconds: float
) -> dict[int, str]:
    """Return the stacks of each child, by pid; leave out those that do not reply in time."""
    loop = asyncio.get_running_loop()
    answers: dict[int, asyncio.Future[str]] = {}
    for child in children:
        child.stack_reply = answers[child.pid] = loop.create_future()
        child.process.send(StackRequest())
    if answers:
        await asyncio.wait(answers.values(), timeout=timeout_seconds)
    return {pid: answer.result() for pid, answer in answers.items() if answer.done()}


class ChildState(Enum):
    STARTING = 0
    SPARE = 1  # ready, and waits for another child to end
    IDLE = 2
    BUSY = 3
    LEAVING = 4


AT_WORK = (ChildState.IDLE, ChildState.BUSY)


class ChildOwner(Protocol):
    """The pool, as its children see it: it gets their events and queues their jobs."""

    def withdraw(self, job: "ProcessJob") -> bool:
        """Remove a job that waits for a child; return False if it is not waiting."""
        ...

    def kill(self, child: "Child", claim: Claim) -> None:
        """Kill a child whose job does not stop, and start another."""
        ...

    def ready(self, child: "Child", message: Ready) -> None:
        """Called when the child has loaded the App."""
        ...

    def failed(
        self, child: "Child", what: str, traceback_text: str, cure: str = ""
    ) -> None:
        """Called when the child could not load the App, or failed while it left."""
        ...

    def became_idle(self, child: "Child") -> None: ...

    def stopped_taking_jobs(self, child: "Child", unbegun: "ProcessJob | None") -> None:
        """Called when the child takes no more jobs; it never started `unbegun`."""
        ...

    def kill_later(self, child: "Child") -> None:
        """Give a leaving child a limited time to end."""
        ...

    def exited(
        self, child: "Child", how: str, stack: str, job: "ProcessJob | None"
    ) -> None: ...


@final
class ProcessJob:
    """A job that a child runs, or that waits for a child."""

    def __init__(
        self, pool: ChildOwner, claim: Claim, callbacks: ChildAttemptCallbacks
    ) -> None:
        self._pool = pool
        self.claim = claim
        self.callbacks = callbacks
        self.child: Child | None = None

    def withdraw(self) -> bool:
        return self.child is None and self._pool.withdraw(self)

    def warn(self) -> None:
        if self.child is not None:
            self.child.process.send(Warn())

    def interrupt(self, why: str) -> None:
        if self.child is not None:
            self.child.process.send(Interrupt(why))

    def kill(self) -> None:
        child = self.child
        if child is not None and child.job is self:
            child.job = None
            self._pool.kill(child, self.claim)


@final
class Child:
    """One child process and its current job."""

    def __init__(self, pool: ChildOwner, setup: Setup) -> None:
        self._pool = pool
        self.state = ChildState.STARTING
        self.job: ProcessJob | None = None
        self.jobs_given = 0
        self.is_healthy = False  # has finished a job, or lived for HEALTHY_SECONDS
        self.rss_bytes = 0
        self.cpu_seconds = 0.0
        self.stack_reply: asyncio.Future[str] | None = None
        self.process = ChildProcess(
            setup.worker, on_message=self._on_message, on_exit=self._on_exit
        )
        self.process.send(setup)

    @property
    def pid(self) -> int:
        return self.process.pid

    def _on_message(self, body: bytes) -> None:
        try:
            message = from_child.decode(body)
        except (msgspec.MsgspecError, ValueError) as error:
            # The process is corrupt.
            self.process.kill(f"unreadable message from it ({error})")
            return
        if isinstance(message, Finished):
            self._finish(message)
        elif isinstance(message, Ready):
            self._pool.ready(self, message)
        elif isinstance(message, Leaving):
            self._leave(message)
        elif isinstance(message, LoadFailed):
            self._pool.failed(self, message.what, message.traceback, message.cure)
        else:
            self._forward(message)

    def _forward(self, message: ProgressUpdate | ForwardedRecord | StackReply) -> None:
        callbacks = None if self.job is None else self.job.callbacks
        if isinstance(message, ForwardedRecord):
            fields: Any = callbacks  # a sender has the fields of JobFields
            replay(message, fields)
        elif isinstance(message, ProgressUpdate):
            if callbacks is not None:
                callbacks.progressed(message.progress)
        elif self.stack_reply is not None and not self.stack_reply.done():
            self.stack_reply.set_result(message.stack)

    def assign(self, job: ProcessJob) -> None:
        self.state, self.job, job.child = ChildState.BUSY, job, self
        self.jobs_given += 1
        self.process.send(ChildRun(job.claim))
        job.callbacks.begun()

    def _finish(self, message: Finished) -> None:
        self.rss_bytes, self.cpu_seconds = message.rss_bytes, message.cpu_seconds
        job, self.job = self.job, None
        if self.state is ChildState.BUSY:
            self.state = ChildState.IDLE
            self._pool.became_idle(self)
        else:
            self._pool.kill_later(self)
        if job is not None:
            job.callbacks.finished(message.outcome, message.event)

    def _leave(self, message: Leaving) -> None:
        """Give back a job that the child did not start; a started job may still finish."""
        unbegun = None
        if self.jobs_given > message.jobs and self.job is not None:
            unbegun, self.job = self.job, None
            unbegun.child = None
        self._pool.stopped_taking_jobs(self, unbegun)

    def _on_exit(self, how: str, stack: str) -> None:
        job, self.job = self.job, None
        self._pool.exited(self, how, stack, job)
        if job is not None:
            text = f"child process {self.pid} died: {how}"
            job.callbacks.crashed(text, stack, is_first=self.jobs_given == 1)

    def vitals(self) -> tuple[float, int]:
        """Return CPU seconds and resident bytes, measured now or last reported."""
        return (
            cpu_seconds_of(self.pid) or self.cpu_seconds,
            rss_bytes_of(self.pid) or self.rss_bytes,
        )
