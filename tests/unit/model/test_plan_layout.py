"""Which node waits for which log, and appends to which."""

import uuid
from itertools import pairwise
from typing import Any

import pytest

from durio.errors import InvalidPlan
from durio.model.ids import id_made_at
from durio.model.logs import ANY_END, DONE_END, FAILED_END, OnEnd, Wait
from durio.model.options import CallOptions
from durio.model.plan_change import InheritedEnds
from durio.model.plan_failure import dependents, fails_plan, handler_id, handlers
from durio.model.plan_layout import Input, PlanLayout, lay_out
from durio.model.plan_names import node_id
from durio.model.plan_shape import layout_from_shape, shape_of
from durio.plans import Signature, chain, chord, group
from tests.unit.model.plan_links import PLAN_ID


def leaf(name: str, **fields: Any) -> Any:
    return Signature[..., Any](f"shop.{name}", (), {}, **fields)


A, B, C, D, E = (leaf(name) for name in "abcde")
IMMUTABLE = leaf("i", is_immutable=True)
H, H2, H3 = leaf("h"), leaf("h2"), leaf("h3")
ENDED = OnEnd("pe:shop", DONE_END, 0)


def laid_out(plan: Any) -> PlanLayout:
    return lay_out(plan, PLAN_ID, "shop")


def log(k: int) -> str:
    return f"j:shop/{PLAN_ID.hex()}/{k}"


def done(k: int, tag: int = 0, *, once: bool = False) -> OnEnd:
    return OnEnd(log(k), DONE_END, tag, once)


def ends(layout: PlanLayout, number: int) -> tuple[OnEnd, ...]:
    """Without the last, which every node has."""
    *others, failed = layout.nodes[number].on_end
    assert failed == OnEnd("pf:shop", FAILED_END, number)
    return tuple(others)


def tasks(layout: PlanLayout) -> str:
    return "".join(
        "+" if node.signature is None else node.signature.task.removeprefix("shop.")
        for node in layout.nodes
    )


def waits(layout: PlanLayout) -> list[Wait | None]:
    return [node.wait for node in layout.nodes]


def inputs(layout: PlanLayout) -> list[Input | None]:
    return [node.input for node in layout.nodes]


def test_a_chain():
    layout = laid_out(A | B | C)
    assert tasks(layout) == "abc"
    assert waits(layout) == [None, Wait(log(0), 0), Wait(log(1), 0)]
    assert [ends(layout, n) for n in range(3)] == [(done(0),), (done(1),), (ENDED,)]
    assert inputs(layout) == [None, Input("one", log(0)), Input("one", log(1))]


def test_a_signature_alone():
    layout = laid_out(A)
    assert tasks(layout) == "a"
    assert ends(layout, 0) == (ENDED,)


def test_a_group_ends_in_a_join():
    layout = laid_out(group(A, B))
    assert tasks(layout) == "ab+"
    assert waits(layout) == [None, None, Wait(log(0), 1)]
    assert [ends(layout, n) for n in range(3)] == [
        (done(0, 0),),
        (done(0, 1),),
        (ENDED,),
    ]
    assert inputs(layout)[-1] == Input("list", log(0), 2)


def test_a_chord_needs_no_join():
    layout = laid_out(chord([A, B], C))
    assert tasks(layout) == "abc"
    assert waits(layout)[-1] == Wait(log(0), 1)
    assert inputs(layout)[-1] == Input("list", log(0), 2)


def test_all_members_wait_for_one_log():
    layout = laid_out(A | group(B, IMMUTABLE) | D)
    assert waits(layout) == [
        None,
        Wait(log(0), 0),
        Wait(log(0), 0),
        Wait(log(1), 1),
    ]
    assert inputs(layout)[1:3] == [Input("one", log(0)), None]


def test_a_group_behind_a_group_reads_its_list():
    layout = laid_out(group(A, B) | group(C, D))
    assert tasks(layout) == "abcd+"
    assert waits(layout)[2:4] == [Wait(log(0), 1)] * 2


def test_empty_groups():
    assert tasks(laid_out(group())) == "+"
    assert inputs(laid_out(group())) == [Input("list", None, 0)]
    layout = laid_out(A | group() | B)
    assert waits(layout) == [None, Wait(log(0), 0)]
    assert inputs(layout)[1] == Input("list", None, 0)
    layout = laid_out(group(on_error="collect") | B)
    assert inputs(layout) == [Input("collected", None, 0)]
    assert waits(layout) == [None]


def test_a_member_that_ends_in_a_group_has_a_join():
    layout = laid_out(chord([A | group(B, C), D], E))
    assert tasks(layout) == "abc+de"
    assert ends(layout, 3) == (done(0, 0),)
    assert waits(layout)[3] == Wait(log(2), 1)


def test_a_group_with_handlers_is_unrolled_too():
    layout = laid_out(group(group(A, B).on_error(H), C) | D)
    assert tasks(layout) == "abcd"
    assert [ends(layout, n) for n in range(3)] == [(done(0, n),) for n in range(3)]
    assert inputs(layout)[-1] == Input("list", log(0), 3)
    kept = laid_out(group(group(A, B, cancel_rest=True), C) | D)
    assert tasks(kept) == "ab+cd"


def test_collect_counts_failures_too():
    layout = laid_out(group(A, B | C, chain(D), on_error="collect") | E)
    failed = OnEnd(log(0), FAILED_END, 1, once=True)
    assert ends(layout, 0) == (OnEnd(log(0), ANY_END, 0),)
    assert ends(layout, 1) == (done(1), failed)
    assert ends(layout, 2) == (done(0, 1, once=True), failed)
    assert ends(layout, 3) == (OnEnd(log(0), ANY_END, 2),)
    assert inputs(layout)[-1] == Input("collected", log(0), 3)


def test_a_collect_behind_a_node_says_when_it_has_begun():
    """Its members may be cancelled before that, and are entries then."""
    collecting = group(B, C, on_error="collect")
    layout = laid_out(A | collecting | D)
    assert tasks(layout) == "abc+d"
    assert waits(layout)[1:] == [Wait(log(0), 0)] * 3 + [Wait(log(1), 2)]
    assert ends(layout, 3) == (done(1, -1),)
    assert inputs(layout)[3:] == [Input("list", None, 0), Input("collected", log(1), 2)]
    assert fails_plan(layout, 3)
    assert tasks(laid_out(collecting | collecting | D)) == "bcbc+d"
    assert tasks(laid_out(group() | collecting | D)) == "bcd"
    assert tasks(laid_out(A | group(on_error="collect") | D)) == "ad"


def test_a_node_has_few_ends_however_many_groups_follow():
    """A job has at most 8; a group that collects was an end of the node before it."""
    collecting = [group(B, on_error="collect")] * 50
    for plan in (A | group(collecting), chain(A, *collecting), A | nested(20)):
        assert max(len(node.on_end) for node in laid_out(plan).nodes) <= 4


def nested(depth: int) -> Any:
    plan: Any = group(B, on_error="collect")
    for _ in range(depth):
        plan = group(plan | C, D, on_error="collect")
    return plan


def test_the_innermost_collect_takes_a_failure():
    inner = group(A | B, on_error="collect")
    layout = laid_out(group(inner | C, on_error="collect"))
    assert tasks(layout) == "abc+"
    assert ends(layout, 0) == (done(2), OnEnd(log(1), FAILED_END, 0, once=True))
    assert ends(layout, 2) == (
        done(0, once=True),
        OnEnd(log(0), FAILED_END, 0, once=True),
    )


def test_a_large_plan_waits_until_all_is_written():
    layout = laid_out(A | group([B] * 1000))
    go = f"p:shop/{PLAN_ID.hex()}/go"
    assert layout.go == go
    assert waits(layout)[:2] == [Wait(go, 0), Wait(log(0), 0)]
    assert laid_out(group([B] * 899)).go is None


def test_the_last_node_takes_the_ends_of_a_node_that_it_replaces():
    replaced = (OnEnd("j:shop/0198/4", DONE_END, 3),)
    failure = (OnEnd("j:shop/0198/5", FAILED_END, 4, once=True),)
    inherited = InheritedEnds(replaced, failure)
    layout = lay_out(A | B, PLAN_ID, "shop", inherited)
    assert ends(layout, 1) == (ENDED, *replaced, *failure)
    assert ends(layout, 0) == (done(0), *failure)
    # A group inside that collects takes the failures of its members itself.
    layout = lay_out(group(A, on_error="collect") | B, PLAN_ID, "shop", inherited)
    assert failure[0] not in ends(layout, 0)


def test_options_of_plans_are_defaults():
    own = leaf("a", options=CallOptions(queue="own", meta={"a": 1}))
    inner = chain(own, B).options(queue="inner", priority=3, meta={"a": 2, "b": 2})
    plan = (inner | C | C).options(queue="outer", meta={"c": 3}, key="k")
    layout = laid_out(plan)
    found = [node.options for node in layout.nodes]
    assert found[0] == CallOptions(
        queue="own", priority=3, meta={"a": 1, "b": 2, "c": 3}
    )
    assert found[1] == CallOptions(
        queue="inner", priority=3, meta={"a": 2, "b": 2, "c": 3}
    )
    assert found[2] is found[3]
    assert found[3] == CallOptions(queue="outer", meta={"c": 3})


def test_ids_ascend_with_numbers():
    ids = [node_id(PLAN_ID, number) for number in (0, 1, 2**16, 10**6, 2**32 - 1)]
    assert ids == sorted(set(ids))
    assert all(uuid.UUID(bytes=each).version == 7 for each in ids)
    assert {id_made_at(each) for each in ids} == {id_made_at(PLAN_ID)}
    other = PLAN_ID[:-1] + b"\0"
    assert node_id(other, 0) not in ids


# --- failures


def test_what_waits_is_cancelled():
    layout = laid_out(A | group(B, C | D) | E)
    assert dependents(layout, 0) == [1, 2, 3, 4]
    assert dependents(layout, 1) == [4]
    assert dependents(layout, 2) == [3, 4]
    assert dependents(layout, 4) == []
    assert fails_plan(layout, 1)


def test_cancel_rest_cancels_the_whole_group():
    inner = group(A | B, C, cancel_rest=True)
    layout = laid_out(group(inner, D) | E)
    assert tasks(layout) == "abc+de"
    assert dependents(layout, 2) == [0, 1, 3, 5]
    assert dependents(layout, 4) == [5]


def test_a_collected_failure_cancels_inside_its_member_only():
    layout = laid_out(A | group(B | C, D, on_error="collect") | E)
    assert dependents(layout, 1) == [2]
    assert dependents(layout, 3) == []
    assert not fails_plan(layout, 1)
    # A failure before the group cancels all of it, and what follows.
    assert dependents(layout, 0) == [1, 2, 3, 4, 5]
    assert fails_plan(layout, 0)


def test_handlers_run_from_the_inside_to_the_outside():
    inner = chain(A.on_error(H).on_error(H2), B).on_error(H3)
    layout = laid_out((inner | C).on_error(H2))
    found = handlers(layout, 0)
    assert [(call.signature, call.of) for call in found] == [
        (H, "n0"),
        (H2, "n0"),
        (H3, "s1"),
        (H2, "s0"),
    ]
    ids = [handler_id(PLAN_ID, call) for call in found]
    assert all(before < after for before, after in pairwise(ids))
    assert handler_id(PLAN_ID, found[0], resumed=1) != ids[0]
    # A second failure has the handlers of the plans again, under the same ids.
    again = handlers(layout, 1)
    assert [handler_id(PLAN_ID, call) for call in again] == ids[2:]
    assert [*layout.scopes_of(2)] == [0]


def test_handlers_around_a_collect_do_not_run():
    member = (A | B).on_error(H)
    layout = laid_out((group(member, C, on_error="collect") | D).on_error(H2))
    assert [call.signature for call in handlers(layout, 0)] == [H]
    assert handlers(layout, 2) == []
    assert [call.signature for call in handlers(layout, 3)] == [H2]


def test_a_join_has_only_the_handlers_around_it():
    layout = laid_out(group(A).on_error(H))
    assert [call.signature for call in handlers(layout, 1)] == [H]


# --- shapes


def test_a_shape_is_small():
    plan = (A | group([B] * 5000) | IMMUTABLE.on_error(H)).on_error(H2)
    assert shape_of(plan) == {
        "chain": [
            "shop.a",
            {"group": [[5000, "shop.b"]]},
            {"task": "shop.i", "immutable": True, "on_error": [H.to_dict()]},
        ],
        "on_error": [H2.to_dict()],
    }
    again = layout_from_shape(shape_of(plan), PLAN_ID, "shop")
    assert len(again.nodes) == 5002
    assert dependents(again, 5) == dependents(laid_out(plan), 5)
    assert [call.signature.task for call in handlers(again, 5001)] == [H.task, H2.task]


def test_rules_of_groups_are_in_the_shape():
    plan = group(A, group(B, C, cancel_rest=True), on_error="collect")
    assert shape_of(plan) == {
        "group": ["shop.a", {"group": ["shop.b", "shop.c"], "cancel_rest": True}],
        "collect": True,
    }


@pytest.mark.parametrize("shape", [None, 5, {"chain": [5]}], ids=str)
def test_a_damaged_shape_is_refused(shape: Any):
    with pytest.raises(InvalidPlan):
        layout_from_shape(shape, PLAN_ID, "shop")
