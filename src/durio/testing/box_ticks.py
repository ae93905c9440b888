"""Schedules in a box: its clock jumps to their ticks."""

from collections.abc import Awaitable, Callable

from durio.app.app import App
from durio.client.tick_maker import ClientTickMaker
from durio.maintenance.backfills import BackfillKeeper
from durio.maintenance.ticker import Ticker
from durio.model.backfill import backfills_kind
from durio.model.schedule import schedules_kind
from durio.ports.store import Store


async def tick_turns(app: App) -> list[Callable[[], Awaitable[float]]]:
    """Store what the code declares, as a worker does; return what makes the ticks."""
    await app.schedules.declare_at_start()
    store = await app.store()
    parts = (store, app.clock, app.emit, app.name, ClientTickMaker(app))
    return [Ticker(*parts).turn, BackfillKeeper(*parts).turn]


async def next_tick(store: Store, namespace: str) -> float | None:
    """Return when the next schedule or backfill of an App is due; None: never."""
    times: list[float] = []
    for kind in (schedules_kind(namespace), backfills_kind(namespace)):
        due = await store.due_records(kind, limit=1)
        if due.records or due.next_due_seconds is not None:
            times.append(
                due.now + (0.0 if due.records else due.next_due_seconds or 0.0)
            )
    return min(times, default=None)
