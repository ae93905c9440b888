"""Claims that this worker cannot run: parked for other workers, or dead.

A job of an unknown task is parked. It is dead when no worker has known the task for
`unknown_task_seconds`.

A job whose payload fails validation is dead immediately, with two exceptions. During a
rolling deploy or after a rollback, other workers may have other parameters for the task.
Workers publish the parameters of their tasks. If parameters of the last weeks differ from
ours, the job is parked for a worker that can read it. It is also parked if a child process
could not read the payload but this worker can: a child imports the code again, and the code
on disk may have changed since this worker started.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from durio.model.errors import DurioError, StoreError, UnknownTask
from durio.model.failure import encode_failure, failure_of
from durio.model.job import Claim, attempt_number
from durio.model.names import known_as
from durio.model.outcome import Outcome, OutcomeKind, Reason
from durio.model.published_tasks import (
    OF_MANY,
    parameters_digest,
    signature_prefix,
    signatures_kind,
)
from durio.ports.clock import Clock
from durio.ports.store import Store
from durio.telemetry.emit import JobEvent
from durio.telemetry.names import JOB_DEAD, JOB_PARKED
from durio.worker.inflight import Attempt
from durio.worker.outcome_buffer import UnsentOutcome

SIGNATURES_MAX = 1000  # read at most, for one task
PARK_SECONDS_MIN, PARK_SECONDS_MAX, PARK_SHARE = 5.0, 300.0, 10


def parked_or_dead(claim: Claim, now: float, unknown_seconds: float) -> UnsentOutcome:
    """Return the outcome of a job of an unknown task, dead after `unknown_seconds`."""
    age = 0.0 if claim.parked_at is None else now - claim.parked_at
    if age >= unknown_seconds:
        error = UnknownTask(
            f"no worker knew a task {claim.task!r} for {age / 3600:.1f} h",
            cure="Deploy the code that has it, then retry the job.",
        )
        return dead_outcome(claim, error, Reason.UNKNOWN_TASK, now)
    return parked_outcome(claim, now, Reason.UNKNOWN_TASK)


def parked_outcome(claim: Claim, now: float, reason: str) -> UnsentOutcome:
    """Give a claim back, uncharged, with a delay of 5 to 300 s that grows with its age."""
    age = 0.0 if claim.parked_at is None else now - claim.parked_at
    delay = min(max(age / PARK_SHARE, PARK_SECONDS_MIN), PARK_SECONDS_MAX)
    outcome = Outcome(
        claim.id, claim.claim_no, OutcomeKind.RELEASE, delay_seconds=delay, parks=True
    )
    number = attempt_number(claim.retried, claim.losses)
    event = JobEvent(
        JOB_PARKED,
        claim.id,
        claim.task,
        claim.lane,
        number,
        reason=reason,
        delay_seconds=delay,
    )
    return UnsentOutcome(outcome, None, event)


def dead_outcome(
    claim: Claim, error: DurioError, reason: str, now: float
) -> UnsentOutcome:
    """End a job as dead without an attempt: no worker can run it as it is stored."""
    number = attempt_number(claim.retried, claim.losses)
    failure = failure_of(error, attempt=number, at=now)
    outcome = Outcome(
        claim.id,
        claim.claim_no,
        OutcomeKind.DEAD,
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
    return UnsentOutcome(outcome, None, event)


EndAttempt = Callable[[Attempt, Outcome, JobEvent | None], None]


class TaskVersions:
    """Compares the parameters of our tasks with those that other workers published."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        tasks: Mapping[str, Mapping[str, Any]],
        unknown_seconds: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._unknown_seconds = unknown_seconds
        self._asking: set[asyncio.Task[None]] = set()

    def defer_bad_payload(
        self,
        attempt: Attempt,
        outcome: Outcome,
        event: JobEvent,
        end_attempt: EndAttempt,
    ) -> bool:
        """Whether `end_attempt` is called later, after the store was read."""
        if outcome.reason != Reason.BAD_PAYLOAD or self._is_too_old(attempt):
            return False
        asking = asyncio.get_running_loop().create_task(
            self._ask(attempt, outcome, event, end_attempt)
        )
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        return True

    def _is_too_old(self, attempt: Attempt) -> bool:
        since = attempt.claim.parked_at
        return since is not None and (
            self._clock.now() - since >= self._unknown_seconds
        )

    async def _ask(
        self,
        attempt: Attempt,
        outcome: Outcome,
        event: JobEvent,
        end_attempt: EndAttempt,
    ) -> None:
        if is_decodable_here(attempt) or await self._has_others(attempt):
            parked = parked_outcome(
                attempt.claim, self._clock.now(), Reason.BAD_PAYLOAD
            )
            parked_event = parked.event and parked.event._replace(
                error_type=event.error_type, error=event.error
            )
            outcome, event = parked.outcome, parked_event or event
        if not attempt.is_over:
            end_attempt(attempt, outcome, event)

    async def _has_others(self, attempt: Attempt) -> bool:
        described = self._tasks.get(attempt.handler.task, {})
        ours = parameters_digest(described.get("parameters"))
        try:
            digests = await published_digests(self._store, attempt.task)
        except StoreError:
            return True  # unknown: parking does less harm than death
        return any(digest != ours for digest in digests)


async def published_digests(store: Store, task: str) -> set[str]:
    """Return digests of the parameters that workers of the last 30 days had for a task.

    Also those of handlers for many names, which may have had this one.
    """
    kind = signatures_kind(task.partition(".")[0])
    found: list[str] = []
    for prefix in (signature_prefix(task), OF_MANY):
        records = await store.list_records(kind, prefix=prefix, limit=SIGNATURES_MAX)
        found += [record.name.removeprefix(OF_MANY) for record in records]
    names = [name.rpartition(" ") for name in found]
    return {digest for name, _, digest in names if known_as(task, [name])}


def is_decodable_here(attempt: Attempt) -> bool:
    """Whether this worker can read a payload that its child process could not."""
    if not attempt.handler.is_process:
        return False
    try:
        attempt.handler.codec.decode(attempt.claim.payload)
    except Exception:  # also errors of a type's own validator
        return False
    return True
