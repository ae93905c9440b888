"""Batches: the option, the end of each item, and the types of one job."""

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from durio import Retry, Snooze
from durio.errors import InvalidArguments, InvalidResult, UsageError
from durio.limits import Batch, Err, Ok
from durio.model.batch import error_of, item_ends, value_of
from durio.model.batch_function import item_codec


@pytest.mark.parametrize(
    ("batch", "wait_seconds"),
    [
        (Batch(2), 0.05),
        (Batch(1000, "1m"), 60.0),
        (Batch(64, 0.001), 0.001),
        (Batch(size=64, wait=timedelta(seconds=2)), 2.0),
    ],
)
def test_the_wait_is_a_duration(batch: Batch, wait_seconds: float):
    assert batch.wait_seconds == wait_seconds


def test_equal_batches_are_equal():
    assert Batch(8, "50ms") == Batch(8)
    assert repr(Batch(8)) == "Batch(size=8, wait='50ms')"


def test_the_ends_of_items():
    error, retry, snooze = ValueError("no"), Retry(3), Snooze("1m")
    ends = item_ends([1, Ok(2), Err(error), retry, Err(snooze)], 5, "app.f")
    assert [error_of(end) for end in ends] == [None, None, error, retry, snooze]
    assert [value_of(end) for end in ends[:2]] == [1, 2]
    assert item_ends((None,), 1, "app.f") == (None,)


@pytest.mark.parametrize(
    "returned", [None, 5, "ab", {1, 2}, iter([1, 2]), [1], [1] * 3]
)
def test_what_is_no_list_of_as_many_results(returned: Any):
    with pytest.raises(InvalidResult, match="2 items"):
        item_ends(returned, 2, "app.f")


# --- the types of one job


def codec_of(items: Any, returned: Any) -> Any:
    def function(items: Any) -> Any:
        return items

    function.__annotations__ = {"items": items, "return": returned}
    return item_codec(function, "app.f", skip_first=0)


@pytest.mark.parametrize(
    "items", [list[int], Sequence[int], Collection[int], Iterable[int]]
)
def test_an_item_has_the_type_of_an_element(items: Any):
    codec = codec_of(items, list[int])
    payload = codec.encode((5,), {})
    assert payload == b'[[],{"item":5}]'
    assert codec.decode(payload) == ((), {"item": 5})
    with pytest.raises(InvalidArguments):
        codec.encode(("5",), {})


def test_a_list_of_anything():
    def function(items):  # type: ignore[no-untyped-def]
        return items

    for codec in (codec_of(list, list), item_codec(function, "app.f", skip_first=0)):
        assert codec.encode(({"a": 1},), {}) == b'[[],{"item":{"a":1}}]'
        assert codec.result.encode([1, "a"]) == b'[1,"a"]'


@pytest.mark.parametrize(
    "returned",
    [
        list[int],
        tuple[int, ...],
        Sequence[int],
        list[int | Err],
        list[int | Err | Retry],
        list[Ok[int] | Err | Retry | int],
        list[Ok[int]],
        list[int | ValueError],
    ],
    ids=str,
)
def test_a_result_has_the_type_of_an_element(returned: Any):
    result = codec_of(list[int], returned).result
    assert result.encode(5) == b"5"
    with pytest.raises(InvalidResult):
        result.encode("five")
    with pytest.raises(InvalidResult):
        result.encode(None)


def test_a_result_may_be_one_of_several_types():
    result = codec_of(list[int], list[int | Err | None]).result
    assert [result.encode(5), result.encode(None)] == [b"5", b"null"]
    with pytest.raises(InvalidResult):
        result.encode("five")


@pytest.mark.parametrize(
    "returned", [Any, object, list[Any], list[Ok | Err], list[Err], list[Err | Retry]]
)
def test_a_result_of_any_type(returned: Any):
    result = codec_of(list[int], returned).result
    assert [result.encode(5), result.encode("five")] == [b"5", b'"five"']


def test_the_context_is_no_item():
    def function(ctx: Any, items: list[int]) -> list[int]:
        return [ctx, *items]

    assert item_codec(function, "app.f", skip_first=1).encode((1,), {})
    with pytest.raises(UsageError, match="has the parameter items beside ctx"):
        item_codec(function, "app.f", skip_first=0)
