"""The picture of a plan: layers, rows, and arrows."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings

from durio.model.plan_layout import lay_out
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
    assert len(jobs) == len(set(jobs)) == len(lay_out(plan, PLAN, "shop").nodes)
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
    boxes = [box.id for box in found.boxes if box.job is not None]
    ids = sorted(boxes)  # ids of nodes are in the order of their numbers
    for node in layout.nodes:
        for end in node.on_end:
            for waiter in layout.waiters.get(end.log, ()):
                if end.tag >= 0 and waiter > node.number:
                    assert is_reached(after, ids[node.number], ids[waiter])


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
    assert jobs + counted == len(lay_out(plan, PLAN, "shop").nodes)
