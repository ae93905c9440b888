"""`to_dict` and `from_dict`: stored plans equal the originals."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given

from durio.errors import DurioError, InvalidOption, InvalidPlan, NotSerializable
from durio.keys import window
from durio.model.option_values import Keep
from durio.model.options import NO_OPTIONS, CallOptions
from durio.model.retry import Retry
from durio.plans import Plan, Signature, chain, group
from tests.plans.reference import AnyLink
from tests.plans.strategies import plans
from tests.unit.model.plan_links import add, alert, first, s, size


@pytest.mark.proves("M151")
@given(plans())
def test_a_plan_equals_its_copy(plan: AnyLink):
    stored = json.loads(json.dumps(plan.to_dict()))
    assert Plan.from_dict(stored) == plan


@pytest.mark.parametrize(
    "options",
    [
        {"queue": "low", "priority": 9, "key": "k", "unique": window("1h")},
        {"delay": "5m", "retry": 3, "timeout": None, "retention": Keep(5)},
        {"delay": timedelta(seconds=90), "timeout": ("4m", 300), "retention": "2d"},
        {"at": datetime(2030, 1, 1, tzinfo=UTC), "meta": {"seconds": 5, "tags": ["a"]}},
        {
            "retry": Retry(3, base="30s", delays=(1, "2m")),
            "result_ttl": 60,
            "key": None,
        },
        {"key": "k", "unique": "while_active", "meta": None, "tx": None},
    ],
    ids=str,
)
def test_options_are_kept_as_they_were_given(options: dict[str, Any]):
    chosen = NO_OPTIONS.with_changes(options)
    signature = Signature[..., Any]("shop.first", ("a",), {"b": [1, None]}, chosen)
    stored = json.loads(json.dumps(signature.to_dict()))
    again = Signature[..., Any].from_dict(stored)
    assert again.options == NO_OPTIONS.with_changes(
        {name: value for name, value in options.items() if name != "tx"}
    )
    assert again.args == ("a",)


def test_a_document_is_small():
    assert s(first, "a").to_dict() == {
        "task": "shop.first",
        "args": ["a"],
        "kwargs": {},
    }
    assert group(on_error="collect").to_dict() == {"group": [], "collect": True}
    chunk = Signature[..., Any]("shop.add", (), {}, rows=((1, 2),), is_immutable=True)
    assert Signature.from_dict(chunk.to_dict()) == chunk
    plan = (
        group(s(first, "a"), cancel_rest=True).on_error(s(alert)).options(queue="low")
    )
    assert Plan.from_dict(plan.to_dict()) == plan


def test_arguments_become_plain_data():
    signature = s(first, datetime(2030, 1, 1, tzinfo=UTC))
    assert signature.to_dict()["args"] == ["2030-01-01T00:00:00Z"]
    with pytest.raises(NotSerializable, match=r"shop\.first: arguments"):
        s(first, object()).to_dict()


def test_a_transaction_cannot_be_stored():
    options = CallOptions(tx=object())
    with pytest.raises(InvalidOption, match="transaction"):
        Plan[Any]("chain", (s(first, "a"),), defaults=options).to_dict()


GOOD = {"task": "shop.first", "args": [], "kwargs": {}}


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"task": "shop.first"},
        {"task": 5, "args": [], "kwargs": {}},
        {"task": "shop.first", "args": 5, "kwargs": {}},
        {"task": "shop.first", "args": [], "kwargs": 5},
        {"chain": 5},
        {"chain": [5]},
        {**GOOD, "rows": [5]},
        {**GOOD, "more": 1},
        {**GOOD, "options": {"queue": {"unknown": 5}}},
        {**GOOD, "options": {"delay": {"seconds": "x"}}},
        {**GOOD, "options": {"delay": {}}},
        {**GOOD, "options": {"color": 5}},
        {**GOOD, "options": 5},
        {**GOOD, "options": {"retry": {"retry": {"color": 5}}}},
        {**GOOD, "error_handlers": [{"chain": [GOOD]}]},
        {"chain": []},
    ],
    ids=str,
)
def test_a_damaged_document_is_refused(document: Any):
    for kind in (Signature[..., Any], Plan[Any]):
        with pytest.raises(DurioError):
            kind.from_dict(document)


def test_a_document_of_the_other_kind_is_refused():
    with pytest.raises(InvalidPlan, match="it is a Signature, not a Plan"):
        Plan.from_dict(s(first, "a").to_dict())
    with pytest.raises(InvalidPlan, match="it is a Plan, not a Signature"):
        Signature.from_dict(chain(s(size, "a"), s(add, 1)).to_dict())


def test_a_document_inside_itself_is_refused():
    document: dict[str, Any] = {"chain": []}
    document["chain"].append(document)
    with pytest.raises(InvalidPlan, match="contains itself"):
        Plan.from_dict(document)
