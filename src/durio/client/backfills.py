"""Start a backfill, and read how far it is."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from durio.model.backfill import (
    AT_A_TIME_MAX,
    TICKS_MAX,
    BackfillRecord,
    backfills_kind,
    load_backfill,
    ticks_of,
)
from durio.model.effects import Put
from durio.model.errors import InvalidSchedule, ScheduleNotFound
from durio.model.job import utc_datetime
from durio.model.schedule import ScheduleRecord
from durio.model.schedule_checks import aware
from durio.ports.records import Record


@dataclass(frozen=True, slots=True)
class Backfill:
    """A backfill of a schedule, from one read of the store."""

    __module__ = "durio.schedules"

    id: str  # empty for a preview
    schedule: str  # name of the schedule
    total: int  # number of ticks
    made: int  # ticks that have their job
    failed: int  # ticks whose job could not be made
    at_a_time: int  # most jobs of it that run at the same time
    first_at: datetime | None  # its next tick; None: all are made
    until: datetime | None  # ticks before this time
    is_over: bool  # whether all jobs are made

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as values for `json.dumps`: times as ISO 8601."""
        return msgspec.json.decode(msgspec.json.encode(self))


def new_backfill(
    stored: ScheduleRecord,
    name: str,
    start: datetime,
    end: datetime,
    at_a_time: int,
    by: str,
    now: float,
) -> BackfillRecord:
    """Return the record of a backfill; refuse one that cannot be."""
    first, until = check_times(start, end, now)
    check_at_a_time(at_a_time)
    rule = stored.definition.rule
    if rule.fixed_delay:
        raise InvalidSchedule(
            f"the schedule {name!r} has a fixed delay, and so no times in the past",
            cure="Enqueue the task itself as often as needed.",
        )
    ticks = ticks_of(rule, first, until, TICKS_MAX + 1)
    if len(ticks) > TICKS_MAX:
        raise InvalidSchedule(
            f"the backfill has more than {TICKS_MAX:,} ticks",
            cure="Split it into shorter times.",
        )
    if not ticks:
        raise InvalidSchedule(
            f"the schedule {name!r} has no tick from {start.isoformat()} to "
            f"{end.isoformat()}",
            cure=f"It is due: {rule.describe()}.",
        )
    return BackfillRecord(
        schedule=name,
        link=stored.definition.link,
        rule=rule,
        next_at=ticks[0],
        until=until,
        at_a_time=at_a_time,
        total=len(ticks),
        by=by,
        created_at=now,
    )


def check_times(start: datetime, end: datetime, now: float) -> tuple[float, float]:
    """Return the times as seconds since 1970."""
    first, until = aware("start", start), aware("end", end)
    if until <= first:
        raise InvalidSchedule(
            f"the backfill ends at {end.isoformat()}, and begins at {start.isoformat()}",
            cure="Exchange them: the first time is the earlier one.",
        )
    if until > now:
        raise InvalidSchedule(
            f"the backfill ends at {end.isoformat()}, which is in the future",
            cure="The schedule itself makes future ticks: end at the present or before.",
        )
    return first, until


def check_at_a_time(at_a_time: int) -> None:
    is_number = isinstance(at_a_time, int) and not isinstance(at_a_time, bool)
    if not is_number or not 1 <= at_a_time <= AT_A_TIME_MAX:
        raise InvalidSchedule(
            f"at_a_time cannot be {at_a_time!r:.40}",
            cure=f"Give a number from 1 to {AT_A_TIME_MAX}.",
        )


def backfill_put(namespace: str, name: str, record: BackfillRecord) -> Put:
    body = msgspec.json.encode(record)
    return Put(backfills_kind(namespace), name, body, 0, record.created_at)


def backfill_view(name: str, record: BackfillRecord) -> Backfill:
    return Backfill(
        id=name,
        schedule=record.schedule,
        total=record.total,
        made=record.made,
        failed=record.failed,
        at_a_time=record.at_a_time,
        first_at=utc_datetime(record.next_at),
        until=utc_datetime(record.until),
        is_over=record.next_at is None,
    )


def backfill_not_found(name: str) -> ScheduleNotFound:
    return ScheduleNotFound(
        f"there is no backfill {name!r:.60}",
        cure="List them with: await app.schedules.backfills()",
        name=str(name)[:60],
    )


def stored_backfill(record: Record) -> Backfill:
    return backfill_view(record.name, load_backfill(record.body, record.name))
