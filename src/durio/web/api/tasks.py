"""`admin/tasks`: what workers have published about tasks, and who runs them."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from fastapi import APIRouter

from durio.client.error_groups import StoredGroup, list_groups
from durio.client.task_list import KnownTask, list_tasks, newest_group
from durio.model.errors import UnknownTask
from durio.model.job import utc_datetime
from durio.model.names import did_you_mean, task_name
from durio.model.quantities import format_duration
from durio.model.retry import retries_text
from durio.ports.browse import WorkerRow
from durio.web.api.cursors import continued, cursor_of
from durio.web.api.shapes import LIMIT_DEFAULT, Answer, Cursor, Items, Limit
from durio.web.call import WebCall
from durio.web.roles import Viewer

router = APIRouter(tags=["tasks"])
LISTED = "tasks"


class TaskError(Answer):
    type: str
    text: str
    at: datetime | None
    job: str | None  # None: the newest of these errors may be of another task
    fingerprint: str


class TaskItem(Answer):
    name: str
    queue: str
    priority: int
    retry: str | None
    timeout: str | None  # None: no limit, or published by an older worker
    limits: list[str]
    breaker: str | None
    expires: str | None  # how long its jobs may wait
    args_schema_json: str  # JSON schema of an object with the arguments by name
    aliases: list[str]
    versions: list[str]  # of the code of its live workers
    workers: int  # live workers that serve its queue and have its code
    last_error: TaskError | None
    failed: int  # attempts in the groups of errors that name it


class TaskWorker(Answer):
    name: str
    version: str
    running: int


class TaskView(TaskItem):
    served_by: list[TaskWorker]


@router.get("/tasks")
async def list_all(
    call: Viewer, limit: Limit = LIMIT_DEFAULT, cursor: Cursor = None
) -> Items[TaskItem]:
    """Return the tasks that workers have published, by name."""
    after = continued(LISTED, cursor) or ""
    store, namespace = await call.store(), call.app.name
    tasks = [each for each in await visible_tasks(call) if each.name > after]
    workers, groups = (
        await store.workers(namespace),
        await list_groups(store, namespace),
    )
    shown = tasks[:limit]
    following = shown[-1].name if len(tasks) > limit else None
    items = [TaskItem(**task_fields(each, workers, groups)) for each in shown]
    return Items(items=items, cursor=cursor_of(LISTED, following))


@router.get("/tasks/{name}")
async def show_task(call: Viewer, name: str) -> TaskView:
    """Return one task, by its full name or that without the App's."""
    store, namespace = await call.store(), call.app.name
    task = await known_task(call, name)
    workers, groups = (
        await store.workers(namespace),
        await list_groups(store, namespace),
    )
    served_by = [
        TaskWorker(
            name=row.info["name"], version=row.info["version"], running=row.running
        )
        for row in task.workers(workers)
    ]
    return TaskView(**task_fields(task, workers, groups), served_by=served_by)


async def visible_tasks(call: WebCall) -> list[KnownTask]:
    found = await list_tasks(await call.store(), call.app.name)
    return [
        each
        for each in found
        if call.user.sees(each.queue) and call.identity.sees_task(each.name)
    ]


async def known_task(call: WebCall, name: str) -> KnownTask:
    """Return a task that the user may see; raises UnknownTask."""
    tasks = await visible_tasks(call)
    full = task_name(call.app.name, name)
    for each in tasks:
        if full == each.name or full in each.aliases:
            return each
    raise UnknownTask(
        f"no worker has published a task {name!r:.140}",
        cure=f"See the list of tasks.{did_you_mean(full, [t.name for t in tasks])}",
        task=name[:140],
    )


def task_fields(
    task: KnownTask, workers: Sequence[WorkerRow], groups: Sequence[StoredGroup]
) -> dict[str, Any]:
    live, published = task.workers(workers), task.published
    expires = published.get("expires")
    return {
        "name": task.name,
        "queue": task.queue,
        "priority": published["priority"],
        "retry": retry_text(published),
        "timeout": timeout_text(published),
        "limits": task.limits,
        "breaker": published.get("breaker"),
        "expires": duration_text(expires),
        "args_schema_json": json.dumps(task.arguments_schema()),
        "aliases": list(task.aliases),
        "versions": sorted({row.info["version"] for row in live}),
        "workers": len(live),
        "last_error": last_error(task, groups),
        "failed": sum(one.group.tasks.get(task.name, 0) for one in groups),
    }


def retry_text(published: Any) -> str | None:
    if "retry" in published:
        return published["retry"]
    retries = published.get("retries")
    return None if retries is None else retries_text(retries)


def timeout_text(published: Any) -> str | None:
    return duration_text(published.get("timeout_seconds"))


def duration_text(value: object) -> str | None:
    """Return seconds as text; other values as they are written."""
    if value is None:
        return None
    return format_duration(value) if isinstance(value, int | float) else str(value)


def last_error(task: KnownTask, groups: Sequence[StoredGroup]) -> TaskError | None:
    newest = newest_group(groups, task.name)
    if newest is None:
        return None
    group = newest.group
    is_only = list(group.tasks) == [task.name]
    return TaskError(
        type=group.type,
        text=group.message,
        at=utc_datetime(group.last_at),
        job=group.last_job if is_only else None,
        fingerprint=newest.fingerprint,
    )
