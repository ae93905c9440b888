"""A task's parameters as a codec: one normal form, typed on both sides."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from durio.model.argument_codec import ArgumentCodec
from durio.model.argument_errors import misfit, plain_words
from durio.model.errors import (
    InvalidArguments,
    InvalidResult,
    NotSerializable,
    UsageError,
)
from durio.model.published_tasks import parameters_digest


class Colour(Enum):
    RED = "red"


class Line(TypedDict):
    sku: str
    count: int


class Item(pydantic.BaseModel):
    price: float


class Person:
    """Built like a model of pydantic, by code of its own."""

    @classmethod
    def model_validate(cls, _value: object) -> "Person":
        raise ValueError("no such person")

    def model_dump(self, **_: object) -> dict[str, str]:
        return {}


class StrictItem(pydantic.BaseModel, extra="forbid"):
    price: float


class Order(msgspec.Struct):
    id: int


@dataclass
class Point:
    x: int


class Bare:
    """Nothing knows how to build one from JSON."""


def plain(order_id: int, note: str = "none") -> str: ...
def typed(when: datetime, who: UUID, sum_: Decimal, colour: Colour) -> None: ...
def rich(line: Line, item: Item, order: Order, point: Point, file: Path) -> None: ...
def bought(item: StrictItem) -> None: ...
def sold(items: list[StrictItem]) -> None: ...
def named(who: Person) -> None: ...
def rest(first: int, *others: int, last: int = 0) -> None: ...
def strict(a: int, /, b: int, *, c: int = 3) -> None: ...
def opened(a: int, **more: int) -> None: ...
def everything(a: int, /, b: int = 2, *rest: int, c: int = 3, **more: int) -> None: ...
def unannotated(a, b=None): ...
def none() -> None: ...


def signature(function: Callable[..., Any]) -> ArgumentCodec:
    return ArgumentCodec(function, f"shop.{function.__name__}", skip_first=False)


def there_and_back(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    codec = signature(function)
    return codec.decode(codec.encode(args, kwargs))


@pytest.mark.proves("M19", "M27")
def test_every_way_to_pass_an_argument_is_the_same_bytes() -> None:
    codec = signature(plain)
    wanted = b'[[],{"order_id":42,"note":"x"}]'
    assert codec.encode((42, "x"), {}) == wanted
    assert codec.encode((42,), {"note": "x"}) == wanted
    assert codec.encode((), {"order_id": 42, "note": "x"}) == wanted
    assert codec.encode((), {"note": "x", "order_id": 42}) == wanted


def test_defaults_stay_with_the_function() -> None:
    assert there_and_back(plain, 42) == ((), {"order_id": 42})


@pytest.mark.proves("M42")
def test_arguments_arrive_as_the_annotated_types() -> None:
    when = datetime(2026, 1, 1, tzinfo=UTC)
    args = (when, UUID(int=5), Decimal("1.10"), Colour.RED)
    _, named = there_and_back(typed, *args)
    assert tuple(named.values()) == args
    args = (Line(sku="a", count=1), Item(price=1), Order(2), Point(3), Path("/a"))
    _, named = there_and_back(rich, *args)
    assert tuple(named.values()) == args


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "wanted"),
    [
        (none, (), {}, ([], {})),
        (unannotated, ([1], {"x": 2}), {}, ((), {"a": [1], "b": {"x": 2}})),
        (rest, (1,), {}, ([], {"first": 1})),
        (rest, (1, 2, 3), {"last": 4}, ([1, 2, 3], {"last": 4})),
        (strict, (1, 2), {"c": 4}, ([1], {"b": 2, "c": 4})),
        (strict, (1,), {"b": 2}, ([1], {"b": 2})),
        (opened, (1,), {"x": 2}, ([], {"a": 1, "x": 2})),
        (opened, (1,), {}, ([], {"a": 1})),
        (everything, (1,), {}, ([1], {})),
        (everything, (1, 5, 6), {"c": 7, "z": 8}, ([1, 5, 6], {"c": 7, "z": 8})),
    ],
)
def test_every_kind_of_parameter(
    function: Callable[..., Any], args: Any, kwargs: Any, wanted: Any
) -> None:
    codec = signature(function)
    positional, named = codec.decode(codec.encode(args, kwargs))
    assert (list(positional), named) == (list(wanted[0]), wanted[1])
    function(*positional, **named)


def test_the_context_parameter_is_not_an_argument() -> None:
    codec = ArgumentCodec(plain, "shop.plain", skip_first=True)
    assert codec.encode(("x",), {}) == b'[[],{"note":"x"}]'


WRONG = {
    "missing": (plain, (), {}, "needs the argument 'order_id'"),
    "too many": (
        plain,
        (1, "a", 2),
        {},
        "takes 2 positional arguments, and 3 were given",
    ),
    "given twice": (plain, (1,), {"order_id": 2}, "got the argument 'order_id' twice"),
    "given twice, once by position": (
        everything,
        (1,),
        {"a": 2},
        "got the argument 'a' twice",
    ),
    "of another type": (plain, ("42",), {}, "argument 'order_id' must be int, not str"),
    "of another type, extra": (opened, (1,), {"x": "2"}, "'x' must be int, not str"),
    "of another type, rest": (
        everything,
        (1, 2, "3"),
        {},
        r"'rest\[0\]' must be int, not str",
    ),
    "invalid model": (
        rich,
        (1, 2, 3, 4, 5),
        {},
        "argument 'line' must be dict, not int",
    ),
    "invalid model of pydantic": (
        bought,
        ({"price": "much"},),
        {},
        r"^bought\(\): argument 'item': price: Input should be a valid number",
    ),
    "model of pydantic with several problems": (
        bought,
        ({"price": "much", "colour": 5},),
        {},
        r"'item': price: Input should be .* \(and 1 more\)",
    ),
    "model with an error of its own": (
        named,
        ({"name": "x"},),
        {},
        r"argument 'who': no such person",
    ),
    "list of models of pydantic": (
        sold,
        ([{"price": 1}, {}],),
        {},
        r"argument 'items\[1\]': price: Field required",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_refused_at_the_call(case: str) -> None:
    function, args, kwargs, told = WRONG[case]
    with pytest.raises(InvalidArguments, match=told) as caught:
        signature(function).encode(args, kwargs)
    assert caught.value.what.startswith(f"{function.__name__}()")
    assert "It takes (" in caught.value.cure


def test_a_close_name_is_suggested() -> None:
    with pytest.raises(InvalidArguments) as caught:
        signature(plain).encode((), {"ordr_id": 1})
    assert "Did you mean 'order_id'?" in caught.value.cure


def test_arguments_that_are_not_json_are_refused() -> None:
    codec = signature(unannotated)
    for args in [(object(),), ([Bare()],), ({"x": {1, object()}},)]:
        with pytest.raises(NotSerializable, match=r"unannotated\(\): argument 'a'"):
            codec.encode(args, {})
    with pytest.raises(NotSerializable, match="argument"):
        signature(everything).encode((1, 2, float("nan")), {})


class Endless:
    def model_dump(self, mode: str = "python") -> object:
        return Endless() if mode == "json" else {}


def test_an_encoder_that_gives_up_is_told_as_our_error() -> None:
    def anything(a: Any) -> Any: ...

    codec = signature(anything)
    with pytest.raises(NotSerializable, match="cannot be stored as JSON"):
        codec.encode((Endless(),), {})
    with pytest.raises(InvalidResult, match="result cannot be stored"):
        codec.result.encode(Endless())


@pytest.mark.proves("M3", "M27")
@pytest.mark.parametrize(
    ("function", "payload", "wanted"),
    [
        (plain, b'[[42,"x"],{}]', ((), {"order_id": 42, "note": "x"})),
        (plain, b'[[42],{"note":"x"}]', ((), {"order_id": 42, "note": "x"})),
        (rest, b"[[1,2],{}]", ([1, 2], {})),
        (opened, b'[[1],{"x":2}]', ([], {"a": 1, "x": 2})),
        (everything, b"[[1,2,3],{}]", ([1, 2, 3], {})),
    ],
)
def test_producers_that_know_only_the_name_may_send_positionals(
    function: Callable[..., Any], payload: bytes, wanted: Any
) -> None:
    args, named = signature(function).decode(payload)
    assert (list(args), named) == (list(wanted[0]), wanted[1])


@pytest.mark.proves("M45")
@pytest.mark.parametrize(
    ("function", "payload"),
    [
        (plain, b"{"),
        (plain, b"\xff"),
        (plain, b"[]"),
        (plain, b'{"__class__": "os.system"}'),
        (plain, b'[[],{"order_id":"x"}]'),
        (plain, b'[[],{"order_id":1,"unknown":2}]'),
        (plain, b'[["x"],{}]'),
        (plain, b'[[],{"order_id":1,}]'),
        (plain, b"\x80\x04\x95cos\nsystem\n."),
        (rest, b'[["x"],{"first":1}]'),
        (opened, b'[[],{"a":1,"x":"y"}]'),
        (opened, b"[[],{}]"),
        (opened, b"[" * 100_000),
    ],
)
def test_a_bad_payload_is_a_validation_error(
    function: Callable[..., Any], payload: bytes
) -> None:
    with pytest.raises(InvalidArguments):
        signature(function).decode(payload)


def result(value: Any) -> date | None: ...


@pytest.mark.proves("M166")
def test_results_come_back_as_the_annotated_type() -> None:
    codec = signature(result)
    assert codec.result.encode(None) == b"null"
    assert codec.result.decode(codec.result.encode(date(2026, 1, 1))) == date(
        2026, 1, 1
    )
    with pytest.raises(InvalidResult, match=r"shop\.result: result is nan"):
        codec.result.encode(float("nan"))


def test_a_naive_moment_in_text_is_refused_too() -> None:
    codec = signature(typed)
    args = (datetime(2026, 1, 1, tzinfo=UTC), UUID(int=5), Decimal(1), Colour.RED)
    payload = codec.encode(args, {})
    codec.decode(payload)
    with pytest.raises(InvalidArguments, match="naive"):
        codec.decode(payload.replace(b"00Z", b"00"))


def test_the_same_arguments_are_the_same_canonical_bytes() -> None:
    codec = signature(unannotated)
    told = [codec.canonical((value,), {}, b"") for value in ({2, 1}, {1, 2})]
    assert told[0] == told[1] == codec.canonical((), {"a": {1, 2}}, b"")


def test_a_task_that_never_returns_has_a_result_all_the_same() -> None:
    def endless() -> NoReturn: ...

    assert signature(endless).result.decode(b"1") == 1


def test_published_parameters_are_plain_data() -> None:
    told = signature(everything).parameters()
    assert [p["name"] for p in told] == ["a", "b", "rest", "c", "more"]
    assert [p["required"] for p in told] == [True, False, False, False, False]
    assert told[0]["schema"] == {"type": "integer"}
    assert told[2]["kind"] == "var_positional"
    assert signature(rich).parameters()[4]["schema"] == {}
    assert signature(none).parameters() == []


def test_types_that_no_payload_could_become_are_refused_at_declaration() -> None:
    def bare(thing: Bare) -> None: ...
    def unresolved(thing: "Missing") -> None: ...  # noqa: F821
    def call(thing: Callable[[], int]) -> None: ...
    def two(thing: Order | Item | Point) -> None: ...
    def within(thing: Annotated[Bare, "x"]) -> None: ...
    def hidden(__thing: int) -> None: ...  # noqa: PYI063
    def others(*things: set[int] | list[int]) -> None: ...
    def back() -> set[int] | list[int]: ...

    for function in (bare, unresolved, call, two, within, hidden, others, back):
        with pytest.raises(UsageError, match=f"shop.{function.__name__}"):
            signature(function)


def test_a_mark_is_the_same_for_the_same_parameters_only() -> None:
    def old(to: str) -> None: ...
    def new(to: str, urgent: int = 0) -> None: ...
    def newer(to: str, urgent: str = "") -> None: ...

    codes = (old, old, new, newer)
    marks = [
        parameters_digest(
            ArgumentCodec(code, "shop.mail", skip_first=False).parameters()
        )
        for code in codes
    ]
    assert marks[0] == marks[1]
    assert len(set(marks)) == 3
    assert len(marks[0]) == 16
    assert parameters_digest(None) != parameters_digest([])


def test_a_parameter_without_an_annotation_beside_one_with_it() -> None:
    call: Any = lambda other, order: (other, order)  # noqa: E731
    call.__annotations__ = {"order": int}
    codec = ArgumentCodec(call, "shop.call", skip_first=False)
    assert codec.encode(("a", 2), {}) == b'[[],{"other":"a","order":2}]'


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("Object contains unknown field `y`", "send() has no parameter 'y'"),
        (
            "Expected `object`, got `array`",
            "send(): its arguments do not fit: it must be dict, not list",
        ),
    ],
)
def test_a_stored_call_that_does_not_fit_as_a_whole(told: str, said: str) -> None:
    assert misfit("shop.send", told) == said


def test_an_unknown_field_inside_an_argument() -> None:
    told = "Object contains unknown field `y` - at `$.order`"
    assert plain_words(told) == "it has no field 'y' (at order)"
