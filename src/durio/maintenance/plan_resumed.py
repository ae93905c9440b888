"""Look at resumed plans once more: who retries one may die before its nodes are retried.

The record of a plan runs again in one commit, its failed nodes become ready in others. A
node that is still failed then would leave a plan that runs for ever.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from durio.model.effects import Effects
from durio.model.failure import CANCELLED, ShortFailure, failures
from durio.model.job import StoredJob
from durio.model.plan_failure import fails_plan
from durio.model.plan_record import PlanState
from durio.ports.plan_reader import StoredPlan, find_whole_plan, with_changes
from durio.ports.plan_sweep import failed_nodes, states_of
from durio.ports.store import Store


class FailedNode(NamedTuple):
    """A failed node that fails its plan."""

    plan: StoredPlan
    number: int
    job: StoredJob
    failure: ShortFailure


FailPlans = Callable[[FailedNode], Awaitable[bool]]


async def look_at_resumed(store: Store, plan: StoredPlan, fail: FailPlans) -> None:
    """Fail a plan again whose failed nodes were not retried; it is not due any more."""
    for failed in await nodes_left(store, await with_changes(store, plan)):
        if not await fail(failed):
            return  # it was changed meanwhile: if it is still due, look again
    found = await find_whole_plan(store, plan.namespace, plan.id)
    if found is not None and found.record.state is PlanState.RUNNING:
        await store.commit(Effects(puts=[found.put()]))


async def nodes_left(store: Store, plan: StoredPlan) -> list[FailedNode]:
    """Return the failed nodes of a plan, and of plans in places of its nodes."""
    numbers = [
        number
        for number in await failed_nodes(store, plan, await states_of(store, plan))
        if fails_plan(plan.layout, number)
    ]
    jobs = {job.id: job for job in await store.get(plan.ids(numbers))}
    pairs = zip(numbers, plan.ids(numbers), strict=True)
    found = [
        FailedNode(plan, number, jobs[job_id], last_failure(jobs[job_id]))
        for number, job_id in pairs
        if job_id in jobs
    ]
    for number, inner_id in plan.replacing.items():
        inner = await find_whole_plan(store, plan.namespace, inner_id)
        if inner is not None and fails_plan(plan.layout, number):
            found += await nodes_left(store, inner)
    return found


def last_failure(job: StoredJob) -> ShortFailure:
    for last in failures(job.errors)[-1:]:
        return ShortFailure(last.type, last.message)
    return CANCELLED
