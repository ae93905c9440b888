"""Ok, Err, Collected and PlanFailure, as values and as JSON."""

from typing import Any

import msgspec
import pytest

from durio.model.argument_codec import ArgumentCodec
from durio.plans import Collected, Err, Ok, PlanFailure

ENDS = Collected[int]([Ok(1), Err("ValueError", "no", "0198"), Ok(3)])


@pytest.mark.proves("L24")
def test_collected_counts_its_members():
    assert (ENDS.total, ENDS.succeeded, ENDS.failed) == (3, 2, 1)
    assert ENDS.failed_ids == ["0198"]
    assert [*ENDS] == [Ok(1), Err("ValueError", "no", "0198"), Ok(3)]
    assert Collected().total == 0


def report(ends: Collected[int]) -> None: ...


def report_any(ends: Collected) -> None: ...  # type: ignore[type-arg]


def report_list(ends: list[Ok[int] | Err]) -> None: ...


def handle(failure: PlanFailure) -> None: ...


@pytest.mark.parametrize("function", [report, report_any, report_list])
def test_a_task_gets_collected_ends(function: Any):
    codec = ArgumentCodec(function, "shop.report", skip_first=False)
    _, kwargs = codec.decode(codec.encode((ENDS,), {}))
    assert [*kwargs["ends"]] == [*ENDS]
    assert isinstance(kwargs["ends"], list if function is report_list else Collected)


def test_ends_of_another_type_are_refused():
    codec = ArgumentCodec(report, "shop.report", skip_first=False)
    with pytest.raises(Exception, match="int"):
        codec.encode((Collected([Ok("a")]),), {})


def test_a_handler_gets_a_failure():
    failure = PlanFailure(
        plan="01", node="02", task="shop.a", error_type="ValueError", text="no"
    )
    codec = ArgumentCodec(handle, "shop.handle", skip_first=False)
    _, kwargs = codec.decode(codec.encode((failure,), {}))
    assert kwargs["failure"] == failure
    assert (failure.args, failure.kwargs) == ([], {})
    with pytest.raises(AttributeError):
        failure.plan = "03"  # type: ignore[misc]
    assert msgspec.json.decode(msgspec.json.encode(Ok(5))) == {"end": "ok", "value": 5}
