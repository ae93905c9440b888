"""Read and change the record of a schedule, again while others overtake a change."""

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from durio.client.schedule_link import LinkClient
from durio.client.schedule_view import Schedule, schedule_view
from durio.model.effects import Effects
from durio.model.errors import ScheduleConflict, ScheduleNotFound
from durio.model.schedule import (
    ScheduleRecord,
    load_schedule,
    schedule_put,
    schedules_kind,
)
from durio.model.schedule_tick import due_time
from durio.ports.control import AuditNote
from durio.ports.records import Record

TRIES_MAX = 20  # of a change that others overtake

Change = Callable[[ScheduleRecord | None], ScheduleRecord]


class StoredSchedule(NamedTuple):
    """A schedule with its record."""

    record: Record
    schedule: ScheduleRecord


async def read_schedule(client: LinkClient, name: str) -> StoredSchedule:
    """Return a stored schedule; raises ScheduleNotFound."""
    stored = await find_schedule(client, name)
    if stored is None:
        raise not_found(name)
    return stored


async def find_schedule(client: LinkClient, name: str) -> StoredSchedule | None:
    store = await client.store()
    for record in await store.records(schedules_kind(client.name), [name]):
        return StoredSchedule(record, load_schedule(record.body, name))
    return None


async def store_now(client: LinkClient) -> float:
    """Return the time of the store; without a schedule that is due once, ours."""
    store = await client.store()
    due = await store.due_records(schedules_kind(client.name), limit=1)
    return due.now or client.clock.now()


async def change_schedule(
    client: LinkClient,
    name: str,
    change: Change,
    note: AuditNote | None,
    version: int | None = None,
) -> Schedule:
    """Read, change and write a schedule; with a version, only if it still has that one."""
    store, now = await client.store(), await store_now(client)
    for _ in range(TRIES_MAX):
        stored = await find_schedule(client, name)
        record, before = (None, None) if stored is None else stored
        if version is not None and before is not None and before.version != version:
            raise changed_since(name, version, before)
        after = change(before)
        if record is not None and after == before:
            return schedule_view(record, now)
        stands_at = 0 if record is None else record.version
        least = 0 if before is None else before.version + 1
        after = replace(after, version=max(least, int(now * 1000)))
        put = schedule_put(client.name, name, after, stands_at, due_time(after, now))
        answer = await store.commit(Effects(puts=[put]), note=note)
        if answer.conflict is None:
            body, (written,) = put.body or b"", answer.versions
            return schedule_view(Record(put.kind, name, body, put.due_at, written), now)
    raise overtaken(name)


def found(stored: ScheduleRecord | None, name: str) -> ScheduleRecord:
    if stored is None:
        raise not_found(name)
    return stored


def not_found(name: str) -> ScheduleNotFound:
    return ScheduleNotFound(
        f"there is no schedule {name!r:.140}",
        cure="List them with: durio schedules ls",
        name=str(name)[:128],
    )


def overtaken(name: str) -> ScheduleConflict:
    return ScheduleConflict(
        f"the schedule {name!r} was changed by others again and again",
        cure="Try again.",
        name=name,
    )


def changed_since(name: str, version: int, stored: ScheduleRecord) -> ScheduleConflict:
    return ScheduleConflict(
        f"the schedule {name!r} has version {stored.version} now, not {version}: "
        f"{stored.definition.rule.describe()}, overlap {stored.definition.overlap}, "
        f"catch-up {stored.definition.catchup}",
        cure="Read it again, and repeat the change with its version.",
        name=name,
    )
