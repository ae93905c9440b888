"""`admin/workers`: which workers there are, what they do now, drain and stack."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field

from durio.app.worker_commands import WorkerResponse, ask_workers
from durio.app.worker_stacks import stack_text
from durio.client.job_view import progress_of
from durio.model.ids import id_text
from durio.model.job import RUNNING, StoredJob, utc_datetime
from durio.model.names import queue_of
from durio.model.queues import serves
from durio.ports.browse import Query, WorkerRow
from durio.ports.store import Store
from durio.web.api.cursors import continued, cursor_of
from durio.web.api.job_items import JobProgress
from durio.web.api.shapes import LIMIT_DEFAULT, Answer, Cursor, Items, Limit, NoChoices
from durio.web.call import WebCall
from durio.web.problems import Refusal
from durio.web.roles import Viewer, may

router = APIRouter(tags=["workers"])

WorkerState = Literal["live", "draining", "lost"]
JOBS_MAX = 1_000  # running jobs that a list reads
PAGE_JOBS = 200
ANSWER_SECONDS_MAX = 10.0
MILLISECONDS = 1000


class RunningJob(Answer):
    id: str
    task: str
    queue: str
    started_at: datetime | None
    seconds: float
    limit_seconds: float | None  # None: no limit, or the task's code is not known here
    progress: JobProgress | None


class WorkerItem(Answer):
    id: int
    name: str  # host/pid
    host: str
    pid: int
    state: WorkerState
    version: str
    python: str | None  # None: a worker of an older release
    started_at: datetime | None
    last_heartbeat_at: Annotated[
        datetime | None, Field(serialization_alias="last_beat_at")
    ]
    lease_ends_at: datetime | None  # in the past: it is lost, or hangs
    queues: list[str] | None  # names and globs; None: every queue
    slots: int
    busy: int
    jobs: list[RunningJob]
    jobs_partial: bool  # it runs more jobs than are listed
    loop_lag_ms: float | None  # before its last heartbeat; None: not known
    cpu_seconds: float | None
    memory_bytes: int | None
    children: int | None
    ended: int | None  # attempts since its start
    tasks: list[str] | None  # None: too many, or not known
    speaks: int | None  # version of the protocol


class DrainAnswer(Answer):
    status: Literal["draining", "asked"]  # asked: it has not answered yet
    running: int | None


class StackAnswer(Answer):
    stack: str
    loop_lag_ms: float | None  # None: its event loop is blocked


@router.get("/workers")
async def list_workers(
    call: Viewer, limit: Limit = LIMIT_DEFAULT, cursor: Cursor = None
) -> Items[WorkerItem]:
    """Return the registered workers, oldest first."""
    store = await call.store()
    after = int(continued("workers", cursor) or 0)
    rows = [row for row in await seen_workers(call, store) if row.id > after]
    shown = rows[:limit]
    jobs = await running_jobs(call, store)
    return Items(
        items=[worker_item(call, row, jobs) for row in shown],
        cursor=cursor_of("workers", str(shown[-1].id) if len(rows) > limit else None),
    )


@router.get("/workers/{name:path}")
async def show_worker(call: Viewer, name: str) -> WorkerItem:
    """Return one worker, by its number or its host/pid."""
    store = await call.store()
    row = await worker_of(call, store, name)
    return worker_item(call, row, await running_jobs(call, store, row.id))


@router.post("/workers/{name:path}/drain")
async def drain_worker(
    call: Annotated[WebCall, may("drain_worker")], name: str, body: NoChoices
) -> DrainAnswer:
    """Let a worker end its jobs and stop, as one SIGTERM does."""
    _ = body
    answered = await ask_worker(call, name, "drain")
    if answered.answer is None:
        return DrainAnswer(status="asked", running=None)
    running = int(answered.answer.get("running", 0))
    return DrainAnswer(status="draining", running=running)


@router.post("/workers/{name:path}/stack")
async def stack_worker(
    call: Annotated[WebCall, may("stack_worker")], name: str, body: NoChoices
) -> StackAnswer:
    """Return the lines where the jobs and threads of a worker are now."""
    _ = body
    answered = await ask_worker(call, name, "stack")
    if answered.answer is None:
        raise Refusal(
            504,
            "worker_silent",
            f"worker {answered.row.info['name']}: {answered.reason}",
            "Try again. A worker answers with its next heartbeat.",
        )
    answer = answered.answer
    return StackAnswer(
        stack=stack_text(answer, is_all=True),
        loop_lag_ms=milliseconds(answer.get("loop_lag_seconds")),
    )


async def ask_worker(call: WebCall, name: str, verb: str) -> WorkerResponse:
    """Send a command, audited in the same commit, and wait for the answer."""
    store = await call.store()
    row = await worker_of(call, store, name)
    (answered,) = await ask_workers(
        store,
        call.app.clock,
        [row],
        verb,
        by=call.by,
        wait_seconds=ANSWER_SECONDS_MAX,
        details=call.note(f"worker {row.id}").details,
    )
    return answered


async def worker_of(call: WebCall, store: Store, name: str) -> WorkerRow:
    for row in await seen_workers(call, store):
        if name in (str(row.id), str(row.info["name"])):
            return row
    raise Refusal(
        404, "worker_not_found", f"there is no worker {name!r:.200}", "It has ended."
    )


async def seen_workers(call: WebCall, store: Store) -> list[WorkerRow]:
    """Return the workers that serve a queue which the user may see, by number."""
    rows = sorted(await store.workers(call.app.name), key=lambda row: row.id)
    limited_to = call.user.queues
    if limited_to is None:
        return rows
    return [
        row
        for row in rows
        if any(serves(row.info["queues"], queue) for queue in limited_to)
    ]


async def running_jobs(
    call: WebCall, store: Store, worker: int | None = None
) -> dict[int, list[StoredJob]]:
    """Return running jobs by worker, up to a limit; of all workers, or of one."""
    query = Query(namespace=call.app.name, states=(RUNNING,), worker=worker)
    found: dict[int, list[StoredJob]] = {}
    cursor, read = None, 0
    while read < JOBS_MAX:
        page = await store.find(query, limit=PAGE_JOBS, cursor=cursor)
        for job in page.jobs:
            if job.worker is not None and call.sees_job(job):
                found.setdefault(job.worker, []).append(job)
        read, cursor = read + len(page.jobs), page.cursor
        if cursor is None:
            break
    return found


def worker_item(
    call: WebCall, row: WorkerRow, running: dict[int, list[StoredJob]]
) -> WorkerItem:
    info, vitals, now = row.info, row.vitals, call.app.now()
    jobs = running.get(row.id, [])
    return WorkerItem(
        id=row.id,
        name=str(info["name"]),
        host=str(info["host"]),
        pid=int(info["pid"]),
        state=worker_state(row),
        version=str(info["version"]),
        python=info.get("python"),
        started_at=utc_datetime(info.get("started_at")),
        last_heartbeat_at=utc_datetime(last_heartbeat(row, now)),
        lease_ends_at=utc_datetime(now + row.lease_seconds_left),
        queues=texts(info["queues"]),
        slots=int(info["concurrency"]),
        busy=row.running,
        jobs=[running_job(call, job, now) for job in jobs],
        jobs_partial=len(jobs) < row.running,
        loop_lag_ms=milliseconds(None if vitals is None else vitals.loop_lag_seconds),
        cpu_seconds=None if vitals is None else vitals.cpu_seconds,
        memory_bytes=None if vitals is None else vitals.rss_bytes,
        children=None if vitals is None else vitals.children,
        ended=None if vitals is None else vitals.ended,
        tasks=texts(info.get("tasks")),
        speaks=info.get("protocol"),
    )


def worker_state(row: WorkerRow) -> WorkerState:
    if row.lease_seconds_left <= 0:
        return "lost"
    return "draining" if row.is_draining else "live"


def last_heartbeat(row: WorkerRow, now: float) -> float | None:
    """Return when it last renewed its lease; None if that is not known."""
    lease: Any = row.info.get("lease_seconds")
    if lease is None or row.lease_seconds_left == 0:
        return None
    return now + row.lease_seconds_left - lease


def running_job(call: WebCall, job: StoredJob, now: float) -> RunningJob:
    limits = call.app.limits_of(job.task)
    progress = progress_of(job)
    return RunningJob(
        id=id_text(job.id),
        task=job.task,
        queue=queue_of(job.lane),
        started_at=utc_datetime(job.started_at),
        seconds=0.0 if job.started_at is None else max(0.0, now - job.started_at),
        limit_seconds=None if limits is None else limits.hard_seconds,
        progress=progress
        and JobProgress(
            done=progress.done,
            total=progress.total,
            message=progress.message,
            state=progress.state,
        ),
    )


def milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * MILLISECONDS, 3)


def texts(values: Iterable[str] | None) -> list[str] | None:
    return None if values is None else [str(value) for value in values]
