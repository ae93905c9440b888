"""Where the jobs of a plan stand in its picture: layers from left to right, members below.

Pure: a tree of a plan gives boxes with places, and arrows between them. A chain puts its
members one after the other, a group one below the other. What follows a large group of
several jobs waits for all of them: a small box joins the arrows, so that their number grows
with the jobs, not with their product.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from durio.model.job import State
from durio.model.plan_tree import PlanTree

BOX_WIDTH, BOX_HEIGHT = 180, 40
LAYER_WIDTH, ROW_HEIGHT = 240, 56
MEMBERS_DRAWN_MAX = 50  # a larger group is one box with counts
# From the state that matters most to the one that matters least.
BY_WEIGHT = (
    State.DEAD,
    State.RUNNING,
    State.READY,
    State.SCHEDULED,
    State.BLOCKED,
    State.CANCELLED,
    State.DONE,
)


class PlanBox(NamedTuple):
    """A job in the picture, or what stands for several."""

    id: str
    kind: Literal["job", "group", "join"]  # a group has counts; a join is no job
    label: str
    task: str | None
    state: State | None  # of a group: the one that matters most; None: no record
    job: str | None
    plan: str | None  # id of the plan that has taken the place of the job
    members: int | None  # of a group
    states: Mapping[State, int]
    layer: int
    row: float
    x: int = 0
    y: int = 0


class PlanArrow(NamedTuple):
    """What a box waits for."""

    source: str
    target: str


class PlanPicture(NamedTuple):
    """A plan as boxes and arrows, in pixels."""

    boxes: list[PlanBox]
    arrows: list[PlanArrow]
    width: int
    height: int


class Part(NamedTuple):
    """The picture of a part of a plan; layers and rows count from its corner."""

    boxes: list[PlanBox]
    arrows: list[PlanArrow]
    layers: int
    rows: float
    first: list[str]  # boxes that wait for what is before the part
    last: list[str]  # boxes that what follows waits for

    def moved(self, layers: int, rows: float) -> list[PlanBox]:
        return [
            box._replace(layer=box.layer + layers, row=box.row + rows)
            for box in self.boxes
        ]


def draw_plan(tree: PlanTree) -> PlanPicture:
    """Return the picture of a plan."""
    part = Drawing().part(tree)
    boxes = [
        box._replace(x=box.layer * LAYER_WIDTH, y=round(box.row * ROW_HEIGHT))
        for box in part.boxes
    ]
    width = max((box.x + BOX_WIDTH for box in boxes), default=0)
    height = max((box.y + BOX_HEIGHT for box in boxes), default=0)
    return PlanPicture(boxes, part.arrows, width, height)


def boxes_of(tree: PlanTree) -> int:
    """Return about how many boxes the picture has."""
    if tree.kind == "job":
        return 1
    inside = sum(boxes_of(member) for member in tree.members)
    return inside + bool(tree.hidden) + (tree.id is not None)


class Drawing:
    """Places the parts of one plan."""

    def __init__(self) -> None:
        self._made = 0

    def part(self, tree: PlanTree) -> Part:
        match tree.kind:
            case "job":
                return single(job_box(tree))
            case "chain":
                return self._chain([self.part(member) for member in tree.members])
            case "group":
                return self._group(tree)

    def _chain(self, parts: Sequence[Part]) -> Part:
        """Put parts one after the other, each in the middle of the highest."""
        rows = max((part.rows for part in parts), default=0.0)
        boxes: list[PlanBox] = []
        arrows: list[PlanArrow] = []
        first: list[str] = []
        last: list[str] = []
        layer = 0
        for part in parts:
            if not part.boxes:
                continue  # an empty group
            if len(last) > 1 and len(part.first) > 1:
                join = self._join_box(layer, rows)
                arrows += arrows_between(last, [join.id])
                boxes, last, layer = [*boxes, join], [join.id], layer + 1
            arrows += [*arrows_between(last, part.first), *part.arrows]
            boxes += part.moved(layer, (rows - part.rows) / 2)
            first, last = first or part.first, part.last
            layer += part.layers
        return Part(boxes, arrows, layer, rows, first, last)

    def _group(self, tree: PlanTree) -> Part:
        """Put parts one below the other; the job that collects results follows them."""
        if tree.hidden:
            members = single(self._group_box(tree))
        else:
            members = stacked([self.part(member) for member in tree.members])
        if tree.id is None:
            return members
        joined = single(job_box(tree))
        return self._chain([members, joined])

    def _group_box(self, tree: PlanTree) -> PlanBox:
        states = dict(tree.counts)
        if tree.id is not None and tree.state is not None:
            states[tree.state] -= 1  # that of the job that collects the results
        states = {state: number for state, number in states.items() if number}
        count = tree.hidden + len(tree.members)
        short = short_name(tree.hidden_task) if tree.hidden_task else "members"
        return PlanBox(
            id=self._next_id("group"),
            kind="group",
            label=f"{count} x {short}",
            task=tree.hidden_task,
            state=next((state for state in BY_WEIGHT if state in states), None),
            job=None,
            plan=None,
            members=count,
            states=states,
            layer=0,
            row=0.0,
        )

    def _join_box(self, layer: int, rows: float) -> PlanBox:
        return PlanBox(
            id=self._next_id("join"),
            kind="join",
            label="all",
            task=None,
            state=None,
            job=None,
            plan=None,
            members=None,
            states={},
            layer=layer,
            row=(rows - 1) / 2,
        )

    def _next_id(self, kind: str) -> str:
        self._made += 1
        return f"{kind}-{self._made}"


def stacked(parts: Sequence[Part]) -> Part:
    boxes: list[PlanBox] = []
    row = 0.0
    for part in parts:
        boxes += part.moved(0, row)
        row += part.rows
    return Part(
        boxes,
        [arrow for part in parts for arrow in part.arrows],
        max((part.layers for part in parts), default=0),
        row,
        [name for part in parts for name in part.first],
        [name for part in parts for name in part.last],
    )


def single(box: PlanBox) -> Part:
    return Part([box], [], 1, 1.0, [box.id], [box.id])


def arrows_between(
    sources: Sequence[str], targets: Sequence[str]
) -> Iterator[PlanArrow]:
    for source in sources:
        for target in targets:
            yield PlanArrow(source, target)


def job_box(tree: PlanTree) -> PlanBox:
    """Return the box of a job; without a task it collects the results of a group."""
    return PlanBox(
        id=tree.id or "",
        kind="job",
        label="collect" if tree.task is None else short_name(tree.task),
        task=tree.task,
        state=tree.state,
        job=tree.id,
        plan=tree.plan,
        members=None,
        states={},
        layer=0,
        row=0.0,
    )


def short_name(task: str) -> str:
    """Return the name without the App's: `shop.resize` -> `resize`."""
    return task.partition(".")[2] or task
