"""Rules for jobs that every store applies: losses, retention, counts of deaths, bounds."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from durio.model.codec import encoder
from durio.model.effects import Put
from durio.model.errors import InvalidOption, InvariantBroken, LeaseLost
from durio.model.expiry import expiry_put
from durio.model.failure import Failure, encode_failure
from durio.model.ids import id_text
from durio.model.job import DEAD, NewJob
from durio.model.keys import key_hash
from durio.model.names import namespace_of
from durio.model.options import row_options
from durio.model.outcome import KeepRule, Outcome, OutcomeKind, Reason, RescuedJob
from durio.ports.conflicts import EffectsRefused
from durio.ports.enqueue import Enqueued
from durio.ports.exchange import Rejected

# --- ends


def lost_outcome(
    job_id: bytes, claim_no: int, worker: int, attempt: int, now: float
) -> Outcome:
    """Return the outcome of an attempt whose worker was lost."""
    failure = Failure(
        type="WorkerLost",
        message=f"worker {worker} was lost while it held this job",
        attempt=attempt,
        at=now,
        worker=str(worker),
    )
    return Outcome(job_id, claim_no, OutcomeKind.LOST, error=encode_failure(failure))


def rescued_job(
    job_id: bytes,
    way_out: tuple[int, str, str] | None,  # state, lane, task
    attempt: int,
    worker: int,
) -> RescuedJob:
    if way_out is None:
        raise InvariantBroken("a job found running did not leave by the gate")
    state, lane, task = way_out
    reason = Reason.WORKER_LOST if state == DEAD else None
    return RescuedJob(job_id, task, lane, state, reason, attempt, worker)


def raise_if_rejected(rejected: Sequence[Rejected]) -> None:
    """Raise for a task whose own transaction cannot end its job."""
    for outcome in rejected:
        if outcome.conflict is not None:
            raise EffectsRefused(outcome.conflict)
        raise LeaseLost(
            f"job {id_text(outcome.id)} has another owner: its transaction is rolled back",
            cure="Nothing was written; the worker that has the job now runs it.",
        )


def retention_of(opts: bytes | None) -> KeepRule | None:
    """Return the job's own retention; None if it sets none."""
    try:
        options = row_options(opts)
    except InvalidOption:
        return None  # damaged options: use the default retention
    # A leader looks for the record of a cancelled node of a plan.
    kept = options.keep if options.plan is None else None
    return None if kept is None else KeepRule(*kept)


def renamed_key(opts: bytes | None, task: str) -> bytes | None:
    """Return a job's key under another task's name; None if its text is not stored."""
    try:
        key = row_options(opts).key
    except InvalidOption:
        return None
    return None if key is None else key_hash(task, key)


# --- expiry


def expiry_puts(jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> list[Put]:
    """Return the records of jobs that expire, and that this enqueue has stored.

    A job that has replaced another (`unique=replace`) is stored under its id.
    """
    puts = (
        expiry_put(job, answer.id)
        for job, answer in zip(jobs, answers, strict=True)
        if answer.created or answer.replaced
    )
    once = {put.name: put for put in puts if put is not None}
    return list(once.values())


def without_expiry(opts: bytes | None) -> bytes | None:
    """Return the options of a job that a person retries: it expires no more.

    Returns None if it had no expiry.
    """
    try:
        options = row_options(opts)
    except InvalidOption:
        return None  # damaged options: the worker says so
    if options.expires is None:
        return None
    return encoder.encode(replace(options, expires=None))


# --- counts of deaths

KINDS_MAX = 10_000
OTHER = "other"
TYPE_CHARS_MAX = 200

DeathKind = tuple[str, str, str]  # lane, task, type of error


def bounded_kind(kind: DeathKind, kinds: int) -> DeathKind:
    """Return the kind under which a new kind is counted if `kinds` kinds exist."""
    lane, task, _ = kind
    if kinds > 2 * KINDS_MAX:
        return f"{namespace_of(lane)}:{OTHER}", OTHER, OTHER
    return (lane, task, OTHER) if kinds > KINDS_MAX else kind


# --- bounds of queues


def new_bounds(
    stored: Mapping[str, tuple[int | None, bool]],
    maxsizes: Mapping[str, int | None],
    *,
    is_default: bool,
) -> dict[str, int | None]:
    """Return the declared bounds that differ from the stored ones.

    A stored bound is a pair: the bound, and whether it is a default. A default bound never
    replaces one that was chosen for its queue.
    """
    news: dict[str, int | None] = {}
    for lane, maxsize in maxsizes.items():
        bound, is_by_default = stored.get(lane, (None, False))
        is_chosen = bound is not None and not is_by_default
        if is_default and is_chosen:
            continue
        if bound != maxsize or (is_chosen == is_default and maxsize is not None):
            news[lane] = maxsize
    return news
