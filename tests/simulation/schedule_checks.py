"""Invariants of schedules, judged from the ledger and by an independent calculation."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from durio.model.job import STATE_BY_CODE
from tests.simulation.checks import Case, Violation
from tests.simulation.schedule_history import (
    ScheduleHistory,
    ScheduleState,
    ScheduleStep,
    WallPeriod,
    WorldTimes,
)
from tests.simulation.schedule_times import (
    ROUNDING_SECONDS,
    ScheduleRule,
    are_same_times,
    is_same_time,
)

CLOCK_SECONDS = 0.1  # by which a request may miss the time of the store

Check = Callable[[ScheduleHistory], Iterator[Violation]]


def each_due_time_has_one_job(schedule: ScheduleHistory) -> Iterator[Violation]:
    """At most one job for each due time; exactly one if all late ticks are made up for."""
    for life in schedule.lives:
        made = sorted(t for step in life if not step.is_client for t in step.made_times)
        for one, other in pairwise(made):
            if is_same_time(one, other):
                yield Violation("I13", schedule.n, f"tick {one!r} has two jobs")
    for steps, is_last in schedule.periods():
        first = steps[0].after
        if first is None or not first.is_complete or first.next_at is None:
            continue
        made = [t for step in steps[1:] if not step.is_client for t in step.made_times]
        is_whole = is_last and schedule.is_over
        until = math.inf if is_whole else max(made, default=0.0) + ROUNDING_SECONDS
        due = first.rule.between(first.next_at, until)
        schedule.case.exercised |= {"I13"} if made else set()
        if not are_same_times(sorted(made), due):
            what = f"{len(made)} ticks have jobs, and {len(due)} were due"
            yield Violation("I13", schedule.n, what)


def none_while_paused_or_deleted(schedule: ScheduleHistory) -> Iterator[Violation]:
    """A schedule that is paused or deleted is written by people only."""
    for step in schedule.steps:
        if step.before is None or step.before.is_paused:
            schedule.case.exercised |= {"S1"} if step.before else set()
            if not step.is_client:
                state = "deleted" if step.before is None else "paused"
                what = f"a scheduler wrote it while it was {state}: {step.made_times}"
                yield Violation("S1", schedule.n, what)


def none_by_an_old_rule(schedule: ScheduleHistory) -> Iterator[Violation]:
    """After a change, or a deletion and a creation, no job is made by the rule before."""
    changes = 0
    for step in schedule.steps:
        if step.is_client:
            changes += 1
            continue
        before, after = step.before, step.after
        if before is None or after is None:
            continue
        schedule.case.exercised |= {"S2"} if changes > 1 and step.made else set()
        if after.rule != before.rule:
            yield Violation("S2", schedule.n, "a scheduler wrote an older rule")
        for job in step.made:
            if job.mark != before.rule.mark:
                what = f"tick {job.due!r} has arguments from before a change"
                yield Violation("S2", schedule.n, what)
            elif not before.rule.fixed_delay and before.rule.number(job.due) is None:
                what = f"tick {job.due!r} is not due by its rule"
                yield Violation("S2", schedule.n, what)


def late_ticks_follow_the_policy(schedule: ScheduleHistory) -> Iterator[Violation]:
    """Each write of a scheduler follows from catch-up and overlap, at a time of a read."""
    for step, watched in schedule.watched():
        if step.is_client or step.before is None or step.after is None:
            continue
        schedule.case.exercised.add("S3")
        if not any(
            is_expected(schedule, step, watched, now, place)
            for now, place in step.reads
        ):
            before, after = step.before, step.after
            what = (
                f"ticks {step.made_times}, next {after.next_at}, waiting {after.waiting}"
                f" after next {before.next_at}, waiting {before.waiting}, at "
                f"{[now for now, _ in step.reads]}"
            )
            yield Violation("S3", schedule.n, what)


def is_expected(
    schedule: ScheduleHistory,
    step: ScheduleStep,
    watched: set[int],
    now: float,
    place: int,
) -> bool:
    """Whether the write follows from a read at this time and place."""
    assert step.before is not None
    # A run may end between the read and the write.
    is_live = {schedule.times.is_live(watched, at) for at in (place, step.place)}
    if not step.before.rule.fixed_delay:
        return any(
            is_expected_tick(step, step.before, now, is_live=live) for live in is_live
        )
    ends = [
        schedule.times.ends[job][1] for job in watched if job in schedule.times.ends
    ]
    return any(
        is_expected_delay(step, step.before, now, ends, is_live=live)
        for live in is_live
    )


def is_expected_tick(
    step: ScheduleStep, before: ScheduleState, now: float, *, is_live: bool
) -> bool:
    rule, after = before.rule, step.after
    assert after is not None
    is_due = before.next_at is not None and before.next_at <= now
    next_at = rule.after(now) if is_due else before.next_at
    ticks = [*before.waiting, *rule.caught_up(before.next_at, now)]
    made, waiting = step.made_times, after.waiting
    if not is_same_time(after.next_at, next_at):
        return False
    if rule.overlap == "allow":  # one commit may be too small for all of them
        return are_same_times([*made, *waiting], ticks) and bool(made or not ticks)
    fire = [] if is_live else ticks[:1]
    rest = ticks[len(fire) :] if rule.overlap == "queue_all" else []
    return are_same_times(made, fire) and are_same_times(waiting, rest)


def is_expected_delay(
    step: ScheduleStep,
    before: ScheduleState,
    now: float,
    ends: list[float],
    *,
    is_live: bool,
) -> bool:
    rule, after = before.rule, step.after
    assert after is not None
    known = [before.next_at] if before.next_at is not None else []
    if not known and not is_live:
        known = [end + rule.interval for end in (*ends, now)]
    for tick in known:
        if tick > rule.end:
            is_same = after.next_at is None and not step.made
        elif tick <= now:
            fire = [] if is_live else [tick]
            is_same = after.next_at is None and are_same_times(step.made_times, fire)
        else:
            is_same = is_same_time(after.next_at, tick) and not step.made
        if is_same:
            return True
    return False


def one_run_at_a_time(schedule: ScheduleHistory) -> Iterator[Violation]:
    """Without `overlap="allow"` a job is made only when those before have ended."""
    for step, watched in schedule.watched():
        before = step.before
        if before is None or before.rule.overlap == "allow" or not step.made:
            continue
        schedule.case.exercised |= {"S4"} if watched else set()
        if len(step.made) > 1 or schedule.times.is_live(watched, step.place):
            what = f"ticks {step.made_times} have jobs while another run goes on"
            yield Violation("S4", schedule.n, what)


def a_change_counts_from_the_time_of_the_store(
    schedule: ScheduleHistory,
) -> Iterator[Violation]:
    """After a creation, a change or a resume, the next tick is the first one after it.

    If the clock was set back, ticks that were handled already are left out.
    """
    for life in schedule.lives:
        for step in life:
            if not step.is_client or step.after is None:
                continue
            schedule.case.exercised.add("S5")
            low, high = schedule.request_period(step)
            _, highest = schedule.times.period(life[0].line.at, step.line.at)
            period = WallPeriod(low - CLOCK_SECONDS, high + CLOCK_SECONDS)
            if not is_next(step.before, step.after, period, max(high, highest)):
                what = (
                    f"next tick {step.after.next_at} of {step.after.rule}, written "
                    f"between {low} and {high}"
                )
                yield Violation("S5", schedule.n, what)


def is_next(
    before: ScheduleState | None,
    after: ScheduleState,
    period: WallPeriod,
    highest: float,
) -> bool:
    low, high = period
    rule, next_at = after.rule, after.next_at
    until = max(high, highest)  # ticks until then may have been handled
    if before is not None and has_same_pace(before.rule, rule):
        return is_same_time(next_at, before.next_at) or is_first(
            rule, next_at, low, until
        )
    if before is None or times_of(before.rule) != times_of(rule):
        is_anchored = rule.is_cron or low <= rule.anchor <= high
        since = low if rule.is_cron else rule.anchor
        return is_anchored and is_first(rule, next_at, since, until)
    if is_same_time(next_at, before.next_at):
        is_resumed = before.is_paused and not after.is_paused
        return not is_resumed or next_at is None or next_at > low
    is_restarted = before.is_paused or before.next_at is None
    return is_restarted and is_first(rule, next_at, low, until)


def is_first(
    rule: ScheduleRule, tick: float | None, since: float, until: float
) -> bool:
    """Whether this is the first tick after some time in this period."""
    if rule.fixed_delay:
        latest = until + rule.interval + ROUNDING_SECONDS
        return latest > rule.end if tick is None else since < tick <= latest
    first, last = rule.after(since) or math.inf, rule.after(until) or math.inf
    return first - ROUNDING_SECONDS <= (tick or math.inf) <= last + ROUNDING_SECONDS


def has_same_pace(one: ScheduleRule, other: ScheduleRule) -> bool:
    """Whether only the end of an interval differs: its ticks stay at their times."""
    is_moved = times_of(one) != times_of(other)
    return (
        is_moved
        and not one.is_cron
        and times_of(one) == times_of(replace(other, end=one.end))
    )


def times_of(rule: ScheduleRule) -> ScheduleRule:
    """Return a rule without what does not change its ticks."""
    return replace(rule, mark=0, overlap="", catchup="", catchup_max=0)


def an_acknowledged_change_is_stored(schedule: ScheduleHistory) -> Iterator[Violation]:
    """A request that succeeded for its caller is in the store."""
    began: dict[tuple[str, int], float] = {}
    for line in schedule.case.of(schedule.n, "sched.invoke", "sched.ok"):
        act, mark = line.fields["act"], line.fields["mark"]
        if line.what == "sched.invoke":
            began.setdefault((act, mark), line.at)
            continue
        schedule.case.exercised.add("S6")
        since = began[act, mark]
        states = schedule.states(since, line.at)
        ran = any(
            step.made and step.is_client and since <= step.line.at <= line.at
            for step in schedule.steps
        )
        if not (ran if act == "run" else any(is_after(act, mark, s) for s in states)):
            yield Violation(
                "S6", schedule.n, f"{act} was acknowledged, and is not there"
            )


def no_deletion_that_was_not_asked_for(
    schedule: ScheduleHistory,
) -> Iterator[Violation]:
    """A late deletion does not delete a schedule that was created after it."""
    created_at = 0.0
    for step in schedule.steps:
        if step.before is None:
            created_at = step.line.at
        elif step.after is None:
            schedule.case.exercised.add("S8")
            asked = schedule.case.of(schedule.n, "sched.invoke")
            if not any(
                line.at >= created_at and line.fields["act"] == "delete"
                for line in asked
                if line.at <= step.line.at
            ):
                what = "it was deleted by a request from before its creation"
                yield Violation("S8", schedule.n, what)


def is_after(act: str, mark: int, state: ScheduleState | None) -> bool:
    if act == "delete" or state is None:
        return act == "delete" and state is None
    if act in ("create", "change"):
        return state.rule.mark == mark
    return state.is_paused == (act == "pause")


def a_schedule_comes_to_its_end(schedule: ScheduleHistory) -> Iterator[Violation]:
    """Long after its last tick nothing is left to do, and every job of it has ended."""
    last = schedule.last
    if last is not None and not last.is_paused and schedule.is_over:
        schedule.case.exercised.add("S7")
        if last.next_at is not None or last.waiting:
            what = f"next tick {last.next_at}, waiting {last.waiting}, and it is over"
            yield Violation("S7", schedule.n, what)


CHECKS: tuple[Check, ...] = (
    each_due_time_has_one_job,
    none_while_paused_or_deleted,
    none_by_an_old_rule,
    late_ticks_follow_the_policy,
    one_run_at_a_time,
    a_change_counts_from_the_time_of_the_store,
    an_acknowledged_change_is_stored,
    no_deletion_that_was_not_asked_for,
    a_schedule_comes_to_its_end,
)


def judge(case: Case) -> list[Violation]:
    times = WorldTimes(case)
    histories = [
        ScheduleHistory(times, wish.n, wish.schedule)
        for wish in case.wishes.values()
        if wish.schedule is not None
    ]
    found = [each for one in histories for check in CHECKS for each in check(one)]
    return found + unfinished_jobs(case)


def unfinished_jobs(case: Case) -> list[Violation]:
    """The jobs of ticks, like all others, become final by themselves."""
    ticks = {entry.n: entry.fields["schedule"] for entry in case.ledger.of("tick")}
    numbered = [(case.ledger.number(job), job) for job in case.all_records]
    return [
        Violation("I2", ticks[n], f"job {n} of a tick is {STATE_BY_CODE[job.state]}")
        for n, job in numbered
        if n in ticks and not STATE_BY_CODE[job.state].is_final
    ]
