"""`admin/queues`: lists of queues, one queue, and what can be done with it."""

from fastapi import APIRouter

from durio.client.job_query import check_queue
from durio.web.api.cursors import continued, cursor_of
from durio.web.api.queue_items import QueueItem, queue_items
from durio.web.api.shapes import LIMIT_DEFAULT, Cursor, Items, Limit
from durio.web.call import WebCall
from durio.web.problems import Refusal
from durio.web.roles import Viewer

router = APIRouter(tags=["queues"])
LISTED = "queues"


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


async def known_queue(call: WebCall, name: str) -> None:
    """Refuse a queue that the user may not see, or that does not exist."""
    call.check_queue(name)
    await check_queue(call.app, await call.store(), name)


async def one_queue(call: WebCall, name: str) -> QueueItem:
    found = await queue_items(call, limit=1, name=name)
    if not found:  # declared in code, and no worker has published it yet
        raise Refusal(404, "unknown_queue", f"there is no queue {name!r:.140}")
    return found[0]
