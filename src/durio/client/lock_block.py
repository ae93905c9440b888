"""The block of a lock: `async with` in async code, `with` in sync code.

When the record is lost, an async block is cancelled, and the block raises LockLost in the
place of the cancel, as `asyncio.timeout` does. A sync block cannot be interrupted: it raises at
its end. A block that has raised an error of its own keeps that error.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from durio.client.held_record import HeldRecord
from durio.model.errors import LockLost, StoreError, UsageError
from durio.model.lock import LockHolder, new_holder_body
from durio.ports.clock import Clock
from durio.ports.store import Store

T = TypeVar("T")


class LockClient(Protocol):
    """The part of an App that locks use."""

    name: str

    @property
    def clock(self) -> Clock: ...

    async def store(self) -> Store: ...

    def run_sync(self, coro: Coroutine[Any, Any, T]) -> T: ...


@dataclass(slots=True)
class EnteredName:
    """A name that a task has taken, or is about to take."""

    key: tuple[str, str, str]  # App, kind, name
    is_open: bool = True


# The names of the blocks that this task is in or has left, or a task that started it.
ENTERED: ContextVar[tuple[EnteredName, ...]] = ContextVar("durio_locks", default=())


class LockBlock:
    """A block that holds a record while it runs."""

    what = "lock"  # in errors

    def __init__(
        self, client: LockClient, kind: str, name: str, holder: LockHolder
    ) -> None:
        self.client = client
        self._kind = kind
        self._name = name
        self._holder = holder
        self._held: HeldRecord | None = None
        self._entered: EnteredName | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancels_before = 0
        self._has_cancelled = False

    @property
    def name(self) -> str:
        """The name that was given."""
        return self._name

    @property
    def token(self) -> int:
        """The fencing token: every later holder of the same name has a greater one."""
        return self._held_here().token

    @property
    def is_held(self) -> bool:
        """Whether the lock is still held, by this machine's clock; False after the block.

        It may be lost right after the answer: writes that must not come late compare `token`.
        """
        return self._held is not None and self._held.is_held

    def check(self) -> None:
        """Raise LockLost if the lock is not held any more; for sync code between steps."""
        if not self._held_here().is_held:
            raise self._lost()

    # --- async

    async def __aenter__(self) -> Self:
        """Take it; the block then runs while it is renewed."""
        self._refuse_twice()
        held = await self._take()
        self._has_cancelled = False
        self._task = asyncio.current_task()
        self._cancels_before = self._task.cancelling() if self._task else 0
        if held is not None:
            held.keep(self._cancel_block)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._has_cancelled and self._task is not None:
            self._forget_name()
            self._held = None
            await self._after_cancel(error, self._task)
        else:
            await self._leave(error)

    async def _after_cancel(
        self, error: BaseException | None, task: "asyncio.Task[Any]"
    ) -> None:
        """Raise LockLost in the place of our cancel; another cancel and errors stay."""
        is_cancel = isinstance(error, asyncio.CancelledError)
        if not is_cancel:  # the block has ended before the cancel reached it
            with suppress(asyncio.CancelledError):
                await self.client.clock.sleep(0)
        if task.uncancel() > self._cancels_before:
            if not is_cancel:
                raise asyncio.CancelledError
        elif is_cancel or error is None:
            raise self._lost() from error

    def _cancel_block(self) -> None:
        if self._task is not None:
            self._has_cancelled = True
            self._task.cancel()

    # --- sync

    def __enter__(self) -> Self:
        """Take it in a thread without an event loop."""
        self._refuse_twice()
        try:
            self.client.run_sync(self._take_and_keep())
        except BaseException:
            self._forget_name()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.client.run_sync(self._leave(error))

    async def _take_and_keep(self) -> None:
        held = await self._take()
        if held is not None:
            held.keep(lambda: None)

    # --- both

    async def _take(self) -> HeldRecord | None:
        """Take the record; return None where the block runs without it."""
        try:
            store = await self.client.store()
            held = HeldRecord(store, self.client.clock, self._kind, self._name)
            is_taken = await self._acquire(held)
        except BaseException:
            self._forget_name()
            raise
        self._held = held if is_taken else None
        return self._held

    def new_body(self, *, is_done: bool = False) -> bytes:
        """Return the body of a record for a new use."""
        clock = self.client.clock
        return new_holder_body(
            self._holder, clock.new_id(), clock.now(), is_done=is_done
        )

    async def _acquire(self, held: HeldRecord) -> bool:
        raise NotImplementedError

    async def _end(self, held: HeldRecord, error: BaseException | None) -> bool:
        """End the use of the record; return False if it was lost before."""
        raise NotImplementedError

    async def _leave(self, error: BaseException | None) -> None:
        self._forget_name()
        held, self._held = self._held, None
        if held is None:
            return
        try:
            was_held = await self._end(held, error)
        except StoreError:
            # The record ends by itself within 30 s.
            if error is None:
                raise
            return
        if error is None and not was_held:
            raise self._lost()

    def _held_here(self) -> HeldRecord:
        if self._held is None:
            raise UsageError(
                f"{self.what} {self._name!r} is not held here",
                cure=f"Use it inside the block: async with app.{self.what}(...) as held.",
            )
        return self._held

    def _refuse_twice(self) -> None:
        """Refuse a name that this task holds: it would wait for itself."""
        key = (self.client.name, self._kind, self._name)
        entered = tuple(each for each in ENTERED.get() if each.is_open)
        in_use = self._entered is not None and self._entered.is_open
        if in_use or any(each.key == key for each in entered):
            raise UsageError(
                f"{self.what} {self._name!r} is taken twice by one task",
                cure="Take it once, in the outermost place that needs it.",
            )
        self._entered = EnteredName(key)
        ENTERED.set((*entered, self._entered))

    def _forget_name(self) -> None:
        if self._entered is not None:
            self._entered.is_open = False

    def _lost(self) -> LockLost:
        return LockLost(
            f"{self.what} {self._name!r} was lost: it could not be renewed in time, and "
            "another holder may have taken it",
            cure="Let the job be retried. Writes with its token are refused where tokens "
            "are compared; keep the event loop free, so that it can be renewed.",
            name=self._name,
        )
