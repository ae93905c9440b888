"""Build a worker: every part once, in the order in which they need each other.

No part is changed from outside after it is built; what a part must call is passed to it.
Two things exist only when the worker runs: the entered dependencies, and the task that runs
the worker. `Worker.run` passes them on with `AttemptRunner.start`.

Build a worker on the event loop that runs it, because its parts keep that loop.
"""

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from durio.ports.clock import Clock
from durio.ports.executor import ChildPool, Executor, SideLoop
from durio.ports.store import Store
from durio.ports.transactions import OwnTransaction
from durio.telemetry.emit import Emit
from durio.worker.batch_runner import BatchRunner
from durio.worker.breakers import Breakers
from durio.worker.burst_end import BurstEnd
from durio.worker.claim import ClaimLoop
from durio.worker.first_steps import LeaseCheck
from durio.worker.heartbeat import Heartbeat, VitalsReporter
from durio.worker.lanes import Lanes, quotas_for
from durio.worker.lease_events import LeaseEvents
from durio.worker.loop_lag import LoopLag
from durio.worker.middleware import HookRunner
from durio.worker.outcome_buffer import OutcomeBuffer
from durio.worker.plan_changes import PlanChanges
from durio.worker.register import Registration
from durio.worker.side_loop import FailStop
from durio.worker.slots import Slots
from durio.worker.stop_control import StopControl
from durio.worker.unrunnable import TaskVersions
from durio.worker.wakeup import WakeupLoop
from durio.worker.watchdog import Machine, Watchdog
from durio.worker.worker import MaintenanceLoops, Worker
from durio.worker.worker_commands import CommandResponder
from durio.worker.worker_config import WorkerConfig, WorkerIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPorts:
    """The ports that a worker uses."""

    store: Store
    clock: Clock
    emit: Emit
    executor: Executor
    side_loop: SideLoop
    machine: Machine
    child_pool: ChildPool | None  # None: tasks with process=True run in threads


class WorkerBuilder:
    """Builds one worker."""

    def __init__(self, config: WorkerConfig, ports: WorkerPorts) -> None:
        self._config = config
        self._settings = config.settings.worker
        self._ports = ports
        self._store, self._clock, self._emit = ports.store, ports.clock, ports.emit
        self._identity = WorkerIdentity()
        self._lag = LoopLag(ports.clock)
        self._stop = StopControl(ports.emit, self._identity)
        self._hooks = HookRunner(config.hooks, ports.emit)
        self._outcomes = OutcomeBuffer(
            ports.emit, self._hooks.notify, has_hooks=bool(config.hooks.by_kind)
        )
        self._plan_changes = PlanChanges(ports.store, ports.clock)
        self._breakers = self._build_breakers()
        self._quotas = quotas_for(config.serving, self._settings.concurrency)
        self._lanes = Lanes(
            config.namespace, config.serving, self._quotas, ports.clock.random
        )

    def build(self, loops: MaintenanceLoops) -> Worker:
        """Build and return the complete worker."""
        config, ports, settings = self._config, self._ports, self._settings
        registration = Registration(
            self._store, self._clock, self._emit, config, self._identity
        )
        claims = self._build_claim_loop()
        slots = claims.slots
        vitals = VitalsReporter(
            settings,
            ports.machine,
            slots,
            config.send_message,
            None if ports.child_pool is None else ports.child_pool.vitals,
            self._lag.seconds,
        )
        events = LeaseEvents(
            self._emit, self._identity, registration, slots, self._outcomes, claims
        )
        commands = self._build_commands(slots, vitals)
        heartbeat = self._build_heartbeat(events, commands, vitals)
        return Worker(
            config=config,
            store=self._store,
            clock=self._clock,
            emit=self._emit,
            executor=ports.executor,
            side_loop=ports.side_loop,
            child_pool=ports.child_pool,
            loops=loops,
            identity=self._identity,
            stop_control=self._stop,
            registration=registration,
            hooks=self._hooks,
            breakers=self._breakers,
            outcomes=self._outcomes,
            slots=slots,
            claims=claims,
            vitals=vitals,
            heartbeat=heartbeat,
            watchdog=self._build_watchdog(slots),
            fail_stop=FailStop(
                self._clock, ports.machine, self._stop.fail, settings.grace_seconds
            ),
            wakeup=WakeupLoop(
                self._store,
                self._clock,
                self._identity,
                settings.poll_seconds,
                heartbeat.renew,
                claims.on_wakeup,
            ),
        )

    # --- claims, slots and attempts

    def _build_claim_loop(self) -> ClaimLoop:
        return ClaimLoop(
            store=self._store,
            clock=self._clock,
            emit=self._emit,
            identity=self._identity,
            namespace=self._config.namespace,
            lanes=self._lanes,
            known=sorted(self._config.handlers),
            burst_end=self._build_burst_end(),
            settings=self._settings,
            input_bytes_max=self._config.settings.plan.input_bytes_max,
            on_broken=self._stop.fail,
            outcomes=self._outcomes,
            make_slots=self._build_slots,
        )

    def _build_burst_end(self) -> BurstEnd | None:
        namespace, rules = self._config.namespace, self._config.burst
        if rules is None:
            return None
        serves = self._lanes.serves
        return BurstEnd(self._store, self._clock, namespace, serves, rules, self._emit)

    def _build_slots(self, claims: ClaimLoop) -> Slots:
        """Build the slots; the claim loop calls this, because the two call each other."""
        config = self._config
        return Slots(
            runner=self._build_runner(claims),
            lease=LeaseCheck(self._identity, self._clock, self._settings.lease_seconds),
            handlers=config.handlers,
            outcomes=self._outcomes,
            emit=self._emit,
            nudge=claims.nudge,
            notify_hooks=self._hooks.notify,
            has_before="before" in config.hooks.by_kind,
            on_too_many_abandoned=self._stop.fail_abandoned,
            versions=TaskVersions(
                self._store,
                self._clock,
                config.tasks,
                self._settings.unknown_task_seconds,
            ),
            plan_changes=self._plan_changes,
            quotas=self._quotas,
            sort=self._lanes.sort if config.serving.is_strict else None,
            has_time_limits=config.has_time_limits,
        )

    def _build_runner(self, claims: ClaimLoop) -> BatchRunner:
        config = self._config
        return BatchRunner(
            clock=self._clock,
            executor=self._ports.executor,
            settings=config.settings,
            middleware=config.middleware,
            keeps=config.keeps,
            worker_name=config.name,
            report=claims.report_progress,
            plans=config.plans,
            begin=self._begin_transaction,
            plan_changes=self._plan_changes,
            child_pool=self._ports.child_pool,
            breakers=self._breakers,
        )

    def _build_breakers(self) -> Breakers | None:
        config = self._config
        if not config.breakers:
            return None
        return Breakers(
            self._store,
            self._clock,
            self._emit,
            config.namespace,
            config.breakers,
            self._hooks.notify_breaker,
        )

    def _begin_transaction(self, is_sync: bool) -> Coroutine[Any, Any, OwnTransaction]:  # noqa: FBT001
        # The id is read at each call, because a fenced worker registers again.
        return self._store.transaction(self._identity.id, is_sync=is_sync)

    # --- outside the worker's loop

    def _build_commands(self, slots: Slots, vitals: VitalsReporter) -> CommandResponder:
        return CommandResponder(
            store=self._store,
            clock=self._clock,
            emit=self._emit,
            identity=self._identity,
            config=self._config,
            stop_control=self._stop,
            side_loop=self._ports.side_loop,
            machine=self._ports.machine,
            slots=slots,
            vitals=vitals,
            child_pool=self._ports.child_pool,
        )

    def _build_heartbeat(
        self, events: LeaseEvents, commands: CommandResponder, vitals: VitalsReporter
    ) -> Heartbeat:
        return Heartbeat(
            store=self._store,
            clock=self._clock,
            emit=self._emit,
            identity=self._identity,
            lease_seconds=self._settings.lease_seconds,
            interval_seconds=self._settings.heartbeat_seconds,
            on_cancels=events.on_cancels,
            on_lost=events.on_lost,
            on_paused=events.on_paused,
            on_commands=commands.receive,
            measure=vitals.measure,
        )

    def _build_watchdog(self, slots: Slots) -> Watchdog:
        return Watchdog(
            store=self._store,
            clock=self._clock,
            emit=self._emit,
            machine=self._ports.machine,
            running=slots.running,
            outcomes=self._outcomes,
            worker_id=lambda: self._identity.id,
            time_out=slots.runner.timed_out,
            stopped=slots.runner.stopped,
            hooks=self._hooks,
            deadlines=slots.deadlines,
            lag=self._lag,
            block_seconds=self._settings.block_seconds,
            grace_seconds=self._settings.grace_seconds,
        )
