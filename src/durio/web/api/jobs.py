"""`admin/jobs`: lists of jobs by the query language, counts, and completion."""

from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Query

from durio.client.bulk_runs import scope_of_user
from durio.client.job_search import (
    COUNT_MAX,
    JobSearch,
    SearchCount,
    SearchScope,
    count_jobs,
    look_for_jobs,
    prepare_search,
)
from durio.client.search_completion import CompletionScope, complete_query
from durio.model.job import CANCELLED, DONE, STATE_BY_CODE, State, StoredJob
from durio.model.names import queue_of
from durio.model.query_language import JobSearchText, parse_query
from durio.web.api.job_items import JobItem, items_for
from durio.web.api.shapes import LIMIT_DEFAULT, Answer, Cursor, Items, Limit
from durio.web.call import WebCall
from durio.web.problems import Refusal
from durio.web.roles import Viewer

router = APIRouter(tags=["jobs"])

# Its length is the parser's business, which says where the query is too long.
QueryText = Annotated[
    str, Query(description="in the query language, such as `state:dead queue:mail`")
]


class StateCount(Answer):
    count: int
    capped: bool  # there are more


class JobCount(Answer):
    count: int
    capped: bool  # there are more than the count
    partial: bool  # the look ended early: there may be more
    by_state: dict[State, StateCount]


class CompletionItem(Answer):
    text: str
    insert: str  # replaces the term at the position
    note: str


class Completion(Answer):
    items: list[CompletionItem]


@router.get("/jobs")
async def list_jobs(
    call: Viewer,
    q: QueryText = "",
    limit: Limit = LIMIT_DEFAULT,
    cursor: Cursor = None,
) -> Items[JobItem]:
    """Return jobs that match a query, newest first.

    A look ends after a second; then `partial` is true, and the cursor goes on.
    """
    jobs, cursor, is_partial = await found_jobs(call, allowed(call, q), limit, cursor)
    items = await items_of(call, jobs)
    return Items(items=items, cursor=cursor, partial=is_partial)


@router.get("/jobs/count")
async def count_matching(call: Viewer, q: QueryText = "") -> JobCount:
    """Return how many jobs match, in all and by state; of each state at most 10,000."""
    app, store, text = call.app, await call.store(), allowed(call, q)
    if not text.terms and call.identity.tasks is None:
        return await all_counted(call)
    async with call.site.search_slots:
        search, _ = await prepared(call, text)
        found = await count_jobs(store, app.clock, search)
    return job_count(found)


async def all_counted(call: WebCall) -> JobCount:
    """Return the figures of the overview: nothing is counted for this request."""
    figures, counts = call.site.figures, Counter[int]()
    for row in (await figures.queues.read()).value.values():
        if call.user.sees(queue_of(row.name)):
            counts.update(row.counts)
    ended = (await figures.ended(call.user.queues).read()).value
    for code, jobs in ((DONE, ended.done), (CANCELLED, ended.cancelled)):
        counts[code] = jobs
    total = counts.total()
    is_capped = total > COUNT_MAX
    return job_count(
        SearchCount(min(total, COUNT_MAX), counts, is_capped, ended.is_partial)
    )


def job_count(found: SearchCount) -> JobCount:
    return JobCount(
        count=found.jobs,
        capped=found.is_capped,
        partial=found.is_partial,
        by_state={
            state: StateCount(
                count=min(found.by_state.get(code, 0), COUNT_MAX),
                capped=found.by_state.get(code, 0) > COUNT_MAX,
            )
            for code, state in enumerate(STATE_BY_CODE)
        },
    )


@router.get("/jobs/complete")
async def complete(
    call: Viewer,
    q: QueryText = "",
    at: Annotated[int | None, Query(ge=0, description="default: the end")] = None,
) -> Completion:
    """Return how a query may go on at a position."""
    scope = CompletionScope(
        call.app.name,
        queues=call.user.queues,
        has_payloads=call.sees_whole_payloads,
        sees_task=call.identity.sees_task,
    )
    place = len(q) if at is None else at
    found = await complete_query(await call.store(), q, place, scope)
    return Completion(items=[CompletionItem(**each._asdict()) for each in found])


# --- searching


def allowed(call: WebCall, q: str) -> JobSearchText:
    """Parse a query; refuse one that would tell a user about masked arguments."""
    text = parse_query(q)
    if text.uses("args", "meta") and not call.sees_whole_payloads:
        raise Refusal(
            403,
            "payloads_masked",
            f"{call.user.name} cannot search by args and meta, which are hidden",
            "Leave these terms out, or ask an admin for the right to see payloads.",
        )
    return text


def scope_of(call: WebCall, states: tuple[int, ...] | None = None) -> SearchScope:
    """Return the jobs that the user may see."""
    user, tasks = call.user, call.identity.tasks
    return scope_of_user(call.app.name, user.queues, tasks, states)


async def prepared(
    call: WebCall,
    text: JobSearchText,
    cursor: str | None = None,
    states: tuple[int, ...] | None = None,
) -> tuple[JobSearch, str | None]:
    store, scope = await call.store(), scope_of(call, states)
    now = call.app.now()
    return await prepare_search(store, text, scope, now=now, cursor=cursor or None)


async def found_jobs(
    call: WebCall,
    text: JobSearchText,
    limit: int,
    cursor: str | None,
    states: tuple[int, ...] | None = None,
) -> tuple[list[StoredJob], str | None, bool]:
    """Return a page of jobs, the next cursor, and whether the look ended early."""
    store, clock = await call.store(), call.app.clock
    async with call.site.search_slots:
        search, inner = await prepared(call, text, cursor, states)
        look = await look_for_jobs(store, clock, search, limit=limit, inner=inner)
    return look.jobs, look.cursor, look.is_partial


async def items_of(call: WebCall, jobs: list[StoredJob]) -> list[JobItem]:
    known = await items_for(call, jobs)
    return [known.item(job) for job in jobs]
