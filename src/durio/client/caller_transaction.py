"""Write jobs in the caller's own transaction.

They are not batched, not repeated, and do not wait. The caller commits, or rolls back after
an error, so the outcome is always known. A full queue accepts the jobs and an event reports
it, because the caller's transaction must not wait for room.
"""

from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, TypeVar

from durio.client.backpressure import queue_closed
from durio.client.enqueue import refuse_conflicts, warn_large
from durio.model.errors import InvariantBroken, StoreUnavailable, UsageError
from durio.model.job import NewJob
from durio.model.names import queue_of
from durio.model.tx import Joinable, tx_kind, without_django
from durio.ports.enqueue import Enqueued
from durio.ports.store import Store
from durio.telemetry.emit import Emit

T = TypeVar("T")


async def enqueue_in_caller_tx(
    opening: Awaitable[Store],
    emit: Emit,
    warn_bytes: int,
    tx: Joinable,
    jobs: Sequence[NewJob],
) -> list[Enqueued]:
    """Write these jobs in a transaction that the caller has open."""
    driver_connection = without_django(tx)
    store = await open_before_tx(opening)
    if not jobs:
        return []
    warn_large(emit, warn_bytes, jobs)
    answers = await store.enqueue(jobs, tx=driver_connection)
    for answer in answers:
        if answer.full is not None and answer.full.is_closed:
            raise queue_closed(answer.full)
    refuse_conflicts(jobs, answers)
    for full in {answer.full for answer in answers if answer.full is not None}:
        emit(
            "queue.overfilled",
            queue=queue_of(full.lane),
            depth=full.depth,
            max=full.limit,
        )
    return answers


async def open_before_tx(opening: Awaitable[Store]) -> Store:
    """Open the store first: creating its tables may need locks of the caller's transaction."""
    try:
        return await opening
    except StoreUnavailable as error:
        error.cure += (
            " If it was the transaction of tx: open the App before it, by "
            "`async with app:` or its lifespan."
        )
        raise


def refuse_async_tx(tx: Joinable) -> None:
    """Refuse a transaction of an event loop for a caller without a loop."""
    kind = tx_kind(tx)
    if kind.is_async:
        raise UsageError(
            f"tx is a {kind.value}, which belongs to an event loop",
            cure="Use `await task.options(tx=tx).enqueue(...)` there.",
        )


def run_without_loop(coro: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, in this thread, and return its result."""
    try:
        coro.send(None)
    except StopIteration as ended:
        return ended.value
    coro.close()
    raise InvariantBroken("a write in a sync transaction waited for an event loop")
