"""A worker: starts its parts in this order, drains, and leaves nothing behind.

1 dependencies are entered        5 the claim loop runs until a stop is requested
2 a lease is registered           6 claims end; running jobs get their grace
3 heartbeat and watchdog start    7 the rest is cancelled and given back, uncharged
4 wakeups, hooks, maintenance     8 the last outcomes are sent, the lease ends
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass, field
from typing import Any

from durio.model.errors import DurioError, StoreError
from durio.ports.clock import Clock
from durio.ports.executor import ChildPool, Executor, SideLoop
from durio.ports.store import Store
from durio.telemetry.emit import Emit
from durio.worker.breakers import Breakers
from durio.worker.child_attempt import needs_child_pool, open_child_pool
from durio.worker.claim import ClaimLoop
from durio.worker.deps import Dependencies
from durio.worker.heartbeat import Heartbeat, VitalsReporter
from durio.worker.inflight import InterruptReason
from durio.worker.middleware import DRAIN_SECONDS, HookRunner
from durio.worker.outcome_buffer import OutcomeBuffer
from durio.worker.register import Registration
from durio.worker.side_loop import FailStop
from durio.worker.slots import Slots
from durio.worker.stop_control import StopControl
from durio.worker.wakeup import WakeupLoop
from durio.worker.watchdog import Watchdog
from durio.worker.worker_config import WorkerConfig, WorkerIdentity

CANCEL_SECONDS = 2.0  # time for cancelled attempts to clean up
FLUSH_SECONDS = 10.0  # time for the last outcomes to reach the store
DRAIN_LOOK_SECONDS = 0.02
LOOKS_PER_MESSAGE = 25
LEAVE_SECONDS = 5.0

MaintenanceLoops = Callable[["Worker"], Sequence[Coroutine[Any, Any, None]]]


@dataclass(eq=False, repr=False, kw_only=True)
class Worker:
    """Claims jobs and runs attempts until `stop`; `build.py` creates it."""

    config: WorkerConfig
    store: Store
    clock: Clock
    emit: Emit
    executor: Executor
    side_loop: SideLoop
    child_pool: ChildPool | None
    loops: MaintenanceLoops
    identity: WorkerIdentity
    stop_control: StopControl
    registration: Registration
    hooks: HookRunner
    breakers: Breakers | None
    outcomes: OutcomeBuffer
    slots: Slots
    claims: ClaimLoop
    vitals: VitalsReporter
    heartbeat: Heartbeat
    watchdog: Watchdog
    fail_stop: FailStop
    wakeup: WakeupLoop
    was_cut_short: bool = False
    deps_error: Exception | None = None  # raised by the user's deps=
    started: asyncio.Event = field(default_factory=asyncio.Event)  # it has a lease
    # set by a supervisor: a process on this host may have died
    check_deaths: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    # --- called from outside

    @property
    def hangs(self) -> bool:
        """Whether code of an abandoned attempt still runs."""
        return self.slots.hangs

    @property
    def broken(self) -> DurioError | None:
        """Why the worker cannot continue in this process; None if it can."""
        return self.stop_control.error

    def stop(self) -> None:
        """Drain; a second call gives running jobs back without their grace."""
        self.stop_control.request()

    async def run(self) -> None:
        """Work until `stop`; in a burst, until no job is left."""
        async with self._deps() as deps, self._children():
            self.slots.runner.start(deps)
            if not await self.registration.register_unless(self.stop_control.requested):
                return
            self._start_side_loop()
            self.started.set()
            self.emit(
                "worker.started",
                worker=self.identity.id,
                process=self.config.name,
                queues=",".join(self.config.serving.as_arguments or ("*",)),
                concurrency=self.slots.concurrency,
            )
            self.vitals.ready(len(self.config.tasks))
            try:
                await self._work()
            except BaseException:  # the loop is being ended, or a part failed
                await self._abort()
                raise
            finally:
                await self.side_loop.stop()
                self.executor.close()
                self.slots.deadlines.close()
        self.emit(
            "worker.stopped", worker=self.identity.id, cut_short=self.was_cut_short
        )

    @asynccontextmanager
    async def _deps(self) -> AsyncGenerator[Any, None]:
        if self.config.deps is None:
            yield None
            return
        deps = Dependencies(self.config.deps, self.emit)
        async with AsyncExitStack() as stack:
            try:
                entered = await stack.enter_async_context(deps)
            except Exception as error:
                self.deps_error = error
                raise
            yield entered

    def _children(self) -> AbstractAsyncContextManager[None]:
        return open_child_pool(
            self.child_pool,
            ahead=needs_child_pool(self.config.handlers, self.config.serving.serves),
            broken=self.stop_control.fail,
            stop=self.stop_control.requested,
        )

    def _start_side_loop(self) -> None:
        guard, heartbeat = self.fail_stop.guard, self.heartbeat
        self.side_loop.start(guard("heartbeat", heartbeat.run, heartbeat.give_up))
        self.side_loop.start(guard("watchdog", self.watchdog.run))

    # --- the work

    async def _work(self) -> None:
        poll = self.config.settings.worker.poll_seconds
        async with asyncio.TaskGroup() as group:
            beside = [
                group.create_task(loop)
                for loop in (
                    self.wakeup.run(),
                    self.claims.keep_learning(poll),
                    *self.loops(self),
                )
            ]
            hooks = group.create_task(self.hooks.run())
            claims = group.create_task(self.claims.run())
            stop = group.create_task(self.stop_control.requested.wait())
            await asyncio.wait((claims, stop), return_when=asyncio.FIRST_COMPLETED)
            if not claims.done():
                await self._drain(claims)
            stop.cancel()
            for task in beside:
                task.cancel()
            await self._end_hooks(hooks)
        await self._leave()

    async def _end_hooks(self, hooks: "asyncio.Task[None]") -> None:
        """Let running and waiting hooks end, within a time limit."""
        self.hooks.end()
        await asyncio.wait((hooks,), timeout=DRAIN_SECONDS)
        if not hooks.done():
            self.emit("hook.failed", error="a hook was still running at the end")
            hooks.cancel()
            self.hooks.drop()  # the others would take as long again

    async def _drain(self, claims: "asyncio.Task[None]") -> None:
        """Let running jobs end, then cancel, then give back: all within the grace."""
        grace = self.config.settings.worker.grace_seconds
        self.registration.end()
        self.emit(
            "worker.stopping", worker=self.identity.id, running=len(self.slots.running)
        )
        self.slots.close()
        self.claims.inputs.release_all()
        await self._until_idle(grace)
        if self.slots.running:
            self.was_cut_short = True
            self.slots.interrupt_all(InterruptReason.STOP)
            await self._until_idle(CANCEL_SECONDS)
            self.slots.release_all()
        self.claims.end()
        await asyncio.wait((claims,), timeout=FLUSH_SECONDS)
        # Jobs whose outcome the store never accepted will run again.
        self.was_cut_short |= bool(len(self.outcomes) or self.outcomes.sent)
        claims.cancel()

    async def _abort(self) -> None:
        """End without a grace, because a program that embeds the worker may continue."""
        self.was_cut_short = True
        self.slots.close()
        self.claims.inputs.release_all()
        self.slots.interrupt_all(InterruptReason.STOP)
        await self._until_idle(CANCEL_SECONDS)
        self.slots.release_all()
        self.claims.end()
        with suppress(StoreError, TimeoutError):  # only the first error is reported
            async with asyncio.timeout(FLUSH_SECONDS):
                await self.claims.run()
        await self._leave()

    async def _until_idle(self, seconds: float) -> None:
        deadline, looks = self._loop.time() + seconds, 0
        while self.slots.running and self._loop.time() < deadline:
            if self.stop_control.immediate.is_set() and not self.was_cut_short:
                return
            if looks % LOOKS_PER_MESSAGE == 0:
                self.vitals.draining(deadline - self._loop.time())
            looks += 1
            await self.clock.sleep(DRAIN_LOOK_SECONDS)

    async def _leave(self) -> None:
        self.claims.settler.stop()
        self.outcomes.report()  # after an abort the loop has had no turn to do this
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await self.hooks.drain()
        except TimeoutError:
            self.emit(
                "hook.failed", error="hooks were still waiting at the end: dropped"
            )
        try:
            # With a time limit, so that a blocked writer does not delay the stop. Without
            # this call the lease ends by itself, and workers on this host notice the end.
            async with asyncio.timeout(LEAVE_SECONDS):
                await self.store.leave(self.identity.id)
        except (StoreError, TimeoutError) as error:
            text = str(error) or "no answer in time"
            self.emit("store.failed", call="leave", error=text)
