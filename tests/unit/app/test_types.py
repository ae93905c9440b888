"""Every type that a payload may carry, through a real worker and back, by annotation."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from durio import App
from tests.unit.app.app_harness import drained, record_of, virtual


@dataclass
class Line:
    sku: str
    amount: int = 1


@dataclass
class Order:
    id: UUID
    lines: list[Line]
    placed_at: datetime
    total: Decimal
    notes: dict[str, str | None] = field(default_factory=dict)


class Address(msgspec.Struct, frozen=True):
    city: str
    zip: str | None = None


class Point(NamedTuple):
    x: float
    y: float


class Row(TypedDict):
    id: int
    tags: list[str]


class Customer(pydantic.BaseModel):
    name: str
    born: date
    address: dict[str, str] = {}


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 7


class Kind(StrEnum):
    MAIL = "mail"


class Tree(msgspec.Struct):
    value: int
    children: "list[Tree]" = []


OptionalLine = Optional[Line]  # noqa: UP045 - the old spelling
UserId = NewType("UserId", int)
NOON = datetime(2026, 3, 1, 12, 30, 15, 250_000, tzinfo=UTC)
ORDER = Order(
    UUID(int=7), [Line("a"), Line("b", 2)], NOON, Decimal("19.90"), {"gift": None}
)

VALUES: dict[str, tuple[Any, Any]] = {
    "nothing": (None, None),
    "bool": (bool, True),
    "int": (int, -5),
    "an int beyond 64 bit": (int, 10**30),
    "float": (float, 0.1),
    "text": (str, "Grüße 👋 \n\t\"'"),
    "bytes": (bytes, bytes(range(256))),
    "datetime": (datetime, NOON),
    "datetime of a zone": (
        datetime,
        NOON.astimezone(timezone(timedelta(hours=5, minutes=30))),
    ),
    "date": (date, date(2026, 2, 28)),
    "time": (time, time(23, 59, 59)),
    "timedelta": (timedelta, timedelta(days=1, seconds=2, milliseconds=3)),
    "UUID": (UUID, UUID(int=42)),
    "Decimal": (Decimal, Decimal("0.10")),
    "Enum": (Colour, Colour.RED),
    "IntEnum": (Level, Level.HIGH),
    "StrEnum": (Kind, Kind.MAIL),
    "Path": (Path, Path("/srv/a b.txt")),
    "dataclass, nested": (Order, ORDER),
    "Struct": (Address, Address("Bern")),
    "Struct of itself": (Tree, Tree(1, [Tree(2), Tree(3, [Tree(4)])])),
    "NamedTuple": (Point, Point(1.5, -2.0)),
    "TypedDict": (Row, {"id": 1, "tags": ["x"]}),
    "pydantic": (Customer, Customer(name="Ada", born=date(1815, 12, 10))),
    "pydantic, in a list": (
        list[Customer],
        [Customer(name="Ada", born=date(1815, 12, 10), address={"city": "London"})],
    ),
    "Optional, there": (OptionalLine, Line("a")),
    "Optional, not there": (Address | None, None),
    "union": (int | str, "5"),
    "Literal": (Literal["a", "b"], "b"),
    "NewType": (UserId, 5),
    "Annotated": (Annotated[int, msgspec.Meta(ge=1)], 1),
    "list": (list[int], [1, 2]),
    "tuple": (tuple[int, str], (1, "a")),
    "tuple of any length": (tuple[int, ...], (1, 2, 3)),
    "set": (set[str], {"a", "b"}),
    "frozenset": (frozenset[int], frozenset({1})),
    "dict": (dict[str, list[Line]], {"k": [Line("a")]}),
    "dict with int keys": (dict[int, str], {1: "a"}),
    "object": (object, {"a": [1, None]}),
    "dict of objects": (dict[str, object], {"a": [1, {"b": None}]}),
    "Any": (Any, {"a": [1, 2.5, None, True]}),
}


def echo(kind: Any) -> Callable[..., Any]:
    async def task(value: kind) -> kind:
        SEEN.append(value)
        return value

    return task


SEEN: list[Any] = []


@pytest.mark.proves("M42", "M19")
@pytest.mark.parametrize("what", VALUES)
@virtual
async def test_a_type_comes_back_as_it_was_annotated(app: App, what: str):
    kind, value = VALUES[what]
    SEEN.clear()
    task = app.task(name="echo")(echo(kind))
    job = await task.enqueue(value)
    await drained(app)
    back = await job.result()
    assert [value] == SEEN
    assert back == value
    assert type(back) is type(SEEN[0]) is type(value)


@pytest.mark.proves("M42", "M43")
@virtual
async def test_what_is_stored_is_json_and_nothing_else(app: App):
    task = app.task(name="echo")(echo(Order))
    job = await task.enqueue(ORDER)
    await drained(app)
    row = await record_of(app, job)
    args, kwargs = msgspec.json.decode(row.payload)
    assert (args, kwargs["value"]["lines"][1]) == ([], {"sku": "b", "amount": 2})
    assert msgspec.json.decode(row.result)["total"] == "19.90"


# --- shapes of signatures


@virtual
async def test_every_kind_of_parameter_reaches_the_function(app: App):
    calls: list[object] = []

    @app.task(name="only")
    async def only(a: int, b: Line, /, c: int = 3, *, d: Decimal = Decimal(4)) -> None:
        calls.append((a, b, c, d))

    @app.task(name="rest")
    async def rest(a: int, *more: Line, key: str = "k", **extra: date) -> None:
        calls.append((a, more, key, extra))

    @app.task(name="open_")
    async def open_(**everything: int) -> None:
        calls.append(everything)

    @app.task(name="nothing")
    async def nothing() -> None:
        calls.append(())

    day = date(2026, 1, 1)
    for calling in (
        only.enqueue(1, Line("x")),
        only.enqueue(1, Line("x"), 5, d=Decimal("1.5")),
        rest.enqueue(1),
        rest.enqueue(a=1, key="z"),
        rest.enqueue(1, Line("x"), Line("y"), key="z", day=day),
        open_.enqueue(a=1, self=2, name=3),
        nothing.enqueue(),
    ):
        await calling
    await drained(app)
    assert calls == [
        (1, Line("x"), 3, Decimal(4)),
        (1, Line("x"), 5, Decimal("1.5")),
        (1, (), "k", {}),
        (1, (), "z", {}),
        (1, (Line("x"), Line("y")), "z", {"day": day}),
        {"a": 1, "self": 2, "name": 3},
        (),
    ]


@virtual
async def test_a_default_is_the_workers_own_and_need_not_be_json(app: App):
    seen: list[object] = []
    unsendable = object()

    @app.task(name="task")
    async def task(value: Any = unsendable) -> None:
        seen.append(value)

    await task.enqueue()
    await drained(app)
    assert seen == [unsendable]


@pytest.mark.proves("M33")
@virtual
async def test_by_position_and_by_name_are_the_same_arguments(app: App):
    @app.task(name="pay")
    async def pay(order_id: int, amount: int = 1, *, to: str = "") -> None:
        """Nothing."""

    calls = pay.options(key="k")
    first = await calls.enqueue(42, 7, to="a")
    for job in (
        await calls.enqueue(order_id=42, amount=7, to="a"),
        await calls.enqueue(42, to="a", amount=7),
        await calls.enqueue(to="a", amount=7, order_id=42),
    ):
        assert (job, job.created, job.same_args) == (first, False, True)


@pytest.mark.proves("M33")
@virtual
async def test_the_order_of_extra_arguments_does_not_matter(app: App):
    @app.task(name="open_")
    async def open_(**everything: int) -> None:
        """Nothing."""

    calls = open_.options(key="k")
    first = await calls.enqueue(a=1, b=2)
    again = await calls.enqueue(b=2, a=1)
    assert (again, again.created) == (first, False)


@virtual
async def test_a_value_is_converted_where_that_loses_nothing(app: App):
    """JSON knows neither tuples nor UUIDs: what decodes to the annotation is taken."""
    seen: list[object] = []

    @app.task(name="task")
    async def task(pair: tuple[int, int], id: UUID, line: Line, at: float) -> None:  # noqa: A002
        seen.append((pair, id, line, at))

    await task.enqueue([1, 2], str(UUID(int=1)), {"sku": "x"}, 5)
    await drained(app)
    assert seen == [((1, 2), UUID(int=1), Line("x"), 5.0)]
