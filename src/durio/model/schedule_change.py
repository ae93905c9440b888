"""Changes of a stored schedule by people and code: a definition, a resume, a run. Pure.

Ticks that were due before a change, and that no scheduler has handled, are skipped by it.
"""

from typing import Any, NamedTuple

from msgspec.structs import replace

from durio.model.cron import Cron
from durio.model.schedule import (
    Definition,
    Pause,
    ScheduleRecord,
    Skipped,
    TickRun,
    default_overlap,
)
from durio.model.schedule_rule import Rule
from durio.model.schedule_tick import (
    SkippedTicks,
    late_ticks,
    runs_left,
    tick_after,
    with_run,
    with_skipped,
)

RULES = ("cron", "every", "at")
AHEAD_SECONDS = 3600.0  # a clock that is less ahead is waited for


class ScheduleChange(NamedTuple):
    """A schedule after a change, and the ticks that the change has skipped."""

    record: ScheduleRecord
    skipped: tuple[SkippedTicks, ...] = ()
    late_seconds: float = 0.0  # of the first tick that was not handled

    def then(self, following: "ScheduleChange") -> "ScheduleChange":
        """Return both changes, of which the other was made to the result of this one."""
        skipped = (*self.skipped, *following.skipped)
        late_seconds = max(self.late_seconds, following.late_seconds)
        return ScheduleChange(following.record, skipped, late_seconds)


def new_record(
    definition: Definition, now: float, *, is_manual: bool
) -> ScheduleRecord:
    code = None if is_manual else definition
    empty = ScheduleRecord(
        definition=definition, created_at=now, code=code, is_manual=is_manual
    )
    return redefined(empty, definition, now, is_new=True).record


def redefined(
    stored: ScheduleRecord, definition: Definition, now: float, *, is_new: bool = False
) -> ScheduleChange:
    """Return a schedule with another definition; a changed rule counts from now."""
    old = stored.definition.rule
    rule = replace(definition.rule, anchor=old.anchor)
    if rule == old and not is_new:
        same = replace(stored, definition=replace(definition, rule=rule))
        known = same.next_at is not None
        return ScheduleChange(same if known else with_next_tick(same, now))
    is_same_pace = not is_new and has_same_pace(rule, old)
    if not is_same_pace:
        rule = replace(rule, anchor=now if rule.start is None else rule.start)
    definition = replace(definition, rule=rule)
    change = without_late_ticks(stored, now, "changed")
    changed = replace(change.record, definition=definition, waiting=())
    if is_same_pace and rule.fixed_delay:
        return change._replace(record=with_same_delay(changed, now))
    return change._replace(record=replace(changed, next_at=tick_after(changed, now)))


def has_same_pace(rule: Rule, old: Rule) -> bool:
    """Whether the ticks of an interval stay at their times: end, dates or zone differ."""
    kept = (old.every, old.fixed_delay, old.start)
    return old.every is not None and (rule.every, rule.fixed_delay, rule.start) == kept


def with_same_delay(record: ScheduleRecord, now: float) -> ScheduleRecord:
    """Return a fixed delay whose next tick stays, if end and dates still allow it."""
    rule, next_at = record.definition.rule, record.next_at
    if next_at is None or next_at <= now:
        return with_next_tick(replace(record, next_at=None), now)
    return replace(record, next_at=rule.after_end(next_at - (rule.every or 0.0)))


def with_declaration(
    stored: ScheduleRecord | None, code: Definition, now: float
) -> ScheduleChange:
    """Return a schedule that the code of a starting worker declares."""
    if stored is None:
        return ScheduleChange(new_record(code, now, is_manual=False))
    if stored.code is None or not stored.code.is_same_as(code):
        stored = replace(stored, code=code)
    change = ScheduleChange(stored)
    if stored.pause is not None and stored.pause.is_undeclared:
        change = resumed(stored, now)
    if stored.is_manual:
        return change
    return change.then(redefined(change.record, code, now))


def paused(stored: ScheduleRecord, pause: Pause) -> ScheduleChange:
    """Return a schedule that people pause; it keeps a pause by people."""
    if stored.pause is not None and not stored.pause.is_undeclared:
        return ScheduleChange(stored)
    # Ticks from before a pause by the leader are skipped now: only that pause knows them.
    change = resumed(stored, pause.at)
    return change._replace(record=replace(change.record, pause=pause))


def resumed(stored: ScheduleRecord, now: float) -> ScheduleChange:
    """Return a schedule that is not paused; ticks of the pause are not made up for."""
    if stored.pause is None:
        return ScheduleChange(stored)
    active = replace(stored, pause=None)
    if is_set_ahead(active, now):
        return ScheduleChange(with_next_tick(without_future(active, now), now))
    if active.next_at is not None and active.next_at > now:
        return ScheduleChange(active)
    # Those that wait for the end of a run go on waiting.
    change = without_late_ticks(replace(stored, waiting=()), now, "paused")
    again = replace(change.record, pause=None, waiting=stored.waiting)
    return change._replace(record=with_next_tick(again, now))


def without_late_ticks(
    stored: ScheduleRecord, now: float, reason: Skipped
) -> ScheduleChange:
    """Skip ticks that wait or are due; those of a pause do not count as skipped."""
    until = now if stored.pause is None else min(now, stored.pause.at)
    late = late_ticks(stored, until, reason)
    times = [*stored.waiting, *(() if late is None else (late.first_at, late.last_at))]
    if not times:
        return ScheduleChange(stored)
    count = len(stored.waiting) + (0 if late is None else late.ticks)
    is_least = late is not None and late.is_least
    lost = SkippedTicks(reason, times[0], times[-1], count, is_least)
    late_seconds = 0.0 if late is None else until - late.first_at
    return ScheduleChange(with_skipped(stored, [lost]), (lost,), late_seconds)


def with_manual_run(record: ScheduleRecord, now: float, run: TickRun) -> ScheduleChange:
    """Count a run that people started; it may be the last one of `max_runs`."""
    counted = with_run(record, now, run)
    left = runs_left(counted)
    if left is None or left > len(counted.waiting):
        return ScheduleChange(counted)
    # The ticks that have no run left: of those that wait, the later ones.
    change = without_late_ticks(
        replace(counted, waiting=counted.waiting[left:]), now, "max_runs"
    )
    ended = replace(change.record, next_at=None, waiting=counted.waiting[:left])
    return change._replace(record=ended)


def is_set_ahead(record: ScheduleRecord, now: float) -> bool:
    """Whether a clock that was more than an hour ahead has made ticks of the future.

    The next tick is later than the rule says, or there is none.
    """
    next_at, moment = record.next_at, now + AHEAD_SECONDS
    handled = [note.due_at for note in record.ticks] if record.is_over else []
    if max([next_at or now, *handled]) <= moment:
        return False
    expected = tick_after(without_future(record, now), moment)
    return expected is not None and (next_at is None or expected < next_at)


def without_future(record: ScheduleRecord, now: float) -> ScheduleRecord:
    """Return a schedule without its handled ticks that are later than now."""
    past = tuple(note for note in record.ticks if note.due_at <= now)
    return replace(record, ticks=past)


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
