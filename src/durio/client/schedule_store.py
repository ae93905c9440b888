"""Read and change the record of a schedule, again while others overtake a change."""

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from durio.client.schedule_link import LinkClient
from durio.client.schedule_view import Schedule, in_words, schedule_view
from durio.model.effects import Effects
from durio.model.errors import ScheduleConflict, ScheduleNotFound
from durio.model.schedule import (
    Definition,
    ScheduleRecord,
    check_size,
    load_schedule,
    schedule_put,
    schedules_kind,
)
from durio.model.schedule_change import ScheduleChange, with_declaration
from durio.model.schedule_tick import due_time
from durio.ports.browse import AuditLine
from durio.ports.control import AuditNote
from durio.ports.records import Record, store_time
from durio.telemetry.skipped_ticks import report_late, report_skipped

TRIES_MAX = 20  # of a change that others overtake
AUDIT_READ_MAX = 100  # newest lines, of all targets

Change = Callable[[ScheduleRecord | None], ScheduleChange]


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
    for record in await records_of(client, name):
        return StoredSchedule(record, load_schedule(record.body, name))
    return None


async def records_of(client: LinkClient, name: object) -> list[Record]:
    """Return the record of a schedule, which may be damaged, or nothing."""
    if not isinstance(name, str):
        return []
    return await (await client.store()).records(schedules_kind(client.name), [name])


async def store_now(client: LinkClient) -> float:
    """Return the time of the store, by which schedules are due."""
    store = await client.store()
    return await store_time(store, schedules_kind(client.name))


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
        if version is not None and record is not None:
            await check_version(client, record, version)
        changed = change(before)
        after = changed.record
        if record is not None and after == before:
            return schedule_view(record, now)
        check_size(after, name)
        stands_at = 0 if record is None else record.version
        least = 0 if before is None else before.version + 1
        after = replace(after, version=max(least, int(now * 1000)))
        put = schedule_put(client.name, name, after, stands_at, due_time(after, now))
        answer = await store.commit(Effects(puts=[put]), note=note)
        if answer.conflict is None:
            report_change(client, name, before or after, changed)
            body, (written,) = put.body or b"", answer.versions
            return schedule_view(Record(put.kind, name, body, put.due_at, written), now)
    raise overtaken(name)


async def check_version(client: LinkClient, record: Record, version: int) -> None:
    """Refuse a change of a schedule that has another version now."""
    stored, name = load_schedule(record.body, record.name), record.name
    if stored.version != version:
        raise changed_since(name, version, stored, await last_action(client, name))


async def store_declaration(client: LinkClient, name: str, code: Definition) -> None:
    """Write what the code declares; warn if a new rule has no tick."""
    now, is_changed = await store_now(client), False

    def change(stored: ScheduleRecord | None) -> ScheduleChange:
        nonlocal is_changed
        made = with_declaration(stored, code, now)
        is_changed = stored is None or made.record.definition != stored.definition
        return made

    schedule = await change_schedule(client, name, change, None)
    if is_changed and schedule.state == "ended" and not schedule.run_count:
        client.emit("schedule.never_due", schedule=name, rule=schedule.rule)


def report_change(
    client: LinkClient, name: str, before: ScheduleRecord, change: ScheduleChange
) -> None:
    """Report the ticks that a change has skipped, by the rule before it."""
    for some in change.skipped:
        report_skipped(client.emit, name, some)
    rule, late = before.definition.rule, change.late_seconds
    report_late(client.emit, name, rule, before.next_at or 0.0, late)


def found(stored: ScheduleRecord | None, name: str) -> ScheduleRecord:
    if stored is None:
        raise not_found(name)
    return stored


def not_found(name: object) -> ScheduleNotFound:
    return ScheduleNotFound(
        f"there is no schedule {name!r:.140}",
        cure="List them with: durio schedules ls",
        name=str(name)[:128],
    )


async def last_action(client: LinkClient, name: str) -> AuditLine | None:
    """Return what a person did last with a schedule, if that was not long ago."""
    lines = await (await client.store()).audit(client.name, limit=AUDIT_READ_MAX)
    return next((line for line in lines if line.target == f"schedule {name}"), None)


def overtaken(name: str) -> ScheduleConflict:
    return ScheduleConflict(
        f"the schedule {name!r} was changed by others again and again",
        cure="Try again.",
        name=name,
    )


def changed_since(
    name: str, version: int, stored: ScheduleRecord, last: AuditLine | None
) -> ScheduleConflict:
    """Say what the refused change would overwrite, and who acted last."""
    by = f". Last action: {last.verb}, by {last.who}" if last else ""
    return ScheduleConflict(
        f"the schedule {name!r} has version {stored.version} now, not {version}: "
        f"{in_words(stored)}{by}",
        cure="Read it again, and repeat the change with its version.",
        name=name,
    )
