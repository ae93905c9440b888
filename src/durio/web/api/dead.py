"""`admin/dead`: dead jobs for review, what they died of, and an export."""

from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import msgspec
from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from durio.client.job_search import (
    Look,
    LookBounds,
    look_for_jobs,
    next_jobs,
    prepare_search,
)
from durio.client.job_view import arguments_of, job_errors, options_of
from durio.model.errors import TooManySearches
from durio.model.job import DEAD, StoredJob, utc_datetime
from durio.model.query_language import JobSearchText
from durio.web.api.job_items import JobItem, items_for
from durio.web.api.jobs import QueryText, allowed, found_jobs, prepared, scope_of
from durio.web.api.shapes import LIMIT_DEFAULT, Answer, Cursor, Items, Limit
from durio.web.call import WebCall
from durio.web.roles import Viewer

router = APIRouter(tags=["dead"])
FACET_JOBS_MAX = 10_000
EXPORT_JOBS_MAX = 100_000
EXPORT_TRIES_MAX = 30
PAGE_JOBS = 200
NAMES_MAX = 200
NO_REASON = "unknown"


class DeadItem(JobItem):
    died_at: datetime | None
    # JSON text; null when it is masked.
    args_json: str | None
    kwargs_json: str | None


class ReasonCount(Answer):
    reason: str
    count: int


class TaskCount(Answer):
    task: str
    count: int


class Facets(Answer):
    reasons: list[ReasonCount]  # the most frequent first
    tasks: list[TaskCount]
    capped: bool  # the newest ones only


@router.get("/dead")
async def list_dead(
    call: Viewer, q: QueryText = "", limit: Limit = LIMIT_DEFAULT, cursor: Cursor = None
) -> Items[DeadItem]:
    """Return dead jobs that match a query, newest first."""
    text = allowed(call, q)
    jobs, following, is_partial = await found_jobs(call, text, limit, cursor, (DEAD,))
    items = await dead_items(call, jobs)
    return Items(items=items, cursor=following, partial=is_partial)


@router.get("/dead/facets")
async def show_facets(call: Viewer, q: QueryText = "") -> Facets:
    """Return how many dead jobs there are by reason and by task, of at most 10,000."""
    text, app, store = allowed(call, q), call.app, await call.store()
    reasons, tasks = Counter[str](), Counter[str]()
    async with call.site.search_slots:
        search, _ = await prepared(call, text, states=(DEAD,))
        bounds, inner = LookBounds(app.clock), None
        while True:
            room = FACET_JOBS_MAX - tasks.total()
            jobs, inner = await next_jobs(store, search, inner, room, bounds)
            reasons.update(job.reason or NO_REASON for job in jobs)
            tasks.update(job.task for job in jobs)
            is_over = bounds.is_over() or tasks.total() >= FACET_JOBS_MAX
            if inner is None or is_over:
                break
    return Facets(
        reasons=[
            ReasonCount(reason=r, count=n) for r, n in reasons.most_common(NAMES_MAX)
        ],
        tasks=[TaskCount(task=t, count=n) for t, n in tasks.most_common(NAMES_MAX)],
        capped=inner is not None,
    )


@router.get("/dead/export", response_class=StreamingResponse)
async def export_dead(call: Viewer, q: QueryText = "") -> StreamingResponse:
    """Return dead jobs as JSON Lines, newest first, at most 100,000."""
    text = allowed(call, q)
    name = "dead-letters.jsonl"
    return StreamingResponse(
        exported_lines(call, text),
        media_type="application/x-ndjson",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def dead_items(call: WebCall, jobs: list[StoredJob]) -> list[DeadItem]:
    known = await items_for(call, jobs)
    found: list[DeadItem] = []
    for job in jobs:
        args, kwargs = arguments_of(job)
        found.append(
            DeadItem(
                **known.fields(job),
                died_at=utc_datetime(job.finished_at),
                args_json=call.payload(args),
                kwargs_json=call.payload(kwargs),
            )
        )
    return found


async def exported_lines(call: WebCall, text: JobSearchText) -> AsyncIterator[bytes]:
    """Yield one JSON object for each job; each page is a look of its own."""
    cursor: str | None = None
    left = EXPORT_JOBS_MAX
    while left > 0:
        look = await patient_look(call, text, min(PAGE_JOBS, left), cursor)
        items = await dead_items(call, look.jobs)
        for item, job in zip(items, look.jobs, strict=True):
            yield msgspec.json.encode(line_of(call, item, job)) + b"\n"
        left -= len(look.jobs)
        cursor = look.cursor
        if cursor is None:
            return


async def patient_look(
    call: WebCall, text: JobSearchText, limit: int, cursor: str | None
) -> Look:
    """Return the next page; other searches only delay it, because the answer has begun."""
    app, store, tries = call.app, await call.store(), 0
    while True:
        try:
            async with call.site.search_slots:
                search, inner = await prepare_search(
                    store, text, scope_of(call, (DEAD,)), now=app.now(), cursor=cursor
                )
                return await look_for_jobs(
                    store, app.clock, search, limit=limit, inner=inner
                )
        except TooManySearches:
            tries += 1
            if tries == EXPORT_TRIES_MAX:
                raise


def line_of(call: WebCall, item: DeadItem, job: StoredJob) -> dict[str, Any]:
    """Return the fields of a line; masked ones are null."""
    fields = item.model_dump(mode="json", exclude={"now", "progress"})
    shown = call.user.sees_payloads
    errors = job_errors(job)
    return fields | {
        "masked": not shown,
        "meta_json": call.payload(options_of(job).meta or {}),
        "traceback": errors[-1].traceback if errors and shown else None,
    }
