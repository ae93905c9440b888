"""`admin/schedules`: create, change, delete, pause, resume, run, preview, backfill."""

import json
import math
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import ConfigDict, Field

from durio.client.backfills import Backfill
from durio.client.handle import Job
from durio.client.schedule_store import store_now
from durio.client.schedules import Schedules
from durio.model.backfill import AT_A_TIME_MAX
from durio.model.cron import PREVIEW_MAX, CronRun
from durio.model.errors import InvalidSchedule
from durio.model.job import utc_datetime
from durio.model.schedule_checks import rule_of
from durio.model.schedule_tick import coming_runs
from durio.web.api.schedule_bodies import (
    ChangedSchedule,
    NewSchedule,
    RuleBody,
    changed_link,
    check_places,
    choices_of,
    moment_of,
    new_link,
)
from durio.web.api.schedule_items import (
    BackfillItem,
    NextRun,
    ScheduleView,
    backfill_item,
    next_run,
    schedule_view,
)
from durio.web.api.schedules import known_schedule
from durio.web.api.shapes import Answer, Body, NoChoices
from durio.web.call import WebCall
from durio.web.problems import Refusal
from durio.web.roles import Viewer, may

router = APIRouter(tags=["schedules"])

Change = Annotated[WebCall, may("change_schedule")]
Pausing = Annotated[WebCall, may("pause_schedule")]
PREVIEWED = 10


class PauseSchedule(Body):
    reason: str = ""


class RunBody(Body):
    force: bool = False  # even while a run of it goes on


class PreviewBody(Body):
    n: int = Field(default=PREVIEWED, ge=1, le=PREVIEW_MAX)
    after: str | None = None  # default: now


class RulePreviewBody(RuleBody, PreviewBody):
    pass


class BackfillBody(Body):
    model_config = ConfigDict(populate_by_name=True)

    start: str = Field(alias="from")  # the first tick is not before
    end: str = Field(alias="to")  # the last tick is before
    concurrency: int = Field(default=10, ge=1, le=AT_A_TIME_MAX)
    dry_run: bool = False  # only count


class RunAnswer(Answer):
    id: str
    is_plan: bool
    status: str = "enqueued"


class PreviewAnswer(Answer):
    plain: str
    tz: str
    runs: list[NextRun]
    note: str | None  # why there is no run, or why none is made


class BackfillAnswer(BackfillItem):
    first_at: datetime | None
    last_at: datetime | None
    dry_run: bool


class Deleted(Answer):
    status: str = "deleted"


@router.post("/schedules", status_code=201)
async def create_schedule(call: Change, body: NewSchedule) -> ScheduleView:
    """Store a new schedule; 409 if there is one of this name."""
    choices, link = choices_of(body), new_link(call, body)
    await check_places(call, link)
    schedules = schedules_of(call, after=said(choices))
    made = await schedules.create(body.name, link, **choices)
    return await view_of(call, made.name)


@router.patch("/schedules/{name}")
async def change_schedule(
    call: Change, name: str, body: ChangedSchedule
) -> ScheduleView:
    """Change a schedule; what is not given stays. 409 if it has another version."""
    known = await known_schedule(call, name)
    _, stored = known.whole()
    choices, link = choices_of(body), changed_link(call, body, stored)
    if not choices and link is None:
        raise InvalidSchedule("nothing to change is given", cure="Give a choice.")
    await check_places(call, link)
    schedules = schedules_of(call, after=said(choices))
    await schedules.change(name, link, version=body.version, **choices)
    return await view_of(call, name)


@router.delete("/schedules/{name}")
async def delete_schedule(
    call: Change, name: str, version: int | None = None
) -> Deleted:
    """Delete a schedule; its jobs stay. With a version, 409 if it has another one."""
    await known_schedule(call, name)
    await schedules_of(call).delete(name, version=version)
    return Deleted()


@router.post("/schedules/{name}/pause")
async def pause_schedule(call: Pausing, name: str, body: PauseSchedule) -> ScheduleView:
    """Make no more jobs; those that are made go on."""
    await known_schedule(call, name)
    await schedules_of(call).pause(name, body.reason)
    return await view_of(call, name)


@router.post("/schedules/{name}/resume")
async def resume_schedule(call: Pausing, name: str, body: NoChoices) -> ScheduleView:
    """Let a paused schedule go on, from its next tick after now."""
    _ = body
    await known_schedule(call, name)
    await schedules_of(call).resume(name)
    return await view_of(call, name)


@router.post("/schedules/{name}/reset")
async def reset_schedule(call: Change, name: str, body: NoChoices) -> ScheduleView:
    """Give a schedule that people changed back to the code that declares it."""
    _ = body
    await known_schedule(call, name)
    await schedules_of(call).reset(name)
    return await view_of(call, name)


@router.post("/schedules/{name}/run", status_code=201)
async def run_schedule(
    call: Annotated[WebCall, may("run_schedule")], name: str, body: RunBody
) -> RunAnswer:
    """Make one job now, beside the rule; 409 while a run goes on."""
    await known_schedule(call, name)
    run = await schedules_of(call).run(name, force=body.force)
    return RunAnswer(id=run.id, is_plan=not isinstance(run, Job))


# --- previews


@router.post("/schedules/preview")
async def preview_rule(call: Viewer, body: RulePreviewBody) -> PreviewAnswer:
    """Say when a rule that is not stored would be due."""
    choices, now = choices_of(body), await store_now(call.app)
    rule = rule_of(choices, None)
    after = moment_of("after", body.after)
    runs = rule.preview(now if after is None else after.timestamp(), body.n)
    return preview_answer(rule.describe(), rule.tz, runs, None)


@router.post("/schedules/{name}/preview")
async def preview_schedule(call: Viewer, name: str, body: PreviewBody) -> PreviewAnswer:
    """Say when a schedule is due; jitter is not included."""
    known = await known_schedule(call, name)
    _, stored = known.whole()
    after = moment_of("after", body.after)
    runs = coming_runs(
        stored, known.now if after is None else after.timestamp(), body.n
    )
    note = None if stored.pause is None else "it is paused: no run until it is resumed"
    rule = stored.definition.rule
    return preview_answer(rule.describe(), rule.tz, runs, note)


def preview_answer(
    plain: str, tz: str, runs: list[CronRun], note: str | None
) -> PreviewAnswer:
    none = None if runs else "there is no further run"
    return PreviewAnswer(
        plain=plain, tz=tz, runs=[next_run(run) for run in runs], note=note or none
    )


# --- backfills


@router.post("/schedules/{name}/backfill")
async def backfill_schedule(
    call: Annotated[WebCall, may("backfill_schedule")], name: str, body: BackfillBody
) -> BackfillAnswer:
    """Make the ticks of a time in the past again; with `dry_run` only count them."""
    _, stored = (await known_schedule(call, name)).whole()
    start, end = moment_of("from", body.start), moment_of("to", body.end)
    if start is None or end is None:
        raise InvalidSchedule("from and to are needed", cure="Give two times.")
    made = await schedules_of(call).backfill(
        name, start, end, at_a_time=body.concurrency, dry_run=body.dry_run
    )
    until = math.nextafter(end.timestamp(), -math.inf)
    last = stored.definition.rule.latest(until, -math.inf)
    return BackfillAnswer(
        **backfill_item(made).model_dump(),
        first_at=made.first_at,
        last_at=utc_datetime(last),
        dry_run=body.dry_run,
    )


@router.delete("/schedules/{name}/backfills/{backfill}")
async def cancel_backfill(
    call: Annotated[WebCall, may("backfill_schedule")], name: str, backfill: str
) -> Deleted:
    """Make no more jobs of a backfill; those that are made go on."""
    await known_schedule(call, name)
    schedules = schedules_of(call)
    found = [
        each for each in await schedules.backfills() if is_this(each, name, backfill)
    ]
    if not found:
        raise Refusal(404, "backfill_not_found", f"{name} has no such backfill")
    await schedules.cancel_backfill(found[0].id)
    return Deleted(status="cancelled")


def is_this(found: Backfill, schedule: str, backfill: str) -> bool:
    return found.schedule == schedule and found.id == backfill


# --- parts


def schedules_of(call: WebCall, *, after: dict[str, Any] | None = None) -> Schedules:
    """Return the schedules of the App, with this user for the audit."""
    schedules = Schedules(call.app)
    schedules.by = call.by
    schedules.audit_details = call.note(after=after).details
    return schedules


def said(choices: dict[str, Any]) -> dict[str, Any]:
    """Return choices for the audit; arguments are not among them."""
    return json.loads(json.dumps(choices, default=str))


async def view_of(call: WebCall, name: str) -> ScheduleView:
    return await schedule_view(call, await known_schedule(call, name))
