"""Make a call behind a breaker: the call of a task, or a block inside one."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from durio.model.breaker_rule import BreakerOpen, failed_call
from durio.model.error_classes import shown_name
from durio.model.errors import HardTimeLimit, UsageError
from durio.model.failure import error_text
from durio.model.ids import id_text
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.executor import SoftTimeLimit
from durio.telemetry.log import in_job
from durio.worker.breakers import Breakers, Permit
from durio.worker.inflight import Attempt

T = TypeVar("T")


class HeldBack(Exception):
    """A breaker does not let the attempt call its task: its job is given back."""

    def __init__(self, reason: str, delay_seconds: float) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delay_seconds = delay_seconds


async def call_with_breaker(
    breakers: Breakers, attempt: Attempt, name: str, call: Callable[[], Awaitable[Any]]
) -> Any:
    """Call the task, if its breaker permits, and report the result before the outcome."""
    job = id_text(attempt.job_id)
    permit = await breakers.enter(name, job)
    if permit is None:
        reason = f"breaker {name} is open{breakers.until_text(name)}"
        raise HeldBack(reason, breakers.release_delay(name, job))
    try:
        value = await call()
    except BaseException as error:
        await leave(breakers, attempt, permit, error)
        raise
    await leave(breakers, attempt, permit, None)
    return value


def held_outcome(attempt: Attempt, held: HeldBack) -> Outcome:
    """Give the job back, uncharged: it waits before the gate of its breaker."""
    return Outcome(
        attempt.claim.id,
        attempt.claim.claim_no,
        OutcomeKind.RELEASE,
        delay_seconds=held.delay_seconds,
        again_from_gates=True,
    )


async def leave(
    breakers: Breakers, attempt: Attempt, permit: Permit, error: BaseException | None
) -> None:
    failed = False if error is None else is_failure(breakers, attempt, permit, error)
    text = f"{shown_name(error)}: {error_text(error)}" if error and failed else ""
    await breakers.leave(permit, failed, text)


def is_failure(
    breakers: Breakers, attempt: Attempt, permit: Permit, error: BaseException
) -> bool | None:
    """Whether the dependency is to blame; None: the error does not say."""
    if isinstance(error, SoftTimeLimit | HardTimeLimit):
        return True
    if isinstance(error, asyncio.CancelledError):
        # The hard time limit cancels an attempt whose outcome is recorded already.
        return True if attempt.is_over and attempt.interrupt_reason is None else None
    classes = breakers.classes_of(permit.name)
    now = attempt.runner.clock.now()
    return failed_call(error, classes, attempt.error_rules, now)


class BreakerBlock:
    """The block of `app.breaker(...)`: `async with` in async code, `with` in sync code."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._entered: tuple[Breakers, Attempt, Permit] | None = None

    async def __aenter__(self) -> Self:
        """Go on if calls are made; else raise BreakerOpen."""
        attempt, breakers = self._attempt()
        if attempt.handler.breaker != self.name:  # else the attempt itself is counted
            await self._enter(attempt, breakers)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._leave(error)

    def __enter__(self) -> Self:
        """Go on in a sync task, as in an async one."""
        attempt, breakers = self._attempt()
        if attempt.handler.breaker != self.name:
            run_on_loop(attempt, self._enter(attempt, breakers))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._entered is not None:
            run_on_loop(self._entered[1], self._leave(error))

    def _attempt(self) -> tuple[Attempt, Breakers]:
        attempt = in_job.get()
        breakers = attempt.runner.breakers if isinstance(attempt, Attempt) else None
        if not isinstance(attempt, Attempt) or breakers is None:
            where = "outside a task" if attempt is None else "in a child process"
            raise UsageError(
                f"app.breaker({self.name!r}) is used {where}",
                cure="Use it in a task that a worker runs, without process=True.",
            )
        if self.name not in breakers.declared:
            raise UsageError(
                f"app.breaker({self.name!r}) belongs to another App than the worker",
                cure="Use the App whose task runs.",
            )
        return attempt, breakers

    async def _enter(self, attempt: Attempt, breakers: Breakers) -> None:
        permit = await breakers.enter(self.name, id_text(attempt.job_id))
        if permit is None:
            wait = breakers.seconds_to_wait(self.name)
            raise BreakerOpen(self.name, wait, breakers.until_text(self.name))
        self._entered = breakers, attempt, permit

    async def _leave(self, error: BaseException | None) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            await leave(*entered, error)


def run_on_loop(attempt: Attempt, coro: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the worker's loop, for a task in a thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run_coroutine_threadsafe(coro, attempt.runner.loop).result()
    coro.close()
    raise UsageError(
        "`with app.breaker(...)` is used on an event loop, which it would block",
        cure="Write: async with app.breaker(...).",
    )
