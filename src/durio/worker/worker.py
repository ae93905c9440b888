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
from durio.model.outcome import Kind, Outcome
from durio.ports.clock import Clock
from durio.ports.executor import Aside, Executor, Nursery
from durio.ports.store import Store, Wake
from durio.ports.transactions import OwnTransaction
from durio.telemetry.emit import Emit
from durio.worker.attempt import Bench
from durio.worker.beside import Keeper
from durio.worker.claim import Claims
from durio.worker.deps import Dependencies
from durio.worker.errand import cared_for, wants_children
from durio.worker.finish import Outbox
from durio.worker.heartbeat import Heartbeat
from durio.worker.inflight import Attempt, Why
from durio.worker.lanes import Lanes
from durio.worker.middleware import DRAIN_SECONDS, HookRunner
from durio.worker.orders import Orders
from durio.worker.plan import Me, Plan
from durio.worker.pulse import Pulse
from durio.worker.quotas import quotas_for
from durio.worker.register import Registration
from durio.worker.slots import Slots
from durio.worker.versions import Versions
from durio.worker.wakeup import Wakeup
from durio.worker.watchdog import Machine, Watchdog

CANCEL_SECONDS = 2.0  # for cancelled attempts to clean up
FLUSH_SECONDS = 10.0  # for the last outcomes to reach the store
DRAIN_LOOK_SECONDS = 0.02
LOOKS_PER_NOTE = 25
LEAVE_SECONDS = 5.0

Loops = Callable[["Worker"], Sequence[Coroutine[Any, Any, None]]]


class Worker:
    """Claims jobs and makes attempts until it is told to stop."""

    def __init__(  # noqa: PLR0913 - the ports of a worker, handed over by the app
        self,
        plan: Plan,
        *,
        store: Store,
        clock: Clock,
        emit: Emit,
        executor: Executor,
        aside: Aside,
        machine: Machine,
        loops: Loops,
        nursery: Nursery | None = None,
    ) -> None:
        self.plan = plan
        self.store = store
        self.clock = clock
        self.emit = emit
        self._executor = executor
        self._aside = aside
        self._machine = machine
        self._loops = loops
        self._nursery = nursery
        self.me = Me()
        self.was_cut_short = False
        self.broken: DurioError | None = None  # why it cannot go on in this process
        self.deps_error: Exception | None = None  # the user's, at the start
        self.started = asyncio.Event()  # it has a lease
        self.looks = asyncio.Event()  # somebody may have died on this host
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._refreshing: asyncio.Task[None] | None = None
        self._registration = Registration(store, clock, emit, plan, self.me)

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

    def drain_by_order(self) -> None:
        """Drain because somebody asked through the store; nobody comes after us."""
        self._pulse.ordered()
        if not self._stop.is_set():
            self.stop()

    async def run(self) -> None:
        """Work until `stop`, or, in a burst, until nothing is left."""
        self._build()
        self._bench.host_task = asyncio.current_task()
        self._bench.begin = self._begin
        async with self._deps(), self._children():
            if not await self._registration.unless(self._stop):
                return
            self._start_aside()
            self.started.set()
            self.emit(
                "worker.started",
                worker=self.me.id,
                process=self.plan.name,
                queues=",".join(self.plan.serving.told_of or ("*",)),
                concurrency=self._slots.concurrency,
            )
            self._pulse.ready(len(self.plan.handlers))
            try:
                await self._work()
            except BaseException:  # the loop ends around us, or a part of us is broken
                await self._cut_off()
                raise
            finally:
                await self._aside.stop()
                self._executor.close()
                self._slots.deadlines.close()
        self.emit("worker.stopped", worker=self.me.id, cut_short=self.was_cut_short)

    def _build(self) -> None:
        plan, settings = self.plan, self.plan.settings
        self.hooks = HookRunner(plan.hooks, self.emit)
        has_hooks = bool(plan.hooks.by_kind)
        quotas = quotas_for(plan.serving, settings.worker.concurrency)
        lanes = Lanes(plan.namespace, plan.serving, quotas, self.clock.random)
        self._claims = Claims(
            store=self.store,
            clock=self.clock,
            emit=self.emit,
            me=self.me,
            namespace=plan.namespace,
            lanes=lanes,
            known=sorted(plan.handlers),
            is_burst=plan.is_burst,
            settings=settings.worker,
            broken=self._break,
        )
        self._outbox = Outbox(self.emit, self.hooks.tell, has_hooks=has_hooks)
        self._bench = Bench(
            clock=self.clock,
            executor=self._executor,
            settings=settings,
            middleware=plan.middleware,
            keeps=plan.keeps,
            worker_name=plan.name,
            report=self._report,
        )
        day = settings.worker.unknown_task_seconds
        versions = Versions(self.store, self.clock, plan.tasks, day)
        self._slots = Slots(
            bench=self._bench,
            handlers=plan.handlers,
            outbox=self._outbox,
            emit=self.emit,
            nudge=self._claims.nudge,
            tell_hooks=self.hooks.tell,
            has_before="before" in plan.hooks.by_kind,
            overwhelmed=self._overwhelm,
            versions=versions,
            quotas=quotas,
            sort=lanes.sort if plan.serving.is_strict else None,
        )
        self._claims.join(self._slots, self._outbox)
        self._pulse = Pulse(settings.worker, self._machine, self._slots, plan.tell)
        parts = (self._aside, self._machine, self._slots, self._pulse.measure)
        orders = Orders(self, *parts, self._nursery)
        self._heartbeat = Heartbeat(
            store=self.store,
            clock=self.clock,
            emit=self.emit,
            me=self.me,
            lease_seconds=settings.worker.lease_seconds,
            interval_seconds=settings.worker.heartbeat_seconds,
            on_cancels=self._hear_cancels,
            on_lost=self._hear_loss,
            on_paused=self._hear_pause,
            on_orders=orders.hear,
            measure=self._pulse.measure,
        )

    @asynccontextmanager
    async def _deps(self) -> AsyncGenerator[None, None]:
        if self.plan.deps is None:
            yield
            return
        deps = Dependencies(self.plan.deps, self.emit)
        async with AsyncExitStack() as stack:
            try:
                self._bench.deps = await stack.enter_async_context(deps)
            except Exception as error:
                self.deps_error = error
                raise
            yield

    def _children(self) -> AbstractAsyncContextManager[None]:
        self._bench.nursery = self._nursery
        if self._nursery is not None:
            self._pulse.children = self._nursery.vitals
        ahead = wants_children(self.plan.handlers, self.plan.serving.serves)
        return cared_for(
            self._nursery, ahead=ahead, broken=self._break, stop=self._stop
        )

    def _start_aside(self) -> None:
        grace = self.plan.settings.worker.grace_seconds
        keeper = Keeper(self.clock, self._machine, self._break, grace)
        heart = self._heartbeat
        self._aside.start(keeper.keeps("heartbeat", heart.run, heart.give_up))
        watchdog = Watchdog(
            store=self.store,
            clock=self.clock,
            emit=self.emit,
            machine=self._machine,
            running=self._slots.running,
            outbox=self._outbox,
            worker_id=lambda: self.me.id,
            time_out=self._bench.timed_out,
            stopped=self._bench.stopped,
            hooks=self.hooks,
            deadlines=self._slots.deadlines,
            block_seconds=self.plan.settings.worker.block_seconds,
            grace_seconds=grace,
        )
        self._aside.start(keeper.keeps("watchdog", watchdog.run))

    # --- the work

    async def _work(self) -> None:
        poll = self.plan.settings.worker.poll_seconds
        wakeup = Wakeup(self.store, self.clock, self.me, poll, self._woken)
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
        grace = self.plan.settings.worker.grace_seconds
        self._registration.end()
        self.emit(
            "worker.stopping", worker=self.me.id, running=len(self._slots.running)
        )
        self._slots.close()
        await self._until_idle(grace)
        if self._slots.running:
            self.was_cut_short = True
            self._slots.interrupt_all(Why.STOP)
            await self._until_idle(CANCEL_SECONDS)
            self._slots.release_all()
        self._claims.end()
        await asyncio.wait((claims,), timeout=FLUSH_SECONDS)
        # What the store never took will be run again, whatever came of it here.
        self.was_cut_short |= bool(len(self._outbox) or self._outbox.sent)
        claims.cancel()

    async def _cut_off(self) -> None:
        """End without a grace: in a program that lives on nothing may go on or stay."""
        self.was_cut_short = True
        self._slots.close()
        self._slots.interrupt_all(Why.STOP)
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
            if looks % LOOKS_PER_NOTE == 0:
                self._pulse.draining(deadline - self._loop.time())
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
                await self.store.leave(self.me.id)
        except (StoreError, TimeoutError) as error:
            told = str(error) or "no answer in time"
            self.emit("store.failed", call="leave", error=told)

    def _overwhelm(self, count: int) -> None:
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
            self.emit("worker.broken", worker=self.me.id, error=error.what)
            self.stop()

    # --- what comes in from the sides

    def _report(self, attempt: Attempt, told: bytes) -> None:
        if attempt.is_over:
            return
        claim, attempt.progress = attempt.claim, told
        self._outbox.note(
            Outcome(claim.id, claim.claim_no, Kind.PROGRESS, progress=told), attempt
        )
        if attempt.transaction is None:
            self._claims.note_progress()

    def _begin(self, is_sync: bool) -> Coroutine[Any, Any, OwnTransaction]:  # noqa: FBT001
        """A task wants a transaction of its own."""
        return self.store.begin(self.me.id, is_sync=is_sync)

    def _woken(self, wake: Wake) -> None:
        if wake.control and self._refreshing is None:
            # Somebody acted on our jobs: ask now, not at the next heartbeat.
            self._refreshing = self._loop.create_task(self._heartbeat.renew())
            self._refreshing.add_done_callback(self._refreshed)
        self._claims.woken(wake)

    def _refreshed(self, _task: "asyncio.Task[None]") -> None:
        self._refreshing = None

    def _hear_cancels(self, cancels: list[tuple[bytes, int]]) -> None:
        """From the heartbeat's loop."""
        self._loop.call_soon_threadsafe(self._cancel, cancels)

    def _cancel(self, cancels: list[tuple[bytes, int]]) -> None:
        for job_id, claim_no in cancels:
            self._slots.cancel(job_id, claim_no)

    def _hear_pause(self, lanes: frozenset[str]) -> None:
        """From the heartbeat's loop."""
        self._loop.call_soon_threadsafe(self._claims.pause, lanes)

    def _hear_loss(self, worker: int) -> None:
        """From the heartbeat's loop."""
        self._loop.call_soon_threadsafe(self._lost, worker)

    def _lost(self, worker: int) -> None:
        """Fenced: nothing of ours may be written any more; start anew."""
        if worker != self.me.id or not worker:
            return
        self.emit("worker.fenced", worker=worker, running=len(self._slots.running))
        self._slots.lose_all()
        self._outbox.drop()
        self.me.id = 0
        claims = self._claims
        self._registration.again(worker, claims.forget, claims.give_up)
