"""Changes of a stored schedule: a new definition, a resume. Pure."""

from typing import Any

from msgspec.structs import replace

from durio.model.cron import Cron
from durio.model.schedule import Definition, ScheduleRecord, default_overlap
from durio.model.schedule_tick import SkippedTicks, tick_after, with_skipped

RULES = ("cron", "every", "at")


def new_record(
    definition: Definition, now: float, *, is_manual: bool
) -> ScheduleRecord:
    code = None if is_manual else definition
    empty = ScheduleRecord(
        definition=definition, created_at=now, code=code, is_manual=is_manual
    )
    return redefined(empty, definition, now, is_new=True)


def redefined(
    stored: ScheduleRecord, definition: Definition, now: float, *, is_new: bool = False
) -> ScheduleRecord:
    """Return a schedule with another definition; a changed rule counts from now."""
    old = stored.definition.rule
    rule = replace(definition.rule, anchor=old.anchor)
    if rule == old and not is_new:
        same = replace(stored, definition=replace(definition, rule=rule))
        return with_next_tick(same, now) if same.next_at is None else same
    anchor = now if rule.start is None else rule.start
    definition = replace(definition, rule=replace(rule, anchor=anchor))
    changed = replace(stored, definition=definition, waiting=())
    if stored.waiting:
        first, last = stored.waiting[0], stored.waiting[-1]
        dropped = SkippedTicks("changed", first, last, len(stored.waiting))
        changed = with_skipped(changed, [dropped])
    return replace(changed, next_at=tick_after(changed, now))


def resumed(stored: ScheduleRecord, now: float) -> ScheduleRecord:
    """Return a schedule that is not paused; ticks of the pause are not made up for."""
    if stored.pause is None:
        return stored
    active = replace(stored, pause=None)
    is_known = active.next_at is not None and active.next_at > now
    return active if is_known else with_next_tick(active, now)


def with_next_tick(record: ScheduleRecord, now: float) -> ScheduleRecord:
    """Return a schedule with its next tick after now, unless a run must end before."""
    if record.definition.rule.fixed_delay and record.next_at is None and record.live:
        return record
    return replace(record, next_at=tick_after(record, now))


def merged(before: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the choices after a change: a new rule replaces the one before."""
    named = [name for name in RULES if given.get(name) is not None]
    if named:
        before |= dict.fromkeys(RULES)
    if named and named != ["every"]:
        before["fixed_delay"] = False
    if "catchup" in given and before["overlap"] == default_overlap(before["catchup"]):
        del before["overlap"]
    if isinstance(given.get("cron"), Cron):
        before["tz"] = None  # it has its own
    return {**before, **given}
