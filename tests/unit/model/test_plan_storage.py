"""The stored parts of a plan: its record, its payloads, its value."""

import asyncio
from typing import Any

import msgspec
import pytest

from durio import App
from durio.errors import InvalidArguments, InvalidPlan
from durio.model.codec import decode
from durio.model.failure import ShortFailure
from durio.model.job import DEAD, StoredJob
from durio.model.options import RowOptions
from durio.model.plan_payload import (
    decode_chunk,
    failure_payload,
    plan_place_of,
    with_first,
)
from durio.model.plan_place import Input, PlanPlace
from durio.model.plan_record import (
    SHAPE_BYTES_MAX,
    PlanRecord,
    PlanState,
    dump_record,
    load_record,
    shape_entries,
    shape_log,
)
from durio.model.plan_shape import plan_of_shape, shape_of
from durio.model.plan_values import plan_value
from durio.model.system_tasks import join, join_task
from durio.plans import Collected, Err, Ok, chain, group

app = App("sqlite:///:memory:", name="shop")
PLAN = bytes.fromhex("018bcfe568007005a51cc5d900000015")


@app.task
async def add(a: int, b: int = 1) -> int:
    return a + b


@app.task
async def rest(first: int, *others: int) -> int:
    return first + sum(others)


@app.task
async def alert(failure: Any, channel: str = "ops") -> None: ...


def double(result: bytes) -> int:
    return 2 * decode(result)


def value(plan: Any, result: str) -> Any:
    """The value of a plan whose tasks have a decoder that doubles numbers."""
    return plan_value(plan_of_shape(shape_of(plan)), result.encode(), lambda _: double)


def test_a_value_is_decoded_by_the_tasks_of_the_plan() -> None:
    assert value(add.s(1) | add.s(), "3") == 6
    assert value(group(add.s(1), add.s(2) | group(add.s(1))), "[1,[2]]") == [2, [4]]
    assert value(group(add.s(1), group(add.s(2), add.s(3))), "[1,2,3]") == [2, 4, 6]
    handled: Any = group(add.s(2), add.s(3)).on_error(alert.s())
    assert value(group(add.s(1), handled), "[1,2,3]") == [2, 4, 6]
    assert value(group(add.chunks([(1,), (2,)], 1)), "[[1],[2]]") == [[2], [4]]
    ends = '[{"end":"ok","value":3},{"end":"err","type":"E","message":"no","job":"j"}]'
    found = value(group(add.s(1), add.s(2), on_error="collect"), ends)
    assert found == Collected([Ok(6), Err("E", "no", "j")])
    plain = plan_value(plan_of_shape("shop.add"), b"3", lambda _: None)
    assert plain == 3  # the code of the task is elsewhere


def test_a_record_is_kept_as_json() -> None:
    record = PlanRecord(shape=shape_of(add.s(1) | add.s()), nodes=2, created_at=1.5)
    assert load_record(dump_record(record)) == record
    with pytest.raises(InvalidPlan, match="damaged"):
        load_record(b"{")
    assert record.layout(PLAN, "shop", record.shape).nodes[1].wait is not None
    final = {state for state in PlanState if state.is_final}
    assert final == {PlanState.DONE, PlanState.FAILED, PlanState.CANCELLED}


def test_a_large_shape_is_cut_into_entries() -> None:
    small = shape_of(chain(add.s(1), add.s()))
    assert shape_entries(small) == []
    large = {"chain": ["shop.add", {"task": "shop.rest"}] * SHAPE_BYTES_MAX}
    assert shape_log("shop", PLAN) == f"p:shop/{PLAN.hex()}/shape"
    parts = shape_entries(large)
    assert msgspec.json.decode(b"".join(parts)) == large


def test_a_result_becomes_the_first_argument() -> None:
    codec = app.registry.by_name["shop.rest"].codec
    payload = codec.encode_following((2, 3), {})
    assert codec.decode(with_first(payload, b"1")) == ([1, 2, 3], {})
    codec = app.registry.by_name["shop.add"].codec
    payload = codec.encode_following((), {"b": 5})
    assert codec.decode(with_first(payload, b"1")) == ((), {"a": 1, "b": 5})


def test_a_chunk_is_a_list_of_calls() -> None:
    codec = app.registry.by_name["shop.add"].codec
    calls = decode_chunk(codec, b'[[[1],{}],[[],{"a":2,"b":3}]]')
    assert [call[1] for call in calls] == [{"a": 1}, {"a": 2, "b": 3}]
    with pytest.raises(InvalidArguments, match="not a list of calls"):
        decode_chunk(codec, b"{}")


@pytest.mark.parametrize(
    ("stored", "args", "kwargs"),
    [(b'[[1],{"b":2}]', [1], {"b": 2}), (b"[[[1],{}]]", [], {}), (b"?", [], {})],
)
def test_a_handler_gets_the_failure(stored: bytes, args: Any, kwargs: Any) -> None:
    handler: Any = alert.s("night")
    failure = ShortFailure("ValueError", "no")
    payload = failure_payload(handler, PLAN, job(stored), failure)
    (told, channel), _ = msgspec.json.decode(payload)
    assert channel == "night"
    assert (told["error_type"], told["text"], told["task"]) == (*failure, "shop.add")
    assert (told["args"], told["kwargs"]) == (args, kwargs)
    immutable: Any = alert.si(None, "night")
    assert (
        failure_payload(immutable, PLAN, job(stored), failure) == b'[[null,"night"],{}]'
    )


def job(payload: bytes) -> StoredJob:
    fields = dict.fromkeys(StoredJob._fields)
    known = {"id": PLAN, "task": "shop.add", "payload": payload, "state": DEAD}
    return StoredJob(**{**fields, **known})


def test_a_place_is_read_from_the_options_of_a_job() -> None:
    place = PlanPlace("p", 3, Input("list", "j:1", 5))
    stored = msgspec.json.encode(RowOptions(plan=place))
    assert plan_place_of(stored) == place
    assert plan_place_of(None) is None
    assert plan_place_of(b'{"meta":{}}') is None
    assert plan_place_of(b'{"plan":5}') is None


def test_the_join_returns_what_it_gets() -> None:
    assert asyncio.run(join([1, "a"])) == [1, "a"]
    assert join_task("shop") == "shop.~join"
