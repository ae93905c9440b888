"""What a scheduler does with a schedule that is due: which ticks run, wait or are skipped.

Pure: the scheduler reads which runs have ended, and writes what is decided here.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from msgspec.structs import replace

from durio.model.cron import CronRun
from durio.model.ids import id_bytes, id_made_at
from durio.model.job import utc_datetime
from durio.model.schedule import (
    LIVE_MAX,
    TICKS_KEPT,
    Definition,
    Pause,
    ScheduleRecord,
    Skipped,
    TickNote,
    TickRun,
)
from durio.model.schedule_rule import local

GONE = "gone"  # the outcome of a run that was deleted before a scheduler looked
LATE_SECONDS = 60.0  # `catchup="none"` runs a tick that is at most so late
COUNTED_MAX = 1500  # skipped ticks that are counted one by one, in 25 us each
WAITING_MAX = 1000  # ticks that may wait, at 19 bytes each in a record of 64 KiB
# How often a scheduler looks whether a run has ended: soon after its begin, then less often.
LOOK_SECONDS_MIN, LOOK_SECONDS = 0.1, 1.0


class Ended(NamedTuple):
    """A run that has ended, or that is no longer stored."""

    at: float
    is_failed: bool = False
    outcome: str = GONE  # its final state


class SkippedTicks(NamedTuple):
    """Ticks that make no job, for one reason."""

    reason: Skipped
    first_at: float
    last_at: float
    ticks: int  # how many
    is_least: bool = False  # there are more: they were counted to a bound


class TickDecision(NamedTuple):
    """What to do with a schedule that is due."""

    record: ScheduleRecord  # as it is after that, but without the new runs
    fire: tuple[float, ...] = ()  # times of ticks that make a job now
    skipped: tuple[SkippedTicks, ...] = ()
    cancels: tuple[TickRun, ...] = ()  # runs to be cancelled
    late_seconds: float = 0.0  # of the first tick that was handled
    paused: Literal["failure"] | None = None


def decide(
    record: ScheduleRecord, now: float, ended: Mapping[str, Ended]
) -> TickDecision:
    """Decide about a schedule that is due, with the runs of it that have ended."""
    record = with_outcomes(record, ended)
    failed = [run for run in record.live if run.id in ended and ended[run.id].is_failed]
    live = tuple(run for run in record.live if run.id not in ended)
    rule = record.definition.rule
    if failed and record.definition.pause_on_failure:
        pause = Pause("durio", now, f"run {failed[0].id} failed")
        return paused_by_failure(replace(record, live=live, pause=pause), now)
    next_at = record.next_at
    if rule.fixed_delay and next_at is None and not live:
        last = max((ended[run.id].at for run in record.live), default=now)
        next_at = rule.after_end(last)
    due, skipped = [], list[SkippedTicks]()
    late_seconds = 0.0
    if next_at is not None and next_at <= now:
        late_seconds = now - next_at
        due, skipped, next_at = due_ticks(record, next_at, now)
    fire, waiting, cancels, others = by_overlap(replace(record, live=live), due)
    fire, waiting, over = within_max_runs(record, fire, waiting)
    skipped += [*others, *over]
    is_last = runs_left(record) == len(fire) + len(waiting)
    if is_last or (rule.fixed_delay and fire):  # its next tick follows from its end
        next_at = None
    changed = replace(record, live=live, next_at=next_at, waiting=tuple(waiting))
    counted = with_skipped(changed, skipped)
    return TickDecision(
        counted, tuple(fire), tuple(skipped), tuple(cancels), late_seconds
    )


def paused_by_failure(record: ScheduleRecord, now: float) -> TickDecision:
    """Skip the ticks that are due: a failed run has paused their schedule."""
    lost, rule = late_ticks(record, now, "paused"), record.definition.rule
    if lost is None:
        return TickDecision(record, paused="failure")
    next_at = None if rule.fixed_delay else rule.after(lost.last_at)
    skipped = with_skipped(replace(record, next_at=next_at), [lost])
    late_seconds = now - lost.first_at
    return TickDecision(
        skipped, skipped=(lost,), late_seconds=late_seconds, paused="failure"
    )


def late_ticks(
    record: ScheduleRecord, until: float, reason: Skipped
) -> SkippedTicks | None:
    """Return the ticks that were due by this time, as skipped; None: there are none."""
    first, rule = record.next_at, record.definition.rule
    if first is None or first > until:
        return None
    last = first if rule.fixed_delay else rule.latest(until, first) or first
    if rule.fixed_delay:
        return SkippedTicks(reason, first, last, 1)
    return SkippedTicks(reason, first, last, *count_ticks(record, first, last))


def due_ticks(
    record: ScheduleRecord, first: float, now: float
) -> tuple[list[float], list[SkippedTicks], float | None]:
    """Return ticks to run by the catch-up policy, those skipped, and the next tick."""
    definition, rule = record.definition, record.definition.rule
    if rule.fixed_delay:
        return [first], [], None
    last, next_at = first, rule.after(first)
    if next_at is not None and next_at <= now:
        last = rule.latest(now, first) or first
        next_at = rule.after(last)
    oldest = now - max(definition.catchup_window, LATE_SECONDS)
    ticks = ticks_between(record, first, last, oldest)
    counted, is_least = count_ticks(record, first, last)
    count = max(len(ticks), counted)
    most = definition.catchup_max if definition.catchup == "all" else 1
    if definition.catchup == "none":
        oldest = now - LATE_SECONDS
    wanted = [tick for tick in ticks[-most:] if tick >= oldest]
    if len(wanted) == count:
        return wanted, [], next_at
    newest = ticks[-1] if not wanted else ticks[ticks.index(wanted[0]) - 1]
    lost = SkippedTicks("catchup", first, newest, count - len(wanted), is_least)
    return wanted, [lost], next_at


def ticks_between(
    record: ScheduleRecord, first: float, last: float, oldest: float
) -> list[float]:
    """Return the ticks that may be made up for, and one before them, oldest first."""
    definition, rule = record.definition, record.definition.rule
    most = definition.catchup_max + 1 if definition.catchup == "all" else 2
    found = [last]
    while len(found) < most and first < found[-1] and found[-1] >= oldest:
        found.append(rule.latest(just_before(found[-1]), first) or first)
    return found[::-1]


def count_ticks(record: ScheduleRecord, first: float, last: float) -> tuple[int, bool]:
    """Return how many ticks there are from `first` to `last`, and whether there are more.

    An interval is divided; others are counted one by one, to COUNTED_MAX.
    """
    rule = record.definition.rule
    if rule.every is not None and not rule.exclude:
        return round((last - first) / rule.every) + 1, False
    count, tick = 1, first
    while tick < last and count < COUNTED_MAX:
        tick, count = rule.after(tick) or last, count + 1
    return count, tick < last


def by_overlap(
    record: ScheduleRecord, due: list[float]
) -> tuple[list[float], list[float], list[TickRun], list[SkippedTicks]]:
    """Return ticks to run now, ticks that wait, runs to cancel, and skipped ticks."""
    overlap, live = record.definition.overlap, record.live
    ticks = [*record.waiting, *due]
    if overlap == "allow" or not ticks:
        over = [overlapping(tick) for tick in ticks[WAITING_MAX:]]
        return ticks[:WAITING_MAX], [], [], over
    if overlap == "cancel_previous":
        *old, newest = ticks
        skipped = [overlapping(tick) for tick in old]
        if live:  # the newest waits until they have ended
            return [], [newest], list(live), skipped
        return [newest], [], [], skipped
    fire = [] if live else ticks[:1]
    rest = ticks[len(fire) :]
    room = {"skip": 0, "queue_one": 1, "queue_all": WAITING_MAX}[overlap]
    return fire, rest[:room], [], [overlapping(t) for t in rest[room:]]


def within_max_runs(
    record: ScheduleRecord, fire: list[float], waiting: list[float]
) -> tuple[list[float], list[float], list[SkippedTicks]]:
    """Return the ticks that may still run or wait, and skip the others."""
    left = runs_left(record)
    if left is None:
        return fire, waiting, []
    over = [SkippedTicks("max_runs", t, t, 1) for t in [*fire, *waiting][left:]]
    return fire[:left], waiting[: max(0, left - len(fire))], over


def runs_left(record: ScheduleRecord) -> int | None:
    """Return how many runs the schedule may still have; None: there is no bound."""
    most = record.definition.max_runs
    return None if most is None else max(0, most - record.run_count)


def tick_after(record: ScheduleRecord, now: float) -> float | None:
    """Return the first tick after now, if the schedule has not ended."""
    left, rule = runs_left(record), record.definition.rule
    if left is not None and left <= len(record.waiting):
        return None
    # A clock that was set back must not repeat ticks.
    now = max([now, *(note.due_at for note in record.ticks)])
    return rule.after_end(now) if rule.fixed_delay else rule.after(now)


def longest_delay(definition: Definition, tick: float) -> float:
    """Return the bound of the jitter of a tick: its job starts before the next tick.

    A chosen jitter was compared with some intervals only. Others may be shorter, such as
    those on days on which clocks go forward.
    """
    jitter, rule = definition.jitter, definition.rule
    following = rule.after(tick) if jitter and rule.cron is not None else None
    return jitter if following is None else min(jitter, following - tick)


def coming_runs(record: ScheduleRecord, after: float, count: int) -> list[CronRun]:
    """Return the next runs; of a fixed delay only the next one is known."""
    rule, next_at, left = record.definition.rule, record.next_at, runs_left(record)
    if record.pause is None and record.is_over:
        return []
    if left is not None:
        count = min(count, left - len(record.waiting))
    if not rule.fixed_delay:
        return rule.preview(after, count)
    if next_at is None or next_at <= after or count < 1:
        return []
    return [CronRun(local(next_at, rule.tz), None)]


def overlapping(tick: float) -> SkippedTicks:
    return SkippedTicks("overlap", tick, tick, 1)


def unknown_outcomes(record: ScheduleRecord) -> set[TickRun]:
    """Return the runs whose end is to be looked up."""
    noted = (note.run for note in record.ticks if note.outcome is None)
    return {*record.live, *(run for run in noted if run is not None)}


def with_outcomes(record: ScheduleRecord, ended: Mapping[str, Ended]) -> ScheduleRecord:
    """Note how the runs of the last ticks have ended."""
    ticks = tuple(
        note._replace(outcome=ended[note.run.id].outcome)
        if note.run is not None and note.outcome is None and note.run.id in ended
        else note
        for note in record.ticks
    )
    return replace(record, ticks=ticks)


def with_skipped(record: ScheduleRecord, skipped: list[SkippedTicks]) -> ScheduleRecord:
    """Count skipped ticks, and note the newest of each reason."""
    if not skipped:
        return record
    notes = [TickNote(some.last_at, None, some.reason) for some in skipped]
    count = record.skipped_count + sum(some.ticks for some in skipped)
    return replace(noted(record, notes), skipped_count=count)


def with_run(record: ScheduleRecord, tick: float, run: TickRun) -> ScheduleRecord:
    """Count the job or plan of a tick, and watch for its end if that matters."""
    definition = record.definition
    is_watched = definition.overlap != "allow" or definition.pause_on_failure
    if is_watched or definition.rule.fixed_delay:
        record = replace(record, live=(*record.live, run)[-LIVE_MAX:])
    counted = replace(record, run_count=record.run_count + 1, last_at=tick)
    return noted(counted, [TickNote(tick, run)])


def without_run(
    record: ScheduleRecord, tick: float, reason: Skipped, now: float
) -> ScheduleRecord:
    """Skip a tick whose job cannot be made; the schedule goes on after it."""
    skipped = with_skipped(record, [SkippedTicks(reason, tick, tick, 1)])
    if skipped.next_at is not None:
        return skipped
    return replace(skipped, next_at=tick_after(skipped, now))


def noted(record: ScheduleRecord, notes: list[TickNote]) -> ScheduleRecord:
    return replace(record, ticks=(*record.ticks, *notes)[-TICKS_KEPT:])


def due_time(record: ScheduleRecord, now: float) -> float | None:
    """Return when the record is due again: for its next tick, or to look at a run."""
    definition = record.definition
    if record.waiting:
        # With `allow`, they wait for another commit and not for a run.
        look_seconds = 0.0 if definition.overlap == "allow" else until_look(record, now)
    elif definition.rule.fixed_delay and record.next_at is None and record.live:
        look_seconds = min(LOOK_SECONDS, definition.rule.every or LOOK_SECONDS)
    else:
        return record.next_at
    look_at = now + look_seconds
    return look_at if record.next_at is None else min(look_at, record.next_at)


def until_look(record: ScheduleRecord, now: float) -> float:
    """Return the pause before a look at the last run: half of its age, within bounds."""
    made_at = id_made_at(id_bytes(record.live[-1].id)) if record.live else now
    return min(LOOK_SECONDS, max(LOOK_SECONDS_MIN, (now - made_at) / 2))


def just_before(tick: float) -> float:
    return tick - 0.001


def shown(moment: float) -> str:
    at = utc_datetime(moment)
    return str(moment) if at is None else at.isoformat()
