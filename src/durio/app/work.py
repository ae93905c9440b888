"""A worker for an App: hands the machine's clock, threads and signals to its rooms."""

from collections.abc import Coroutine, Sequence
from typing import Any

from durio.app.app import App
from durio.host.beside import ThreadAside, WorkerMachine
from durio.host.executors import ThreadExecutor
from durio.host.signals import process_name
from durio.maintenance.leader import Leader
from durio.maintenance.loop import keep_going
from durio.maintenance.promoter import Promoter
from durio.maintenance.pruner import Pruner
from durio.maintenance.rescuer import Rescuer
from durio.model.job import CANCELLED, DEAD
from durio.model.names import check_name
from durio.model.outcome import Left
from durio.model.version import __version__
from durio.ports.executor import Aside, Executor
from durio.telemetry.log import install_job_fields
from durio.telemetry.names import JOB_CANCELLED, JOB_DEAD, JOB_RESCUED
from durio.worker.watchdog import Machine
from durio.worker.worker import Plan, Worker, dead_event

RESCUED_NAMES = {DEAD: JOB_DEAD, CANCELLED: JOB_CANCELLED}


async def make_worker(
    app: App,
    *,
    queues: Sequence[str] | None = None,
    is_burst: bool = False,
    executor: Executor | None = None,
    aside: Aside | None = None,
    machine: Machine | None = None,
) -> Worker:
    """A worker that serves these queues of the App, or all of them."""
    install_job_fields()
    store = await app.store()
    host, pid = process_name()
    plan = Plan(
        namespace=app.name,
        name=f"{host}/{pid}",
        host=host,
        pid=pid,
        version=__version__,
        queues=None
        if queues is None
        else tuple(check_name("queue", q) for q in queues),
        handlers=app.registry.handlers,
        keeps=app.registry.queue_keeps(),
        tasks=app.registry.published(),
        settings=app.settings,
        middleware=app.middleware,
        hooks=app.hooks,
        deps=app.deps,
        is_burst=is_burst,
    )
    return Worker(
        plan,
        store=store,
        clock=app.clock,
        emit=app.emit,
        executor=executor or ThreadExecutor(app.settings.worker.concurrency),
        aside=aside or ThreadAside(),
        machine=machine or WorkerMachine(),
        loops=maintenance_loops,
    )


def maintenance_loops(worker: Worker) -> list[Coroutine[Any, Any, None]]:
    """Every worker may lead; deaths on this host are everybody's business."""
    store, clock, emit = worker.store, worker.clock, worker.emit
    settings = worker.plan.settings
    leader = Leader(
        store,
        clock,
        emit,
        lambda: worker.me.id,
        # One for each App: jobs that a rescue makes dead need that App's hooks.
        name=f"upkeep:{worker.plan.namespace}",
        lease_seconds=settings.worker.leader_seconds,
    )
    rescuer = Rescuer(
        store,
        emit,
        lambda left: tell_rescued(worker, left),
        worker.plan.namespace,
        interval_seconds=settings.worker.rescue_seconds,
        here_seconds=settings.worker.life_seconds,
    )
    promoter = Promoter(store)
    pruner = Pruner(store, emit, settings.retention.dead_count)
    turns = {
        "promoter": leader.only(promoter.turn, 1.0),
        "rescuer": leader.only(rescuer.turn, 1.0),
        "here": rescuer.turn_here,
        "pruner": leader.only(pruner.turn, 5.0),
    }
    loops = [keep_going(name, turn, clock, emit) for name, turn in turns.items()]
    return [leader.run(), *loops]


def tell_rescued(worker: Worker, left: Sequence[Left]) -> None:
    """Logs and hooks of jobs that a rescue moved."""
    events = [
        dead_event(one, RESCUED_NAMES.get(one.state, JOB_RESCUED)) for one in left
    ]
    worker.emit.jobs(events)
    worker.hooks.tell(events)
