"""A plan for people: its status, and its tree."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from durio.model.errors import WrongState
from durio.model.ids import id_text
from durio.model.job import DONE, READY, STATE_BY_CODE, State, utc_datetime
from durio.model.names import queue_of
from durio.model.plan_record import FirstFailure, PlanState
from durio.model.plan_shape import plan_of_shape
from durio.model.plan_tree import (
    MEMBERS_SHOWN_MAX,
    AddedJob,
    PlanTree,
    TreeChanges,
    tree_of,
)
from durio.ports.plan_reader import StoredPlan, find_whole_plan
from durio.ports.plan_sweep import current_state, states_of
from durio.ports.store import Store

PARENTS_MAX = 1000
READY_READ_MAX = 200


@dataclass(frozen=True, slots=True)
class PlanStatus:
    """The state of a plan, from one read of the store."""

    __module__ = "durio.plans"

    id: str  # of the plan
    state: PlanState  # where the plan is in its life
    nodes: int  # number of its jobs, with those of plans in places of jobs
    counts: dict[State, int]  # these jobs by state
    created_at: datetime  # this and the other times are in UTC
    ended_at: datetime | None = None  # when it was done, failed or cancelled
    resumed: int = 0  # how often it was retried
    failed_node: str | None = None  # id of the job that failed first
    error: str | None = None  # type and text of its error
    # Jobs that its last job waits for, directly or not, in written order; at most the
    # last 1,000. The parent of the last job of a chain is the last of them.
    parents: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether the plan has ended."""
        return self.state.is_final

    @property
    def successful(self) -> bool:
        """Whether all its jobs are done."""
        return self.state is PlanState.DONE

    @property
    def failed(self) -> bool:
        """Whether a job has failed."""
        return self.state in {PlanState.FAILING, PlanState.FAILED}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as values for `json.dumps`."""
        return msgspec.json.decode(msgspec.json.encode(self))


def failed_job(plan: StoredPlan, failure: FirstFailure) -> str:
    return failure.job or id_text(plan.ids([failure.node])[0])


async def plan_status(store: Store, plan: StoredPlan) -> PlanStatus:
    """Read the states of a plan's jobs, and return its status."""
    record, failure = plan.record, plan.record.failure
    created = utc_datetime(record.created_at)
    assert created is not None  # noqa: S101 - a time that Durio has stored
    last = len(plan.layout.nodes) - 1
    jobs = await jobs_of(store, plan)
    return PlanStatus(
        id=id_text(plan.id),
        state=await current_state(store, plan),
        nodes=len(jobs),
        counts=counts_of(jobs),
        created_at=created,
        ended_at=utc_datetime(record.ended_at),
        resumed=record.resumed,
        failed_node=failure and failed_job(plan, failure),
        error=failure and f"{failure.type}: {failure.message}",
        parents=tuple(map(id_text, plan.ids(range(max(0, last - PARENTS_MAX), last)))),
    )


async def plan_tree(
    store: Store, plan: StoredPlan, members_max: int = MEMBERS_SHOWN_MAX
) -> PlanTree:
    """Read the states of a plan's jobs, and return its tree."""
    states = await states_of(store, plan)
    added: defaultdict[int, list[AddedJob]] = defaultdict(list)
    for number, node in plan.layout.added.items():
        if node.group is not None and node.signature is not None:
            job = AddedJob(number, plan.added[number], node.signature.task)
            added[node.group].append(job)
    changes = TreeChanges(added, plan.replacing)
    link = plan_of_shape(plan.shape)
    return tree_of(link, plan.id, states, changes, members_max)


async def jobs_of(store: Store, plan: StoredPlan) -> dict[bytes, int | None]:
    """Return the state of each job by id, also of plans in places of jobs.

    None: the job is deleted.
    """
    found: dict[bytes, int | None] = {}
    waiting = [plan]
    while waiting:
        plan = waiting.pop()
        states, numbers = await states_of(store, plan), plan.numbers
        pairs = zip(numbers, plan.ids(numbers), strict=True)
        found |= {job_id: states.get(number) for number, job_id in pairs}
        for inner_id in plan.replacing.values():
            inner = await find_whole_plan(store, plan.namespace, inner_id)
            waiting += [] if inner is None else [inner]
    return found


def counts_of(jobs: Mapping[bytes, int | None]) -> dict[State, int]:
    found = Counter(state for state in jobs.values() if state is not None)
    return {STATE_BY_CODE[code]: found[code] for code in sorted(found)}


async def check_not_over(store: Store, plan: StoredPlan) -> PlanState:
    """Return the state of a plan; refuse one whose jobs have all ended.

    Members of a failed plan may go on.
    """
    state, jobs = await current_state(store, plan), await jobs_of(store, plan)
    is_over = all(code is None or code >= DONE for code in jobs.values())
    if state.is_final and is_over:
        raise WrongState(
            f"plan {id_text(plan.id)} is {state.value} and cannot be cancelled",
            cure="Only plans with jobs that have not ended can be cancelled.",
            state=state,
        )
    return state


async def describe_plan(store: Store, plan: StoredPlan) -> str:
    """Return why a plan may not have ended: ` (2 ready, 1 done; no worker serves ...)`."""
    jobs = await jobs_of(store, plan)
    texts = [f"{number} {state.value}" for state, number in counts_of(jobs).items()]
    ready = [job_id for job_id, state in jobs.items() if state == READY]
    queues = {queue_of(job.lane) for job in await store.get(ready[:READY_READ_MAX])}
    workers = await store.workers(plan.namespace)
    unserved = [
        f'no worker serves queue "{queue}"'
        for queue in sorted(queues)
        if not any(worker.serves(queue) for worker in workers)
    ]
    return f" ({'; '.join([', '.join(texts), *unserved])})"
