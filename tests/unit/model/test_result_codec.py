"""Results: what fits an annotation, and what the error shows of one that does not."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest

from durio.model import result_codec
from durio.model.errors import InvalidResult, UsageError
from durio.model.result_codec import ResultCodec


@dataclass
class Line:
    count: int


class Bare:
    pass


FITTING: list[tuple[Any, Any]] = [
    (None, None),
    (int, 5),
    (float, 5),
    (float, 2.5),
    (str, ""),
    (bool, True),
    (int | None, None),
    (int | str, "x"),
    (list[int], [1]),
    (list[int], (1, 2)),
    (dict, {"a": 1}),
    (dict[str, Any], {"a": Line(1)}),
    (Line, Line(1)),
    (Line, {"count": 1}),
    (Any, {"a": [1]}),
    (object, 5),
    (Annotated[int, msgspec.Meta(ge=0)], 0),
]


@pytest.mark.parametrize(("hint", "value"), FITTING, ids=repr)
def test_results_that_fit(hint: Any, value: Any) -> None:
    codec = ResultCodec("shop.t", hint)
    codec.decode(codec.encode(value))


WRONG: list[tuple[Any, Any, str]] = [
    (int, "5", "must be int, not str"),
    (int, True, "must be int, not bool"),
    (int, None, "must be int, not None"),
    (str, 5, "must be str, not int"),
    (None, 5, "must be None, not int"),
    (int | str, 2.5, "not float"),
    (list[int], ["a"], "must be int, not str"),
    (Line, {"coun": 1}, "needs the field 'count'"),
    (Line, [1], "must be dict, not list"),
    (Annotated[int, msgspec.Meta(ge=0)], -1, "Expected `int` >= 0"),
]


@pytest.mark.parametrize(("hint", "value", "why"), WRONG, ids=repr)
def test_results_that_do_not_fit(hint: Any, value: Any, why: str) -> None:
    with pytest.raises(InvalidResult, match=why) as caught:
        ResultCodec("shop.t", hint).encode(value)
    assert caught.value.what.startswith(f"t() returned {value!r}, which does not fit")


def test_the_value_is_short_in_the_error() -> None:
    with pytest.raises(InvalidResult) as caught:
        ResultCodec("shop.t", int).encode("x" * 10_000)
    shown = caught.value.what.split(", which")[0].removeprefix("t() returned ")
    assert len(shown) == 200
    assert shown.endswith("...")


@dataclass
class Login:
    user: str
    password: str


SECRETS = [
    {"password": "hunter2", "n": 1},
    {"Api_Key": "hunter2"},
    [Login("ann", "hunter2")],
    "postgresql://ann:hunter2@host/db",
    {"token": "a,b'" + "hunter2" * 1000},
]


@pytest.mark.parametrize("value", SECRETS, ids=range(len(SECRETS)))
def test_secrets_are_not_in_the_error(value: Any) -> None:
    with pytest.raises(InvalidResult) as caught:
        ResultCodec("shop.t", int).encode(value)
    assert "hunter2" not in str(caught.value)
    assert "***" in caught.value.what


class Hidden(list[int]):
    def __repr__(self) -> str:
        raise ValueError("no")


def test_a_repr_that_raises_is_no_trouble() -> None:
    with pytest.raises(InvalidResult, match="<Hidden: its repr raised ValueError>"):
        ResultCodec("shop.t", int).encode(Hidden())


@pytest.mark.parametrize(
    "hint",
    [
        Bare,
        list[Bare],
        dict[str, list[Bare | None]],
        int | Bare,
        Iterator[int],
        Iterable[str],
        Callable[[], int],
        set[int] | list[int],
    ],
    ids=repr,
)
def test_an_annotation_that_cannot_be_checked_is_refused(hint: Any) -> None:
    with pytest.raises(UsageError, match=r"task shop\.t: results cannot be") as caught:
        ResultCodec("shop.t", hint)
    assert "object, which is not checked" in caught.value.cure


@pytest.mark.parametrize("hint", [int, str, float, bool, int | None, Any], ids=repr)
def test_a_plain_result_is_not_decoded(
    monkeypatch: pytest.MonkeyPatch, hint: Any
) -> None:
    """The check of plain results is a look at their type: the hot path."""

    def decoder_of(_: Any) -> Callable[[bytes], Any]:
        return lambda _: pytest.fail("decoded")

    monkeypatch.setattr(result_codec, "decoder_of", decoder_of)
    value = {str: "x", float: 2.5, bool: True}.get(hint, 5)
    ResultCodec("shop.t", hint).encode(value)


def test_a_missing_result_is_refused_where_one_is_required() -> None:
    for hint in (None, Any, object, int | None, Line | None):
        ResultCodec("shop.t", hint).check_missing()
    for hint in (int, Line, list[int]):
        with pytest.raises(InvalidResult, match="without its result"):
            ResultCodec("shop.t", hint).check_missing()


def test_an_annotation_that_cannot_be_hashed() -> None:
    codec = ResultCodec("shop.send", Annotated[int, ["not", "hashable"]])
    assert codec.encode(1) == b"1"
