"""A worker: starts its parts in written order, drains, and leaves nothing behind.

1 dependencies are entered        5 the claim loop runs until told to stop
2 a lease is registered           6 no more claims; running jobs get their grace
3 heartbeat and watchdog, aside   7 the rest is cancelled and given back, uncharged
4 wakeups, hooks, maintenance     8 the last outcomes are flushed, the lease ends
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from typing import Any

from durio.model.errors import DurioError, OperatingError, StoreError
from durio.model.outcome import Outcome, OutcomeKind
from durio.ports.clock import Clock
from durio.ports.executor import ChildPool, Executor, SideLoop
from durio.ports.store import Store, Wake
from durio.ports.transactions import OwnTransaction
from durio.telemetry.emit import Emit
from durio.worker.attempt import AttemptRunner
from durio.worker.child_attempt import needs_child_pool, open_child_pool
from durio.worker.claim import ClaimLoop
from durio.worker.deps import Dependencies
from durio.worker.heartbeat import Heartbeat, VitalsReporter
from durio.worker.inflight import Attempt, InterruptReason
from durio.worker.lanes import Lanes, quotas_for
from durio.worker.middleware import DRAIN_SECONDS, HookRunner
from durio.worker.outcome_buffer import OutcomeBuffer
from durio.worker.register import Registration
from durio.worker.side_loop import FailStop
from durio.worker.slots import Slots
from durio.worker.unrunnable import TaskVersions
from durio.worker.wakeup import WakeupLoop
from durio.worker.watchdog import Machine, Watchdog
from durio.worker.worker_commands import CommandResponder
from durio.worker.worker_config import WorkerConfig, WorkerIdentity

CANCEL_SECONDS = 2.0  # for cancelled attempts to clean up
FLUSH_SECONDS = 10.0  # for the last outcomes to reach the store
DRAIN_LOOK_SECONDS = 0.02
LOOKS_PER_MESSAGE = 25
LEAVE_SECONDS = 5.0

MaintenanceLoops = Callable[["Worker"], Sequence[Coroutine[Any, Any, None]]]


class Worker:
    """Claims jobs and makes attempts until it is told to stop."""

    def __init__(  # noqa: PLR0913 - the ports of a worker, handed over by the app
        self,
        config: WorkerConfig,
        *,
        store: Store,
        clock: Clock,
        emit: Emit,
        executor: Executor,
        side_loop: SideLoop,
        machine: Machine,
        loops: MaintenanceLoops,
        child_pool: ChildPool | None = None,
    ) -> None:
        self.config = config
        self.store = store
        self.clock = clock
        self.emit = emit
        self._executor = executor
        self._side_loop = side_loop
        self._machine = machine
        self._loops = loops
        self._child_pool = child_pool
        self.identity = WorkerIdentity()
        self.was_cut_short = False
        self.broken: DurioError | None = None  # why it cannot go on in this process
        self.deps_error: Exception | None = None  # the user's, at the start
        self.started = asyncio.Event()  # it has a lease
        self.check_deaths = asyncio.Event()  # somebody may have died on this host
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._refreshing: asyncio.Task[None] | None = None
        self._registration = Registration(store, clock, emit, config, self.identity)

    # --- from outside

    @property
    def hangs(self) -> bool:
        """Whether code of an abandoned attempt still runs after the end."""
        return self._slots.hangs

    def stop(self) -> None:
        """Drain; asked twice, give back at once what still runs."""
        if self._stop.is_set():
            self._stop_now.set()
        self._stop.set()

    def drain_by_command(self) -> None:
        """Drain because somebody asked through the store; nobody comes after us."""
        self._vitals.drain_commanded()
        if not self._stop.is_set():
            self.stop()

    async def run(self) -> None:
        """Work until `stop`, or, in a burst, until nothing is left."""
        self._build()
        self._runner.worker_task = asyncio.current_task()
        self._runner.begin = self._begin
        async with self._deps(), self._children():
            if not await self._registration.register_unless(self._stop):
                return
            self._start_side_loop()
            self.started.set()
            self.emit(
                "worker.started",
                worker=self.identity.id,
                process=self.config.name,
                queues=",".join(self.config.serving.as_arguments or ("*",)),
                concurrency=self._slots.concurrency,
            )
            self._vitals.ready(len(self.config.handlers))
            try:
                await self._work()
            except BaseException:  # the loop ends around us, or a part of us is broken
                await self._abort()
                raise
            finally:
                await self._side_loop.stop()
                self._executor.close()
                self._slots.deadlines.close()
        self.emit(
            "worker.stopped", worker=self.identity.id, cut_short=self.was_cut_short
        )

    def _build(self) -> None:
        plan, settings = self.config, self.config.settings
        self.hooks = HookRunner(plan.hooks, self.emit)
        has_hooks = bool(plan.hooks.by_kind)
        quotas = quotas_for(plan.serving, settings.worker.concurrency)
        lanes = Lanes(plan.namespace, plan.serving, quotas, self.clock.random)
        self._claims = ClaimLoop(
            store=self.store,
            clock=self.clock,
            emit=self.emit,
            identity=self.identity,
            namespace=plan.namespace,
            lanes=lanes,
            known=sorted(plan.handlers),
            is_burst=plan.is_burst,
            settings=settings.worker,
            on_broken=self._break,
        )
        self._outcomes = OutcomeBuffer(
            self.emit, self.hooks.notify, has_hooks=has_hooks
        )
        self._runner = AttemptRunner(
            clock=self.clock,
            executor=self._executor,
            settings=settings,
            middleware=plan.middleware,
            keeps=plan.keeps,
            worker_name=plan.name,
            report=self._report,
        )
        day = settings.worker.unknown_task_seconds
        versions = TaskVersions(self.store, self.clock, plan.tasks, day)
        self._slots = Slots(
            runner=self._runner,
            handlers=plan.handlers,
            outcomes=self._outcomes,
            emit=self.emit,
            nudge=self._claims.nudge,
            notify_hooks=self.hooks.notify,
            has_before="before" in plan.hooks.by_kind,
            on_too_many_abandoned=self._too_many_abandoned,
            versions=versions,
            quotas=quotas,
            sort=lanes.sort if plan.serving.is_strict else None,
        )
        self._claims.join(self._slots, self._outcomes)
        self._vitals = VitalsReporter(
            settings.worker, self._machine, self._slots, plan.send_message
        )
        parts = (self._side_loop, self._machine, self._slots, self._vitals.measure)
        orders = CommandResponder(self, *parts, self._child_pool)
        self._heartbeat = Heartbeat(
            store=self.store,
            clock=self.clock,
            emit=self.emit,
            identity=self.identity,
            lease_seconds=settings.worker.lease_seconds,
            interval_seconds=settings.worker.heartbeat_seconds,
            on_cancels=self._on_cancels,
            on_lost=self._on_lost,
            on_paused=self._on_paused,
            on_commands=orders.receive,
            measure=self._vitals.measure,
        )

    @asynccontextmanager
    async def _deps(self) -> AsyncGenerator[None, None]:
        if self.config.deps is None:
            yield
            return
        deps = Dependencies(self.config.deps, self.emit)
        async with AsyncExitStack() as stack:
            try:
                self._runner.deps = await stack.enter_async_context(deps)
            except Exception as error:
                self.deps_error = error
                raise
            yield

    def _children(self) -> AbstractAsyncContextManager[None]:
        self._runner.child_pool = self._child_pool
        if self._child_pool is not None:
            self._vitals.children = self._child_pool.vitals
        ahead = needs_child_pool(self.config.handlers, self.config.serving.serves)
        return open_child_pool(
            self._child_pool, ahead=ahead, broken=self._break, stop=self._stop
        )

    def _start_side_loop(self) -> None:
        grace = self.config.settings.worker.grace_seconds
        keeper = FailStop(self.clock, self._machine, self._break, grace)
        heart = self._heartbeat
        self._side_loop.start(keeper.guard("heartbeat", heart.run, heart.give_up))
        watchdog = Watchdog(
            store=self.store,
            clock=self.clock,
            emit=self.emit,
            machine=self._machine,
            running=self._slots.running,
            outcomes=self._outcomes,
            worker_id=lambda: self.identity.id,
            time_out=self._runner.timed_out,
            stopped=self._runner.stopped,
            hooks=self.hooks,
            deadlines=self._slots.deadlines,
            block_seconds=self.config.settings.worker.block_seconds,
            grace_seconds=grace,
        )
        self._side_loop.start(keeper.guard("watchdog", watchdog.run))

    # --- the work

    async def _work(self) -> None:
        poll = self.config.settings.worker.poll_seconds
        wakeup = WakeupLoop(
            self.store, self.clock, self.identity, poll, self._on_wakeup
        )
        async with asyncio.TaskGroup() as group:
            beside = [
                group.create_task(loop)
                for loop in (
                    wakeup.run(),
                    self._claims.keep_learning(poll),
                    self.hooks.run(),
                    *self._loops(self),
                )
            ]
            claims = group.create_task(self._claims.run())
            stop = group.create_task(self._stop.wait())
            await asyncio.wait((claims, stop), return_when=asyncio.FIRST_COMPLETED)
            if not claims.done():
                await self._drain(claims)
            stop.cancel()
            for task in beside:
                task.cancel()
        await self._leave()

    async def _drain(self, claims: "asyncio.Task[None]") -> None:
        """Let running jobs end, then cancel, then give back: all within the grace."""
        grace = self.config.settings.worker.grace_seconds
        self._registration.end()
        self.emit(
            "worker.stopping", worker=self.identity.id, running=len(self._slots.running)
        )
        self._slots.close()
        await self._until_idle(grace)
        if self._slots.running:
            self.was_cut_short = True
            self._slots.interrupt_all(InterruptReason.STOP)
            await self._until_idle(CANCEL_SECONDS)
            self._slots.release_all()
        self._claims.end()
        await asyncio.wait((claims,), timeout=FLUSH_SECONDS)
        # What the store never took will be run again, whatever came of it here.
        self.was_cut_short |= bool(len(self._outcomes) or self._outcomes.sent)
        claims.cancel()

    async def _abort(self) -> None:
        """End without a grace: in a program that lives on nothing may go on or stay."""
        self.was_cut_short = True
        self._slots.close()
        self._slots.interrupt_all(InterruptReason.STOP)
        await self._until_idle(CANCEL_SECONDS)
        self._slots.release_all()
        self._claims.end()
        with suppress(StoreError, TimeoutError):  # told by whoever met it first
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._claims.run()
        await self._leave()

    async def _until_idle(self, seconds: float) -> None:
        deadline, looks = self._loop.time() + seconds, 0
        while self._slots.running and self._loop.time() < deadline:
            if self._stop_now.is_set() and not self.was_cut_short:
                return
            if looks % LOOKS_PER_MESSAGE == 0:
                self._vitals.draining(deadline - self._loop.time())
            looks += 1
            await self.clock.sleep(DRAIN_LOOK_SECONDS)

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await self.hooks.drain()
        except TimeoutError:
            self.emit(
                "hook.failed", error="hooks were still waiting at the end: dropped"
            )
        try:
            # Bounded: a writer that is held up must not hold up a stop. Without our
            # word the lease ends by itself, and on this host our death is seen.
            async with asyncio.timeout(LEAVE_SECONDS):
                await self.store.leave(self.identity.id)
        except (StoreError, TimeoutError) as error:
            told = str(error) or "no answer in time"
            self.emit("store.failed", call="leave", error=told)

    def _too_many_abandoned(self, count: int) -> None:
        """Too much abandoned code hangs on here."""
        self._break(
            OperatingError(
                f"too many attempts ignore their end: {count} hang on",
                cure="See job.abandoned in the log; restart this process.",
            )
        )

    def _break(self, error: DurioError) -> None:
        """It cannot go on here: end, give everything back, let a new process begin."""
        if self.broken is None:
            self.broken = error
            self.emit("worker.broken", worker=self.identity.id, error=error.what)
            self.stop()

    # --- what comes in from the sides

    def _report(self, attempt: Attempt, told: bytes) -> None:
        if attempt.is_over:
            return
        claim, attempt.progress = attempt.claim, told
        self._outcomes.add_progress(
            Outcome(claim.id, claim.claim_no, OutcomeKind.PROGRESS, progress=told),
            attempt,
        )
        if attempt.transaction is None:
            self._claims.schedule_progress()

    def _begin(self, is_sync: bool) -> Coroutine[Any, Any, OwnTransaction]:  # noqa: FBT001
        """A task wants a transaction of its own."""
        return self.store.begin(self.identity.id, is_sync=is_sync)

    def _on_wakeup(self, wake: Wake) -> None:
        if wake.control and self._refreshing is None:
            # Somebody acted on our jobs: ask now, not at the next heartbeat.
            self._refreshing = self._loop.create_task(self._heartbeat.renew())
            self._refreshing.add_done_callback(self._refreshed)
        self._claims.on_wakeup(wake)

    def _refreshed(self, _task: "asyncio.Task[None]") -> None:
        self._refreshing = None

    def _on_cancels(self, cancels: list[tuple[bytes, int]]) -> None:
        """From the heartbeat's loop."""
        self._loop.call_soon_threadsafe(self._cancel, cancels)

    def _cancel(self, cancels: list[tuple[bytes, int]]) -> None:
        for job_id, claim_no in cancels:
            self._slots.cancel(job_id, claim_no)

    def _on_paused(self, lanes: frozenset[str]) -> None:
        """From the heartbeat's loop."""
        self._loop.call_soon_threadsafe(self._claims.pause, lanes)

    def _on_lost(self, worker: int) -> None:
        """From the heartbeat's loop."""
        self._loop.call_soon_threadsafe(self._lost, worker)

    def _lost(self, worker: int) -> None:
        """Fenced: nothing of ours may be written any more; start anew."""
        if worker != self.identity.id or not worker:
            return
        self.emit("worker.fenced", worker=worker, running=len(self._slots.running))
        self._slots.drop_all()
        self._outcomes.drop()
        self.identity.id = 0
        claims = self._claims
        self._registration.register_again(worker, claims.forget, claims.give_up)
