"""`admin/jobs`: what changes jobs, one by one, each audited in the commit that changes it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, cast

from fastapi import APIRouter, Header, Response

from durio.app.edit_arguments import checked_payload
from durio.client.audited_enqueue import (
    check_one_key,
    duplicate_audited,
    enqueue_audited,
)
from durio.client.job_view import arguments_of, options_of
from durio.client.plan_retry import resume_plans
from durio.client.refused_actions import refusal
from durio.keys import window
from durio.model.errors import InvalidOption, UnknownTask, WrongState
from durio.model.ids import id_text
from durio.model.job import STATE_BY_CODE, State, StoredJob
from durio.model.names import check_name, task_name
from durio.model.options import NO_OPTIONS, CallOptions
from durio.ports.control import ACTION_OF_VERB, Action, RetryJobs, Verb
from durio.web.api.job_detail import job_of
from durio.web.api.shapes import Answer, Body, NoChoices
from durio.web.call import WebCall
from durio.web.problems import Refusal
from durio.web.roles import VERBS, may
from durio.web.strict_json import parse_json

router = APIRouter(tags=["jobs"])

KEY_WINDOW = "24h"


class ActionAnswer(Answer):
    status: str
    state: State | None  # after the action; null: the job is deleted


class RetryBody(Body):
    """New arguments need the role admin; null keeps those of the job."""

    args_json: str | None = None  # JSON text of a list
    kwargs_json: str | None = None  # JSON text of an object


class NewJobBody(Body):
    task: str  # its name; without a dot a task of this App
    args_json: str | None = None  # JSON text of a list
    kwargs_json: str | None = None  # JSON text of an object
    meta_json: str | None = None  # JSON text of an object
    queue: str | None = None
    priority: int | None = None
    delay: float | str | None = None
    at: str | None = None  # ISO 8601, with a zone
    expires: float | str | None = None
    key: str | None = None


class EnqueueAnswer(Answer):
    id: str
    created: bool  # False: the job with this key and these arguments


class CopyAnswer(Answer):
    id: str


@router.post("/jobs/{job_id}/retry")
async def retry_job(
    call: Annotated[WebCall, may("retry")], job_id: str, body: RetryBody
) -> ActionAnswer:
    """Make a dead or cancelled job ready again, with all its retries.

    With new arguments this needs the role admin.
    """
    job, action = await job_of(call, job_id), RetryJobs()
    if body.args_json is not None or body.kwargs_json is not None:
        action = RetryJobs(await edited_payload(call, job, body))
    return ActionAnswer(
        status="retrying", state=await act_on(call, job, "retry", action)
    )


@router.post("/jobs/{job_id}/cancel")
async def cancel_job(
    call: Annotated[WebCall, may("cancel")], job_id: str, body: NoChoices
) -> ActionAnswer:
    """Cancel a job that has not ended; a running one is asked to stop."""
    _ = body
    state = await act_on(call, await job_of(call, job_id), "cancel")
    status = "cancelled" if state is State.CANCELLED else "cancelling"
    return ActionAnswer(status=status, state=state)


@router.post("/jobs/{job_id}/run_now")
async def run_job_now(
    call: Annotated[WebCall, may("run_now")], job_id: str, body: NoChoices
) -> ActionAnswer:
    """Make a scheduled job ready now, also one that waits for its next attempt."""
    _ = body
    state = await act_on(call, await job_of(call, job_id), "run_now")
    return ActionAnswer(status="ready", state=state)


@router.post("/jobs/{job_id}/discard")
async def discard_job(
    call: Annotated[WebCall, may("discard")], job_id: str, body: NoChoices
) -> ActionAnswer:
    """Delete a dead job; it cannot be brought back."""
    _ = body
    await act_on(call, await job_of(call, job_id), "discard")
    return ActionAnswer(status="discarded", state=None)


@router.post("/jobs/{job_id}/duplicate", status_code=201)
async def duplicate_job(
    call: Annotated[WebCall, may("duplicate")], job_id: str, body: NoChoices
) -> CopyAnswer:
    """Enqueue the same call again, as a job of its own without a key."""
    _ = body
    job = await job_of(call, job_id)
    note = call.note(id_text(job.id), verb="duplicate")
    answer = await duplicate_audited(call.app, job, note)
    return CopyAnswer(id=id_text(answer.id))


@router.post("/jobs", status_code=201, responses={200: {"model": EnqueueAnswer}})
async def enqueue_job(
    call: Annotated[WebCall, may("enqueue", purpose="enqueue")],
    body: NewJobBody,
    response: Response,
    idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
) -> EnqueueAnswer:
    """Enqueue a job of a task; 200 if the key has a job with the same arguments."""
    args = json_list(body.args_json, "args_json")
    kwargs = json_object(body.kwargs_json, "kwargs_json")
    key = check_one_key(idempotency_key, body.key)
    options = options_of_body(body, key)
    await check_target(call, body)
    note = call.note(body.task, verb="enqueue")
    answer = await enqueue_audited(call.app, body.task, (args, kwargs), options, note)
    if not answer.created:
        response.status_code = 200
    return EnqueueAnswer(id=id_text(answer.id), created=answer.created)


# --- acting


async def act_on(
    call: WebCall, job: StoredJob, verb: Verb, action: Action | None = None
) -> State | None:
    """Act on one job, audited in the same commit; return its state after it."""
    store, chosen = await call.store(), action or ACTION_OF_VERB[verb]
    if verb == "retry":
        await resume_plans(store, [job.id], call.app.clock, call.by)
    (acted,) = await store.act([job.id], chosen, note=call.note())
    error = refusal(acted, verb)
    if error is not None:
        raise error
    return None if acted.after is None else STATE_BY_CODE[acted.after]


async def edited_payload(call: WebCall, job: StoredJob, body: RetryBody) -> bytes:
    """Return new arguments as they are stored; raises if they do not fit the task."""
    if not call.identity.may_reach(VERBS["retry_edited"], None):
        raise Refusal(
            403,
            "role_too_low",
            f"new arguments need the role admin; {call.user.name} is {call.user.role}",
            "Retry it with its own arguments, or ask an admin.",
        )
    if not call.sees_whole_payloads:
        raise Refusal(
            403,
            "payloads_masked",
            "the arguments of this job are hidden, in whole or in part",
            "Retry it with its own arguments.",
        )
    if options_of(job).is_chunk:
        raise WrongState(
            f"job {id_text(job.id)} has the arguments of many calls",
            cure="Retry it with its own arguments.",
        )
    args, kwargs = arguments_of(job)
    if body.args_json is not None:
        args = json_list(body.args_json, "args_json")
    if body.kwargs_json is not None:
        kwargs = json_object(body.kwargs_json, "kwargs_json")
    return await checked_payload(call.app, job.task, args, kwargs)


# --- what a request has


def json_list(text: str | None, name: str) -> Sequence[Any]:
    found: object = [] if text is None else parse_json(text, name)
    if not isinstance(found, list):
        raise wrong_shape(name, "a list")
    return cast("list[Any]", found)


def json_object(text: str | None, name: str) -> Mapping[str, Any]:
    found: object = {} if text is None else parse_json(text, name)
    if not isinstance(found, dict):
        raise wrong_shape(name, "an object")
    return cast("dict[str, Any]", found)


def wrong_shape(name: str, what: str) -> Refusal:
    return Refusal(422, "invalid_request", f"{name} is not {what}", f"Send {what}.")


def options_of_body(body: NewJobBody, key: str | None) -> CallOptions:
    meta = None if body.meta_json is None else json_object(body.meta_json, "meta_json")
    given: dict[str, Any] = {
        "queue": body.queue,
        "priority": body.priority,
        "delay": body.delay,
        "at": None if body.at is None else moment(body.at),
        "expires": body.expires,
        "meta": meta,
        "key": key,
        "unique": None if key is None else window(KEY_WINDOW),
    }
    changes = {name: value for name, value in given.items() if value is not None}
    return NO_OPTIONS.with_changes(changes)


def moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise InvalidOption(
            f"at cannot be {text[:60]!r}", cure="Write 2030-01-31T09:00:00Z."
        )
    return found


async def check_target(call: WebCall, body: NewJobBody) -> None:
    """Refuse a job of a task, or for a queue, that is not the user's."""
    app, queue = call.app, body.queue
    task = task_name(app.name, check_name("task", body.task))
    if task.partition(".")[0] != app.name:
        raise UnknownTask(
            f"{task!r} is no task of App {app.name}",
            cure="Open the dashboard of its App.",
            task=task,
        )
    if not call.identity.sees_task(task):
        raise Refusal(
            403,
            "task_not_allowed",
            f"this token is not for task {task!r:.140}",
            "Use a token that is for it: durio tokens create --task.",
        )
    if call.user.queues is None:
        return
    if queue is None:
        queue = (await app.find_task(task)).queue
    call.check_queue(queue)
