"""Schedules, expiries and breakers in a box: its clock jumps to their times."""

from collections.abc import Awaitable, Callable, Sequence

from durio.app.app import App
from durio.client.tick_maker import ClientTickMaker
from durio.maintenance.backfills import BackfillKeeper
from durio.maintenance.breakers import BreakerKeeper
from durio.maintenance.expirer import Expirer
from durio.maintenance.ticker import Ticker
from durio.model.backfill import backfills_kind
from durio.model.breaker import breakers_kind
from durio.model.expiry import expiries_kind
from durio.model.schedule import schedules_kind
from durio.ports.store import Store
from durio.telemetry.emit import JobEvent
from durio.worker.middleware import HookRunner


async def tick_turns(app: App) -> list[Callable[[], Awaitable[float]]]:
    """Store what the code declares, as a worker does; return the turns at due times."""
    await app.schedules.declare_at_start()
    store = await app.store()
    parts = (store, app.clock, app.emit, app.name, ClientTickMaker(app))
    hooks = HookRunner(app.hooks, app.emit)
    keeper = BreakerKeeper(store, app.emit, app.name, hooks.notify_breaker)

    async def look_at_breakers() -> float:
        pause = await keeper.turn()
        await hooks.drain()
        return pause

    return [Ticker(*parts).turn, BackfillKeeper(*parts).turn, look_at_breakers]


async def end_expired(app: App) -> None:
    """Make jobs dead that have expired, and call the hooks for them."""
    hooks = HookRunner(app.hooks, app.emit)

    def report(events: Sequence[JobEvent]) -> None:
        app.emit.jobs(events)
        hooks.notify(events)

    expirer = Expirer(await app.store(), app.name, report)
    while await expirer.turn() == 0.0:
        pass
    await hooks.drain()


async def next_tick(store: Store, namespace: str) -> float | None:
    """Return when the next schedule, expiry or breaker of an App is due; None: never."""
    times: list[float] = []
    kinds = (schedules_kind, backfills_kind, expiries_kind, breakers_kind)
    for kind in (kind_of(namespace) for kind_of in kinds):
        due = await store.due_records(kind, limit=1)
        if due.records or due.next_due_seconds is not None:
            times.append(
                due.now + (0.0 if due.records else due.next_due_seconds or 0.0)
            )
    return min(times, default=None)
