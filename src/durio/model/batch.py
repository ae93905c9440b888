"""Batches: how many jobs one call takes, and how each of them ends."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar, cast, final

import msgspec

from durio.model.argument_errors import call_of
from durio.model.errors import InvalidOption, InvalidResult, UsageError
from durio.model.failure import redacted_repr
from durio.model.quantities import Duration, counted, seconds

T_co = TypeVar("T_co", covariant=True)

SIZE_MIN, SIZE_MAX = 2, 1_000
WAIT_MIN_SECONDS, WAIT_MAX_SECONDS = 0.001, 60.0


class Batch(msgspec.Struct, frozen=True):
    """How the jobs of a task are gathered: one call has up to `size` of them.

    The call begins when `size` jobs are there, or when the first one has waited for `wait`.
    The function takes a list of items and returns a list of as many results, in the same
    order.

        from durio.limits import Batch


        @app.task(batch=Batch(64, wait="50ms"))
        async def embed(texts: list[str]) -> list[int]:
            return [len(text) for text in texts]


        embed.enqueue_sync("one item")
    """

    __module__ = "durio.limits"

    size: int  # most jobs in one call, 2 to 1,000
    wait: Duration = "50ms"  # how long the first job waits for others, 1 ms to 1 minute

    def __post_init__(self) -> None:
        """Refuse a size or a wait out of bounds."""
        is_count = isinstance(self.size, int) and not isinstance(self.size, bool)
        if not is_count or not SIZE_MIN <= self.size <= SIZE_MAX:
            raise InvalidOption(
                f"Batch cannot have the size {self.size!r}",
                cure=f"Give a number of jobs from {SIZE_MIN} to {SIZE_MAX:,}. For one job "
                "in each call leave batch= out.",
                option="size",
                value=self.size,
            )
        if not WAIT_MIN_SECONDS <= self.wait_seconds <= WAIT_MAX_SECONDS:
            raise InvalidOption(
                f"Batch cannot wait for {self.wait!r}",
                cure='Give a duration from "1ms" to "1m", such as "50ms".',
                option="wait",
                value=self.wait,
            )

    @property
    def wait_seconds(self) -> float:
        """The wait in seconds."""
        return seconds(self.wait, "wait")


@final
class BatchOk(msgspec.Struct, Generic[T_co], frozen=True):
    """An item of a batch that succeeded; the value alone means the same."""

    __module__ = "durio.limits"

    value: T_co  # the result of the job


@final
class BatchErr(msgspec.Struct, frozen=True):
    """An item of a batch that failed, as if its own attempt had raised this error.

    The retry policy decides what happens to the job. An exception that a task may raise to
    choose that, such as `Permanent("no such order")`, decides by itself.
    """

    __module__ = "durio.limits"

    error: BaseException  # why this item failed

    def __post_init__(self) -> None:
        """Refuse what is no exception."""
        if not isinstance(self.error, BaseException):
            raise UsageError(
                f"Err cannot take {self.error!r:.80}, which is no exception",
                cure='Give the error itself: Err(ValueError("no such page")).',
            )


def check_batch(batch: Any) -> Batch:
    """Refuse anything but a Batch."""
    if not isinstance(batch, Batch):
        raise InvalidOption(
            f"batch cannot be {batch!r:.80}",
            cure='Give durio.limits.Batch(64, "50ms").',
            option="batch",
            value=batch,
        )
    return batch


def item_ends(returned: object, count: int, task: str) -> Sequence[Any]:
    """Return the end of each item of a call with so many; raises InvalidResult."""
    if not isinstance(returned, list | tuple):
        raise InvalidResult(
            f"{call_of(task)} returned {redacted_repr(returned)}, and not a list with "
            f"the results of its {counted(count, 'item')}",
            cure="Return a list with one result for each item, in the same order.",
            task=task,
        )
    ends = cast("Sequence[Any]", returned)
    if len(ends) != count:
        raise InvalidResult(
            f"{call_of(task)} returned {counted(len(ends), 'result')} for "
            f"{counted(count, 'item')}",
            cure="Return one result for each item, in the same order: Ok, Err, Retry or "
            "the value.",
            task=task,
        )
    return ends


def error_of(end: object) -> BaseException | None:
    """Return the error that ends an item; None if the item has a value."""
    if isinstance(end, BatchErr):
        return end.error
    return end if isinstance(end, BaseException) else None


def value_of(end: object) -> object:
    """Return the value of an item that succeeded."""
    return cast("BatchOk[object]", end).value if isinstance(end, BatchOk) else end
