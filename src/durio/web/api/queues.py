"""`admin/queues`: lists of queues, one queue, and what can be done with it."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field

from durio.client.bulk import CountedJobs, act_in_bulk
from durio.client.job_query import check_queue
from durio.client.queue_handle import check_reason_text
from durio.model.errors import InvalidOption
from durio.model.job import CODE_BY_STATE, State
from durio.model.names import check_name, lane
from durio.model.queues import MAXSIZE_MAX
from durio.ports.browse import Query
from durio.ports.control import (
    AS_IN_CODE,
    NO_BOUND,
    Action,
    CancelJobs,
    DiscardJobs,
    MoveJobs,
    QueueChange,
)
from durio.web.api.cursors import continued, cursor_of
from durio.web.api.queue_items import QueueItem, queue_items
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
from durio.web.problems import Refusal
from durio.web.roles import Viewer, may

router = APIRouter(tags=["queues"])
LISTED = "queues"
ACT_SECONDS_MAX = 10.0  # of one request; what is left needs another one
WAITING = (State.SCHEDULED, State.BLOCKED, State.READY)

Reason = Annotated[str | None, Field(description="why, for the list and the audit")]


class StopBody(Body):
    reason: Reason = None


class BoundBody(Body):
    # None: no bound; `code`: what the code says.
    maxsize: Annotated[int, Field(ge=1, le=MAXSIZE_MAX)] | Literal["code"] | None
    overflow: Literal["refuse"] | None = None


class MoveBody(Body):
    to: str
    create: bool = False  # allow a queue that does not exist yet


class PurgeBody(Body):
    confirm: str  # the name of the queue
    states: list[Literal["scheduled", "blocked", "ready", "dead"]] = Field(
        default_factory=lambda: ["scheduled", "blocked", "ready"], min_length=1
    )


class ActedJobs(Answer):
    status: str
    jobs: int  # that were changed
    held: int  # unchanged: open transactions hold them
    left: int  # the time for one request was over: ask again


@router.get("/queues")
async def list_queues(
    call: Viewer, limit: Limit = LIMIT_DEFAULT, cursor: Cursor = None
) -> Items[QueueItem]:
    """Return the queues that were ever used or that a task names, by name."""
    after = continued(LISTED, cursor) or ""
    found = await queue_items(call, after=after, limit=limit + 1)
    items = found[:limit]
    following = items[-1].name if len(found) > limit else None
    return Items(items=items, cursor=cursor_of(LISTED, following))


@router.get("/queues/{name}")
async def show_queue(call: Viewer, name: str) -> QueueItem:
    """Return one queue."""
    await known_queue(call, name)
    return await one_queue(call, name)


@router.post("/queues/{name}/pause")
async def pause_queue(
    call: Annotated[WebCall, may("pause_queue")], name: str, body: StopBody
) -> QueueItem:
    """Give workers no jobs of the queue; running jobs go on, new ones wait."""
    why = reason_of(body.reason)
    return await changed(call, name, QueueChange(paused=True, reason=why))


@router.post("/queues/{name}/resume")
async def resume_queue(
    call: Annotated[WebCall, may("pause_queue")], name: str, body: NoChoices
) -> QueueItem:
    """Give workers jobs of the queue again."""
    _ = body
    return await changed(call, name, QueueChange(paused=False))


@router.post("/queues/{name}/close")
async def close_queue(
    call: Annotated[WebCall, may("close_queue")], name: str, body: StopBody
) -> QueueItem:
    """Take no new jobs; retries are still accepted, and workers go on."""
    why = reason_of(body.reason)
    return await changed(call, name, QueueChange(closed=True, reason=why))


@router.post("/queues/{name}/open")
async def open_queue(
    call: Annotated[WebCall, may("close_queue")], name: str, body: NoChoices
) -> QueueItem:
    """Take new jobs again."""
    _ = body
    return await changed(call, name, QueueChange(closed=False))


@router.put("/queues/{name}/bound")
async def bound_queue(
    call: Annotated[WebCall, may("bound_queue")], name: str, body: BoundBody
) -> QueueItem:
    """Set how many jobs may wait; jobs that are in the queue stay."""
    sizes = {None: NO_BOUND, "code": AS_IN_CODE}
    size = body.maxsize if isinstance(body.maxsize, int) else sizes[body.maxsize]
    return await changed(call, name, QueueChange(maxsize=size))


@router.post("/queues/{name}/move")
async def move_jobs(
    call: Annotated[WebCall, may("move_queue")], name: str, body: MoveBody
) -> ActedJobs:
    """Move the waiting jobs to another queue; running jobs stay, the bound is ignored."""
    await known_queue(call, name)
    if body.to == name:
        raise InvalidOption(
            f"{name} and {body.to} are the same queue", cure="Name another one."
        )
    target = check_name("queue", body.to)
    if body.create:
        call.check_queue(target)
    else:
        await known_queue(call, target)
    action = MoveJobs(lane(call.app.name, target))
    return await act_on_queue(call, name, WAITING, [action], "moved")


@router.post("/queues/{name}/purge")
async def purge_queue(
    call: Annotated[WebCall, may("purge_queue")], name: str, body: PurgeBody
) -> ActedJobs:
    """Cancel the waiting jobs of a queue; with the state dead, delete its dead ones."""
    await known_queue(call, name)
    if body.confirm != name:
        raise Refusal(
            400,
            "not_confirmed",
            f"{body.confirm!r:.140} is not the name of the queue",
            f'Type the name: {{"confirm": "{name}"}}.',
        )
    states = [State(each) for each in body.states]
    actions = [
        action
        for action in (CancelJobs(), DiscardJobs())
        if any(CODE_BY_STATE[state] in action.states for state in states)
    ]
    return await act_on_queue(call, name, states, actions, "purged")


# --- parts


def reason_of(text: str | None) -> str | None:
    return check_reason_text(text) if text and text.strip() else None


async def changed(call: WebCall, name: str, change: QueueChange) -> QueueItem:
    """Change a queue, audited in the same commit; return it as it is then."""
    await known_queue(call, name)
    before = await one_queue(call, name)
    wanted = {k: v for k, v in change._asdict().items() if v is not None}
    was = {"state": before.state, "closed": before.closed, "bound": before.bound}
    note = call.note(before=was, after=wanted)
    store = await call.store()
    await store.set_queue(lane(call.app.name, name), change, note)
    return await one_queue(call, name)


async def act_on_queue(
    call: WebCall,
    name: str,
    states: Sequence[State],
    actions: Sequence[Action],
    status: str,
) -> ActedJobs:
    """Act on the jobs that are in these states now, for a limited time."""
    store, app = await call.store(), call.app
    until = app.clock.monotonic() + ACT_SECONDS_MAX
    stored, codes = lane(app.name, name), tuple(CODE_BY_STATE[s] for s in states)
    counted = jobs = held = 0
    for action in actions:
        some = tuple(code for code in codes if code in action.states)
        query = Query(namespace=app.name, lane=stored, states=some)
        found = await store.count(query)
        counted += found.jobs
        steps = act_in_bulk(
            store,
            action,
            CountedJobs(query, found.mark, found.jobs),
            clock=app.clock,
            by=call.by,
            details=call.note().details,
        )
        async with aclosing(steps):
            async for step in steps:
                jobs, held = jobs + step.jobs, held + step.held
                if app.clock.monotonic() >= until:
                    break
    left = max(0, counted - jobs - held)
    return ActedJobs(status=status, jobs=jobs, held=held, left=left)


async def known_queue(call: WebCall, name: str) -> None:
    """Refuse a queue that the user may not see, or that does not exist."""
    call.check_queue(name)
    await check_queue(call.app, await call.store(), name)


async def one_queue(call: WebCall, name: str) -> QueueItem:
    found = await queue_items(call, limit=1, name=name)
    if not found:  # declared in code, and no worker has published it yet
        raise Refusal(404, "unknown_queue", f"there is no queue {name!r:.140}")
    return found[0]
