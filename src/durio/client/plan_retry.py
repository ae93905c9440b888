"""Retry jobs that are nodes of plans: a failed plan goes on from them.

Every way to retry jobs calls `resume_plans` first. Plain jobs cost it nothing: ids of nodes
end in a small number, so only such jobs are read.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

from durio.client.plan_actions import (
    FAILING_LOOK_SECONDS,
    FAILING_SECONDS_MAX,
    missing_nodes,
    resume_after,
)
from durio.client.plan_key import other_holder
from durio.model.errors import InvalidPlan, WrongState
from durio.model.ids import id_bytes, id_text
from durio.model.job import StoredJob
from durio.model.names import namespace_of
from durio.model.plan_failure import fails_plan, has_failed
from durio.model.plan_names import may_be_node
from durio.model.plan_payload import plan_place_of
from durio.model.plan_record import PlanState
from durio.model.quantities import counted
from durio.ports.clock import Clock
from durio.ports.plan_reader import StoredPlan, find_whole_plan
from durio.ports.plan_sweep import READ_JOBS_MAX, TRIES_MAX, overtaken, states_of
from durio.ports.store import Store

RESUMABLE = (PlanState.FAILED, PlanState.RUNNING)


class NodeRetry(NamedTuple):
    """What the retry of a node means for its plan."""

    job: bytes
    plan: str  # id of the plan
    state: PlanState | None  # of the plan after it; None: the plan is gone
    why_alone: str | None = None  # why its result changes nothing in the plan
    others: int = 0  # dead jobs that still keep the plan from going on

    @property
    def text(self) -> str:
        """Return the meaning, for people."""
        if self.why_alone is not None:
            return f"runs alone: {self.why_alone}"
        if self.others:
            return f"plan {self.plan} has {counted(self.others, 'other dead job')}"
        return f"plan {self.plan} goes on"


async def resume_plans(
    store: Store, ids: Sequence[bytes], clock: Clock, by: str
) -> dict[bytes, NodeRetry]:
    """Resume the failed plans of these jobs, which the caller retries next.

    While the leader cancels what depends on a failed node, wait for it.

    What was cancelled because of them waits again, unless another dead node is before it.
    A plan with another dead node stays failed. Return what the retry means for each job
    that is a node. After a crash before the retry, the same call does the
    rest; if nobody makes it, the leader marks the plan as failed again.
    """
    candidates = [job_id for job_id in ids if may_be_node(job_id)]
    nodes: defaultdict[tuple[str, str], list[StoredJob]] = defaultdict(list)
    for at in range(0, len(candidates), READ_JOBS_MAX):
        for job in await store.get(candidates[at : at + READ_JOBS_MAX]):
            place = plan_place_of(job.opts)
            if place is not None and has_failed(job):
                nodes[namespace_of(job.lane), place.plan].append(job)
    found: dict[bytes, NodeRetry] = {}
    deadline = clock.monotonic() + FAILING_SECONDS_MAX
    retrying = {job.id for jobs in nodes.values() for job in jobs}
    # The newest plans first: a plan inside is younger, and its failure is one outside too.
    for namespace, plan_id in sorted(nodes, key=lambda place: place[1], reverse=True):
        jobs = nodes[namespace, plan_id]
        while True:
            answers = await resume_plan(store, namespace, plan_id, jobs, by, retrying)
            is_failing = any(one.state is PlanState.FAILING for one in answers)
            if not is_failing or clock.monotonic() >= deadline:
                break
            await clock.sleep(FAILING_LOOK_SECONDS)
        found |= {answer.job: answer for answer in answers}
    return found


async def resume_plan(
    store: Store,
    namespace: str,
    plan_id: str,
    jobs: Sequence[StoredJob],
    by: str,
    retrying: Collection[bytes],
) -> list[NodeRetry]:
    """Resume one plan; the caller retries these failed nodes of it, and others."""
    for _ in range(TRIES_MAX):
        try:
            plan = await find_whole_plan(store, namespace, id_bytes(plan_id))
        except InvalidPlan as error:
            return [NodeRetry(job.id, plan_id, None, str(error)) for job in jobs]
        if plan is None:
            why = f"plan {plan_id} is gone"
            return [NodeRetry(job.id, plan_id, None, why) for job in jobs]
        state, why = plan.record.state, None
        if state not in RESUMABLE:
            why = f"plan {plan_id} is {state.value}"
        elif holder := await other_holder(store, plan):
            why = f"plan {holder} has the key of plan {plan_id}"
        if why is not None:
            return [NodeRetry(job.id, plan_id, state, why) for job in jobs]
        with suppress(WrongState):  # another change came first
            return await resume_from(store, plan, jobs, by, retrying)
    raise overtaken(id_bytes(plan_id))


async def resume_from(
    store: Store,
    plan: StoredPlan,
    jobs: Sequence[StoredJob],
    by: str,
    retrying: Collection[bytes],
) -> list[NodeRetry]:
    """Let what depends on these nodes wait again."""
    numbers = dict(zip(plan.ids(plan.numbers), plan.numbers, strict=True))
    retried = [numbers[job.id] for job in jobs if job.id in numbers]
    if missing_nodes(plan, await states_of(store, plan), retried):
        name = id_text(plan.id)
        why = f"retention has deleted jobs of plan {name} that follow"
        state = plan.record.state
        return [NodeRetry(job.id, name, state, why) for job in jobs]
    left = await resume_after(store, plan, retried, by, retrying)
    state = plan.record.state if left else PlanState.RUNNING
    return [node_retry(plan, job, numbers.get(job.id), state, left) for job in jobs]


def node_retry(
    plan: StoredPlan, job: StoredJob, number: int | None, state: PlanState, left: int
) -> NodeRetry:
    name = id_text(plan.id)
    if number is None or not fails_plan(plan.layout, number):
        why = f"plan {name} has taken its failure as a result"
        return NodeRetry(job.id, name, state, why)
    return NodeRetry(job.id, name, state, others=left)
