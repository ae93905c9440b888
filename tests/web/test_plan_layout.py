"""The picture of a plan: layers, rows, and arrows."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings

from durio.model.ids import id_text
from durio.model.logs import DONE_END
from durio.model.plan_layout import PlanNode, lay_out
from durio.model.plan_names import node_id
from durio.model.plan_tree import tree_of
from durio.web.plan_layout import BOX_HEIGHT, BOX_WIDTH, PlanPicture, draw_plan
from tests.plans.strategies import plans
from tests.plans.test_tree import PLAN


def picture(plan: Any, members_max: int = 50) -> PlanPicture:
    nodes = lay_out(plan, PLAN, "shop").nodes
    return draw_plan(
        tree_of(
            plan, PLAN, dict.fromkeys(range(len(nodes)), 4), members_max=members_max
        )
    )


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(plans())
def test_each_job_has_one_place_and_arrows_go_right(plan: Any) -> None:
    found = picture(plan, members_max=1000)
    jobs = [box.job for box in found.boxes if box.job is not None]
    assert sorted(jobs) == [job_id(node) for node in shown_nodes(plan)]
    places = Counter((box.x, box.y) for box in found.boxes)
    assert set(places.values()) <= {1}
    layer = {box.id: box.layer for box in found.boxes}
    assert all(layer[arrow.source] < layer[arrow.target] for arrow in found.arrows)
    assert all(box.x + BOX_WIDTH <= found.width for box in found.boxes)
    assert all(box.y + BOX_HEIGHT <= found.height for box in found.boxes)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(plans())
def test_what_follows_a_job_in_the_plan_is_reached_in_the_picture(plan: Any) -> None:
    """The arrows say the same as the logs that jobs wait for."""
    layout = lay_out(plan, PLAN, "shop")
    found = picture(plan, members_max=1000)
    after: dict[str, list[str]] = {}
    for arrow in found.arrows:
        after.setdefault(arrow.source, []).append(arrow.target)
    for node in shown_nodes(plan):
        for end in node.on_end:
            for number in layout.waiters.get(end.log, ()):
                waiter = layout.nodes[number]
                if end.tag >= 0 and number > node.number and is_shown(waiter):
                    assert is_reached(after, job_id(node), job_id(waiter))


def shown_nodes(plan: Any) -> list[PlanNode]:
    return [node for node in lay_out(plan, PLAN, "shop").nodes if is_shown(node)]


def is_shown(node: PlanNode) -> bool:
    """Whether a tree has the node: not if it only says that a group has begun."""
    begins = [end for end in node.on_end if end.when == DONE_END and end.tag < 0]
    return node.signature is not None or not begins


def job_id(node: PlanNode) -> str:
    return id_text(node_id(PLAN, node.number))


def is_reached(after: dict[str, list[str]], start: str, goal: str) -> bool:
    seen, waiting = set[str](), [start]
    while waiting:
        box = waiting.pop()
        if box == goal:
            return True
        if box not in seen:
            seen.add(box)
            waiting += after.get(box, [])
    return False


@pytest.mark.parametrize("members_max", [0, 2])
@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(plans())
def test_large_groups_are_boxes_with_counts(members_max: int, plan: Any) -> None:
    found = picture(plan, members_max=members_max)
    jobs = sum(box.job is not None for box in found.boxes)
    counted = sum(
        sum(box.states.values()) for box in found.boxes if box.kind == "group"
    )
    # The counts of a box include the job that says that its group has begun.
    nodes = len(lay_out(plan, PLAN, "shop").nodes)
    assert len(shown_nodes(plan)) <= jobs + counted <= nodes
