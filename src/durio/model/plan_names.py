"""Names of the logs of plans, and ids of their nodes."""

from functools import lru_cache
from hashlib import blake2b

from durio.model.ids import uuid7


def plan_of_log(log: str) -> tuple[str, bytes]:
    """Return the namespace and the id of the plan of a log `j:...`."""
    namespace, plan_id, _ = log[2:].split("/")
    return namespace, bytes.fromhex(plan_id)


def failed_log(namespace: str) -> str:
    """Return the log of failed nodes of all plans."""
    return f"pf:{namespace}"


def ended_log(namespace: str) -> str:
    """Return the log of plans that are done."""
    return f"pe:{namespace}"


def node_id(plan_id: bytes, number: int) -> bytes:
    """Return the job id of a node; ids ascend with the numbers.

    It has the plan's 48 bits of time, 42 bits of a hash of its id, 32 bits of the number.
    """
    return _first_bytes(plan_id) + number.to_bytes(4)


def may_be_node(job_id: bytes) -> bool:
    """Whether a job may be a node, by its id; so may 1 of 256 other jobs."""
    return job_id[12:13] == b"\0"


@lru_cache(16)  # of the plans that are laid out now
def _first_bytes(plan_id: bytes) -> bytes:
    """Return what the ids of all nodes begin with."""
    bits = int.from_bytes(blake2b(plan_id, digest_size=8).digest()) >> (64 - 42) << 32
    return uuid7(int.from_bytes(plan_id[:6]), bits >> 62, bits)[:12]
