"""One caller's wish, on its way to a thread of the store and back to the caller's loop."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any, Generic, TypeVar

Answer = TypeVar("Answer")


class Kind(Enum):
    """Where in a turn an operation belongs."""

    OPEN = 0  # before the turn: it needs the connection only
    FIRST = 1  # in the transaction, ahead of the others
    USUAL = 2
    OUTSIDE = 3  # after the transaction, with the writers' lock
    LAST = 4  # when nothing else is left: the thread ends


class Operation(Generic[Answer]):
    """One caller's write, and the future it waits for."""

    __slots__ = ("begun", "error", "future", "kind", "rows", "value", "work")

    def __init__(
        self, work: Callable[[Any], Answer], kind: Kind, rows: int = 0
    ) -> None:
        self.work = work
        self.kind = kind
        self.rows = rows
        self.future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.begun = False
        self.value: Any = None
        self.error: Exception | None = None


def answer(operations: list[Operation[Any]]) -> None:
    """One call per loop, each caller on its own."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Operation[Any]]] = {}
    for operation in operations:
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
