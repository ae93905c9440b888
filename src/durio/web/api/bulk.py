"""`admin/bulk`: one action on all jobs that match a query, previewed, shown and stopped."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter

from durio.client.bulk_runs import (
    COUNT_MAX,
    StoredBulk,
    find_bulk,
    find_preview,
    list_bulk,
    preview_bulk,
    start_bulk,
    stop_bulk,
)
from durio.client.job_query import check_queue
from durio.model.bulk_run import BulkState, BulkVerb, BulkWish
from durio.model.errors import BulkNotFound
from durio.model.job import utc_datetime
from durio.model.names import check_name
from durio.model.query_language import parse_query
from durio.web.api.jobs import allowed
from durio.web.api.shapes import LIMIT_DEFAULT, Answer, Body, Items, Limit, NoChoices
from durio.web.call import WebCall
from durio.web.identity import Role
from durio.web.problems import Refusal
from durio.web.roles import VERBS, Viewer, may

router = APIRouter(tags=["bulk"])

TYPE_COUNT_ABOVE = 100
ADMIN_ABOVE = 10_000
TASKS_SHOWN = 20
JOBS_PER_SECOND = 2_000  # for the hint how long it takes
REASON_CHARS_MAX = 200
ROLE_OF_VERB: dict[BulkVerb, Role] = {
    "retry": VERBS["retry"],
    "cancel": VERBS["cancel"],
    "run_now": VERBS["run_now"],
    "discard": VERBS["discard"],
    "move": VERBS["move_queue"],
}


class BulkPreviewBody(Body):
    verb: BulkVerb
    q: str  # in the query language
    reason: str | None = None  # for the audit
    to: str | None = None  # queue that jobs move to


class JobsOfTask(Answer):
    task: str
    count: int


class Needs(Answer):
    type_count: bool  # the number has to be typed
    admin: bool  # an admin has to start it


class BulkPreviewView(Answer):
    preview: str  # good for 15 minutes and one start
    verb: BulkVerb
    count: int
    capped: bool  # there are more than the count
    by_task: list[JobsOfTask]
    sampled: bool  # by_task is of the first jobs only
    mark: str  # jobs beyond it are not changed
    needs: Needs
    about_seconds: int


class BulkStartBody(Body):
    preview: str
    count: int | None = None  # as it was typed


class Started(Answer):
    run: str


class BulkRun(Answer):
    id: str
    verb: BulkVerb
    q: str
    to: str | None
    state: BulkState
    done: int
    skipped: int  # found, but they did not allow the action any more; known at the end
    failed: int  # left unchanged, because open transactions held them
    expected: int
    capped: bool  # more than that were expected
    started_at: datetime | None
    ended_at: datetime | None
    by: str
    reason: str | None
    error: str | None


@router.post("/bulk/preview")
async def preview(
    call: Annotated[WebCall, may("bulk")], body: BulkPreviewBody
) -> BulkPreviewView:
    """Count the jobs that an action would change, exactly to 10,000."""
    text = allowed(call, body.q)
    if not text.terms:
        raise Refusal(
            400,
            "no_filter",
            f"{body.verb} without a query would change every job",
            "Choose jobs by a query, such as state:dead.",
        )
    require_role(call, ROLE_OF_VERB[body.verb], body.verb)
    reason = None if body.reason is None else body.reason[:REASON_CHARS_MAX]
    wish = BulkWish(
        verb=body.verb,
        q=str(text),
        now_ms=int(call.app.now() * 1000),
        mark="",
        expected=0,
        to=await target_queue(call, body),
        queues=call.user.queues,
        tasks=call.identity.tasks,
        user=call.user.name,
        by=call.by,
        reason=reason or None,
    )
    store, app = await call.store(), call.app
    async with call.site.search_slots:
        found = await preview_bulk(store, app.clock, app.name, wish)
    count = min(found.wish.expected, COUNT_MAX)
    return BulkPreviewView(
        preview=found.id,
        verb=body.verb,
        count=count,
        capped=found.wish.is_capped,
        by_task=[
            JobsOfTask(task=task, count=jobs)
            for task, jobs in list(found.by_task.items())[:TASKS_SHOWN]
        ],
        sampled=found.wish.is_capped,
        mark=found.wish.mark,
        needs=Needs(type_count=count > TYPE_COUNT_ABOVE, admin=needs_admin(found.wish)),
        about_seconds=max(1, found.wish.expected // JOBS_PER_SECOND),
    )


@router.post("/bulk", status_code=202)
async def start(call: Annotated[WebCall, may("bulk")], body: BulkStartBody) -> Started:
    """Start what was previewed; it runs on when the page is closed."""
    store, app = await call.store(), call.app
    found = await find_preview(store, app.name, body.preview, call.user.name)
    wish, _ = found
    require_role(call, ROLE_OF_VERB[wish.verb], wish.verb)
    if needs_admin(wish):
        require_role(call, "admin", f"{wish.verb} of more than {ADMIN_ABOVE:,} jobs")
    count = min(wish.expected, COUNT_MAX)
    if count > TYPE_COUNT_ABOVE and body.count != count:
        raise Refusal(
            422,
            "count_not_confirmed",
            f"{wish.verb} would change {count:,} jobs; the number was not confirmed",
            f"Send count: {count}.",
        )
    details = call.note().details
    run_id = await start_bulk(store, app.clock, app.name, body.preview, found, details)
    call.site.bulk.wake()
    return Started(run=run_id)


@router.get("/bulk")
async def list_runs(call: Viewer, limit: Limit = LIMIT_DEFAULT) -> Items[BulkRun]:
    """Return the newest bulk actions, also those that have ended in the last 7 days."""
    take_up(call)
    found = [
        b for b in await list_bulk(await call.store(), call.app.name) if sees(call, b)
    ]
    return Items(items=[run_view(call, each) for each in found[:limit]])


@router.get("/bulk/{run_id}")
async def show_run(call: Viewer, run_id: str) -> BulkRun:
    """Return one bulk action with its progress."""
    take_up(call)
    return run_view(call, await run_of(call, run_id))


@router.post("/bulk/{run_id}/stop")
async def stop(
    call: Annotated[WebCall, may("stop_bulk")], run_id: str, body: NoChoices
) -> BulkRun:
    """Stop a bulk action after the step that it is in."""
    _ = body
    await run_of(call, run_id)
    note = call.note(f"bulk action {run_id}", verb="stop_bulk")
    found = await stop_bulk(await call.store(), call.app.name, run_id, note)
    call.site.bulk.wake()
    return run_view(call, found)


def take_up(call: WebCall) -> None:
    """Go on with actions whose process has died, unless this dashboard is read-only."""
    if call.site.read_only_reason() is None:
        call.site.bulk.wake()


def needs_admin(wish: BulkWish) -> bool:
    return wish.is_capped or wish.expected > ADMIN_ABOVE


def require_role(call: WebCall, role: Role, what: str) -> None:
    if not call.identity.may_reach(role, None):
        raise Refusal(
            403,
            "role_too_low",
            f"{what} needs the role {role}, which {call.user.name} does not have",
            "Ask an admin of this dashboard.",
        )


async def target_queue(call: WebCall, body: BulkPreviewBody) -> str | None:
    """Return the queue that jobs move to; refuse one for another verb."""
    if body.verb != "move":
        if body.to is not None:
            raise Refusal(422, "invalid_request", f"{body.verb} has no `to`")
        return None
    if body.to is None:
        raise Refusal(422, "invalid_request", "move needs a queue", "Send `to`.")
    queue = check_name("queue", body.to)
    call.check_queue(queue)
    await check_queue(call.app, await call.store(), queue)
    return queue


def sees(call: WebCall, found: StoredBulk) -> bool:
    """Whether the action is limited to queues and tasks that the user may see."""
    wish, queues, tasks = found.record.wish, call.user.queues, call.identity.tasks
    is_of_queues = queues is None or (
        wish.queues is not None and set(wish.queues) <= set(queues)
    )
    return is_of_queues and (tasks is None or wish.tasks == tasks)


async def run_of(call: WebCall, run_id: str) -> StoredBulk:
    """Return a bulk action that the user may see; raises BulkNotFound."""
    found = await find_bulk(await call.store(), call.app.name, run_id)
    if not sees(call, found):
        raise BulkNotFound(f"there is no bulk action {run_id!r:.60}")
    return found


def run_view(call: WebCall, found: StoredBulk) -> BulkRun:
    record, wish = found.record, found.record.wish
    text = parse_query(wish.q)
    return BulkRun(
        id=found.id,
        verb=wish.verb,
        q=str(text) if call.sees_whole_payloads else text.masked(),
        to=wish.to,
        state=record.state,
        done=record.done,
        skipped=record.skipped,
        failed=record.failed,
        expected=wish.expected,
        capped=wish.is_capped,
        started_at=utc_datetime(record.started_at),
        ended_at=utc_datetime(record.ended_at),
        by=wish.by,
        reason=wish.reason,
        error=record.error,
    )
