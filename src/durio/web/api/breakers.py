"""`admin/breakers`: circuit breakers with their history; open, close and reset by hand."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field

from durio.client.breakers import (
    ShownBreaker,
    find_breaker,
    force_breaker,
    list_breakers,
)
from durio.client.queue_handle import REASON_CHARS_MAX, check_reason_text
from durio.model.breaker import BreakerChange, ForcedState, new_breaker, totals
from durio.model.job import utc_datetime
from durio.web.api.cursors import continued, cursor_of
from durio.web.api.shapes import LIMIT_DEFAULT, Answer, Body, Cursor, Items, Limit
from durio.web.call import WebCall
from durio.web.roles import Viewer, may

router = APIRouter(tags=["breakers"])

ShownState = Literal["closed", "open", "half_open", "forced_open", "forced_closed"]
ChangeVerb = Literal["open", "close", "reset"]


class ForcedBy(Answer):
    by: str
    at: datetime | None
    reason: str | None


class BreakerStep(Answer):
    at: datetime | None
    before: str
    state: str
    text: str  # why
    by: str | None  # who made it by hand


class BreakerItem(Answer):
    name: str
    state: ShownState
    since: datetime | None
    until: datetime | None  # open: when it tries again; None: not known, or by hand
    forced: ForcedBy | None
    failures: int  # of the last window
    calls: int  # of the last window
    probes: int  # jobs that try whether it works again
    probe_jobs: list[str]
    waiting: int  # jobs that it keeps back
    last_error: str
    rule: str  # when it opens, in words
    history: list[BreakerStep]  # newest first


class BreakerBody(Body):
    reason: Annotated[str, Field(max_length=REASON_CHARS_MAX)] | None = None


class ReasonBody(Body):
    reason: Annotated[str, Field(min_length=1, max_length=REASON_CHARS_MAX)]


@router.get("/breakers")
async def list_all(
    call: Viewer, limit: Limit = LIMIT_DEFAULT, cursor: Cursor = None
) -> Items[BreakerItem]:
    """Return breakers by name, with the calls of their last window."""
    store, app, now = await call.store(), call.app, call.app.now()
    after = continued("breakers", cursor) or ""
    stored = {each.name: each for each in await list_breakers(store, app.name)}
    for name, declared in app.breakers.items():
        new = ShownBreaker(app.name, name, new_breaker(declared.rule, now), 0)
        stored.setdefault(name, new)
    names = sorted(name for name in stored if name > after)
    shown = names[:limit]
    return Items(
        items=[breaker_item(stored[name], now) for name in shown],
        cursor=cursor_of("breakers", shown[-1] if len(names) > limit else None),
    )


@router.get("/breakers/{name}")
async def show_one(call: Viewer, name: str) -> BreakerItem:
    """Return one breaker."""
    return breaker_item(await breaker_of(call, name), call.app.now())


@router.post("/breakers/{name}/open")
async def open_one(
    call: Annotated[WebCall, may("change_breaker")], name: str, body: ReasonBody
) -> BreakerItem:
    """Hold the jobs of a breaker back, until it is closed or reset."""
    return await change(call, name, "open", body.reason)


@router.post("/breakers/{name}/close")
async def close_one(
    call: Annotated[WebCall, may("change_breaker")], name: str, body: BreakerBody
) -> BreakerItem:
    """Let the jobs of a breaker run, whatever fails, until it is opened or reset."""
    return await change(call, name, "close", body.reason)


@router.post("/breakers/{name}/reset")
async def reset_one(
    call: Annotated[WebCall, may("change_breaker")], name: str, body: BreakerBody
) -> BreakerItem:
    """Close a breaker, forget its counts, and let it work by itself again."""
    return await change(call, name, "reset", body.reason)


async def change(
    call: WebCall, name: str, verb: ChangeVerb, reason: str | None
) -> BreakerItem:
    why = None if reason is None else check_reason_text(reason)
    shown, now = await breaker_of(call, name), call.app.now()
    force = ForcedState(by=call.by, at=now, reason=why)
    note = call.note(
        f"breaker {name}" + (f" ({why})" if why else ""),
        verb=verb,
        before={"state": shown_state(shown)},
    )
    changed = await force_breaker(await call.store(), shown, verb, force, note)
    return breaker_item(changed, now)


async def breaker_of(call: WebCall, name: str) -> ShownBreaker:
    app = call.app
    return await find_breaker(
        await call.store(), app.name, name, app.breakers, app.now()
    )


def breaker_item(shown: ShownBreaker, now: float) -> BreakerItem:
    record = shown.record
    calls, failures = totals(record, now)
    force = record.forced
    return BreakerItem(
        name=shown.name,
        state=shown_state(shown),
        since=utc_datetime(record.since),
        until=utc_datetime(record.until),
        forced=force
        and ForcedBy(by=force.by, at=utc_datetime(force.at), reason=force.reason),
        failures=failures,
        calls=calls,
        probes=len(record.probes),
        probe_jobs=list(record.probes),
        waiting=shown.waiting,
        last_error=record.last_error,
        rule=record.rule.in_words(),
        history=[event_of(each) for each in reversed(record.changes)],
    )


def shown_state(shown: ShownBreaker) -> ShownState:
    record = shown.record
    if record.forced is None:
        return record.state
    return "forced_closed" if record.state == "closed" else "forced_open"


def event_of(event: BreakerChange) -> BreakerStep:
    return BreakerStep(
        at=utc_datetime(event.at),
        before=event.before,
        state=event.state,
        text=event.why,
        by=event.by,
    )
