"""Values of jobs and other rows that arrive by a move, as this store keeps them."""

import math
from collections.abc import Sequence
from typing import Any

from durio.model.errors import OperatingError
from durio.model.job import BLOCKED, DEAD, DONE, READY, SCHEDULED
from durio.ports.move import JobRow
from durio.stores.postgres.audit import storable
from durio.stores.postgres.control import INT2_MAX, INT4_MAX, clamp, error_list
from durio.stores.postgres.waits import NewWait, waits_of

WAITING_STATES = (SCHEDULED, BLOCKED, READY)


def columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """Convert rows to the arrays of a statement; without rows, to `width` empty arrays."""
    return [[row[place] for row in rows] for place in range(width)]


def clean_text(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Replace text that this database refuses."""
    return [[storable(v) if isinstance(v, str) else v for v in row] for row in rows]


def job_values(job: JobRow, deaths: int) -> tuple[Any, ...]:
    """Convert a job to the columns of this store; add `deaths` to the number of its death."""
    p = job
    if p.state < DONE and p.state not in WAITING_STATES:
        raise OperatingError(
            f"a job in state {p.state} cannot be moved", cure="Let it end first."
        )
    ended = p.created_at if p.finished_at is None else p.finished_at
    died = None if p.state != DEAD else deaths + (p.died_no or 0)
    return (
        *(p.id, p.lane, p.rank, p.state, p.task, p.payload),
        *(clamp(p.retried, INT4_MAX), clamp(p.losses, INT4_MAX)),
        *(clamp(p.lost, INT2_MAX), clamp(p.snoozed, INT4_MAX)),
        clamp(p.claim_no, INT4_MAX),
        due_at(p),
        *(p.parked_at, p.started_at, p.ukey, p.umode, p.opts),
        array_literal(error_list(p.errors)),
        *(p.progress, p.created_at, ended),
        ended if p.gone_at is None else p.gone_at,
        *(p.result, p.result_until),
        None if p.reason is None else storable(p.reason),
        None if p.bucket is None else storable(p.bucket),
        *(p.keep_count, died, p.ties),
    )


def due_at(job: JobRow) -> float | None:
    """Return when a job is due here: a blocked one at infinity, see waits.py."""
    if job.state == BLOCKED:
        return math.inf
    is_scheduled = job.state == SCHEDULED
    return job.created_at if job.run_at is None and is_scheduled else job.run_at


def array_literal(errors: list[bytes] | None) -> str | None:
    """Encode the values of one row as text: arrays of arrays would become one flat array."""
    if errors is None:
        return None
    return "{" + ",".join(f'"\\\\x{error.hex()}"' for error in errors) + "}"


def imported_waits(jobs: Sequence[JobRow], gates_log: str) -> list[NewWait]:
    """Return what the blocked ones of these jobs wait for.

    A job that has stood before a gate waits for a log of the move: see import_gates.py.
    """
    found: list[NewWait] = []
    for job in jobs:
        if job.state != BLOCKED or job.ties is None:
            continue
        waits = waits_of([(job.id, job.ties)]) or [NewWait(job.id, gates_log, 0)]
        delay = job.wait_delay or 0.0
        found += [
            each._replace(delay_seconds=delay, run_at=job.run_at) for each in waits
        ]
    return found
