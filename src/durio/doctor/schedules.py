"""Checks of schedules: missed ticks, unknown tasks, pauses, rules without ticks, clocks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from durio.client.schedule_view import state_of
from durio.doctor.code import first_names
from durio.doctor.snapshot import StoreSnapshot
from durio.model.cron_zone import WallClock, zone_of
from durio.model.errors import InvalidPlan, InvalidSchedule
from durio.model.finding import Finding, error, fine, warning
from durio.model.job import utc_datetime
from durio.model.names import known_as
from durio.model.plan import PlanValue, SignatureValue, signatures_of
from durio.model.plan_document import link_from
from durio.model.quantities import counted, format_duration
from durio.model.schedule import Pause, ScheduleRecord, load_schedule, schedules_kind
from durio.model.schedule_change import is_set_ahead
from durio.model.schedule_rule import Rule
from durio.ports.records import Record, store_time
from durio.ports.store import Store

PAGE = 500
SCHEDULES_MAX = 10_000  # of an App that are examined
DAY_SECONDS = 86400
AHEAD_DAYS = 366  # of the note about daylight saving
FIELDS = 5  # of a cron text, without the second
DURIO = "durio"  # who paused a schedule, if no person did


@dataclass(frozen=True, slots=True)
class ExaminedSchedule:
    """A stored schedule, as the checks need it."""

    name: str
    record: ScheduleRecord
    state: str
    due_at: float | None

    @property
    def runs(self) -> bool:
        """Whether it will make jobs."""
        return self.state in {"active", "missed"}

    def tasks(self) -> set[str]:
        """Return the tasks of its signature or plan; none if it is damaged."""
        try:
            link = link_from(self.record.definition.link, (SignatureValue, PlanValue))
        except InvalidPlan:
            return set()
        return {signature.task for signature in signatures_of(link)}


@dataclass(frozen=True, slots=True)
class ExaminedSchedules:
    """All schedules of an App, with the snapshot of its store."""

    snapshot: StoreSnapshot
    schedules: Sequence[ExaminedSchedule]
    damaged: Sequence[str]  # names of records that cannot be read


async def read_schedules(store: Store, namespace: str) -> tuple[list[Record], float]:
    """Return the records of schedules, up to a limit, and the time of the store."""
    kind, found = schedules_kind(namespace), list[Record]()
    while len(found) < SCHEDULES_MAX:
        after = found[-1].name if found else ""
        page = await store.list_records(kind, after=after, limit=PAGE)
        found += page
        if len(page) < PAGE:
            break
    return found, await store_time(store, kind)


def schedule_checks(
    snapshot: StoreSnapshot, records: Sequence[Record], now: float
) -> dict[str, Callable[[], Iterator[Finding]]]:
    """Return the checks of these schedules at this time; none without schedules."""
    if not records:
        return {}
    schedules: list[ExaminedSchedule] = []
    damaged: list[str] = []
    for record in records:
        try:
            stored = load_schedule(record.body, record.name)
        except InvalidSchedule:
            damaged.append(record.name)
            continue
        state = state_of(stored, record.due_at, now)
        schedules.append(ExaminedSchedule(record.name, stored, state, record.due_at))
    seen = ExaminedSchedules(snapshot._replace(now=now), schedules, damaged)
    return {name: lambda check=check: check(seen) for name, check in CHECKS.items()}


def readable(seen: ExaminedSchedules) -> Iterator[Finding]:
    """Report records that cannot be read: they make no jobs."""
    name = "schedules.records"
    if seen.damaged:
        evidence = f"cannot be read: {first_names(seen.damaged)}"
        fix = f"Delete it, and create it again: durio schedules rm {seen.damaged[0]}"
        yield error(name, evidence, fix)
    else:
        yield fine(name, f"{counted(len(seen.schedules), 'schedule')}, all readable")


def missed(seen: ExaminedSchedules) -> Iterator[Finding]:
    """Report schedules that are due, and that no worker has handled."""
    name, now = "schedules.missed", seen.snapshot.now
    late = [
        f"{each.name} (due for {format_duration(now - each.due_at)})"
        for each in seen.schedules
        if each.state == "missed" and each.due_at is not None
    ]
    if not late:
        yield fine(name, "no tick is late")
    elif seen.snapshot.live_workers:
        fix = "The leader among the workers handles schedules: see the workers' logs."
        yield error(name, first_names(late), fix)
    else:
        fix = "No worker is alive: start one with durio worker MODULE:APP."
        yield error(name, first_names(late), fix)


def set_ahead(seen: ExaminedSchedules) -> Iterator[Finding]:
    """Report schedules that a clock which was ahead has moved into the future."""
    name, now = "schedules.set_ahead", seen.snapshot.now
    ahead = [
        (each.name, each.record.next_at)
        for each in seen.schedules
        if each.state in {"active", "ended"} and is_set_ahead(each.record, now)
    ]
    if not ahead:
        yield fine(name, "no next tick is later than the rule says")
        return
    late = [f"{each} ({utc_datetime(next_at) or 'none'})" for each, next_at in ahead]
    fix = (
        "The clock of the store was ahead when ticks were made. Correct it, then: "
        f"durio schedules pause {ahead[0][0]}, and durio schedules resume {ahead[0][0]}. "
        "Ticks that were made too early are made again."
    )
    evidence = f"the next tick is later than the rule says: {first_names(late)}"
    yield error(name, evidence, fix)


def unknown_tasks(seen: ExaminedSchedules) -> Iterator[Finding]:
    """Report schedules whose task neither a worker nor this code has."""
    name, snapshot = "schedules.unknown_tasks", seen.snapshot
    known = snapshot.published | (snapshot.registered or frozenset())
    if not known:
        yield fine(name, "no worker has registered its tasks yet; --app names the code")
        return
    own = f"{snapshot.namespace}."  # what other Apps have is not known here
    unknown = [
        (each.name, task)
        for each in seen.schedules
        if each.runs
        for task in sorted(each.tasks())
        if task.startswith(own) and not known_as(task, known)
    ]
    if unknown:
        evidence = first_names([f"{each} runs {task}" for each, task in unknown])
        fix = (
            "Deploy the code that has the task, or name another: "
            f"durio schedules edit {unknown[0][0]} --task TASK"
        )
        yield error(name, f"no code and no worker has the task: {evidence}", fix)
    else:
        yield fine(name, "every scheduled task is known")


def paused(seen: ExaminedSchedules) -> Iterator[Finding]:
    """Report schedules that Durio has paused; those that people paused are meant."""
    name = "schedules.paused"
    by_durio = [
        (each.name, pause)
        for each in seen.schedules
        if (pause := each.record.pause) is not None and pause.by == DURIO
    ]
    undeclared = [each for each, pause in by_durio if pause.is_undeclared]
    failed = [(each, pause) for each, pause in by_durio if not pause.is_undeclared]
    if undeclared:
        fix = (
            "If the code should declare it, deploy that code. If not, delete it: "
            f"durio schedules rm {undeclared[0]}"
        )
        evidence = f"paused, no live worker declares it: {first_names(undeclared)}"
        yield warning(name, evidence, fix)
    if failed:
        fix = f"Repair the cause, then: durio schedules resume {failed[0][0]}"
        yield warning(name, f"paused: {pauses_text(failed)}", fix)
    if not by_durio:
        yield fine(name, "Durio has paused none")


def pauses_text(pauses: Sequence[tuple[str, Pause]]) -> str:
    return first_names([f"{name} ({pause.reason})" for name, pause in pauses])


def never_due(seen: ExaminedSchedules) -> Iterator[Finding]:
    """Report schedules of the code that ended before their first tick."""
    name = "schedules.never_due"
    idle = [
        f"{each.name} ({each.record.definition.rule.describe()})"
        for each in seen.schedules
        if each.state == "ended"
        and each.record.origin == "code"
        and not each.record.run_count + each.record.skipped_count
    ]
    if idle:
        fix = "Correct at, end or exclude in the code, or take the schedule out of it."
        yield warning(name, f"no tick, now or later: {first_names(idle)}", fix)
    else:
        yield fine(name, "every schedule of the code had or has a tick")


def daylight_saving(seen: ExaminedSchedules) -> Iterator[Finding]:
    """Note fixed times that clocks skip within the next year; such a tick runs later."""
    name, now = "schedules.daylight_saving", int(seen.snapshot.now)
    rules = [
        (each.name, each.record.definition.rule) for each in seen.schedules if each.runs
    ]
    changes = {tz: forward_changes(tz, now) for tz in {rule.tz for _, rule in rules}}
    notes = [
        f"{each} on {note}"
        for each, rule in rules
        if has_fixed_times(rule)
        for at in changes[rule.tz]
        if (note := gap_note(rule, at))
    ]
    yield fine(name, first_names(notes) or "no fixed time is skipped within a year")


def has_fixed_times(rule: Rule) -> bool:
    """Whether neither minute nor hour of a cron text begins with `*`."""
    fields = (rule.cron or "").split()[-FIELDS:]
    return len(fields) == FIELDS and not any(
        each.startswith("*") for each in fields[:2]
    )


def forward_changes(tz: str, now: int) -> list[int]:
    """Return when the clocks of a zone go forward within a year."""
    clock = WallClock(zone_of(tz))
    days = [now + day * DAY_SECONDS for day in range(AHEAD_DAYS)]
    return [
        clock.change(before, after)
        for before, after in pairwise(days)
        if clock.offset(after) > clock.offset(before)
    ]


def gap_note(rule: Rule, changed_at: int) -> str | None:
    """Return what the change of the clock does to a tick that is due then; or None."""
    for run in rule.preview(changed_at - 1.0, 1):
        if run.note is not None and run.at.timestamp() == changed_at:
            return f"{run.at:%Y-%m-%d} ({rule.tz}): {run.note}"
    return None


CHECKS: dict[str, Callable[[ExaminedSchedules], Iterator[Finding]]] = {
    "schedules.records": readable,
    "schedules.missed": missed,
    "schedules.set_ahead": set_ahead,
    "schedules.unknown_tasks": unknown_tasks,
    "schedules.paused": paused,
    "schedules.never_due": never_due,
    "schedules.daylight_saving": daylight_saving,
}
