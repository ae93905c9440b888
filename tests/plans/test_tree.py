"""The tree of a plan has its jobs, as they were written."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durio import State
from durio.model.ids import id_text
from durio.model.job import STATE_BY_CODE
from durio.model.plan_layout import lay_out
from durio.model.plan_names import node_id
from durio.model.plan_tree import MEMBERS_SHOWN_MAX, AddedJob, TreeChanges, tree_of
from durio.plans import PlanTree, Signature, chain, group
from tests.plans.memory_engine import PLAN
from tests.plans.strategies import plans

CODES = range(len(STATE_BY_CODE))


def job(task: str = "shop.a") -> Any:
    return Signature[..., Any](task, (), {})


def jobs_in(tree: PlanTree) -> Iterator[tuple[str | None, str | None, State | None]]:
    """The jobs of a tree in the order of their numbers; a join follows its members."""
    for member in tree.members:
        yield from jobs_in(member)
    if tree.id is not None:
        yield tree.id, tree.task, tree.state


@pytest.mark.proves("M78")
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(plans(), st.integers(0, 5), st.sampled_from([2, MEMBERS_SHOWN_MAX]))
def test_a_tree_has_the_jobs_of_its_plan(plan: Any, seed: int, most: int) -> None:
    nodes = lay_out(plan, PLAN, "shop").nodes
    codes = [CODES[(number + seed) % len(CODES)] for number in range(len(nodes))]
    tree = tree_of(plan, PLAN, dict(enumerate(codes)), members_max=most)
    expected = [
        (
            id_text(node_id(PLAN, node.number)),
            None if node.signature is None else node.signature.task,
            STATE_BY_CODE[code],
        )
        for node, code in zip(nodes, codes, strict=True)
        if not any(end.tag < 0 for end in node.on_end)  # a group has begun
    ]
    found = list(jobs_in(tree))
    if most == MEMBERS_SHOWN_MAX:
        assert found == expected
    assert set(found) <= set(expected)  # what follows a large group has its own id
    assert tree.jobs == len(nodes) == sum(tree.counts.values())


@pytest.mark.proves("M78")
def test_a_large_group_has_only_its_counts() -> None:
    members = group(chain(job(), job("shop.b")) for _ in range(MEMBERS_SHOWN_MAX + 1))
    plan = chain(job("shop.first"), members, job("shop.last"))
    states = dict(enumerate([*[5] * 41, *[1] * 2]))
    tree = tree_of(plan, PLAN, states)
    first, many, last = tree.members
    assert (many.kind, many.members, many.hidden) == ("group", (), 21)
    assert (many.id, many.jobs) == (None, 42)
    assert sum(many.counts.values()) == 42
    assert first.task == "shop.first"
    assert (last.task, last.state, last.counts) == ("shop.last", None, {})
    assert last.id == id_text(node_id(PLAN, 43))
    assert len(tree_of(plan, PLAN, states, members_max=21).members[1].members) == 21


def test_members_of_a_group_in_a_large_group_are_counted() -> None:
    inner = group(job("shop.b"), chain(job("shop.c"), job("shop.d")))
    inner = inner.on_error(job("shop.alert"))  # so it is still a group inside
    many = group(inner, *(job() for _ in range(MEMBERS_SHOWN_MAX)))
    tree = tree_of(chain(many, job("shop.last")), PLAN, dict.fromkeys(range(24), 4))
    first, last = tree.members
    assert (first.jobs, first.hidden) == (23, MEMBERS_SHOWN_MAX + 1)
    assert last.id == id_text(node_id(PLAN, 23))


@pytest.mark.parametrize("most", [2, MEMBERS_SHOWN_MAX])
def test_a_tree_has_what_tasks_have_changed(most: int) -> None:
    inner = group(job("shop.b"), group(job("shop.c"), on_error="collect"), job())
    plan = chain(group(job(), job()), inner, job("shop.last"))
    (outer, within, collected) = lay_out(plan, PLAN, "shop").groups
    assert (outer.is_collected, within.is_collected) == (False, False)
    assert collected.is_collected
    added = {number: AddedJob(2**52 + number, bytes(16), "shop.x") for number in (0, 2)}
    changes = TreeChanges({n: [one] for n, one in added.items()}, {7: bytes(16)})
    states = dict.fromkeys([*range(8), *(one.number for one in added.values())], 4)
    tree = tree_of(plan, PLAN, states, changes, most)
    first, second, last = tree.members
    assert (first.jobs, second.jobs, tree.jobs) == (3, 6, 10)
    assert tree.counts == {State.DONE: 10}
    assert (last.id, last.plan) == (id_text(node_id(PLAN, 7)), id_text(bytes(16)))
    if most == 2:
        assert (first.hidden, second.hidden) == (3, 3)
    else:
        assert [one.task for one in first.members] == ["shop.a", "shop.a", "shop.x"]
        assert [one.jobs for one in second.members] == [1, 4, 1]


def test_a_tree_is_data() -> None:
    tree = tree_of(group(job()), PLAN, {0: 5, 1: 0})
    found = tree.to_dict()
    assert found["members"][0] == {
        "kind": "job",
        "jobs": 1,
        "counts": {tree.members[0].state: 1},
        "id": id_text(node_id(PLAN, 0)),
        "task": "shop.a",
        "state": tree.members[0].state,
        "plan": None,
        "members": [],
        "hidden": 0,
        "hidden_task": None,
    }
    assert (found["kind"], found["jobs"]) == ("group", 2)
    assert found["id"] == id_text(node_id(PLAN, 1))  # of the job that joins the results
