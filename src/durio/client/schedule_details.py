"""What is known about a schedule beside its record: runs of its ticks, and what code says."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from durio.client.schedule_view import HandledTick, Schedule, schedule_view
from durio.model.errors import InvalidPlan, InvalidSchedule
from durio.model.ids import id_bytes, id_text
from durio.model.job import STATE_BY_CODE
from durio.model.plan_record import load_record, plan_kind
from durio.model.quantities import format_duration
from durio.model.schedule import Definition
from durio.model.schedule_checks import choices_of
from durio.ports.records import Record
from durio.ports.store import Store

READ_MAX = 500  # jobs or plans in one read
DAMAGED = "damaged"
WHY_SKIPPED = {
    "catchup": "late, and catch-up does not include it",
    "overlap": "the run before it had not ended",
    "queue_closed": "the queue is closed",
    "max_runs": "all runs were made",
    "key": "another job has the key",
    "invalid": "its job could not be made: see the log of the workers",
    "changed": "it was late or waited, and the rule was changed",
    "paused": "it was late, and the schedule was paused",
}


def view_or_damage(record: Record, now: float) -> Schedule | InvalidSchedule:
    """Return a schedule, or why its record cannot be read: it must not hide the others."""
    try:
        return schedule_view(record, now)
    except InvalidSchedule as error:
        return error


async def run_states(
    store: Store, namespace: str, ticks: Iterable[HandledTick]
) -> dict[str, str]:
    """Return the state of the jobs and plans of ticks, by id; deleted ones are absent."""
    made = [(tick.run, tick.is_plan) for tick in ticks if tick.run is not None]
    jobs = [id_bytes(run) for run, is_plan in made if not is_plan]
    plans = [run for run, is_plan in made if is_plan]
    states: dict[str, str] = {}
    for at in range(0, len(jobs), READ_MAX):
        for job in await store.get(jobs[at : at + READ_MAX]):
            states[id_text(job.id)] = STATE_BY_CODE[job.state].value
    for at in range(0, len(plans), READ_MAX):
        some = plans[at : at + READ_MAX]
        for record in await store.records(plan_kind(namespace), some):
            try:
                states[record.name] = load_record(record.body).state.value
            except InvalidPlan:
                states[record.name] = DAMAGED
    return states


def tick_fields(tick: HandledTick, states: dict[str, str]) -> dict[str, Any]:
    """Return a tick with the state of its job, or the outcome that was noted for it."""
    return {
        "due_at": tick.due_at,
        "run": tick.run,
        "is_plan": tick.is_plan,
        "skipped": tick.skipped,
        "state": states.get(tick.run or "", tick.outcome),
    }


def differences(before: Definition, after: Definition) -> list[tuple[str, str, str]]:
    """Return the fields that differ, with both values as text."""
    old, new = said(before), said(after)
    return [
        (name, shown_choice(name, old[name]), shown_choice(name, new[name]))
        for name in old
        if old[name] != new[name]
    ]


def said(definition: Definition) -> dict[str, Any]:
    return {"runs": definition.link, **choices_of(definition)}


def shown_choice(name: str, value: Any) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in {"every", "jitter", "catchup_window"}:
        return format_duration(value)
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")
    return (
        msgspec.json.encode(value, enc_hook=repr).decode()
        if name in {"runs", "exclude"}
        else str(value)
    )


def why_no_run(schedule: Schedule) -> str:
    return (
        "known when the run before has ended"
        if schedule.fixed_delay and schedule.state != "ended"
        else "none"
    )
