"""`admin/errors`: groups of errors that have one cause."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query

from durio.client.error_groups import StoredGroup, find_group, list_groups, mute_group
from durio.client.queue_handle import check_reason_text
from durio.client.task_list import list_tasks
from durio.model.error_groups import ELSEWHERE, Mute, group_of_job
from durio.model.errors import ErrorGroupNotFound
from durio.model.failure import failures
from durio.model.ids import id_bytes
from durio.model.job import DEAD, StoredJob, utc_datetime
from durio.model.names import known_as, task_name
from durio.model.traceback_frames import frames_of
from durio.ports.browse import Query as JobsQuery
from durio.web.api.cursors import continued, cursor_of
from durio.web.api.job_items import JobItem, items_for
from durio.web.api.shapes import (
    LIMIT_DEFAULT,
    Answer,
    Body,
    Cursor,
    Items,
    Limit,
    NoChoices,
)
from durio.web.call import WebCall
from durio.web.roles import Viewer, may

router = APIRouter(tags=["errors"])
JOBS_SHOWN_MAX, PAGES_MAX = 20, 5


class MutedBy(Answer):
    by: str
    at: datetime | None
    until: datetime | None  # None: until it is unmuted
    reason: str | None


class ErrorItem(Answer):
    fingerprint: str
    type: str
    text: str  # of the newest error
    tasks: list[str]  # that with most errors first
    count: int  # failed attempts
    dead: int  # dead jobs
    first_seen: datetime | None
    last_seen: datetime | None
    versions: list[str]
    hosts: list[str]
    muted: MutedBy | None
    example_job: str  # the newest job that failed so


class ErrorFrame(Answer):
    file: str
    line: int | None  # None: only file and function are known
    function: str
    code: str | None
    own: bool  # of the user's code


class ErrorView(ErrorItem):
    counts_by_task: dict[str, int]
    counts_by_version: dict[str, int]
    counts_by_host: dict[str, int]
    frames: list[ErrorFrame]
    traceback: str | None  # of the newest error; None: masked, or its job is gone
    jobs: list[JobItem]  # dead ones, newest first


class MuteBody(Body):
    reason: str | None = None


@router.get("/errors")
async def list_errors(
    call: Viewer,
    task: Annotated[str | None, Query(max_length=300)] = None,
    muted: Annotated[bool | None, Query(description="only these; default: all")] = None,
    limit: Limit = LIMIT_DEFAULT,
    cursor: Cursor = None,
) -> Items[ErrorItem]:
    """Return groups of errors, that of the newest error first."""
    named = f"errors task={task} muted={muted}"
    wanted = None if task is None else task_name(call.app.name, task)
    groups = [
        each
        for each in await visible_groups(call)
        if (wanted is None or wanted in each.group.tasks)
        and (muted is None or muted == (each.group.mute is not None))
    ]
    after = continued(named, cursor)
    if after is not None:
        last_at, _, last = after.partition(" ")
        place = (-float(last_at), last)
        groups = [each for each in groups if place_of(each) > place]
    shown = groups[:limit]
    following = None
    if len(groups) > limit:
        following = f"{shown[-1].group.last_at!r} {shown[-1].fingerprint}"
    items = [ErrorItem(**group_fields(each)) for each in shown]
    return Items(items=items, cursor=cursor_of(named, following))


@router.get("/errors/{fingerprint}")
async def show_error(call: Viewer, fingerprint: str) -> ErrorView:
    """Return one group with its frames and its newest dead jobs."""
    found = await known_group(call, fingerprint)
    group = found.group
    jobs = await dead_jobs(call, found)
    known_jobs = await items_for(call, jobs)
    traceback = await newest_traceback(call, found)
    known = [ErrorFrame(**frame._asdict()) for frame in frames_of(traceback or "")]
    return ErrorView(
        **group_fields(found),
        counts_by_task=group.tasks,
        counts_by_version=group.versions,
        counts_by_host=group.hosts,
        frames=known or [stored_frame(text) for text in group.frames],
        traceback=traceback,
        jobs=[known_jobs.item(job) for job in jobs],
    )


@router.post("/errors/{fingerprint}/mute")
async def mute_error(
    call: Annotated[WebCall, may("mute_error")], fingerprint: str, body: MuteBody
) -> ErrorItem:
    """Leave a group out of what needs attention; its errors are still counted."""
    text = body.reason
    why = check_reason_text(text) if text and text.strip() else None
    mute = Mute(call.by, call.app.now(), why)
    return await muted_or_not(call, fingerprint, mute)


@router.post("/errors/{fingerprint}/unmute")
async def unmute_error(
    call: Annotated[WebCall, may("mute_error")], fingerprint: str, body: NoChoices
) -> ErrorItem:
    """Show a group again."""
    _ = body
    return await muted_or_not(call, fingerprint, None)


async def muted_or_not(call: WebCall, fingerprint: str, mute: Mute | None) -> ErrorItem:
    found = await known_group(call, fingerprint)
    after = None if mute is None else {"reason": mute.reason}
    details = call.note(after=after).details
    await mute_group(await call.store(), found, mute, call.by, details)
    return ErrorItem(**group_fields(await known_group(call, found.fingerprint)))


def place_of(found: StoredGroup) -> tuple[float, str]:
    """Return the place in the list."""
    return -found.group.last_at, found.fingerprint


async def visible_groups(call: WebCall) -> list[StoredGroup]:
    """Return the groups with errors of tasks whose queue the user may see."""
    store, namespace = await call.store(), call.app.name
    found = sorted(await list_groups(store, namespace), key=place_of)
    if call.sees_all:
        return found
    tasks = await list_tasks(store, namespace)
    queue_of_task = {task.name: task.queue for task in tasks}
    seen = {
        name
        for name, queue in queue_of_task.items()
        if call.user.sees(queue) and call.identity.sees_task(name)
    }
    return [
        each
        for each in found
        if all(known_as(task, queue_of_task) in seen for task in each.group.tasks)
    ]


async def known_group(call: WebCall, fingerprint: str) -> StoredGroup:
    """Return a group that the user may see; raises ErrorGroupNotFound."""
    found = await find_group(await call.store(), [call.app.name], fingerprint)
    if not call.sees_all:
        seen = {each.fingerprint for each in await visible_groups(call)}
        if found.fingerprint not in seen:
            raise ErrorGroupNotFound(f"there is no group of errors {fingerprint!r:.60}")
    return found


def group_fields(found: StoredGroup) -> dict[str, Any]:
    group = found.group
    return {
        "fingerprint": found.fingerprint,
        "type": group.type,
        "text": group.message,
        "tasks": names_by_count(group.tasks),
        "count": group.failed,
        "dead": group.dead,
        "first_seen": utc_datetime(group.first_at),
        "last_seen": utc_datetime(group.last_at),
        "versions": names_by_count(group.versions),
        "hosts": names_by_count(group.hosts),
        "muted": group.mute and muted_by(group.mute),
        "example_job": group.last_job,
    }


def muted_by(mute: Mute) -> MutedBy:
    at = utc_datetime(mute.at)
    return MutedBy(by=mute.by, at=at, until=None, reason=mute.reason)


def names_by_count(counts: dict[str, int]) -> list[str]:
    """Return the names, the most frequent first."""
    return [
        name
        for name in sorted(counts, key=lambda name: -counts[name])
        if name != ELSEWHERE
    ]


async def dead_jobs(call: WebCall, found: StoredGroup) -> list[StoredJob]:
    """Return the newest dead jobs of a group, from a bounded number of pages."""
    store, jobs = await call.store(), list[StoredJob]()
    tasks = list(found.group.tasks)
    only = tasks[0] if len(tasks) == 1 and ELSEWHERE not in tasks else None
    query = JobsQuery(
        found.namespace, states=(DEAD,), task=only, error=found.group.type
    )
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await store.find(query, limit=200, cursor=cursor)
        jobs += [
            job
            for job in page.jobs
            if call.sees_job(job) and group_of_job(job) == found.fingerprint
        ]
        cursor = page.cursor
        if cursor is None or len(jobs) >= JOBS_SHOWN_MAX:
            break
    return jobs[:JOBS_SHOWN_MAX]


async def newest_traceback(call: WebCall, found: StoredGroup) -> str | None:
    """Return the traceback of the newest job of the group, if the user may see it."""
    if not call.user.sees_payloads:
        return None
    job_id = id_bytes(found.group.last_job)
    for job in await (await call.store()).get([job_id]):
        if call.sees_job(job) and group_of_job(job) == found.fingerprint:
            return failures(job.errors)[-1].traceback or None
    return None


def stored_frame(text: str) -> ErrorFrame:
    """Return a frame of a group, which has no line: `app/mail.py in send`."""
    file, _, function = text.rpartition(" in ")
    return ErrorFrame(file=file, line=None, function=function, code=None, own=True)
