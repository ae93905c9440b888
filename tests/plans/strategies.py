"""Random nested plans, with failures, collects and handlers, for hypothesis."""

from typing import Any

from hypothesis import strategies as st

from durio.plans import Plan, Signature, chain, group
from tests.plans.reference import HANDLER, LEAF, AnyLink, Behaviour, leaves_of

LEVELS_MAX = 4
WIDTH_MAX = 4

FAILED = [Behaviour("dead"), Behaviour("dead", 1), Behaviour("cancelled")]
SUCCEEDED = [Behaviour(), Behaviour(), Behaviour(failures=1), Behaviour(failures=2)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[AnyLink, dict[str, Behaviour]]:
    """A plan, and how each of its leaves behaves: none, some or many of them fail."""
    plan = draw(plans())
    ends = FAILED * draw(st.sampled_from([0, 1, 2])) + SUCCEEDED * 3
    return plan, {name: draw(st.sampled_from(ends)) for name in leaves_of(plan)}


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
