"""`admin/audit`: what people have changed, newest first."""

import json
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query

from durio.model.job import utc_datetime
from durio.ports.browse import AuditLine
from durio.web.api.cursors import continued, cursor_of
from durio.web.api.shapes import LIMIT_DEFAULT, Answer, Cursor, Items, Limit
from durio.web.call import WebCall
from durio.web.problems import Refusal
from durio.web.roles import Viewer

router = APIRouter(tags=["audit"])

READ_LINES = 500  # at once
LOOK_LINES_MAX = 2_000  # by one request
NUMBER_MAX = 2**62

Words = Annotated[str | None, Query(max_length=200)]


class AuditItem(Answer):
    at: datetime | None
    by: str
    address: str | None  # of the browser or program; None: it was no request
    browser: str | None
    verb: str
    target: str
    count: int  # jobs that were changed
    before: str | None  # JSON text; None: hidden from this user, or there is none
    after: str | None
    request_id: str | None


@router.get("/audit")
async def list_audit(
    call: Viewer,
    verb: Words = None,
    who: Words = None,
    limit: Limit = LIMIT_DEFAULT,
    cursor: Cursor = None,
) -> Items[AuditItem]:
    """Return changes whose verb and author contain these words.

    A user who may see only some queues sees only its own changes.
    """
    named = f"audit {verb!r} {who!r} {call.sees_all or call.user.name}"
    before = number_of(continued(named, cursor))
    store, found, looked = await call.store(), list[AuditLine](), 0
    while len(found) <= limit and looked < LOOK_LINES_MAX:
        lines = await store.audit(call.app.name, limit=READ_LINES, before=before)
        looked += len(lines)
        found += [line for line in lines if is_wanted(call, line, verb, who)]
        before = lines[-1].number if len(lines) == READ_LINES else None
        if before is None:
            break
    if len(found) > limit:
        before = found[limit - 1].number
    following = None if before is None else str(before)
    return Items(
        items=[audit_item(call, line) for line in found[:limit]],
        cursor=cursor_of(named, following),
        partial=following is not None and len(found) < limit,
    )


def number_of(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not cursor.isdecimal() or int(cursor[:20]) > NUMBER_MAX:
        raise Refusal(400, "invalid_cursor", "the cursor is not of this query")
    return int(cursor)


def is_wanted(
    call: WebCall, line: AuditLine, verb: str | None, who: str | None
) -> bool:
    if verb and verb.casefold() not in line.verb.casefold():
        return False
    if who and who.casefold() not in line.who.casefold():
        return False
    return call.sees_all or line.who.startswith(f"{call.user.name}@")


def audit_item(call: WebCall, line: AuditLine) -> AuditItem:
    details = details_of(line)
    return AuditItem(
        at=utc_datetime(line.at),
        by=line.who,
        address=text_or_none(details.get("address")),
        browser=text_or_none(details.get("browser")),
        verb=line.verb,
        target=line.target,
        count=line.jobs,
        before=value_text(call, details.get("before")),
        after=value_text(call, details.get("after")),
        request_id=text_or_none(details.get("request_id")),
    )


def details_of(line: AuditLine) -> dict[str, Any]:
    """Return the details of a line; any program may have written the row."""
    try:
        found = line.read_details()
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def value_text(call: WebCall, value: Any) -> str | None:
    """Return a value of the details as JSON text, if the user may see payloads."""
    if value is None or not call.sees_whole_payloads:
        return None
    return json.dumps(value, ensure_ascii=False)
