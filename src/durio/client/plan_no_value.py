"""Why a plan that has ended has no value: the error that its handle raises."""

from typing import Any

from durio.client.handle import JobClient
from durio.client.job_view import job_errors
from durio.client.plan_view import failed_job
from durio.model.errors import DurioError, JobCancelled, JobDead, ResultExpired
from durio.model.ids import id_bytes, id_text
from durio.model.job import CANCELLED, DEAD, STATE_BY_CODE, JobError, StoredJob
from durio.model.plan_record import PlanState
from durio.ports.plan_reader import StoredPlan


async def why_no_value(
    client: JobClient, plan_id: str, plan: StoredPlan, last: StoredJob | None
) -> DurioError:
    """Return the error of a plan whose last node is not done, or deleted.

    `plan` is this plan, or the one in the place of its last node.
    """
    if last is not None and last.state == DEAD:
        return dead_node(client, plan_id, last)
    record = plan.record
    if record.state is PlanState.DONE:
        return value_expired(plan_id)
    failure = record.failure
    if failure is None or record.state in (PlanState.CANCELLING, PlanState.CANCELLED):
        return JobCancelled(f"plan {plan_id} was cancelled")
    failed = failed_job(plan, failure)
    for node in await (await client.store()).get([id_bytes(failed)]):
        if node.state in (DEAD, CANCELLED):
            return dead_node(client, plan_id, node)
    # It is deleted, or was retried alone.
    return dead_plan(
        client,
        plan_id,
        f"plan {plan_id} failed: {failure.type}: {failure.message}",
        reason=failure.reason or "unknown",
        error=JobError(failure.type, failure.message),
        job_id=failed,
        cure=f"See `durio plans show {plan_id}`.",
    )


def value_expired(plan_id: str) -> ResultExpired:
    return ResultExpired(
        f"the value of plan {plan_id} has expired",
        cure="Keep results longer: raise retention.result_seconds.",
    )


def dead_node(client: JobClient, plan_id: str, node: StoredJob) -> JobDead:
    errors = job_errors(node)
    cause = f": {errors[-1].type}: {errors[-1].message}" if errors else ""
    return dead_plan(
        client,
        plan_id,
        f"plan {plan_id} failed: job {id_text(node.id)} ({node.task}) is "
        f"{STATE_BY_CODE[node.state].value}{cause}",
        reason=node.reason or STATE_BY_CODE[node.state].value,
        error=errors[-1] if errors else None,
        job_id=id_text(node.id),
    )


def dead_plan(
    client: JobClient, plan_id: str, what: str, *, cure: str = "", **values: Any
) -> JobDead:
    dead = JobDead(what, **values)
    dead.cure = client.pasteable(cure or dead.cure)
    dead.plan, dead.node = plan_id, dead.job_id
    return dead
