"""A task's own transaction: its writes, its result and its end, in one commit.

    async with ctx.transaction() as tx:
        tx.execute("update account set cents = cents - 10 where id = 7")
        return ctx.result(10)

The job is done when the block ends; nothing that the task does afterwards changes that.
A block that raises is rolled back, and the attempt fails like any other. A task that catches
the error goes on; what it asked of its plan in the block is forgotten.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from copy import copy
from types import TracebackType
from typing import Any, Protocol, TypeVar

from durio.model.errors import LeaseLost, StoreError, UsageError
from durio.model.outcome import Outcome
from durio.ports.conflicts import EffectsRefused
from durio.ports.transactions import OwnTransaction
from durio.telemetry.log import in_job
from durio.worker.attempt_plan import AttemptPlan
from durio.worker.plan_changes import refusal_error

T = TypeVar("T")
Begin = Callable[[bool], Coroutine[Any, Any, OwnTransaction]]


class TransactionEnvironment(Protocol):
    """The parts of a worker that a transaction of its attempt uses."""

    loop: asyncio.AbstractEventLoop
    begin: Begin | None
    report: Callable[..., None]


class RunningAttempt(Protocol):
    """The attempt that the transaction ends."""

    is_over: bool
    transaction: "TaskTransaction | None"  # set while it is open
    recorded: Outcome | None  # set once it is committed
    is_commit_unknown: bool  # the commit may or may not have succeeded
    progress: bytes | None  # the latest progress
    plan: AttemptPlan | None  # what it asks of its plan

    @property
    def is_in_batch(self) -> bool:
        """Whether its task has batch=."""
        ...

    @property
    def is_process(self) -> bool:
        """Whether its task has process=True."""
        ...

    def environment(self) -> TransactionEnvironment: ...

    async def done(self) -> Outcome:
        """Return the outcome as if the attempt ended now, with the result given so far."""
        ...


class TaskTransaction:
    """The block of `ctx.transaction()`: `async with` in async tasks, `with` in sync ones.

    An attempt has at most one, and the job is done when it ends.
    """

    __module__ = "durio"

    def __init__(self, attempt: RunningAttempt) -> None:
        self._attempt = attempt
        self._transaction: OwnTransaction | None = None
        self._rolling_back: asyncio.Task[None] | None = None
        self._plan_before: AttemptPlan | None = None  # what was asked before the block

    async def __aenter__(self) -> Any:
        """Begin the transaction and return the connection of the store's driver."""
        return await self._enter(is_sync=False)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._leave(error)

    def __enter__(self) -> Any:
        """Begin the transaction in a sync task and return the connection."""
        return self._wait_for(self._enter(is_sync=True))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._wait_for(self._leave(error))

    async def _enter(self, *, is_sync: bool) -> Any:
        attempt = self._attempt
        begin = self._checked_begin()
        # Before the await, so that there is one transaction at a time.
        attempt.transaction = self
        self._plan_before = copy(attempt.plan)
        try:
            self._transaction = await begin(is_sync)
        except BaseException:
            self._close()
            raise
        return self._transaction.connection

    def _checked_begin(self) -> Begin:
        begin = self._attempt.environment().begin
        if self._attempt.is_in_batch:
            raise UsageError(
                "a batch task has no ctx.transaction(): it would end one job of many",
                cure="Open a connection of your own, or leave batch= out.",
            )
        if begin is None or self._attempt.is_process:
            raise UsageError(
                "a task with process=True runs in a child process and cannot use the "
                "transaction of its worker",
                cure="Remove process=True, or open a connection of your own.",
            )
        if self._attempt.transaction is not None:
            raise UsageError(
                "this attempt has a transaction open already",
                cure="Leave that block first, or use its connection.",
            )
        if self._attempt.recorded is not None:
            raise UsageError(
                "this job is done: an earlier ctx.transaction() has committed",
                cure="Do everything in one block; enqueue a job for later steps.",
            )
        return begin

    async def _leave(self, error: BaseException | None) -> None:
        own, self._transaction = self._transaction, None
        attempt = self._attempt
        try:
            if error is not None:
                return
            if own is None or attempt.is_over:
                raise LeaseLost(
                    "this attempt was abandoned: its transaction is rolled back",
                    cure="Nothing was written; the job runs again.",
                )
            outcome = await attempt.done()
            await self._commit(own, outcome)
        finally:
            self._close()
            if attempt.recorded is None:
                attempt.plan = self._plan_before
                if own is not None:
                    await own.roll_back()

    def _close(self) -> None:
        """Close without a commit: report the progress that was held back."""
        attempt = self._attempt
        attempt.transaction = None
        if attempt.recorded is None and attempt.progress is not None:
            attempt.environment().report(attempt, attempt.progress)

    def abandon(self) -> None:
        """Roll back without waiting for the task's code: the attempt is abandoned."""
        own, self._transaction = self._transaction, None
        if own is not None:
            self._rolling_back = self._attempt.environment().loop.create_task(
                own.roll_back()
            )

    async def _commit(self, own: OwnTransaction, outcome: Outcome) -> None:
        """Finish the commit, even if the attempt is cancelled meanwhile."""
        attempt = self._attempt
        committing = attempt.environment().loop.create_task(own.commit(outcome))
        cancelled: asyncio.CancelledError | None = None
        while not committing.done():
            try:
                await asyncio.wait((committing,))
            except asyncio.CancelledError as error:
                cancelled = error
        try:
            committing.result()
        except EffectsRefused as refused:
            raise refusal_error(refused.conflict) from None
        except StoreError as error:
            attempt.is_commit_unknown = error.unknown
            raise
        attempt.recorded = outcome
        if cancelled is not None:
            raise cancelled

    def _wait_for(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on the worker's loop, from the thread of a sync task."""
        loop = self._attempt.environment().loop
        here: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):  # a thread has no loop
            here = asyncio.get_running_loop()
        if here is None:
            return asyncio.run_coroutine_threadsafe(coro, loop).result()
        coro.close()
        raise UsageError(
            f"a blocking transaction would block the event loop ({here})",
            cure="Write `async with ctx.transaction() as tx:`.",
        )


def refuse_outside_transaction() -> None:
    """Refuse an enqueue inside the block that is not in its transaction.

    It would be stored even if the block is rolled back. On SQLite it would wait for the end
    of the block, which waits for it.
    """
    if getattr(in_job.get(), "transaction", None) is not None:
        raise UsageError(
            "this enqueue is inside ctx.transaction(), but not in its transaction",
            cure="Use options(tx=tx), or enqueue before the block or after it.",
        )
