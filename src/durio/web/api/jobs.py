"""`admin/jobs`: lists of jobs, one job, and what can be done with it."""

from typing import Annotated

from fastapi import APIRouter, Query

from durio.client.job_filter import JobFilter
from durio.client.job_view import arguments_of, options_of, readable, retries_of_tasks
from durio.client.plan_retry import resume_plans
from durio.client.refused_actions import refusal
from durio.client.result_waiters import not_found
from durio.model.ids import id_bytes
from durio.model.job import STATE_BY_CODE, State, StoredJob
from durio.ports.control import ACTION_OF_VERB, Verb
from durio.web.api.cursors import continued, cursor_of
from durio.web.api.job_items import JobItem, item_fields, job_item
from durio.web.api.shapes import (
    LIMIT_DEFAULT,
    Answer,
    Cursor,
    Items,
    Limit,
    NoChoices,
)
from durio.web.call import WebCall
from durio.web.roles import Viewer, may

router = APIRouter(tags=["jobs"])


class JobView(JobItem):
    args_json: str | None  # JSON text: [args, kwargs]
    meta_json: str | None
    result_json: str | None
    masked: bool  # the texts above are hidden from this user


class ActionAnswer(Answer):
    status: str
    state: State


@router.get("/jobs")
async def list_jobs(
    call: Viewer,
    state: Annotated[str | None, Query(max_length=100)] = None,
    queue: Annotated[str | None, Query(max_length=128)] = None,
    limit: Limit = LIMIT_DEFAULT,
    cursor: Cursor = None,
) -> Items[JobItem]:
    """Return jobs of the App, newest first."""
    app, store = call.app, await call.store()
    filters = JobFilter(state=state.split(",") if state else None, queue=queue or None)
    query = filters.store_query(app=app.name, namespace=app.name, now=app.now())
    named = f"jobs state={state} queue={queue}"
    page = await store.find(query, limit=limit, cursor=continued(named, cursor))
    jobs = [job for job in page.jobs if call.sees_job(job)]
    retries = await retries_of_tasks(store, app.retries_of, jobs)
    items = [job_item(job, retries[job.task], app.now()) for job in jobs]
    return Items(items=items, cursor=cursor_of(named, page.cursor))


@router.get("/jobs/{job_id}")
async def show_job(call: Viewer, job_id: str) -> JobView:
    """Return one job with its arguments and result."""
    job = await job_of(call, job_id)
    app, store = call.app, await call.store()
    retries = await retries_of_tasks(store, app.retries_of, [job])
    options = options_of(job)
    result = None if job.result is None else readable(job.result)
    return JobView(
        **item_fields(job, retries[job.task], app.now()),
        args_json=call.payload(arguments_of(job)),
        meta_json=call.payload(options.meta or {}),
        result_json=None if result is None else call.payload(result),
        masked=not call.user.sees_payloads,
    )


@router.post("/jobs/{job_id}/retry")
async def retry_job(
    call: Annotated[WebCall, may("retry")], job_id: str, body: NoChoices
) -> ActionAnswer:
    """Make a dead or cancelled job ready again, with all its retries."""
    _ = body
    job = await job_of(call, job_id)
    return ActionAnswer(status="retrying", state=await act_on(call, job, "retry"))


async def job_of(call: WebCall, job_id: str) -> StoredJob:
    """Return a job that the user may see; raises JobNotFound."""
    raw = id_bytes(job_id)
    for job in await (await call.store()).get([raw]):
        if call.sees_job(job):
            return job
    raise not_found(raw)


async def act_on(call: WebCall, job: StoredJob, verb: Verb) -> State:
    """Act on one job, audited in the same commit; return its state after it."""
    store, action = await call.store(), ACTION_OF_VERB[verb]
    if verb == "retry":
        await resume_plans(store, [job.id], call.app.clock, call.by)
    (acted,) = await store.act([job.id], action, note=call.note())
    error = refusal(acted, verb)
    if error is not None:
        raise error
    return STATE_BY_CODE[job.state if acted.after is None else acted.after]
