"""What a running node does to its plan: put a plan in its place, or add members to its group.

The task's process lays out and encodes the new jobs, because it has their code. The worker
adds the entries that the replaced job would have appended, and sends all of it with the end
of the job.
"""

from hashlib import blake2b
from typing import NamedTuple

import msgspec

from durio.model.job import NewJob
from durio.model.logs import ANY_END, DONE_END, FAILED_END, OnEnd

REPLACED_IN_A_ROW_MAX = 1000
# Numbers of added nodes are random and start here; those of written nodes are lower.
ADDED_FROM = 1 << 52
_REPLACED = b"~plan:"  # no JSON text begins so


class PreparedPlan(NamedTuple):
    """A plan that takes the place of a job, before it is stored."""

    id: bytes
    jobs: list[NewJob]
    shape: bytes  # JSON, see model/plan_shape.py
    go: str | None  # the log that its first nodes wait for
    created_at: float


class AddedNode(NamedTuple):
    """A new member of a group that runs."""

    number: int
    job: NewJob
    shape: bytes


class PlanChange(NamedTuple):
    """What an attempt asked for; it is stored with the end of the job."""

    replacement: PreparedPlan | None = None
    added: tuple[AddedNode, ...] = ()


class StoredAdd(NamedTuple):
    """An added node, as a record of its plan names it."""

    number: int
    job: str  # its id
    group: int  # number of its group
    shape: msgspec.Raw


class StoredChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one job has done to its plan: the body of a record, as JSON."""

    node: int  # number of the job
    plan: str | None = None  # hex id of the plan in its place
    added: list[StoredAdd] = []


_decoder = msgspec.json.Decoder(StoredChange)


def load_change(body: bytes) -> StoredChange:
    return _decoder.decode(body)


def change_kind(namespace: str) -> str:
    """Return the kind of the records of changes; their names begin with the plan's id."""
    return f"plan_change:{namespace}"


def added_number(job_id: bytes) -> int:
    """Return the number of an added node, from its id."""
    digest = blake2b(job_id, digest_size=8).digest()
    return ADDED_FROM | int.from_bytes(digest) >> 12


def replaced_result(plan_id: bytes) -> bytes:
    """Return the result of a job whose place a plan has taken."""
    return _REPLACED + plan_id.hex().encode()


def replacing_plan(result: bytes | None) -> bytes | None:
    """Return the id of the plan that a result names; None if it is a value."""
    if result is None or not result.startswith(_REPLACED):
        return None
    return bytes.fromhex(result[len(_REPLACED) :].decode())


class InheritedEnds(NamedTuple):
    """What the nodes of a plan append for the job whose place it has taken."""

    last: tuple[OnEnd, ...] = ()  # of the last node
    failure: tuple[OnEnd, ...] = ()  # of each node: a group that collects waits for it


NO_ENDS = InheritedEnds()


def inherited_ends(
    ends: tuple[OnEnd, ...], failures: str, plan_ends: str
) -> InheritedEnds:
    """Return the ends of a replaced job, without those that every plan has anyway.

    `failures` and `plan_ends` are the logs that the leader reads.
    """
    last: list[OnEnd] = []
    failure: list[OnEnd] = []
    for end in ends:
        if end.log in {failures, plan_ends}:
            continue
        if end.when == FAILED_END:
            failure.append(end)
        elif end.when == ANY_END:
            last.append(end._replace(when=DONE_END, once=True))
            failure.append(end._replace(when=FAILED_END, once=True))
        else:
            last.append(end)
    return InheritedEnds(tuple(last), tuple(failure))
