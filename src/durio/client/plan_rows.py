"""Plans of a list as data, and the shape of a plan as short text."""

from collections.abc import Iterator
from typing import Any, cast

from durio.client.plan_list import ListedPlan
from durio.model.ids import id_bytes, id_text
from durio.model.job import utc_datetime
from durio.model.plan_names import node_id
from durio.model.plan_record import PlanRecord

MEMBERS_NAMED_MAX, DEPTH_NAMED_MAX = 5, 4
DAMAGED = "the record of the plan is damaged"


def plan_row(plan: ListedPlan) -> dict[str, Any]:
    """Return the fields of a plan in a list."""
    record = plan.record
    failure = None if record is None else record.failure
    damaged = DAMAGED if record is None else None
    return {
        "id": plan.id,
        "namespace": plan.namespace,
        "state": None if plan.state is None else plan.state.value,
        "plan": None if record is None else shape_text(record.shape),
        "jobs": None if record is None else record.nodes,
        "created_at": None if record is None else utc_datetime(record.created_at),
        "ended_at": None if record is None else utc_datetime(record.ended_at),
        "resumed": None if record is None else record.resumed,
        "failed_node": failed_job(plan),
        "error_type": failure and failure.type,
        "error": damaged if failure is None else failure.message,
        "replaces": None if record is None else replaced_fields(record),
    }


def replaced_fields(record: PlanRecord) -> dict[str, str | None] | None:
    """Return the job whose place a plan has taken; None if there is none."""
    replaces = record.replaces
    return replaces and {"job": replaces.job, "plan": replaces.plan}


def failed_job(plan: ListedPlan) -> str | None:
    """Return the job that failed first; None if none did, or if it was added."""
    failure = None if plan.record is None else plan.record.failure
    if plan.record is None or failure is None:
        return None
    if failure.job is not None or failure.node >= plan.record.nodes:
        return failure.job
    return id_text(node_id(id_bytes(plan.id), failure.node))


def shape_text(shape: Any, depth: int = 0) -> str | None:
    """Return a plan as short text: `download | 500 x resize | total`."""
    if isinstance(shape, str):
        return shape.partition(".")[2] or shape
    if not isinstance(shape, dict):
        return None  # a large shape is in a log
    given = cast("dict[str, Any]", shape)
    if "task" in given:
        return shape_text(given["task"])
    if depth == DEPTH_NAMED_MAX:
        return "..."
    if "chain" in given:
        return " | ".join(member_texts(given["chain"], depth + 1))
    return f"group({', '.join(member_texts(given['group'], depth + 1))})"


def member_texts(members: list[Any], depth: int) -> Iterator[str]:
    for member in members[:MEMBERS_NAMED_MAX]:
        match member:
            case [int(count), shape]:
                yield f"{count} x {shape_text(shape, depth)}"
            case _:
                yield shape_text(member, depth) or "..."
    if len(members) > MEMBERS_NAMED_MAX:
        yield "..."
