"""A worker: starts its parts in written order, drains, and leaves nothing behind.

1 dependencies are entered        5 the claim loop runs until told to stop
2 a lease is registered           6 no more claims; running jobs get their grace
3 heartbeat and watchdog, aside   7 the rest is cancelled and given back, uncharged
4 wakeups, hooks, maintenance     8 the last outcomes are flushed, the lease ends
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from durio.model.errors import StoreError
from durio.model.outcome import Keep, Kind, Outcome
from durio.model.settings import Settings
from durio.ports.clock import Clock
from durio.ports.executor import Aside, Executor
from durio.ports.handler import DepsFactory, Handler
from durio.ports.lease import WorkerInfo
from durio.ports.store import Store, Wake
from durio.telemetry.emit import Emit, JobEvent
from durio.worker.attempt import Bench
from durio.worker.claim import Claims
from durio.worker.finish import Outbox
from durio.worker.heartbeat import Heartbeat
from durio.worker.inflight import Attempt, Why
from durio.worker.middleware import DRAIN_SECONDS, HookRunner, Hooks, Middleware
from durio.worker.slots import Slots
from durio.worker.wakeup import Wakeup
from durio.worker.watchdog import Machine, Watchdog

CANCEL_SECONDS = 2.0  # for cancelled attempts to clean up
FLUSH_SECONDS = 10.0  # for the last outcomes to reach the store
DRAIN_LOOK_SECONDS = 0.02
LEAVE_SECONDS = 5.0

Loops = Callable[["Worker"], Sequence[Coroutine[Any, Any, None]]]


@dataclass(slots=True)
class Me:
    """The identity of a worker: a fenced one registers anew; id 0 is nobody yet."""

    id: int = 0
    renewed_at: float = 0.0


@dataclass(slots=True, kw_only=True)
class Plan:
    """What a worker is told: whom to serve, with what."""

    namespace: str
    name: str
    host: str
    pid: int
    version: str
    queues: tuple[str, ...] | None
    handlers: Mapping[str, Handler]
    tasks: Mapping[str, Mapping[str, Any]]
    settings: Settings
    keeps: Mapping[str, Keep] = field(default_factory=dict[str, Keep])  # by lane
    middleware: Sequence[Middleware] = ()
    hooks: Hooks = field(default_factory=Hooks)
    deps: DepsFactory | None = None
    is_burst: bool = False


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
    ) -> None:
        self.plan = plan
        self.store = store
        self.clock = clock
        self.emit = emit
        self._executor = executor
        self._aside = aside
        self._machine = machine
        self._loops = loops
        self.me = Me()
        self.was_cut_short = False
        self.is_overwhelmed = False
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._refreshing: asyncio.Task[None] | None = None
        self._registering: asyncio.Task[None] | None = None

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

    async def run(self) -> None:
        """Work until `stop`, or, in a burst, until nothing is left."""
        self._build()
        async with self._deps():
            if not await self._register_unless_stopped():
                return
            self._start_aside()
            self.emit(
                "worker.started",
                worker=self.me.id,
                process=self.plan.name,
                queues=",".join(self.plan.queues or ("*",)),
                concurrency=self._slots.concurrency,
            )
            try:
                await self._work()
            finally:
                await self._aside.stop()
                self._executor.close()
                self._slots.deadlines.close()
        self.emit("worker.stopped", worker=self.me.id, cut_short=self.was_cut_short)

    def _build(self) -> None:
        plan, settings = self.plan, self.plan.settings
        self.hooks = HookRunner(plan.hooks, self.emit)
        has_hooks = bool(plan.hooks.by_kind)
        self._claims = Claims(
            store=self.store,
            clock=self.clock,
            emit=self.emit,
            me=self.me,
            namespace=plan.namespace,
            queues=plan.queues,
            known=sorted(plan.handlers),
            is_burst=plan.is_burst,
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
        self._slots = Slots(
            bench=self._bench,
            handlers=plan.handlers,
            outbox=self._outbox,
            emit=self.emit,
            nudge=self._claims.nudge,
            tell_hooks=self.hooks.tell,
            has_before="before" in plan.hooks.by_kind,
            overwhelmed=self._overwhelm,
        )
        self._claims.join(self._slots, self._outbox)
        self._heartbeat = Heartbeat(
            store=self.store,
            clock=self.clock,
            emit=self.emit,
            me=self.me,
            lease_seconds=settings.worker.lease_seconds,
            interval_seconds=settings.worker.heartbeat_seconds,
            on_cancels=self._hear_cancels,
            on_lost=self._hear_loss,
        )

    @asynccontextmanager
    async def _deps(self) -> AsyncGenerator[None, None]:
        if self.plan.deps is None:
            yield
            return
        async with self.plan.deps() as deps:
            self._bench.deps = deps
            yield

    async def _register_unless_stopped(self) -> bool:
        """A stop need not wait for a store that is held up."""
        register = self._loop.create_task(self._register())
        stop = self._loop.create_task(self._stop.wait())
        await asyncio.wait((register, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not register.done():
            register.cancel()
            return False
        register.result()
        return True

    async def _register(self) -> None:
        plan, began = self.plan, self.clock.monotonic()
        info = WorkerInfo(
            namespace=plan.namespace,
            name=plan.name,
            host=plan.host,
            pid=plan.pid,
            queues=plan.queues,
            concurrency=self._slots.concurrency,
            version=plan.version,
            tasks=plan.tasks,
        )
        self.me.id = await self.store.register(info, plan.settings.worker.lease_seconds)
        self.me.renewed_at = began

    def _start_aside(self) -> None:
        self._aside.start(self._heartbeat.run)
        watchdog = Watchdog(
            store=self.store,
            clock=self.clock,
            emit=self.emit,
            machine=self._machine,
            running=self._slots.running,
            worker_id=lambda: self.me.id,
            time_out=lambda attempt: self._bench.timed_out(attempt)[0],
            block_seconds=self.plan.settings.worker.block_seconds,
        )
        self._aside.start(watchdog.run)

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
        if self._registering is not None:
            self._registering.cancel()
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
        claims.cancel()

    async def _until_idle(self, seconds: float) -> None:
        deadline = self._loop.time() + seconds
        while self._slots.running and self._loop.time() < deadline:
            if self._stop_now.is_set() and not self.was_cut_short:
                return
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

    def _overwhelm(self) -> None:
        """Too much abandoned code hangs on here: end, and let a new process begin."""
        self.is_overwhelmed = True
        count = self.plan.settings.worker.abandoned_max
        self.emit("worker.overwhelmed", worker=self.me.id, abandoned=count)
        self.stop()

    # --- what comes in from the sides

    def _report(self, attempt: Attempt, told: bytes) -> None:
        if attempt.is_over:
            return
        claim = attempt.claim
        self._outbox.note(
            Outcome(claim.id, claim.claim_no, Kind.PROGRESS, progress=told), attempt
        )
        self._claims.note_progress()

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
        self._registering = self._loop.create_task(self._register_anew(worker))

    async def _register_anew(self, old: int) -> None:
        pause = 0.1
        while True:
            try:
                # What the old name still holds, here or in the store, is given back.
                await self.store.leave(old)
                await self._register()
                break
            except StoreError as error:
                self.emit("store.failed", call="register", error=str(error))
                await self.clock.sleep(pause * (0.5 + self.clock.random() / 2))
                pause = min(pause * 2, 5.0)
        self._claims.forget()


def dead_event(left: Any, name: str) -> JobEvent:
    """The event of a job that left `running` by a rescuer's hand."""
    return JobEvent(
        name=name,
        id=left.id,
        task=left.task,
        lane=left.lane,
        attempt=left.attempt,
        reason=left.reason or "",
        worker=str(left.worker),
    )
