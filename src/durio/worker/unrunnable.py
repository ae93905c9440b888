"""Claims that cannot become attempts: parked for others, or dead without a try."""

from durio.model.errors import DurioError, UnknownTask
from durio.model.failure import encode_failure, failure_of
from durio.model.job import Claim, attempt_number
from durio.model.outcome import Kind, Outcome, Reason
from durio.telemetry.emit import JobEvent
from durio.telemetry.names import JOB_DEAD, JOB_PARKED
from durio.worker.finish import Ended

PARK_SECONDS_MIN, PARK_SECONDS_MAX, PARK_SHARE = 5.0, 300.0, 10


def parked(claim: Claim, now: float, unknown_seconds: float) -> Ended:
    """Put aside, uncharged, for a worker that knows its task; dead after a day."""
    age = 0.0 if claim.parked_at is None else now - claim.parked_at
    if age >= unknown_seconds:
        error = UnknownTask(
            f"no worker knew a task {claim.task!r} for {age / 3600:.1f} h",
            cure="Deploy the code that has it, then retry the job.",
        )
        return buried(claim, error, Reason.UNKNOWN_TASK, now)
    return put_aside(claim, now)


def put_aside(claim: Claim, now: float) -> Ended:
    """Given back, uncharged, for longer the longer nobody could run it."""
    age = 0.0 if claim.parked_at is None else now - claim.parked_at
    delay = min(max(age / PARK_SHARE, PARK_SECONDS_MIN), PARK_SECONDS_MAX)
    outcome = Outcome(
        claim.id, claim.claim_no, Kind.RELEASE, delay_seconds=delay, parks=True
    )
    number = attempt_number(claim.retried, claim.losses)
    event = JobEvent(
        JOB_PARKED, claim.id, claim.task, claim.lane, number, delay_seconds=delay
    )
    return Ended(outcome, None, event)


def buried(claim: Claim, error: DurioError, reason: str, now: float) -> Ended:
    """Dead without an attempt: nobody could ever run it as it is stored."""
    number = attempt_number(claim.retried, claim.losses)
    failure = failure_of(error, attempt=number, at=now)
    outcome = Outcome(
        claim.id,
        claim.claim_no,
        Kind.DEAD,
        error=encode_failure(failure),
        reason=reason,
    )
    event = JobEvent(
        JOB_DEAD,
        claim.id,
        claim.task,
        claim.lane,
        number,
        reason=reason,
        error_type=failure.type,
        error=failure.message,
    )
    return Ended(outcome, None, event)
