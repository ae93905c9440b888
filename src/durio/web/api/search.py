"""`admin/search`: things whose name has a text in it, for the palette of the page."""

from collections.abc import Iterable
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query

from durio.client.plan_list import plans_that_begin
from durio.client.search_completion import CompletionScope, visible_tasks
from durio.model.ids import DIGITS, id_text
from durio.model.job import STATE_BY_CODE
from durio.model.names import queue_of
from durio.model.schedule import schedules_kind
from durio.web.api.shapes import Answer
from durio.web.call import WebCall
from durio.web.roles import Viewer

router = APIRouter(tags=["search"])

OF_A_KIND = 6
TEXT_CHARS_MAX = 200
DIGITS_MIN = 8
NAMES_READ_MAX = 1_000

Kind = Literal["job", "task", "queue", "schedule", "plan", "worker"]


class SearchItem(Answer):
    kind: Kind
    text: str
    href: str  # below the mount


class SearchAnswer(Answer):
    items: list[SearchItem]


@router.get("/search")
async def search(
    call: Viewer, q: Annotated[str, Query(max_length=TEXT_CHARS_MAX)] = ""
) -> SearchAnswer:
    """Return jobs and plans by the beginning of an id, and other things by their names."""
    text = q.strip().casefold()
    if not text:
        return SearchAnswer(items=[])
    return SearchAnswer(
        items=[*await by_id(call, text), *await named_things(call, text)]
    )


async def by_id(call: WebCall, text: str) -> list[SearchItem]:
    """Return jobs and plans whose id begins so; at least 8 digits are needed."""
    digits = text.replace("-", "")
    is_id = DIGITS_MIN <= len(digits) <= DIGITS and set(digits) <= set(
        "0123456789abcdef"
    )
    if not is_id:
        return []
    store, app = await call.store(), call.app
    first = bytes.fromhex(digits.ljust(DIGITS, "0"))
    last = bytes.fromhex(digits.ljust(DIGITS, "f"))
    ids = await store.ids_between(first, last, limit=OF_A_KIND)
    found = [
        SearchItem(
            kind="job",
            text=f"{id_text(job.id)} {job.task} {STATE_BY_CODE[job.state].value}",
            href=f"jobs/{id_text(job.id)}",
        )
        for job in await store.get(ids)
        if call.sees_job(job)
    ]
    if call.user.queues is None and call.identity.tasks is None:
        plans = await plans_that_begin(store, app.name, digits, OF_A_KIND)
        found += [
            SearchItem(kind="plan", text=each, href=f"plans/{each}") for each in plans
        ]
    return found


async def named_things(call: WebCall, text: str) -> list[SearchItem]:
    """Return tasks, queues, schedules and workers whose name has the text in it."""
    store, app = await call.store(), call.app
    scope = CompletionScope(
        app.name, call.user.queues, sees_task=call.identity.sees_task
    )
    tasks = [task.name for task in await visible_tasks(store, scope)]
    queues = [queue_of(row.name) for row in await store.queues(app.name)]
    workers = [row.info["name"] for row in await store.workers(app.name)]
    found = [
        *items_of("task", "tasks", tasks, text),
        *items_of("queue", "queues", filter(call.user.sees, queues), text),
        *items_of("worker", "workers", workers, text),
    ]
    if call.user.queues is None and call.identity.tasks is None:
        kind = schedules_kind(app.name)
        records = await store.list_records(kind, limit=NAMES_READ_MAX)
        names = [record.name for record in records]
        found += items_of("schedule", "schedules", names, text)
    return found


def items_of(
    kind: Kind, screen: str, names: Iterable[str], text: str
) -> list[SearchItem]:
    """Return the names with the text in them, those that begin with it first."""
    fitting = sorted(
        {name for name in names if text in name.casefold()},
        key=lambda name: (not name.casefold().startswith(text), name),
    )
    return [
        SearchItem(kind=kind, text=name, href=f"{screen}?{urlencode({'open': name})}")
        for name in fitting[:OF_A_KIND]
    ]
