"""Build a worker for an App from its parts: clock, threads, child processes, loops."""

import platform
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from durio.app.app import App
from durio.app.origin import origin_of
from durio.client.bulk_runner import BulkRunner
from durio.client.limit_store import read_limits
from durio.client.plan_prepare import PlanPreparer
from durio.client.tick_maker import ClientTickMaker
from durio.host.child_log import wanted_level
from durio.host.child_pool import ChildProcessPool
from durio.host.child_wire import Setup
from durio.host.executors import ThreadExecutor
from durio.host.processes import cores
from durio.host.side_loop import ThreadSideLoop, WorkerMachine
from durio.host.signals import ProcessName, process_name
from durio.maintenance.backfills import BackfillKeeper
from durio.maintenance.breakers import BreakerKeeper
from durio.maintenance.expirer import Expirer
from durio.maintenance.leader import Leader
from durio.maintenance.limit_keeper import LimitKeeper
from durio.maintenance.loop import run_forever
from durio.maintenance.plans import PlanKeeper
from durio.maintenance.promoter import Promoter
from durio.maintenance.pruner import Pruner
from durio.maintenance.rescuer import Rescuer
from durio.maintenance.soft_bound import SoftBound
from durio.maintenance.ticker import Ticker
from durio.maintenance.undeclared import UndeclaredSchedules
from durio.model.job import CANCELLED, DEAD
from durio.model.names import queue_of
from durio.model.outcome import RescuedJob
from durio.model.queues import Serving, parse_serving
from durio.model.settings import Settings
from durio.model.version import __version__
from durio.ports.executor import ChildPool, Executor, SideLoop
from durio.ports.fleet import SendProcessMessage
from durio.ports.store import Store
from durio.telemetry.emit import JobEvent
from durio.telemetry.log import install_job_fields
from durio.telemetry.names import JOB_CANCELLED, JOB_DEAD, JOB_RESCUED
from durio.worker.breakers import Breakers
from durio.worker.build import WorkerBuilder, WorkerPorts
from durio.worker.burst_end import BurstRules
from durio.worker.error_counts import ErrorCounter
from durio.worker.outcome_buffer import rescued_event
from durio.worker.spending import BudgetSettler
from durio.worker.watchdog import Machine
from durio.worker.worker import Worker
from durio.worker.worker_config import WorkerConfig

Turn = Callable[[], Awaitable[float]]
RESCUED_NAMES = {DEAD: JOB_DEAD, CANCELLED: JOB_CANCELLED}


async def make_worker(  # noqa: PLR0913 - the options and parts of a worker
    app: App,
    *,
    queues: Sequence[str] | None = None,
    weights: Sequence[str] = (),
    prefetches: Sequence[str] = (),
    concurrency: int | None = None,
    is_burst: bool = False,
    waits_for_gates: bool = True,
    executor: Executor | None = None,
    side_loop: SideLoop | None = None,
    machine: Machine | None = None,
    settings: Settings | None = None,
    child_pool: ChildPool | None = None,
    send_message: SendProcessMessage | None = None,
    process: ProcessName | None = None,
    on_busy_threads: Callable[[bool], None] | None = None,
) -> Worker:
    """Return a worker that serves these queues of the App, or all of them.

    `queues` may give slots, as in `high=4`, and globs; `weights` and `prefetches` have the
    form `high=6`. The default of `concurrency` is the sum of the slots if every queue has
    some, else the setting. `waits_for_gates` is for a burst.
    """
    install_job_fields()
    store = await declare_at_start(app)
    settings = settings or app.settings
    served = parse_serving(
        queues,
        weights=weights,
        prefetches=prefetches,
        declared=app.registry.queues,
        is_strict=settings.worker.strict,
    )
    stored = [queue_of(row.name) for row in await store.queues(app.name)]
    served.check({*app.registry.queue_names(), *stored})
    total = served.concurrency(concurrency, settings.worker.concurrency)
    settings = with_concurrency(settings, total)
    config = worker_config(app, settings, served, process or process_name())
    kept_seconds = settings.retention.dead_seconds
    plans = PlanKeeper(store, app.clock, app.emit, app.name, kept_seconds)
    plans.gates_of = ClientTickMaker(app).gates_of_handler
    burst = BurstRules(plans.handle_ends, waits_for_gates) if is_burst else None
    config = replace(config, burst=burst, send_message=send_message)
    writers = event_writers(app, store)
    ports = WorkerPorts(
        store=store,
        clock=app.clock,
        emit=writers[0],
        executor=executor
        or ThreadExecutor(settings.worker.concurrency, on_busy_threads),
        side_loop=side_loop or ThreadSideLoop(),
        machine=machine or WorkerMachine(),
        child_pool=child_pool or make_child_pool(app, settings, config.name),
    )
    turns = {"plans": plans.turn, **declared_turns(app, store)}
    worker = WorkerBuilder(config, ports).build(partial(all_loops, turns, writers))
    return await with_breakers(worker, is_burst=is_burst)


async def declare_at_start(app: App) -> Store:
    """Write what the code declares to the store, and return it."""
    await app.declare_bounds()
    await app.declare_limits()
    await app.schedules.declare_at_start()
    return await app.store()


def event_writers(app: App, store: Store) -> tuple[ErrorCounter, BudgetSettler]:
    """Return what writes to the store after events of jobs; the first gets the events."""
    budgets = BudgetSettler(store, app.clock, app.emit)
    emit, version = app.emit, app.version
    errors = ErrorCounter(store, app.clock, emit, app.name, version, budgets.add)
    return errors, budgets


def all_loops(
    turns_of_leader: Mapping[str, Turn],
    writers: tuple[ErrorCounter, BudgetSettler],
    worker: Worker,
) -> list[Coroutine[Any, Any, None]]:
    """Return the loops that a worker runs beside its jobs."""
    names = ("errors", "budgets")
    loops = [write_forever(*each, worker) for each in zip(names, writers, strict=True)]
    if worker.breakers is not None:
        loops.append(write_forever("breakers", worker.breakers, worker))
    turns = {**turns_of_leader, "breaker_looks": breaker_keeper(worker).turn}
    return [*loops, *maintenance_loops(turns, worker)]


async def write_forever(
    name: str, writer: ErrorCounter | BudgetSettler | Breakers, worker: Worker
) -> None:
    """Write what events of jobs lead to while the worker runs, and the rest at its end."""
    try:
        await run_forever(name, writer.turn, worker.clock, worker.emit)
    finally:
        await writer.close()


async def with_breakers(worker: Worker, *, is_burst: bool) -> Worker:
    """Return the worker after it has stored the numbers of its breakers."""
    if worker.breakers is not None:
        await worker.breakers.declare()
        if is_burst:  # it ends when no job is ready: no leader would look in time
            await breaker_keeper(worker).turn()
    return worker


def declared_turns(app: App, store: Store) -> dict[str, Turn]:
    """Return what the leader does for schedules and limits."""
    parts = (store, app.clock, app.emit, app.name)
    maker = ClientTickMaker(app)
    return {
        "ticker": Ticker(*parts, maker).turn,
        "backfills": BackfillKeeper(*parts, maker).turn,
        "undeclared": UndeclaredSchedules(*parts).turn,
        "bulk_runs": BulkRunner(app).turn,
        "limits": LimitKeeper(store, lambda: read_limits(store, app.name)).turn,
    }


def worker_config(
    app: App, settings: Settings, served: Serving, process: ProcessName
) -> WorkerConfig:
    host, pid = process
    return WorkerConfig(
        namespace=app.name,
        name=f"{host}/{pid}",
        host=host,
        pid=pid,
        version=__version__,
        python=platform.python_version(),
        code_version=app.version,
        serving=served,
        handlers=app.registry.by_name,
        keeps=app.registry.queue_keeps(),
        tasks=app.registry.published(),
        settings=settings,
        plans=PlanPreparer(app, app.registry.by_name),
        breakers=app.breakers,
        schedules=tuple(app.schedules.declared),
        middleware=(*app.state.middleware, *app.middleware),
        hooks=app.hooks,
        deps=app.deps,
        has_time_limits=app.state.has_time_limits,
    )


def make_child_pool(app: App, settings: Settings, name: str) -> ChildPool | None:
    """Return a pool for tasks with process=True; None without such tasks, or in a test."""
    tasks = app.registry.handlers.values()
    if not app.state.starts_children or not any(task.is_process for task in tasks):
        return None
    setup = Setup(
        origin=origin_of(app),
        url=app.url,
        folder=app.folder,
        settings=settings,
        worker=name,
        log_level=wanted_level(),
    )
    worker = settings.worker
    return ChildProcessPool(
        setup,
        app.emit,
        count=worker.children or max(1, cores() // max(1, worker.processes)),
        jobs_max=worker.child_jobs,
        rss_max=worker.child_rss_bytes,
    )


def with_concurrency(settings: Settings, concurrency: int) -> Settings:
    worker = msgspec.structs.replace(settings.worker, concurrency=concurrency)
    return msgspec.structs.replace(settings, worker=worker)


def maintenance_loops(
    turns_of_leader: Mapping[str, Turn], worker: Worker
) -> list[Coroutine[Any, Any, None]]:
    """Return the loops that run in every worker: any may lead, all rescue on their host."""
    store, clock, emit = worker.store, worker.clock, worker.emit
    settings = worker.config.settings
    heartbeat_seconds = settings.worker.heartbeat_seconds
    leader = Leader(
        store,
        clock,
        emit,
        lambda: worker.identity.id,
        lambda: worker.identity.is_fresh(clock.monotonic(), heartbeat_seconds),
        # One leader per App, because its hooks run for jobs that a rescue makes dead.
        name=f"upkeep:{worker.config.namespace}",
        lease_seconds=settings.worker.leader_seconds,
    )
    rescuer = Rescuer(
        store,
        emit,
        lambda left: report_rescued(worker, left),
        worker.config.namespace,
        lambda: worker.identity.may_rescue(clock.monotonic(), heartbeat_seconds),
        interval_seconds=settings.worker.rescue_seconds,
        this_host_seconds=settings.worker.life_seconds,
    )
    promoter = Promoter(store)
    expirer = Expirer(
        store, worker.config.namespace, lambda events: report(worker, events)
    )
    soft_bound = SoftBound(
        store, clock, settings.queue.soft_max, worker.config.namespace
    )
    pruner = Pruner(store, clock, emit, settings.retention.dead_count)

    async def look() -> float:
        """Rescue at once when the supervisor reports a death on this host."""
        await worker.check_deaths.wait()
        worker.check_deaths.clear()
        await rescuer.turn_this_host()
        return 0.0

    turns = {
        "promoter": leader.while_leading(promoter.turn, 1.0),
        "rescuer": leader.while_leading(rescuer.turn, 1.0),
        "here": rescuer.turn_this_host,
        "look": look,
        "pruner": leader.while_leading(pruner.turn, 5.0),
        "expirer": leader.while_leading(expirer.turn, 1.0),
        "gauge": leader.while_leading(soft_bound.turn, 1.0),
    }
    turns |= {
        name: leader.while_leading(turn, 1.0) for name, turn in turns_of_leader.items()
    }
    loops = [run_forever(name, turn, clock, emit) for name, turn in turns.items()]
    return [leader.run(), *loops]


def breaker_keeper(worker: Worker) -> BreakerKeeper:
    namespace, notify = worker.config.namespace, worker.hooks.notify_breaker
    return BreakerKeeper(worker.store, worker.emit, namespace, notify)


def report_rescued(worker: Worker, rescued: Sequence[RescuedJob]) -> None:
    events = [
        rescued_event(one, RESCUED_NAMES.get(one.state, JOB_RESCUED)) for one in rescued
    ]
    report(worker, events)


def report(worker: Worker, events: Sequence[JobEvent]) -> None:
    worker.emit.jobs(events)
    worker.hooks.notify(events)
