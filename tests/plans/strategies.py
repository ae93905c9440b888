"""Random nested plans, with failures, collects, handlers and changes, for hypothesis."""

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from durio.plans import Plan, Signature, chain, group
from tests.plans.reference import (
    HANDLER,
    LEAF,
    AnyLink,
    Behaviour,
    is_unrolled,
    leaves_of,
)

LEVELS_MAX = 4
WIDTH_MAX = 4
REPLACED_MAX = 2  # plans in the places of leaves of plans in the places of leaves
ADDED_MAX = 2  # members by one leaf

FAILED = [Behaviour("dead"), Behaviour("dead", 1), Behaviour("cancelled")]
SUCCEEDED = [Behaviour(), Behaviour(), Behaviour(failures=1), Behaviour(failures=2)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[AnyLink, dict[str, Behaviour]]:
    """A plan, and how each of its leaves behaves: none, some or many of them fail."""
    plan = draw(plans())
    ends = FAILED * draw(st.sampled_from([0, 1, 2])) + SUCCEEDED * 3
    return plan, {name: draw(st.sampled_from(ends)) for name in leaves_of(plan)}


@st.composite
def changing_cases(draw: st.DrawFn) -> tuple[AnyLink, dict[str, Behaviour]]:
    """A plan whose leaves may put plans in their places, or add members to their groups."""
    drawing = Drawing(draw)
    plan = drawing.plan(draw(st.integers(1, 3)))
    ends = FAILED * draw(st.sampled_from([0, 0, 1])) + SUCCEEDED * 3
    changes = Changes(drawing, ends, {})
    changes.draw_for(plan)
    return plan, changes.behaviours


@st.composite
def plans(draw: st.DrawFn) -> Plan[Any]:
    """A chain or a group; leaves and handlers have different names."""
    return Drawing(draw).plan(draw(st.integers(1, LEVELS_MAX)))


class Drawing:
    """Draws the parts of one plan, and counts them."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.count = 0

    def link(self, levels: int) -> AnyLink:
        is_leaf = levels == 0 or self.draw(st.integers(0, 2)) > 0
        return self.leaf() if is_leaf else self.plan(levels)

    def leaf(self) -> Signature[..., Any]:
        immutable = self.draw(st.integers(0, 4)) == 0
        name = self.name("n")
        return self.handled(Signature(LEAF, (name,), {}, is_immutable=immutable))

    def plan(self, levels: int) -> Plan[Any]:
        is_chain = self.draw(st.booleans())
        width = self.draw(st.integers(1 if is_chain else 0, WIDTH_MAX))
        members: list[Any] = [self.link(levels - 1) for _ in range(width)]
        if is_chain:
            return self.handled(chain(members))
        rule = self.draw(
            st.sampled_from(["plain", "collect", "collect", "cancel_rest"])
        )
        if rule == "collect":
            return group(members, on_error="collect")
        return self.handled(group(members, cancel_rest=rule == "cancel_rest"))

    def handled(self, link: Any) -> Any:
        for _ in range(self.draw(st.sampled_from([0, 0, 0, 1, 2]))):
            handler: Any = Signature[..., Any](HANDLER, (self.name("h"),), {})
            link = link.on_error(handler)
        return link

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"


@dataclass
class GroupChanges:
    """A group to which members may be added."""

    has_chain: bool = False  # whether an added member adds others


@dataclass
class Changes:
    """Draws how leaves behave, those in plans in the places of leaves included."""

    drawing: Drawing
    ends: list[Behaviour]
    behaviours: dict[str, Behaviour]

    def draw_for(
        self,
        link: AnyLink,
        into: GroupChanges | None = None,
        depth: int = REPLACED_MAX,
        *,
        is_member: bool = False,
        is_added: bool = False,
    ) -> None:
        if isinstance(link, Signature):
            self.draw_leaf(link, into, depth, is_added=is_added)
            return
        is_group = link.kind == "group"
        if is_group and not (is_member and is_unrolled(link)):
            into = GroupChanges()
        for member in link.members:
            self.draw_for(member, into, depth, is_member=is_group)

    def draw_leaf(
        self,
        leaf: Signature[..., Any],
        into: GroupChanges | None,
        depth: int,
        *,
        is_added: bool,
    ) -> None:
        drawing, draw = self.drawing, self.drawing.draw
        behaviour = draw(st.sampled_from(self.ends))
        inside: AnyLink | None = None
        added: list[Signature[..., Any]] = []
        if behaviour.end == "value" and depth and draw(st.integers(0, 3)) == 0:
            inside = drawing.link(1)
            self.draw_for(inside, None, depth - 1)
        if into is not None and is_added and into.has_chain:
            into = None
        if behaviour.end == "value" and into and draw(st.integers(0, 3)) == 0:
            into.has_chain |= is_added
            added = [drawing.leaf() for _ in range(draw(st.integers(1, ADDED_MAX)))]
        self.behaviours[leaf.args[-1]] = replace(
            behaviour, replaced_by=inside, added=tuple(added)
        )
        for each in added:
            self.draw_for(each, into, depth, is_added=True)
