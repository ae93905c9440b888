"""Make jobs dead that still wait when they expire.

A record that is due then names the job: see model/expiry.py. The job itself says whether it
expires: it may have ended or run, a person may have retried it, or a later enqueue may have
given it another expiry. The job is ended first and its record deleted afterwards, so a leader
that dies in between is followed by one that finds a dead job and deletes the record.

The worker judges the expiry before each attempt, too: a job that expires between two turns
of this loop does not start.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from durio.model.effects import Effects, Put
from durio.model.errors import InvalidOption
from durio.model.expiry import expiries_kind, job_expired, job_of_expiry
from durio.model.failure import encode_failure, failure_of
from durio.model.job import DEAD, RUNNING, StoredJob, attempt_number
from durio.model.options import NO_ROW_OPTIONS, RowOptions, row_options
from durio.model.outcome import Reason
from durio.ports.control import KillJobs
from durio.ports.records import Record
from durio.ports.store import Store
from durio.telemetry.emit import JobEvent
from durio.telemetry.names import JOB_DEAD

BATCH_MAX = 500  # records per turn
IDLE_SECONDS = 1.0  # longest pause: a new record is seen then
HELD_SECONDS = 1.0  # until the next look at a job that another transaction has locked
# Until the next look at a running job, which may come back to wait: after the loss of its
# worker, for example.
RUNNING_SECONDS = 30.0


@dataclass(slots=True)
class Expirer:
    """Handles the expiries of one App."""

    store: Store
    namespace: str
    report: Callable[[Sequence[JobEvent]], None]  # of jobs that are dead now

    async def turn(self) -> float:
        """Handle a batch of records that are due; return the pause."""
        due = await self.store.due_records(
            expiries_kind(self.namespace), limit=BATCH_MAX
        )
        if not due.records:
            next_due = due.next_due_seconds
            return IDLE_SECONDS if next_due is None else min(IDLE_SECONDS, next_due)
        ids = {job_of_expiry(record.name) for record in due.records} - {None}
        found = await self.store.get([each for each in ids if each is not None])
        # Those that do not wait for their expiry any more have no entry.
        expired = {job.id: job for job in found if is_expired(job, due.now)}
        states = await self._kill(expired.values(), due.now)
        puts = [put_after(record, states, due.now) for record in due.records]
        await self.store.commit(Effects(puts=puts))
        return 0.0

    async def _kill(self, jobs: Iterable[StoredJob], now: float) -> dict[bytes, int]:
        """Make those dead that wait; return the states of all that have not ended."""
        states = {job.id: RUNNING for job in jobs if job.state == RUNNING}
        waiting = sorted(
            (job for job in jobs if job.state in KillJobs.states), key=attempt_of
        )
        for attempt, some in groupby(waiting, key=attempt_of):
            states |= await self._kill_same([*some], attempt, now)
        return states

    async def _kill_same(
        self, jobs: Sequence[StoredJob], attempt: int, now: float
    ) -> dict[bytes, int]:
        failure = failure_of(job_expired(), attempt=attempt, at=now)
        action = KillJobs(Reason.EXPIRED, encode_failure(failure))
        acted = await self.store.act([job.id for job in jobs], action)
        by_id = {job.id: job for job in jobs}
        self.report(
            [
                JobEvent(
                    JOB_DEAD,
                    one.id,
                    by_id[one.id].task,
                    by_id[one.id].lane,
                    attempt,
                    reason=Reason.EXPIRED,
                    error_type=failure.type,
                    error=failure.message,
                    meta=options_of(by_id[one.id]).meta,
                )
                for one in acted
                if one.after == DEAD and one.is_changed_by(action)
            ]
        )
        return {
            one.id: one.after
            for one in acted
            if one.after is not None and one.after <= RUNNING
        }


def attempt_of(job: StoredJob) -> int:
    return attempt_number(job.retried, job.losses)


def is_expired(job: StoredJob, now: float) -> bool:
    """Whether the job has not ended, and no attempt of it may begin now."""
    expires = options_of(job).expires
    return job.state <= RUNNING and expires is not None and expires <= now


def options_of(job: StoredJob) -> RowOptions:
    try:
        return row_options(job.opts)
    except InvalidOption:
        return NO_ROW_OPTIONS  # damaged: a worker says so


def put_after(record: Record, states: dict[bytes, int], now: float) -> Put:
    """Delete a record that is met; look again at a job that runs or is locked."""
    job_id = job_of_expiry(record.name)
    state = None if job_id is None else states.get(job_id)
    if state is None:
        return Put(record.kind, record.name, None)
    pause = RUNNING_SECONDS if state == RUNNING else HELD_SECONDS
    return Put(record.kind, record.name, record.body, due_at=now + pause)
