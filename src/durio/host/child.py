"""One child process as its worker sees it: where it is in its life, and its job."""

import asyncio
from enum import Enum
from typing import Any, Protocol, final

import msgspec

from durio.host.child_log import replay
from durio.host.child_process import ChildProcess
from durio.host.child_wire import (
    Broken,
    Finished,
    Interrupt,
    Leaving,
    Logged,
    Looked,
    Noted,
    Ready,
    Run,
    Setup,
    Warn,
    from_child,
)
from durio.host.processes import cpu_seconds_of, rss_bytes_of
from durio.model.job import Claim
from durio.ports.executor import Sender


class State(Enum):
    """Where a child is in its life."""

    STARTING = 0
    SPARE = 1  # ready, and waits for another to leave
    IDLE = 2
    BUSY = 3
    LEAVING = 4


AT_WORK = (State.IDLE, State.BUSY)


class Pool(Protocol):
    """Who hears about a child, and keeps the jobs in line."""

    def withdraw(self, errand: "ChildErrand") -> bool:
        """Out of the line; False: it is not there."""
        ...

    def kill(self, child: "Child", claim: Claim) -> None:
        """It does not stop by itself: end it, and start another."""
        ...

    def ready(self, child: "Child", word: Ready) -> None:
        """One has loaded the App."""
        ...

    def failed(self, child: "Child", what: str, traceback_text: str) -> None:
        """One could not load the App, or it did not leave in order."""
        ...

    def rested(self, child: "Child") -> None:
        """One is idle again."""
        ...

    def leaves(self, child: "Child", unbegun: "ChildErrand | None") -> None:
        """One takes no more jobs, and never began this one."""
        ...

    def see_off(self, child: "Child") -> None:
        """One that leaves has nothing more to do."""
        ...

    def gone(
        self, child: "Child", how: str, stack: str, errand: "ChildErrand | None"
    ) -> None:
        """One has ended."""
        ...


@final
class ChildErrand:
    """A job in a child's hands, or in line for one."""

    def __init__(self, nursery: Pool, claim: Claim, sender: Sender) -> None:
        self._nursery = nursery
        self.claim = claim
        self.sender = sender
        self.child: Child | None = None

    def withdraw(self) -> bool:
        """Take it out of the line; False: a child has it."""
        return self.child is None and self._nursery.withdraw(self)

    def warn(self) -> None:
        """The soft time limit, inside the task."""
        if self.child is not None:
            self.child.process.say(Warn())

    def interrupt(self, why: str) -> None:
        """Cancel it inside the child, for this reason."""
        if self.child is not None:
            self.child.process.say(Interrupt(why))

    def kill(self) -> None:
        """End its child and all that this started; the sender hears nothing more."""
        child = self.child
        if child is not None and child.errand is self:
            child.errand = None
            self._nursery.kill(child, self.claim)


@final
class Child:
    """One child process and what it is doing."""

    def __init__(self, nursery: Pool, setup: Setup) -> None:
        self._nursery = nursery
        self.state = State.STARTING
        self.errand: ChildErrand | None = None
        self.jobs = 0
        self.is_proven = False  # it has finished a job, or lasted
        self.rss_bytes = 0
        self.cpu_seconds = 0.0
        self.looked: asyncio.Future[str] | None = None
        self.process = ChildProcess(setup.worker, hear=self._hear, ended=self._ended)
        self.process.say(setup)

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    def _hear(self, body: bytes) -> None:
        try:
            word = from_child.decode(body)
        except (msgspec.MsgspecError, ValueError) as error:
            # It is not itself any more.
            self.process.kill(f"what it said is no word of ours ({error})")
            return
        if isinstance(word, Finished):
            self._finish(word)
        elif isinstance(word, Ready):
            self._nursery.ready(self, word)
        elif isinstance(word, Leaving):
            self._leave(word)
        elif isinstance(word, Broken):
            self._nursery.failed(self, word.what, word.traceback)
        else:
            self._pass_on(word)

    def _pass_on(self, word: Noted | Logged | Looked) -> None:
        sender: Any = None if self.errand is None else self.errand.sender
        if isinstance(word, Logged):
            replay(word, sender)
        elif isinstance(word, Noted):
            if sender is not None:
                sender.noted(word.told)
        elif self.looked is not None and not self.looked.done():
            self.looked.set_result(word.stack)

    def give(self, errand: ChildErrand) -> None:
        """A job for an idle child."""
        self.state, self.errand, errand.child = State.BUSY, errand, self
        self.jobs += 1
        self.process.say(Run(errand.claim))
        errand.sender.begun()

    def _finish(self, word: Finished) -> None:
        self.rss_bytes, self.cpu_seconds = word.rss_bytes, word.cpu_seconds
        errand, self.errand = self.errand, None
        if self.state is State.BUSY:
            self.state = State.IDLE
            self._nursery.rested(self)
        else:
            self._nursery.see_off(self)
        if errand is not None:
            errand.sender.finished(word.outcome, word.event)

    def _leave(self, word: Leaving) -> None:
        """A job that it did not begin is another's; the one it has may still end."""
        unbegun = None
        if self.jobs > word.jobs and self.errand is not None:
            unbegun, self.errand = self.errand, None
            unbegun.child = None
        self._nursery.leaves(self, unbegun)

    def _ended(self, how: str, stack: str) -> None:
        errand, self.errand = self.errand, None
        self._nursery.gone(self, how, stack, errand)
        if errand is not None:
            told = f"child process {self.pid} died: {how}"
            errand.sender.crashed(told, stack, is_first=self.jobs == 1)

    def vitals(self) -> tuple[float, int]:
        """CPU seconds and resident memory now, or as it last said."""
        return (
            cpu_seconds_of(self.pid) or self.cpu_seconds,
            rss_bytes_of(self.pid) or self.rss_bytes,
        )
