"""`admin/schedules`: the schedules of the App."""

from fastapi import APIRouter

from durio.client.schedule_store import not_found, records_of, store_now
from durio.model.schedule import schedules_kind
from durio.web.api.cursors import continued, cursor_of
from durio.web.api.schedule_items import (
    KnownSchedule,
    ScheduleItem,
    ScheduleView,
    known_schedules,
    schedule_item,
    schedule_view,
    states_of_last,
)
from durio.web.api.shapes import LIMIT_DEFAULT, Cursor, Items, Limit
from durio.web.call import WebCall
from durio.web.roles import Viewer

router = APIRouter(tags=["schedules"])
LISTED = "schedules"
TICKS_LISTED = 10


@router.get("/schedules")
async def list_schedules(
    call: Viewer, limit: Limit = LIMIT_DEFAULT, cursor: Cursor = None
) -> Items[ScheduleItem]:
    """Return the schedules by name, with their next and last runs."""
    store, kind = await call.store(), schedules_kind(call.app.name)
    after = continued(LISTED, cursor) or ""
    records = await store.list_records(kind, after=after, limit=limit + 1)
    shown = records[:limit]
    following = shown[-1].name if len(records) > limit else None
    schedules = await known_schedules(call, shown, await store_now(call.app))
    states = await states_of_last(call, schedules, TICKS_LISTED)
    items = [schedule_item(each, states, TICKS_LISTED) for each in schedules]
    return Items(items=items, cursor=cursor_of(LISTED, following))


@router.get("/schedules/{name}")
async def show_schedule(call: Viewer, name: str) -> ScheduleView:
    """Return one schedule with its rule, its next and last runs, and its backfills."""
    return await schedule_view(call, await known_schedule(call, name))


async def known_schedule(call: WebCall, name: str) -> KnownSchedule:
    """Return a schedule that the user may see; raises ScheduleNotFound."""
    records = await records_of(call.app, name)
    found = await known_schedules(call, records, await store_now(call.app))
    if not found:
        raise not_found(name)
    return found[0]
