"""A plan that is laid out as jobs gives what its reference interpreter gives."""

from random import Random  # noqa: TID251 - seeded by hypothesis
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durio.model.plan_layout import PlanLayout, lay_out
from durio.model.plan_shape import layout_from_shape, shape_of
from durio.plans import Signature, chain, group
from tests.plans.memory_engine import PLAN, Engine
from tests.plans.reference import (
    HANDLER,
    LEAF,
    AnyLink,
    Behaviour,
    comparable,
    interpret,
    leaves_of,
)
from tests.plans.strategies import cases, plans


def leaf(name: str) -> Any:
    return Signature[..., Any](LEAF, (name,), {})


def failing(plan: Any, *names: str) -> tuple[AnyLink, dict[str, Behaviour]]:
    """A case in which only these leaves fail."""
    dead = dict.fromkeys(names, Behaviour("dead"))
    return plan, dict.fromkeys(leaves_of(plan), Behaviour()) | dead


def handler(name: str) -> Any:
    return Signature[..., Any](HANDLER, (name,), {})


# Rare among random plans, so each is tried in many orders.
COLLECTED = group(chain(leaf("a"), leaf("b")), on_error="collect")
RARE = {
    "two failures in a member": failing(
        group(chain(group(leaf("a"), leaf("b"))), on_error="collect") | leaf("c"),
        "a",
        "b",
    ),
    "a failure behind a collect": failing(
        group(chain(COLLECTED, leaf("c")), on_error="collect") | leaf("d"), "c"
    ),
    "two failures in a group with a handler": failing(
        group(leaf("a"), leaf("b"), leaf("c")).on_error(handler("h")), "a", "b"
    ),
    "a failure before a collect": failing(leaf("x") | COLLECTED | leaf("c"), "x"),
    "a collect after a collect": failing(
        leaf("x")
        | COLLECTED
        | group(leaf("c"), leaf("d"), on_error="collect")
        | leaf("e")
    ),
    "many collects behind a node": failing(
        leaf("x")
        | group(group(leaf(f"c{n}"), on_error="collect") for n in range(9))
        | leaf("e"),
        "c3",
    ),
    "a failure in a group that cancels its rest": failing(
        group(chain(leaf("a"), leaf("b")), leaf("c"), cancel_rest=True) | leaf("d"), "c"
    ),
}


@pytest.mark.parametrize("name", RARE)
def test_rare_plans_in_many_orders(name: str):
    for seed in range(60):
        check(*RARE[name], seed)


@pytest.mark.proves("M78", "M144", "M145", "M146", "M148", "M149", "M150")
@settings(max_examples=600)
@given(cases(), st.integers(0, 2**32))
def test_jobs_and_logs_give_what_the_rules_say(
    case: tuple[AnyLink, dict[str, Behaviour]], seed: int
):
    check(*case, seed)


def check(plan: AnyLink, behaviours: dict[str, Behaviour], seed: int) -> None:
    """Run a plan in one order, and compare it with what the rules say."""
    expected = interpret(plan, behaviours)
    engine = Engine(lay_out(plan, PLAN, "shop"), behaviours, Random(seed))  # noqa: S311 - replayable
    engine.run()

    last = engine.jobs[-1]
    assert (last.state == "done") == expected.is_done
    assert len(engine.logs["pe:shop"]) == expected.is_done
    if expected.is_done:
        assert comparable(last.result) == comparable(expected.value)
        assert engine.first_error is None
    else:
        assert engine.first_error in expected.first_errors

    # Each node has ended, and each leaf ran once, if its turn came.
    assert {job.state for job in engine.jobs} <= {"done", "dead", "cancelled"}
    started, done = set[str](), set[str]()
    for event, leaf in engine.events:
        if event == "start":
            assert leaf not in started
            assert expected.needs[leaf] <= done
            started.add(leaf)
        else:
            done.add(leaf)
    assert expected.must_run <= started <= expected.must_run | expected.may_run

    # Each handler ran once, innermost first.
    handled = set(engine.handled)
    assert len(handled) == len(engine.handled)
    assert expected.must_handle <= handled
    assert handled <= expected.must_handle | expected.may_handle
    wanted = [name for leaf in engine.failures for name in expected.handlers[leaf]]
    assert engine.handled == [*dict.fromkeys(wanted)]


@given(plans())
def test_a_shape_gives_the_same_layout(plan: AnyLink):
    layout = lay_out(plan, PLAN, "shop")
    again = layout_from_shape(shape_of(plan), PLAN, "shop")
    assert ties(again) == ties(layout)
    assert [scope[:4] for scope in again.scopes] == [s[:4] for s in layout.scopes]


def ties(layout: PlanLayout) -> list[object]:
    return [node._replace(signature=None) for node in layout.nodes]
