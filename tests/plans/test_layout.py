"""A plan that is laid out as jobs gives what its reference interpreter gives."""

from random import Random  # noqa: TID251 - seeded by hypothesis
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from durio.model.plan_layout import PlanLayout, lay_out
from durio.model.plan_shape import layout_from_shape, shape_of
from durio.plans import Signature, chain, group
from tests.plans.memory_engine import PLAN, Engine
from tests.plans.reference import (
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


# Rare among random plans: a member with two failures, and a failure behind a collect.
TWO_FAILURES = chain(group(leaf("a"), leaf("b")))
BEHIND = chain(group(chain(leaf("a"), leaf("b")), on_error="collect"), leaf("c"))


@pytest.mark.proves("M78", "M144", "M145", "M146", "M148", "M149", "M150")
@settings(max_examples=600)
@given(cases(), st.integers(0, 2**32))
@example(failing(group(TWO_FAILURES, on_error="collect") | leaf("c"), "a", "b"), 1)
@example(failing(group(BEHIND, on_error="collect") | leaf("d"), "c"), 1)
def test_jobs_and_logs_give_what_the_rules_say(
    case: tuple[AnyLink, dict[str, Behaviour]], seed: int
):
    plan, behaviours = case
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
