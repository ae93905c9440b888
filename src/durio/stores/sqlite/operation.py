"""One caller's wish, on its way to a thread of the store and back to the caller's loop."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from durio.stores.sqlite.database import OwnDatabase
from durio.stores.sqlite.transaction import Transaction

Answer = TypeVar("Answer")
Work = Callable[[Transaction], Answer]
Look = Callable[[OwnDatabase], Answer]


class Kind(Enum):
    """Where in a turn an operation belongs."""

    OPEN = 0  # before the turn: it needs the connection only
    FIRST = 1  # in the transaction, ahead of the others
    USUAL = 2
    OUTSIDE = 3  # after the transaction, with the writers' lock
    LAST = 4  # when nothing else is left: the thread ends


class Operation(Generic[Answer]):
    """One caller's write, and the future it waits for."""

    __slots__ = (
        "begun",
        "error",
        "future",
        "is_awaited",
        "kind",
        "rows",
        "value",
        "work",
    )

    def __init__(
        self,
        work: Callable[[Any], Answer],
        kind: Kind,
        rows: int = 0,
        *,
        is_awaited: bool = True,
    ) -> None:
        self.work = work
        self.kind = kind
        self.rows = rows
        self.is_awaited = is_awaited
        if is_awaited:  # else there may be no loop here
            self.future: asyncio.Future[Answer]
            self.future = asyncio.get_running_loop().create_future()
        self.begun = False
        self.value: Any = None
        self.error: Exception | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether whoever waited for it does not any more."""
        return self.is_awaited and self.future.cancelled()


def answer(operations: list[Operation[Any]]) -> None:
    """One call per loop, each caller on its own."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Operation[Any]]] = {}
    for operation in operations:
        if operation.is_awaited:
            by_loop.setdefault(operation.future.get_loop(), []).append(operation)
    for loop, some in by_loop.items():
        with suppress(RuntimeError):  # that loop is closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, some)


def deliver(operations: list[Operation[Any]]) -> None:
    """Set the futures, on their own loop."""
    for operation in operations:
        if operation.future.done():
            continue
        if operation.error is None:
            operation.future.set_result(operation.value)
        else:
            operation.future.set_exception(operation.error)


class Writer(Protocol):
    """Runs operations, each in a transaction."""

    async def open(self) -> None:
        """Open and check the database."""
        ...

    async def write(
        self, work: Work[Answer], *, rows: int = 1, urgent: bool = False
    ) -> Answer:
        """Run it, commit, answer."""
        ...

    def post(self, work: Work[object]) -> None:
        """Run it soon, in a transaction; nobody waits, and nothing tells of a failure."""
        ...

    async def write_outside(self, work: Look[Answer]) -> Answer:
        """Run it with the writers' lock but in no transaction."""
        ...

    def peek(self, look: Look[Answer]) -> Answer | None:
        """Use the connection at once if it is idle; None: it is in use."""
        ...

    async def close(self) -> None:
        """Write what waits, then close; what a stalled writer holds it closes later."""
        ...

    def before_fork(self) -> None:
        """Close the connection and hold still."""
        ...

    def after_fork_in_parent(self) -> None:
        """Go on."""
        ...

    def after_fork_in_child(self) -> None:
        """Begin anew."""
        ...
