"""Middleware wraps an attempt; hooks observe what the store has accepted."""

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import msgspec

from durio.model.breaker import CLOSED, HALF_OPEN, OPEN, BreakerState
from durio.model.failure import error_text
from durio.model.ids import id_text
from durio.model.names import queue_of
from durio.telemetry.breaker_events import BreakerEvent
from durio.telemetry.emit import Emit, JobEvent
from durio.telemetry.names import (
    JOB_CANCELLED,
    JOB_DEAD,
    JOB_DONE,
    JOB_RETRIED,
    JOB_STARTED,
)
from durio.worker.context import Context

CallNext = Callable[[], Awaitable[Any]]
Middleware = Callable[[Context[Any], CallNext], Awaitable[Any]]
HookKind = Literal["before", "after", "retry", "dead", "cancelled"]

WAITING_MAX = 10_000
HOOK_SECONDS_MAX = 30.0
DRAIN_SECONDS = 5.0


def wrapped(
    middleware: Sequence[Middleware], context: Context[Any], innermost: CallNext
) -> CallNext:
    """Return the call inside its middleware; the first middleware is the outermost."""
    call = innermost
    for layer in reversed(middleware):
        call = _layer(layer, context, call)
    return call


def _layer(layer: Middleware, context: Context[Any], call: CallNext) -> CallNext:
    async def wrapper() -> Any:
        return await layer(context, call)

    return wrapper


class HookEvent(msgspec.Struct, frozen=True):
    """The argument of a hook: what happened to a job."""

    __module__ = "durio"

    job_id: str  # id of the job
    task: str  # full name of the task
    queue: str  # name of the queue, without the App's
    attempt: int  # number of the attempt, from 1
    duration_seconds: float  # of the attempt; 0 in `before`
    error_type: str  # class of the error; empty without one
    error: str  # message of the error; empty without one
    reason: str  # why the job is dead; empty otherwise
    meta: Any  # the `meta` that the job was enqueued with, or None


Hook = Callable[[HookEvent], Any]
BreakerHook = Callable[[BreakerEvent], Any]

KIND_BY_NAME: dict[str, HookKind] = {
    JOB_STARTED: "before",
    JOB_DONE: "after",
    JOB_RETRIED: "retry",
    JOB_DEAD: "dead",
    JOB_CANCELLED: "cancelled",
}


class Hooks(msgspec.Struct):
    """Decorators for functions that a worker calls after it has stored an event.

    A hook takes a HookEvent; it may be `def` or `async def`. Hooks run one after another,
    beside the jobs, at most 30 s each. An error in a hook is logged and changes no job.

        @app.hooks.dead
        async def report(event: HookEvent) -> None:
            print("dead:", event.task, event.job_id, event.reason)
    """

    by_kind: dict[HookKind, list[Hook]] = msgspec.field(default_factory=dict)
    by_state: dict[BreakerState, list[BreakerHook]] = msgspec.field(
        default_factory=dict
    )

    def _add(self, kind: HookKind, hook: Hook) -> Hook:
        self.by_kind.setdefault(kind, []).append(hook)
        return hook

    def before(self, hook: Hook) -> Hook:
        """Call the hook when an attempt begins."""
        return self._add("before", hook)

    def after(self, hook: Hook) -> Hook:
        """Call the hook when a job is done."""
        return self._add("after", hook)

    def retry(self, hook: Hook) -> Hook:
        """Call the hook when an attempt has failed and will be retried."""
        return self._add("retry", hook)

    def dead(self, hook: Hook) -> Hook:
        """Call the hook when a job is dead, for any reason."""
        return self._add("dead", hook)

    def cancelled(self, hook: Hook) -> Hook:
        """Call the hook when a job is cancelled."""
        return self._add("cancelled", hook)

    def breaker_opened(self, hook: BreakerHook) -> BreakerHook:
        """Call the hook with a BreakerEvent when a worker has opened a breaker."""
        return self._add_for_breakers(OPEN, hook)

    def breaker_half_open(self, hook: BreakerHook) -> BreakerHook:
        """Call the hook when the open time of a breaker is over."""
        return self._add_for_breakers(HALF_OPEN, hook)

    def breaker_closed(self, hook: BreakerHook) -> BreakerHook:
        """Call the hook when a call has succeeded, and the breaker is closed again."""
        return self._add_for_breakers(CLOSED, hook)

    def _add_for_breakers(self, state: BreakerState, hook: BreakerHook) -> BreakerHook:
        self.by_state.setdefault(state, []).append(hook)
        return hook


class HookRunner:
    """Runs hooks one after another, in a task of its own."""

    def __init__(self, hooks: Hooks, emit: Emit) -> None:
        self._hooks = hooks
        self._emit = emit
        self._waiting: deque[tuple[Callable[[Any], Any], Any]] = deque()
        self._has_work = asyncio.Event()
        self._is_ending = False

    def notify(self, events: Sequence[JobEvent]) -> None:
        """Queue the hooks of these events; above 10,000 they are dropped and reported."""
        if not self._hooks.by_kind:
            return
        for event in events:
            kind = KIND_BY_NAME.get(event.name)
            for hook in self._hooks.by_kind.get(kind, ()) if kind else ():
                if not self._add(hook, _hook_event(event)):
                    return
        self._has_work.set()

    def notify_breaker(self, event: BreakerEvent) -> None:
        """Queue the hooks for this new state of a breaker."""
        for hook in self._hooks.by_state.get(event.state, ()):
            self._add(hook, event)
        self._has_work.set()

    def _add(self, hook: Callable[[Any], Any], event: object) -> bool:
        if len(self._waiting) >= WAITING_MAX:
            self._emit("hook.failed", error="too many hooks waiting: dropped")
            return False
        self._waiting.append((hook, event))
        return True

    def for_other_loop(self) -> "HookRunner":
        """Return a runner for another loop; it takes over all waiting hooks."""
        other = HookRunner(self._hooks, self._emit)
        while self._waiting:
            other._waiting.append(self._waiting.popleft())
        return other

    def end(self) -> None:
        """Let `run` return after the hooks that wait now."""
        self._is_ending = True
        self._has_work.set()

    def drop(self) -> None:
        """Forget the hooks that wait, and report how many they are."""
        if self._waiting:
            self._emit("hook.failed", error=f"{len(self._waiting)} hooks did not run")
            self._waiting.clear()

    async def run(self) -> None:
        while not self._is_ending:
            await self._has_work.wait()
            self._has_work.clear()
            await self.drain()

    async def drain(self) -> None:
        while self._waiting:
            hook, event = self._waiting.popleft()
            try:
                async with asyncio.timeout(HOOK_SECONDS_MAX):
                    answer = hook(event)
                    if inspect.isawaitable(answer):
                        await answer
            except BaseException as error:
                if _is_ours(error):
                    raise
                self._emit(
                    "hook.failed",
                    hook=getattr(hook, "__qualname__", type(hook).__qualname__),
                    job_id=getattr(event, "job_id", ""),
                    error=f"{type(error).__name__}: {error_text(error)}",
                )


def _is_ours(error: BaseException) -> bool:
    """Whether the runner itself was cancelled, not a cancel that a hook raised."""
    task = asyncio.current_task()
    cancelled = isinstance(error, asyncio.CancelledError)
    return cancelled and task is not None and task.cancelling() > 0


def _hook_event(event: JobEvent) -> HookEvent:
    return HookEvent(
        job_id=id_text(event.id),
        task=event.task,
        queue=queue_of(event.lane),
        attempt=event.attempt,
        duration_seconds=event.duration_seconds,
        error_type=event.error_type,
        error=event.error,
        reason=event.reason,
        meta=event.meta,
    )
