"""The stored state of a plan: a record of the kind `plan:<namespace>`."""

from enum import StrEnum
from typing import Any

import msgspec

from durio.model.errors import InvalidPlan
from durio.model.plan_change import NO_ENDS, InheritedEnds
from durio.model.plan_layout import PlanLayout, lay_out
from durio.model.plan_shape import plan_of_shape

SHAPE_BYTES_MAX = 48 * 1024  # of a record; a larger shape is in a log
SHAPE_ENTRY_BYTES = 30 * 1024
WRITTEN_SECONDS_MAX = 300.0  # then the leader cancels a plan that is not whole
KEPT_SECONDS = 7 * 86400.0  # after the end of a plan that is done or cancelled


class PlanState(StrEnum):
    """The state of a plan; it equals its text: `status.state == "done"`."""

    __module__ = "durio.plans"

    RUNNING = "running"  # nodes run, or wait to run
    FAILING = "failing"  # a node has failed; what depends on it is being cancelled
    FAILED = "failed"  # final: a node has failed
    CANCELLING = "cancelling"  # it is being cancelled
    CANCELLED = "cancelled"  # final: it was cancelled
    DONE = "done"  # final: its last node is done

    @property
    def is_final(self) -> bool:
        """Whether the plan has ended: `failed`, `cancelled` or `done`."""
        return self in {PlanState.FAILED, PlanState.CANCELLED, PlanState.DONE}


class FirstFailure(msgspec.Struct, frozen=True):
    """The failure that failed a plan."""

    node: int  # number of the node
    type: str  # class of the exception
    message: str  # text of the exception
    job: str | None = (
        None  # the job that failed, if it is of a plan in the node's place
    )
    reason: str | None = None  # why that job is dead; None: not known


class Replaced(msgspec.Struct, frozen=True, omit_defaults=True):
    """The job whose place a plan has taken."""

    job: str  # its id
    plan: str | None = None  # its plan; None: it is in none
    node: int = 0  # its number there
    depth: int = 1  # how many plans in a row have taken the place of a job


class PlanRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The body of a plan's record, as JSON."""

    state: PlanState = PlanState.RUNNING
    shape: Any = None  # None: it is in the log `shape_log`
    nodes: int
    created_at: float
    ended_at: float | None = None
    is_whole: bool = True  # False: it is being written
    resumed: int = 0  # how often it was retried
    failure: FirstFailure | None = None
    # Failures of its jobs before this offset of the log of failures have been handled.
    handled: int = 0
    key: str | None = None  # name of the record of its key
    key_until: float = 0.0  # end of the window of its key: it is kept until then
    replaces: Replaced | None = None
    inherited: InheritedEnds = NO_ENDS  # what its nodes append for the replaced job

    def kept_until(self, due_at: float) -> float:
        """Return when an ended plan is deleted: not before the window of its key ends."""
        return max(due_at, self.key_until)

    def layout(self, plan_id: bytes, namespace: str, shape: Any) -> PlanLayout:
        """Lay the plan out again, without the arguments of its nodes."""
        return lay_out(plan_of_shape(shape), plan_id, namespace, self.inherited)


class PlanHolder(msgspec.Struct, frozen=True):
    """The body of the record of a plan's key."""

    plan: str  # id of the plan
    digest: str  # of its shape and arguments


_decoder = msgspec.json.Decoder(PlanRecord)


def plan_kind(namespace: str) -> str:
    return f"plan:{namespace}"


def plan_key_kind(namespace: str) -> str:
    return f"plan_key:{namespace}"


def shape_log(namespace: str, plan_id: bytes) -> str:
    return f"p:{namespace}/{plan_id.hex()}/shape"


def handled_log(namespace: str, plan_id: bytes) -> str:
    """Return the log of the ids of error handlers that were enqueued."""
    return f"p:{namespace}/{plan_id.hex()}/handled"


def load_record(body: bytes) -> PlanRecord:
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise damaged_plan("record", error) from None


def load_shape(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise damaged_plan("shape", error) from None


def damaged_plan(part: str, error: Exception) -> InvalidPlan:
    return InvalidPlan(
        f"the {part} of the plan is damaged: {error}",
        cure="Cancel its jobs by id, and enqueue the plan again.",
    )


def dump_record(record: PlanRecord) -> bytes:
    return msgspec.json.encode(record)


def shape_entries(shape: Any) -> list[bytes]:
    """Return a large shape in pieces, for a log; empty if it fits into the record."""
    text = msgspec.json.encode(shape)
    if len(text) <= SHAPE_BYTES_MAX:
        return []
    return [
        text[at : at + SHAPE_ENTRY_BYTES]
        for at in range(0, len(text), SHAPE_ENTRY_BYTES)
    ]
