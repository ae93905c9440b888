"""Build a worker for an App from its parts: clock, threads, child processes, loops."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from durio.app.app import App
from durio.app.origin import origin_of
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
from durio.maintenance.leader import Leader
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
from durio.telemetry.log import install_job_fields
from durio.telemetry.names import JOB_CANCELLED, JOB_DEAD, JOB_RESCUED
from durio.worker.build import WorkerBuilder, WorkerPorts
from durio.worker.outcome_buffer import rescued_event
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
    some, else the setting.
    """
    install_job_fields()
    store = await app.store()
    await app.declare_bounds()
    await app.schedules.declare_at_start()
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
    plans = PlanKeeper(
        store, app.clock, app.emit, app.name, settings.retention.dead_seconds
    )
    config = replace(
        config,
        burst_plans=plans.handle_ends if is_burst else None,
        send_message=send_message,
    )
    ports = WorkerPorts(
        store=store,
        clock=app.clock,
        emit=app.emit,
        executor=executor
        or ThreadExecutor(settings.worker.concurrency, on_busy_threads),
        side_loop=side_loop or ThreadSideLoop(),
        machine=machine or WorkerMachine(),
        child_pool=child_pool or make_child_pool(app, settings, config.name),
    )
    turns = {"plans": plans.turn, **schedule_turns(app, store)}
    return WorkerBuilder(config, ports).build(partial(maintenance_loops, turns))


def schedule_turns(app: App, store: Store) -> dict[str, Turn]:
    """Return what the leader does for schedules."""
    parts = (store, app.clock, app.emit, app.name)
    maker = ClientTickMaker(app)
    return {
        "ticker": Ticker(*parts, maker).turn,
        "backfills": BackfillKeeper(*parts, maker).turn,
        "undeclared": UndeclaredSchedules(*parts).turn,
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
        serving=served,
        handlers=app.registry.by_name,
        keeps=app.registry.queue_keeps(),
        tasks=app.registry.published(),
        settings=settings,
        plans=PlanPreparer(app, app.registry.by_name),
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
        "gauge": leader.while_leading(soft_bound.turn, 1.0),
    }
    turns |= {
        name: leader.while_leading(turn, 1.0) for name, turn in turns_of_leader.items()
    }
    loops = [run_forever(name, turn, clock, emit) for name, turn in turns.items()]
    return [leader.run(), *loops]


def report_rescued(worker: Worker, rescued: Sequence[RescuedJob]) -> None:
    events = [
        rescued_event(one, RESCUED_NAMES.get(one.state, JOB_RESCUED)) for one in rescued
    ]
    worker.emit.jobs(events)
    worker.hooks.notify(events)
