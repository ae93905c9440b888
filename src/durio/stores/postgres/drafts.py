"""Jobs as an enqueue finds them stored, and as it writes them."""

from math import inf
from typing import NamedTuple

from durio.model.job import BLOCKED, READY, SCHEDULED, NewJob
from durio.model.ties import encode_ties
from durio.stores.postgres.waits import NewWait


class StoredState(NamedTuple):
    """The fields of a stored job that an enqueue needs."""

    state: int
    lane: str = ""
    created_at: float = 0.0
    has_ties: bool = False


class Draft(NamedTuple):
    """The row of a job as this enqueue writes it: a new job, or a key's rewritten holder."""

    is_new: bool
    state: int
    wait: NewWait | None
    id: bytes
    lane: str
    rank: int
    task: str
    payload: bytes
    run_at: float | None
    opts: bytes | None
    ukey: bytes | None
    umode: int | None
    ties: str | None
    created_at: float


def draft_of(job: NewJob, run_at: float | None, now: float) -> Draft:
    """Return the row of a new job.

    One that waits, or has gates, is stored as blocked: see waits.py and gates.py.
    """
    key, wait = job.key, None
    state = SCHEDULED if run_at is not None and run_at > now else READY
    if job.wait is not None:
        state, run_at = BLOCKED, inf
        wait = NewWait(job.id, *job.wait, job.delay_seconds, job.run_at)
    elif job.gates and state == READY:
        state, run_at = BLOCKED, inf  # until `pass_gates` lets it pass
    return Draft(
        is_new=True,
        state=state,
        wait=wait,
        id=job.id,
        lane=job.lane,
        rank=job.rank,
        task=job.task,
        payload=job.payload,
        run_at=run_at,
        opts=job.opts,
        ukey=None if key is None else key.key,
        umode=None if key is None else key.mode,
        ties=encode_ties(job),
        created_at=now,
    )


def due_at(job: NewJob, now: float) -> float | None:
    """Return when a job may run; None means now."""
    if job.run_at is not None:
        return job.run_at
    return now + job.delay_seconds if job.delay_seconds > 0 else None
