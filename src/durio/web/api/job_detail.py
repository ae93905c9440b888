"""`admin/jobs/{id}`: one job with its life, its attempts, and what can be done with it."""

from datetime import datetime

from fastapi import APIRouter

from durio.client.explain import explain_job
from durio.client.job_relations import relations_of
from durio.client.job_view import (
    arguments_of,
    options_of,
    readable,
)
from durio.client.query_matching import DecodedJob, SearchFacts, versions_of
from durio.client.refused_actions import (
    cancel_refusal,
    run_now_refusal,
)
from durio.client.result_waiters import not_found
from durio.model.error_groups import errors_kind, group_of_job, load_group
from durio.model.errors import DurioError, WrongState
from durio.model.ids import id_bytes, id_text
from durio.model.job import (
    STATE_BY_CODE,
    JobError,
    State,
    StoredJob,
    utc_datetime,
)
from durio.model.plan_change import replacing_plan
from durio.model.traceback_frames import cause_of, frames_of
from durio.model.transitions import check_retry
from durio.web.api.errors import ErrorFrame
from durio.web.api.job_items import JobItem, items_for
from durio.web.api.job_story import (
    JobTransition,
    StoryAttempt,
    attempts_of,
    transitions_of,
)
from durio.web.api.shapes import Answer
from durio.web.call import WebCall
from durio.web.masking import shown_payloads
from durio.web.roles import Viewer

router = APIRouter(tags=["jobs"])


class PlanOfJob(Answer):
    id: str
    node: int  # its number in the plan
    name: str | None  # the shape of the plan


class ScheduleOfJob(Answer):
    name: str
    due_at: datetime | None
    backfill: str | None


class SameError(Answer):
    fingerprint: str
    count: int  # failed attempts with this error


class ErrorDetail(Answer):
    type: str
    text: str
    frames: list[ErrorFrame]  # empty: masked, or there is no traceback
    cause: str | None  # the error that led to it


class LogLine(Answer):
    at: datetime | None
    level: str
    text: str


class AttemptView(Answer):
    number: int
    worker: str | None
    started_at: datetime | None  # known of the last attempt only
    ended_at: datetime | None
    outcome: str
    error: ErrorDetail | None
    decision: str | None  # what happened to the job, and why
    traceback: str | None
    logs: list[LogLine]


class JobView(JobItem):
    # JSON text; null when it is masked.
    args_json: str | None  # positional arguments
    kwargs_json: str | None
    meta_json: str | None
    result_json: str | None
    masked: bool  # texts, tracebacks and logs are hidden from this user
    expires_at: datetime | None
    result_until: datetime | None
    version: str | None  # of the code that runs it, while its worker is registered
    plan: PlanOfJob | None
    schedule: ScheduleOfJob | None
    replaced_by: str | None  # the plan that has its place
    parents: list[str]  # jobs of its plan that it waits for
    children: list[str]
    cancel_asked: bool
    transitions: list[JobTransition]  # oldest first
    attempts: list[AttemptView]  # oldest first
    same_error: SameError | None
    # By action: why it cannot be done in this state; null: it can.
    actions: dict[str, str | None]


class ReasonView(Answer):
    code: str
    text: str
    unblock: str
    command: str | None
    is_blocking: bool


class ExplanationView(Answer):
    id: str
    state: State
    at: datetime | None
    sentence: str  # the most important reason
    reasons: list[ReasonView]


@router.get("/jobs/{job_id}")
async def show_job(call: Viewer, job_id: str) -> JobView:
    """Return one job with everything that is known about it."""
    job = await job_of(call, job_id)
    store, known = await call.store(), await items_for(call, [job])
    options, tick = options_of(job), options_of(job).tick
    relations = await relations_of(store, job)
    args, kwargs = arguments_of(job)
    plan_id = replacing_plan(job.result)
    payloads = {"args": args, "kwargs": kwargs, "meta": options.meta or {}}
    if job.result is not None and not plan_id:
        payloads["result"] = readable(job.result)
    shown = await shown_payloads(call, job.task, payloads) or {}
    return JobView(
        **known.fields(job),
        args_json=shown.get("args"),
        kwargs_json=shown.get("kwargs"),
        meta_json=shown.get("meta"),
        result_json=shown.get("result"),
        masked=not shown,
        expires_at=utc_datetime(options.expires),
        result_until=utc_datetime(job.result_until),
        version=await version_of(call, job),
        plan=relations
        and PlanOfJob(id=relations.plan, node=relations.node, name=relations.name),
        schedule=tick
        and ScheduleOfJob(
            name=tick.schedule, due_at=utc_datetime(tick.due_at), backfill=tick.backfill
        ),
        replaced_by=None if plan_id is None else id_text(plan_id),
        parents=list(relations.parents) if relations else [],
        children=list(relations.children) if relations else [],
        cancel_asked=job.cancel_asked,
        transitions=transitions_of(job),
        attempts=[
            attempt_view(each, shown=call.user.sees_payloads)
            for each in attempts_of(job)
        ],
        same_error=await same_error(call, job),
        actions=actions_of(job) | hidden_actions(call),
    )


@router.get("/jobs/{job_id}/explain")
async def explain(call: Viewer, job_id: str) -> ExplanationView:
    """Return why a job does not run, or how it ended, with what would unblock it."""
    job = await job_of(call, job_id)
    found = await explain_job(call.app, job)
    reasons = [
        ReasonView(
            code=each.code,
            text=each.text,
            unblock=each.unblock,
            command=each.command,
            is_blocking=each.is_blocking,
        )
        for each in found.reasons
    ]
    return ExplanationView(
        id=found.id,
        state=found.state,
        at=found.at,
        sentence=reasons[0].text if reasons else "",
        reasons=reasons,
    )


async def job_of(call: WebCall, job_id: str) -> StoredJob:
    """Return a job that the user may see; raises JobNotFound."""
    raw = id_bytes(job_id)
    for job in await (await call.store()).get([raw]):
        if call.sees_job(job):
            return job
    raise not_found(raw)


async def version_of(call: WebCall, job: StoredJob) -> str | None:
    """Return the version of the code that runs the job, or ran it last."""
    store, namespace = await call.store(), call.app.name
    workers = {
        name: row
        for row in await store.workers(namespace)
        for name in (str(row.id), row.info["name"])
    }
    facts = SearchFacts(namespace, call.app.now(), workers)
    return next((each for each in versions_of(DecodedJob(job), facts) if each), None)


async def same_error(call: WebCall, job: StoredJob) -> SameError | None:
    """Return how often the last error of the job has happened."""
    fingerprint = group_of_job(job)
    if fingerprint is None:
        return None
    store, kind = await call.store(), errors_kind(call.app.name)
    for record in await store.records(kind, [fingerprint]):
        return SameError(fingerprint=fingerprint, count=load_group(record.body).failed)
    return None


def attempt_view(attempt: StoryAttempt, *, shown: bool) -> AttemptView:
    error = attempt.error
    return AttemptView(
        number=attempt.number,
        worker=attempt.worker,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        outcome=attempt.outcome,
        error=None if error is None else error_detail(error, shown=shown),
        decision=(error.decision if error else None) or None,
        traceback=error.traceback or None if error and shown else None,
        logs=[log_line(line) for line in error.logs] if error and shown else [],
    )


def error_detail(error: JobError, *, shown: bool) -> ErrorDetail:
    frames = frames_of(error.traceback) if shown else []
    return ErrorDetail(
        type=error.type,
        text=error.message,
        frames=[ErrorFrame(**frame._asdict()) for frame in frames],
        cause=cause_of(error.traceback) if shown else None,
    )


LEVELS = {"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"}


def log_line(line: str) -> LogLine:
    """Return a kept line, which begins with its level."""
    level, _, text = line.partition(" ")
    if level in LEVELS:
        return LogLine(at=None, level=level.lower(), text=text)
    return LogLine(at=None, level="info", text=line)


def actions_of(job: StoredJob) -> dict[str, str | None]:
    """Return why each action cannot be done in this state; None: it can."""
    state, job_id = STATE_BY_CODE[job.state], id_text(job.id)
    retry = retry_refusal(state, job_id)
    is_chunk = options_of(job).is_chunk
    of_chunk = (
        WrongState(f"job {job_id} is a chunk of many calls") if is_chunk else None
    )
    not_dead = f"only dead jobs can be discarded, and this one is {state.value}"
    is_over = state is State.CANCELLED
    ended = WrongState(f"job {job_id} is cancelled already") if is_over else None
    refusals: dict[str, DurioError | None] = {
        "retry": retry,
        "edit": retry or of_chunk or of_plan(job, job_id),
        "cancel": cancel_refusal(state, job_id) or ended,
        "run_now": run_now_refusal(state, job_id),
        "discard": None if state is State.DEAD else WrongState(not_dead),
        "duplicate": of_chunk or of_plan(job, job_id),
    }
    return {verb: error and error.what for verb, error in refusals.items()}


def of_plan(job: StoredJob, job_id: str) -> DurioError | None:
    place = options_of(job).plan
    if place is None or place.input is None:
        return None
    return WrongState(f"job {job_id} gets its first argument from its plan")


def hidden_actions(call: WebCall) -> dict[str, str | None]:
    """Return why arguments cannot be edited that are hidden, also in part."""
    hidden = "the arguments are hidden, in whole or in part"
    return {} if call.sees_whole_payloads else {"edit": hidden}


def retry_refusal(state: State, job_id: str) -> DurioError | None:
    try:
        check_retry(state, job_id)
    except WrongState as error:
        return error
    return None
