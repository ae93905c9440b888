"""The jobs of a plan that stand right before and after a job."""

from typing import NamedTuple

from durio.client.explain import writers_of
from durio.client.job_view import options_of
from durio.client.plan_rows import shape_text
from durio.model.errors import InvalidPlan
from durio.model.ids import id_bytes, id_text
from durio.model.job import StoredJob
from durio.model.logs import DONE_END
from durio.model.names import namespace_of
from durio.ports.plan_reader import find_whole_plan
from durio.ports.store import Store

NODES_MAX = 2_000  # of a plan that is laid out for this
RELATIVES_MAX = 20


class Relations(NamedTuple):
    """The plan of a job, and its neighbours there."""

    plan: str
    node: int
    name: str | None = None  # the shape of the plan as text; None: not stored, or long
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


async def relations_of(store: Store, job: StoredJob) -> Relations | None:
    """Return the place of a job in its plan; None for a job of its own."""
    place = options_of(job).plan
    if place is None:
        return None
    known = Relations(place.plan, place.node)
    try:
        plan = await find_whole_plan(
            store, namespace_of(job.lane), id_bytes(place.plan)
        )
    except InvalidPlan:  # its record is damaged
        return known
    if plan is None or plan.record.nodes > NODES_MAX:
        return known
    known = known._replace(name=shape_text(plan.shape))
    node = plan.layout.node(place.node)
    before = () if node.wait is None else writers_of(plan).get(node.wait.log, ())
    logs = {end.log for end in node.on_end if end.when & DONE_END}
    after = [
        number
        for number in plan.numbers
        if (wait := plan.layout.node(number).wait) is not None and wait.log in logs
    ]
    return known._replace(
        parents=tuple(map(id_text, plan.ids(list(before)[:RELATIVES_MAX]))),
        children=tuple(map(id_text, plan.ids(after[:RELATIVES_MAX]))),
    )
