"""The event of an attempt that has ended."""

from durio.model.outcome import Outcome, OutcomeKind
from durio.telemetry.emit import JobEvent
from durio.telemetry.names import (
    JOB_CANCELLED,
    JOB_DEAD,
    JOB_DONE,
    JOB_RELEASED,
    JOB_RESCUED,
    JOB_RETRIED,
    JOB_SNOOZED,
)
from durio.worker.inflight import Attempt
from durio.worker.spending import settling_changes

NAME_BY_KIND = {
    OutcomeKind.DONE: JOB_DONE,
    OutcomeKind.RETRY: JOB_RETRIED,
    OutcomeKind.SNOOZE: JOB_SNOOZED,
    OutcomeKind.RELEASE: JOB_RELEASED,
    OutcomeKind.DEAD: JOB_DEAD,
    OutcomeKind.CANCEL: JOB_CANCELLED,
    OutcomeKind.LOST: JOB_RESCUED,
}


def event_of_outcome(
    attempt: Attempt, outcome: Outcome, seconds: float, worker: str
) -> JobEvent:
    """Return the event of this outcome; the attempt took so many seconds."""
    return JobEvent(
        name=NAME_BY_KIND[OutcomeKind(outcome.kind)],
        id=attempt.claim.id,
        task=attempt.task,
        lane=attempt.claim.lane,
        attempt=attempt.number,
        duration_seconds=seconds,
        worker=worker,
        reason=outcome.reason or "",
        delay_seconds=outcome.delay_seconds,
        meta=None if attempt.overrides is None else attempt.overrides.meta,
        max_attempts=attempt.retry.max_attempts,
        settles=settling_changes(attempt, outcome) if attempt.spent else (),
    )
