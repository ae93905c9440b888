"""What may travel as JSON, and what is refused at the door."""

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePosixPath
from uuid import UUID

import msgspec
import pydantic
import pytest

from durio.model.codec import (
    canonical,
    check_value,
    decode,
    decode_other,
    decoder_of,
    encode,
)
from durio.model.errors import NotSerializable


@dataclass
class Point:
    x: float
    note: str = ""


class Order(msgspec.Struct):
    id: int
    placed: datetime | None = None


class Item(pydantic.BaseModel):
    price: float
    name: str = ""


class Colour(Enum):
    RED = "red"


class Mapped:
    """Looks like a SQLAlchemy instance."""

    __mapper__ = object()


class Rowed:
    """Looks like a Django instance."""

    _meta = object()
    pk = 1


PLAIN = {
    "numbers": [0, -1, 1.5, True, None, 10**30],
    "text": "Grüße 👋",
    "nested": {"a": [{"b": (1, 2)}]},
    "bytes": b"\0\xff",
    "moments": [datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1), time(1, 2)],
    "types": [UUID(int=1), Decimal("1.10"), Colour.RED, {1}, frozenset({2})],
    "classes": [Point(1.0), Order(1), Item(price=1.0), PurePosixPath("/a")],
}


@pytest.mark.proves("M42")
@pytest.mark.parametrize("what", PLAIN)
def test_plain_data_travels(what: str) -> None:
    assert decode(encode(PLAIN[what], what)) is not None


REFUSED = {
    "NaN": (math.nan, "nan"),
    "infinity": ([math.inf], "inf"),
    "NaN as a key": ({math.nan: 1}, "nan"),
    "NaN in a dataclass": (Point(math.nan), r"it\.x is nan"),
    "NaN in a pydantic model": (Item(price=math.nan), "nan"),
    "NaN as a Decimal": (Decimal("NaN"), "NaN"),
    "a NUL": ({"k": "a\0b"}, r"it\['k'\] holds a NUL"),
    "a NUL in a pydantic model": ([Item(price=1, name="\0")], "NUL"),
    "a lone surrogate": ({"\ud800"}, "lone surrogate"),
    "a naive datetime": (Order(1, datetime(2026, 1, 1)), "naive"),  # noqa: DTZ001
    "a class": (Point, "type"),
    "an object": (object(), "object"),
    "a key that JSON has no text for": ({(1, 2): 3}, "tuple"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_json_would_change_or_lose_is_refused(what: str) -> None:
    value, told = REFUSED[what]
    with pytest.raises(NotSerializable, match=told) as caught:
        encode(value, "it")
    assert caught.value.cure


@pytest.mark.proves("M30")
@pytest.mark.parametrize("value", [Mapped(), [Rowed()]])
def test_a_database_object_is_refused_with_a_hint_to_pass_its_id(value: object) -> None:
    with pytest.raises(NotSerializable) as caught:
        encode(value, "order")
    assert "Use its id" in caught.value.cure


def test_depth_is_bounded_so_that_a_cycle_ends() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(NotSerializable, match="nested deeper than 64"):
        check_value(cycle, "it")


def test_what_the_check_cannot_see_is_refused_by_the_encoder() -> None:
    class Deep:
        def model_dump(self, mode: str = "python") -> object:
            return Deep() if mode == "json" else {}

    with pytest.raises(NotSerializable, match="it cannot be stored as JSON"):
        encode(Deep(), "it")


def test_equal_values_have_the_same_canonical_bytes() -> None:
    one, two = {"b": {3, 1, 2}, "a": 1}, {"a": 1, "b": {2, 3, 1}}
    assert canonical(one, b"") == canonical(two, b"") == b'{"a":1,"b":[1,2,3]}'
    assert canonical({1, "a"}, b"as it came") == b"as it came"


def test_foreign_types_are_built_from_their_json() -> None:
    assert decoder_of(Path)(b'"/a/b"') == Path("/a/b")
    assert decoder_of(list[Item])(b'[{"price":2}]') == [Item(price=2)]
    with pytest.raises(msgspec.ValidationError, match="price"):
        decoder_of(Item)(b"{}")
    with pytest.raises(msgspec.ValidationError, match="cannot be built"):
        decode_other(memoryview, {})
    assert decode_other(object, {"a": 1}) == {"a": 1}
