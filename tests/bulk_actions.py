"""Bulk actions as tests want them: all steps as one, or step by step."""

from collections.abc import AsyncGenerator

from durio.client.bulk import BulkStep, CountedJobs, act_in_bulk
from durio.host.clock import HostClock
from durio.model.job import READY, SCHEDULED
from durio.ports.browse import Query
from durio.ports.control import Action, MoveJobs
from durio.ports.store import Store

ALL = 1_000_000


def bulk_steps(
    store: Store, query: Query, action: Action, mark: str, step_jobs: int = 500
) -> AsyncGenerator[BulkStep]:
    """Each step of an action on all jobs of a query that were counted."""
    counted = CountedJobs(query, mark, ALL)
    return act_in_bulk(
        store, action, counted, clock=HostClock(), by="ann", step_jobs=step_jobs
    )


async def run_bulk(
    store: Store,
    query: Query,
    action: Action,
    mark: str | None = None,
    step_jobs: int = 500,
) -> BulkStep:
    """All steps together; without a mark the jobs are counted first."""
    mark = (await store.count(query)).mark if mark is None else mark
    jobs = held = 0
    async for step in bulk_steps(store, query, action, mark, step_jobs):
        assert step.jobs <= step_jobs
        jobs, held = jobs + step.jobs, held + step.held
    return BulkStep(jobs, held)


async def move_waiting(
    store: Store, lane: str, to: str, limit: int = ALL, step_jobs: int = 500
) -> BulkStep:
    """Waiting jobs of a queue go to another."""
    query = Query(lane=lane, states=(READY, SCHEDULED))
    counted = CountedJobs(query, (await store.count(query)).mark, limit)
    jobs = held = 0
    steps = act_in_bulk(
        store, MoveJobs(to), counted, clock=HostClock(), by="ann", step_jobs=step_jobs
    )
    async for step in steps:
        jobs, held = jobs + step.jobs, held + step.held
    return BulkStep(jobs, held)
