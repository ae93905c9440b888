"""Signatures and plans are values: made, compared, printed, copied."""

import copy
import json
import pickle  # noqa: TID251 - users may copy values so
from typing import Any

import pytest

from durio.model.options import CallOptions
from durio.model.plan import PlanValue, SignatureValue
from durio.model.plan_arguments import with_first_arguments
from durio.model.plan_failure import dependents
from durio.model.plan_layout import lay_out
from durio.model.plan_shape import layout_from_shape, shape_of
from durio.plans import Plan, Signature, chain, chord, group
from tests.unit.model.plan_links import (
    PLAN_ID,
    add,
    alert,
    first,
    named,
    nothing,
    s,
    si,
    size,
)


def test_a_bar_is_a_chain():
    plan = s(first, "a") | s(size) | s(add, 2)
    assert isinstance(plan, Plan)
    assert plan == chain(s(first, "a"), s(size), s(add, 2))
    assert plan == chain([s(first, "a"), s(size), s(add, 2)])
    assert plan == s(first, "a") | (s(size) | s(add, 2))
    assert plan.members == (s(first, "a"), s(size), s(add, 2))
    assert plan != chain(s(first, "b"), s(size), s(add, 2))


def test_a_chain_with_handlers_stays_one_member():
    inner = (s(first, "a") | s(size)).on_error(s(alert))
    assert (inner | s(add, 2)).members == (inner, s(add, 2))
    assert chain(s(first, "b"), s(first).on_error(s(alert))).size == 2


def test_groups_take_members_or_iterables_of_them():
    members = [s(size, "a"), s(size, "b")]
    assert group(*members) == group(members) == group(each for each in members)
    assert group(members[0], members[1:]) == group(members)
    assert group() == group([])
    assert group(members).size == 2


def test_a_group_in_a_group_is_unrolled():
    a, b, c = (s(size, name) for name in "abc")
    assert group(group(a, b), c) == group(a, b, c)
    assert chord(group(group(a), b), s(nothing_of)).members[0] == group(a, b)
    ends_in_group = chain(s(first, "a"), group(s(size)))
    assert group(ends_in_group, b).members == (ends_in_group, b)
    collected = group(a, b, on_error="collect")
    assert group(collected, c).members == (collected, c)
    cancelling = group(a, b, cancel_rest=True)
    assert group(cancelling, c).members == (cancelling, c)


def nothing_of(items: list[Any]) -> None: ...


def test_a_chord_is_a_group_and_what_follows_it():
    members = [s(size, "a"), s(size, "b")]
    plan = chord(members, s(nothing_of))
    assert plan == chord(group(members), s(nothing_of))
    assert plan == group(members) | s(nothing_of)


def test_values_are_hashed_by_content():
    assert hash(s(first, "a")) == hash(s(first, path="a"))
    assert len({s(add, 1, b=2), s(add, 1, 2), si(add, 1, 2)}) == 2
    plan = group(s(first, "a")) | s(nothing_of)
    assert {plan: 1}[group(s(first, "a")) | s(nothing_of)] == 1
    with pytest.raises(TypeError):
        hash(s(first, ["a"]))


def test_the_same_call_has_one_form_where_it_means_the_same():
    assert s(add, a=1, b=2) == s(add, 1, 2)
    assert s(size, unit=3) == Signature("shop.size", (), {"unit": 3})
    assert s(add, b=2) == s(add, 2)
    # Behind a result, the first gives "a" to `unit`, and the second is refused.
    assert s(size, "a") != s(size, path="a")
    assert s(size, path="a").kwargs == {"path": "a"}
    assert s(size, "a", unit=2) == s(size, "a", 2)


def test_a_repr_is_readable():
    plan = (s(first, "a") | group(s(size), si(add, 1, 2))).on_error(s(alert, "dev"))
    assert repr(plan) == (
        "chain(shop.first.s('a'), group(shop.size.s(), shop.add.si(1, 2)))"
        ".on_error(shop.alert.s('dev'))"
    )
    assert repr(group([s(size, "a")] * 10)).endswith("... 2 more)")
    assert repr(group(s(size, "a"), on_error="collect")).endswith("on_error='collect')")
    assert repr(group(s(size, "a"), cancel_rest=True)).endswith("cancel_rest=True)")
    chunk = Signature[..., Any]("shop.add", (), {}, rows=((1, 2), (3, 4)))
    assert repr(chunk) == "shop.add.chunk(2 rows)"


def test_values_can_be_copied_and_keep_their_app():
    plan = s(first, "a") | s(size)
    copied = copy.deepcopy(plan)
    assert copied == plan
    assert plan.source is not None
    assert copied.source is plan.source
    unpickled = pickle.loads(pickle.dumps(plan))  # noqa: S301 - our own
    assert unpickled == plan
    assert unpickled.source is None


def test_options_of_a_plan_are_changed_in_a_copy():
    plan = chain(s(first, "a"))
    changed = plan.options(queue="low", meta={"a": 1}).options(key="k", meta={"b": 2})
    assert changed.defaults == CallOptions(queue="low", key="k", meta={"a": 1, "b": 2})
    assert plan.defaults == CallOptions()
    assert changed.options(unique="while_active").defaults.unique == "while_active"


def test_deep_and_long_plans_need_no_deep_stack():
    plan: Any = s(first, "a")
    for _ in range(99):
        plan = group(plan, s(first, "b")) | s(nothing_of)
    plan = group(plan | si(first, "c"), cancel_rest=True).on_error(s(alert))
    plan = chain(plan)
    assert plan.depth == 200
    assert isinstance(hash(plan), int)
    assert repr(plan).count("group(") == 100
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    layout = lay_out(plan, PLAN_ID, "shop")
    assert len(layout_from_shape(shape_of(plan), PLAN_ID, "shop").nodes) == 201
    assert dependents(layout, 0)[-1] == 200
    long: Any = s(first, "a")
    for _ in range(199):
        long = long | s(size, unit=2)
    assert (long.size, long.depth) == (200, 1)


def test_a_value_without_the_calls_of_users():
    """What a leader makes of a stored plan."""
    value = SignatureValue("shop.first", ("a",), {})
    plan = PlanValue("chain", (value,))
    assert PlanValue.from_dict(plan.to_dict()) == plan


# --- the arguments of `plan.enqueue(...)`


def test_arguments_go_to_the_first_node():
    plan: Any = s(first) | s(size)
    assert with_first_arguments(plan, ("a",), {}) == s(first, "a") | s(size)
    assert with_first_arguments(s(add, 2), (1,), {}) == s(add, 1, 2)
    assert with_first_arguments(s(size), ("a",), {"unit": 2}).kwargs == {"unit": 2}
    whole: Any = s(first, "a") | s(size)
    assert with_first_arguments(whole, (), {}) is whole
    assert with_first_arguments(si(first, "a"), (), {}) == si(first, "a")


def test_arguments_go_to_every_member_of_a_first_group():
    plan: Any = group(s(size), group(s(first) | s(size)), si(first, "x"))
    given = with_first_arguments(plan, ("a",), {})
    assert given == group(s(size, "a"), s(first, "a") | s(size), si(first, "x"))


def test_arguments_of_an_unknown_task_are_not_checked():
    plan: Any = named("shop.other") | s(size)
    assert with_first_arguments(plan, (), {}) is plan
    assert with_first_arguments(plan, (5,), {}) == named("shop.other", 5) | s(size)


def test_what_takes_no_result_may_follow_as_immutable():
    assert (s(first, "a") | si(nothing)).size == 2
    assert s(first, "a").on_error(si(nothing)).error_handlers == (si(nothing),)
    assert (s(first, "a") | named("shop.other", 1)).size == 2
