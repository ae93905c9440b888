"""A plan as the API shows it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from durio.client.plan_list import ListedPlan
from durio.client.plan_rows import DAMAGED, failed_job, shape_text
from durio.client.plan_view import jobs_of, plan_status, plan_tree
from durio.model.ids import id_bytes, id_text
from durio.model.job import State, utc_datetime
from durio.model.plan_names import node_id
from durio.model.plan_record import FirstFailure, PlanRecord, PlanState
from durio.model.plan_tree import PlanTree
from durio.ports.plan_reader import StoredPlan
from durio.ports.store import Store
from durio.web.api.shapes import Answer
from durio.web.call import WebCall
from durio.web.plan_layout import (
    BOX_HEIGHT,
    BOX_WIDTH,
    MEMBERS_DRAWN_MAX,
    PlanPicture,
    boxes_of,
    draw_plan,
)

NODES_READ_MAX = 5_000  # jobs whose states are read for a list
READ_JOBS_MAX = 1_000
BOXES_MAX = 600
MEMBERS_OF_LARGE = (MEMBERS_DRAWN_MAX, 12, 3, 0)


class PlanCounts(Answer):
    total: int
    done: int
    running: int
    waiting: int  # scheduled, blocked or ready
    dead: int
    cancelled: int
    gone: int  # retention has deleted them


class PlanErrorItem(Answer):
    text: str
    type: str
    job: str | None  # that failed first
    reason: str | None


class PlanItem(Answer):
    id: str
    name: str | None  # its shape as text; None: it is very large
    state: PlanState | None  # None: its record is damaged
    counts: PlanCounts | None  # None: it has too many jobs for a list
    jobs: int
    created_at: datetime | None
    ended_at: datetime | None
    resumed: int  # how often it was retried
    failure: PlanErrorItem | None


class PlanBoxItem(Answer):
    id: str
    kind: str  # job, group (with counts) or join (no job)
    label: str
    task: str | None
    state: State | None
    job: str | None
    plan: str | None  # the plan that has taken the place of the job
    count: int | None
    states: dict[State, int] | None
    layer: int
    x: int
    y: int


class PlanLayoutAnswer(Answer):
    nodes: list[PlanBoxItem]
    edges: list[dict[str, str]]  # {from, to}
    width: int
    height: int
    node_width: int
    node_height: int


class ReplacedJob(Answer):
    job: str
    plan: str | None


class PlanView(PlanItem):
    tree: dict[str, Any]
    layout: PlanLayoutAnswer
    replaces: ReplacedJob | None
    actions: dict[str, str | None]  # why one is not possible; None: it is


# --- lists


async def plan_items(call: WebCall, plans: Sequence[ListedPlan]) -> list[PlanItem]:
    """Return the plans that the user may see."""
    store = await call.store()
    if not call.sees_all:
        plans = [plan for plan in plans if await sees_ends(call, store, plan)]
    counts = await counts_of_plans(store, plans)
    return [plan_item(plan, counts.get(plan.id)) for plan in plans]


async def counts_of_plans(
    store: Store, plans: Iterable[ListedPlan]
) -> dict[str, PlanCounts]:
    """Return the jobs of each plan by state, for as many jobs as a list may read."""
    numbers: dict[str, list[bytes]] = {}
    found: dict[str, PlanCounts] = {}
    left = NODES_READ_MAX
    for plan in plans:
        nodes = 0 if plan.record is None else plan.record.nodes
        if plan.state is PlanState.DONE:
            found[plan.id] = plan_counts(nodes, {State.DONE: nodes})
        elif 0 < nodes <= left:
            left -= nodes
            numbers[plan.id] = [node_id(id_bytes(plan.id), n) for n in range(nodes)]
    ids = [job_id for some in numbers.values() for job_id in some]
    codes: dict[bytes, int] = {}
    for at in range(0, len(ids), READ_JOBS_MAX):
        codes |= await store.states(ids[at : at + READ_JOBS_MAX])
    states = list(State)
    for plan_id, some in numbers.items():
        counted = Counter(states[codes[job_id]] for job_id in some if job_id in codes)
        found[plan_id] = plan_counts(len(some), counted)
    return found


def plan_counts(total: int, states: Mapping[State, int]) -> PlanCounts:
    waiting = (State.SCHEDULED, State.BLOCKED, State.READY)
    return PlanCounts(
        total=total,
        done=states.get(State.DONE, 0),
        running=states.get(State.RUNNING, 0),
        waiting=sum(states.get(state, 0) for state in waiting),
        dead=states.get(State.DEAD, 0),
        cancelled=states.get(State.CANCELLED, 0),
        gone=total - sum(states.values()),
    )


def plan_item(plan: ListedPlan, counts: PlanCounts | None) -> PlanItem:
    record = plan.record
    if record is None:
        return damaged_item(plan)
    return PlanItem(
        **record_fields(plan.id, record, record.shape),
        state=plan.state,
        counts=counts,
        failure=failure_of(record.failure, failed_job(plan)),
    )


def damaged_item(plan: ListedPlan) -> PlanItem:
    return PlanItem(
        id=plan.id,
        name=DAMAGED,
        state=None,
        counts=None,
        jobs=0,
        created_at=None,
        ended_at=None,
        resumed=0,
        failure=None,
    )


def record_fields(plan_id: str, record: PlanRecord, shape: Any) -> dict[str, Any]:
    return {
        "id": plan_id,
        "name": shape_text(shape),
        "jobs": record.nodes,
        "created_at": utc_datetime(record.created_at),
        "ended_at": utc_datetime(record.ended_at),
        "resumed": record.resumed,
    }


def failure_of(failure: FirstFailure | None, job: str | None) -> PlanErrorItem | None:
    if failure is None:
        return None
    return PlanErrorItem(
        text=failure.message, type=failure.type, job=job, reason=failure.reason
    )


async def sees_ends(call: WebCall, store: Store, plan: ListedPlan) -> bool:
    """Whether the first and the last job of a plan are in queues that the user sees."""
    if plan.record is None:
        return False
    ids = [node_id(id_bytes(plan.id), n) for n in (0, plan.record.nodes - 1)]
    jobs = await store.get(ids)
    return bool(jobs) and all(call.sees_job(job) for job in jobs)


# --- one plan


async def sees_all_jobs(call: WebCall, plan: StoredPlan) -> bool:
    """Whether all jobs of a plan are in queues that the user sees."""
    if call.sees_all:
        return True
    store = await call.store()
    ids, seen = list(await jobs_of(store, plan)), 0
    for at in range(0, len(ids), READ_JOBS_MAX):
        jobs = await store.get(ids[at : at + READ_JOBS_MAX])
        if not all(call.sees_job(job) for job in jobs):
            return False
        seen += len(jobs)
    return seen > 0


async def plan_view(call: WebCall, plan: StoredPlan) -> PlanView:
    """Return a plan with its tree and its picture."""
    store, record = await call.store(), plan.record
    status = await plan_status(store, plan)
    tree = await tree_for_picture(store, plan)
    listed = ListedPlan(id_text(plan.id), plan.namespace, status.state, record)
    replaces = record.replaces
    return PlanView(
        **record_fields(status.id, record, plan.shape),
        state=status.state,
        counts=plan_counts(status.nodes, status.counts),
        failure=failure_of(record.failure, status.failed_node or failed_job(listed)),
        tree=tree.to_dict(),
        layout=layout_answer(draw_plan(tree)),
        replaces=replaces and ReplacedJob(job=replaces.job, plan=replaces.plan),
        actions=actions_of(status.state, status.counts),
    )


async def tree_for_picture(store: Store, plan: StoredPlan) -> PlanTree:
    """Return the tree, with fewer members of groups if there are too many boxes."""
    tree = await plan_tree(store, plan, MEMBERS_OF_LARGE[0])
    for members in MEMBERS_OF_LARGE[1:]:
        if boxes_of(tree) <= BOXES_MAX:
            break
        tree = await plan_tree(store, plan, members)
    return tree


def layout_answer(picture: PlanPicture) -> PlanLayoutAnswer:
    return PlanLayoutAnswer(
        nodes=[
            PlanBoxItem(
                id=box.id,
                kind=box.kind,
                label=box.label,
                task=box.task,
                state=box.state,
                job=box.job,
                plan=box.plan,
                count=box.members,
                states=dict(box.states) or None,
                layer=box.layer,
                x=box.x,
                y=box.y,
            )
            for box in picture.boxes
        ],
        edges=[{"from": source, "to": target} for source, target in picture.arrows],
        width=picture.width,
        height=picture.height,
        node_width=BOX_WIDTH,
        node_height=BOX_HEIGHT,
    )


def actions_of(state: PlanState, counts: Mapping[State, int]) -> dict[str, str | None]:
    """Return why the plan cannot be cancelled or retried; None if it can."""
    is_over = all(each.is_final for each in counts)
    can_retry = state in {PlanState.FAILED, PlanState.CANCELLED, PlanState.FAILING}
    return {
        "cancel": "all its jobs have ended" if state.is_final and is_over else None,
        "retry": None if can_retry else f"it is {state.value}",
    }
