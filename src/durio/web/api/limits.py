"""`admin/limits`: limits in force, who holds them and who waits; change and reset by hand."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field

from durio.client.limit_holders import holders_of
from durio.client.limit_store import (
    find_limit,
    parse_choice,
    read_limits,
    reset_limit,
    set_limit,
)
from durio.client.limit_view import (
    GATES_READ,
    LimitRow,
    choice_text,
    fair_rows,
    is_whole,
    limit_row,
)
from durio.model.errors import UsageError
from durio.model.gate_rule import FAIR_LIMIT, QUEUE_LIMIT, GateChoice
from durio.model.job import utc_datetime
from durio.model.limit_records import KnownLimit
from durio.model.quantities import DURATION_UNITS
from durio.ports.browse import GateRow
from durio.web.api.cursors import continued, cursor_of
from durio.web.api.shapes import LIMIT_DEFAULT, Answer, Body, Cursor, Items, Limit
from durio.web.call import WebCall
from durio.web.roles import Viewer, may

router = APIRouter(tags=["limits"])

LimitKind = Literal["concurrency", "rate", "budget", "fair", "queue"]
SETTABLE_CHARS_MAX = 40


class LimitItem(Answer):
    name: str
    kind: LimitKind
    text: str  # the numbers in force, for people: `5 at once`, `100/m`
    size: float | None  # jobs at once; of a rate or budget: what one `per` allows
    per: str | None  # of a rate or budget: s, m, h or d
    burst: float | None
    used: int  # places that jobs hold
    waiting: int
    keys: int  # gates; a limit without a key has at most one
    key: str  # which argument is the key; empty: none
    task: str | None  # the first of `tasks`
    tasks: list[str]
    queue: str | None  # of a limit of one queue
    by: Literal["code", "people"]
    in_code: str | None  # the numbers of the code, if people have changed them


class KeyItem(Answer):
    key: str  # empty: all jobs
    used: int
    size: int | None
    tokens: float | None  # now; of a rate or budget
    waiting: int
    closed_until: datetime | None
    holders: list[str]  # ids of jobs, as far as they are found


class LimitView(Items[KeyItem]):
    """One page of the keys of a limit, those with the most waiting jobs first."""

    limit: LimitItem


class LimitChoice(Body):
    """New numbers: one of `size`, `rate`, `amount` and `off`; a queue takes two."""

    size: Annotated[int, Field(ge=1)] | None = None  # jobs at once
    rate: Annotated[str, Field(max_length=SETTABLE_CHARS_MAX)] | None = None  # `100/m`
    amount: Annotated[float, Field(gt=0)] | None = None  # of a budget, for its time
    burst: Annotated[float, Field(ge=1)] | None = None
    off: bool = False  # no limit


class NumbersInForce(Answer):
    name: str
    text: str
    cap: int | None
    rate: float | None  # per second
    burst: float | None


@router.get("/limits")
async def list_limits(
    call: Viewer, limit: Limit = LIMIT_DEFAULT, cursor: Cursor = None
) -> Items[LimitItem]:
    """Return the limits of the App by name, and those of fairness while jobs have them."""
    store, app = await call.store(), call.app
    after = continued("limits", cursor) or ""
    known = {each.name: each for each in await read_limits(store, app.name)}
    fair = {row.limit: row for row in await fair_rows(store, app.name)}
    names = sorted(
        name for name in {*known, *fair} if name > after and sees_limit(call, name)
    )
    shown = names[:limit]
    items = [
        item_of(await limit_row(store, known[name]), known[name])
        if name in known
        else item_of(fair[name], None)
        for name in shown
    ]
    return Items(
        items=items,
        cursor=cursor_of("limits", shown[-1] if len(names) > limit else None),
    )


@router.get("/limits/{name}")
async def show_limit(
    call: Viewer, name: str, limit: Limit = LIMIT_DEFAULT, cursor: Cursor = None
) -> LimitView:
    """Return a limit with its keys, the jobs that hold them and the number that wait."""
    store, app = await call.store(), call.app
    known = await seen_limit(call, name)
    named = f"limit {name}"
    after = position_of(continued(named, cursor))
    gates = sorted(await store.gates(known.gates, limit=GATES_READ), key=place_of)
    gates = [gate for gate in gates if after is None or place_of(gate) > after]
    shown = gates[:limit]
    holders = await holders_of(store, app.name, [gate.name for gate in shown])
    more = place_text(shown[-1]) if len(gates) > limit else None
    return LimitView(
        limit=item_of(await limit_row(store, known), known),
        items=[key_item(gate, known, holders) for gate in shown],
        cursor=cursor_of(named, more),
    )


@router.put("/limits/{name}")
async def change_limit(
    call: Annotated[WebCall, may("change_limit")], name: str, body: LimitChoice
) -> NumbersInForce:
    """Set a limit by hand: at once for jobs that wait, until it is reset."""
    store, app = await call.store(), call.app
    known = await seen_limit(call, name)
    choice = choice_of(known, body)
    note = call.note(
        f"{name} ({choice_text(choice)})",
        verb="set limit",
        before=known.choice._asdict(),
        after=choice._asdict(),
    )
    await set_limit(store, app.name, known, choice, note)
    return in_force(name, choice)


@router.delete("/limits/{name}/override")
async def drop_override(
    call: Annotated[WebCall, may("change_limit")], name: str
) -> NumbersInForce:
    """Forget what was set by hand: the numbers of the code are in force again."""
    store, app = await call.store(), call.app
    known = await seen_limit(call, name)
    note = call.note(name, verb="reset limit", before=known.choice._asdict())
    return in_force(name, await reset_limit(store, app.name, known, note))


async def seen_limit(call: WebCall, name: str) -> KnownLimit:
    queue = queue_of_limit(name)
    if queue is not None:
        call.check_queue(queue)
    return await find_limit(await call.store(), call.app.name, name)


def sees_limit(call: WebCall, name: str) -> bool:
    queue = queue_of_limit(name)
    return queue is None or call.user.sees(queue)


def queue_of_limit(name: str) -> str | None:
    """Return the queue of a limit that is of one queue; None for limits of tasks."""
    for prefix in (QUEUE_LIMIT, FAIR_LIMIT):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return None


def choice_of(known: KnownLimit, body: LimitChoice) -> GateChoice:
    """Return the numbers that a body asks for, if the limit can have them."""
    values = [] if body.size is None else [str(body.size)]
    if body.rate is not None:
        values.append(body.rate)
    if body.amount is not None:
        values.append(amount_text(known, body.amount))
    if body.off is bool(values):
        raise UsageError(
            "a number and off are both given" if values else "no number is given",
            cure='Give {"size": 5}, {"rate": "100/m"}, {"amount": 1000} or {"off": true}.',
        )
    return parse_choice(known, values, body.burst) if values else GateChoice()


def amount_text(known: KnownLimit, amount: float) -> str:
    """Return an amount for the time that the code gives its budget."""
    code = known.code
    if known.kind != "budget" or code is None or not code.rate or not code.burst:
        raise UsageError(
            f"limit {known.name} is not a budget",
            cure='Give {"size": 5} or {"rate": "100/m"}.',
        )
    return f"{amount:f}/{code.burst / code.rate:f}s"


def item_of(row: LimitRow, known: KnownLimit | None) -> LimitItem:
    choice = row.choice
    size, per = size_and_time(row)
    code = None if known is None or known.code is None else known.code.choice
    kind: Any = "fair" if row.kind == "fairness" else row.kind
    return LimitItem(
        name=row.limit,
        kind=kind,
        text=choice_text(choice),
        size=size,
        per=per,
        burst=choice.burst if choice.rate is not None else None,
        used=row.held,
        waiting=row.waiting,
        keys=row.gates,
        key=row.key,
        task=row.tasks[0] if row.tasks else None,
        tasks=list(row.tasks),
        queue=queue_of_limit(row.limit),
        by="people" if row.is_manual else "code",
        in_code=choice_text(code) if row.is_manual and code is not None else None,
    )


def size_and_time(row: LimitRow) -> tuple[float | None, str | None]:
    """Return how many jobs, or how much in which time, such as 100 and `m`."""
    cap, rate, burst = row.choice
    if cap is not None or rate is None:
        return cap, None
    amounts = [(rate * DURATION_UNITS[unit], unit) for unit in "smhd"]
    whole = [(amount, unit) for amount, unit in amounts if is_whole(amount)]
    of_budget = [pair for pair in whole if round(pair[0]) == burst]
    for amount, unit in of_budget or whole:
        return round(amount), unit
    return amounts[-1]


def key_item(
    gate: GateRow, known: KnownLimit, holders: Mapping[str, list[str]]
) -> KeyItem:
    return KeyItem(
        key=gate.name.removeprefix(known.gates),
        used=gate.used,
        size=gate.cap,
        tokens=None if gate.rate is None else gate.tokens,
        waiting=gate.waiting,
        closed_until=utc_datetime(gate.until),
        holders=holders.get(gate.name, []),
    )


def in_force(name: str, choice: GateChoice) -> NumbersInForce:
    return NumbersInForce(name=name, text=choice_text(choice), **choice._asdict())


# --- the order of keys


def place_of(gate: GateRow) -> tuple[int, int, str]:
    return -gate.waiting, -gate.used, gate.name


def place_text(gate: GateRow) -> str:
    return f"{gate.waiting} {gate.used} {gate.name}"


def position_of(text: str | None) -> tuple[int, int, str] | None:
    if text is None:
        return None
    waiting, used, name = text.split(" ", 2)
    return -int(waiting), -int(used), name
