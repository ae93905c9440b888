"""Requests of callers: one operation each, passed to a thread of the store and back."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any, Generic, TypeVar

Answer = TypeVar("Answer")


class RequestKind(Enum):
    """When in a turn of the writer an operation runs."""

    OPEN = 0  # before the turn; it needs only the connection
    FIRST = 1  # in the transaction, ahead of the others
    USUAL = 2
    OUTSIDE = 3  # after the transaction, with the writers' lock
    LAST = 4  # when nothing else is left; the thread ends


class WriteRequest(Generic[Answer]):
    """One caller's operation, and the future that the caller awaits."""

    __slots__ = (
        "begun",
        "error",
        "future",
        "is_awaited",
        "is_durable",
        "kind",
        "rows",
        "value",
        "work",
    )

    def __init__(
        self,
        work: Callable[[Any], Answer],
        kind: RequestKind,
        rows: int = 0,
        *,
        is_awaited: bool = True,
        is_durable: bool = True,
    ) -> None:
        self.work = work
        self.is_durable = is_durable
        self.kind = kind
        self.rows = rows
        self.is_awaited = is_awaited
        if is_awaited:  # otherwise this thread may have no loop
            self.future: asyncio.Future[Answer]
            self.future = asyncio.get_running_loop().create_future()
        self.begun = False
        self.value: Any = None
        self.error: Exception | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether the caller has stopped waiting."""
        return self.is_awaited and self.future.cancelled()


def answer_callers(requests: list[WriteRequest[Any]]) -> None:
    """Deliver the results, with one call into each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[WriteRequest[Any]]] = {}
    for operation in requests:
        if operation.is_awaited:
            by_loop.setdefault(operation.future.get_loop(), []).append(operation)
    for loop, some in by_loop.items():
        with suppress(RuntimeError):  # that loop is closed, and no caller waits
            loop.call_soon_threadsafe(deliver, some)


def deliver(requests: list[WriteRequest[Any]]) -> None:
    """Set the futures; runs on their loop."""
    for operation in requests:
        if operation.future.done():
            continue
        if operation.error is None:
            operation.future.set_result(operation.value)
        else:
            operation.future.set_exception(operation.error)
