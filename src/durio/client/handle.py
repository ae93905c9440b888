"""A handle: the caller's reference to a job, a plain value that works in any process."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from durio.client.result_waiters import Waiters, held_by_transaction, not_found
from durio.model.codec import decode
from durio.model.errors import (
    InvalidOption,
    JobCancelled,
    JobDead,
    OperatingError,
    ResultExpired,
    UsageError,
    WrongState,
)
from durio.model.failure import failures
from durio.model.ids import id_text
from durio.model.job import (
    CANCELLED,
    DONE,
    PRIORITY_MAX,
    STATE_BY_CODE,
    JobError,
    JobStatus,
    Progress,
    State,
    StoredJob,
    attempt_number,
    utc_datetime,
)
from durio.model.names import queue_of
from durio.model.options import row_options
from durio.model.quantities import Duration, seconds
from durio.model.transitions import check_retry
from durio.ports.control import CancelJobs, RetryJobs
from durio.ports.store import Store
from durio.telemetry.log import in_job

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class JobClient(Protocol):
    """The part of an App that its handles use."""

    async def store(self) -> Store:
        """Return the open store."""
        ...

    async def waiters(self) -> Waiters:
        """Return the shared poller of this loop."""
        ...

    def retries_of(self, task: str) -> int:
        """Return the retries of the task's policy, as far as this process knows the task."""
        ...

    def decoder_of(self, task: str) -> Callable[[bytes], Any] | None:
        """Return the decoder of the task's results; None if the task is unknown here."""
        ...

    def now(self) -> float:
        """Return wall-clock seconds."""
        ...

    def run_sync(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine for a caller without a loop."""
        ...


class Job(Generic[R_co]):
    """A reference to one job: read its status or result, cancel it, retry it."""

    __module__ = "durio"
    __slots__ = ("_client", "_raw_id", "created", "replaced", "same_args")

    def __init__(
        self,
        client: JobClient,
        job_id: bytes,
        *,
        created: bool = False,
        same_args: bool = True,
        replaced: bool = False,
    ) -> None:
        self._client = client
        self._raw_id = job_id
        self.created = created  # False: an existing job with this key was returned
        self.same_args = same_args
        self.replaced = replaced

    @property
    def id(self) -> str:
        """The id of the job, as people see it."""
        return id_text(self._raw_id)

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self._raw_id)

    async def status(self) -> JobStatus:
        """Return the job's state, read from the store now; raises JobNotFound."""
        record = await self._stored_job()
        return status_of(record, self._client.retries_of(record.task))

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end and return the value; raises JobDead, JobCancelled, TimeoutError.

        Inside a task it never waits: it raises UsageError unless the job has ended.
        """
        inside = in_job.get()
        if inside is not None:
            return self._value_now(await self._stored_job(), inside.task)
        waiters = await self._client.waiters()
        limit = None if timeout is None else seconds(timeout, "timeout")
        try:
            async with asyncio.timeout(limit):
                await waiters.wait_final(self._raw_id)
        except TimeoutError:
            raise TimeoutError(
                f"job {self.id} has not ended within {limit:g} s; it goes on"
            ) from None
        return self._value(await self._stored_job())

    def _value_now(self, stored: StoredJob, task: str) -> Any:
        """Return the result inside a task, which must not wait: it would block a slot."""
        if stored.state < DONE:
            raise UsageError(
                f"{task} waits for job {self.id} ({stored.task}): a task that "
                "waits holds its slot, and when all slots wait nothing runs",
                cure="Let the other task enqueue what comes next; or ask job.status() "
                "and raise Snooze('10s') until it is final.",
                task=task,
                job_id=self.id,
            )
        return self._value(stored)

    def _value(self, stored: StoredJob) -> Any:
        if stored.state == CANCELLED:
            raise JobCancelled(f"job {self.id} was cancelled")
        if stored.state != DONE:
            error = last_error(stored)
            cause = f": {error.type}: {error.message}" if error else ""
            raise JobDead(
                f"job {self.id} ({stored.task}) is dead ({stored.reason}){cause}",
                reason=stored.reason or "",
                error=error,
            )
        until = stored.result_until
        if stored.result is None or (until is not None and until < self._client.now()):
            raise ResultExpired(
                f"the result of job {self.id} has expired",
                cure="Raise result_ttl on the task or retention.result_seconds.",
            )
        decoder = self._client.decoder_of(stored.task) or decode
        try:
            return decoder(stored.result)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise OperatingError(
                f"the result of job {self.id} ({stored.task}) is not what its "
                f"annotation says: {error}",
                cure="Correct the task's return annotation, or what it returns.",
            ) from None

    async def cancel(self) -> State:
        """Cancel the job and return its new state.

        `running` means that it was asked to stop.
        """
        store = await self._client.store()
        acted = (await store.act([self._raw_id], CancelJobs()))[0]
        if acted.after is None:
            raise not_found(acted.id)
        if acted.is_held:
            raise held_by_transaction(acted, "cancel")
        return STATE_BY_CODE[acted.after]

    async def retry(self) -> None:
        """Run a dead or cancelled job again, with the same id and a full retry budget."""
        store = await self._client.store()
        acted = (await store.act([self._raw_id], RetryJobs()))[0]
        if acted.before is None:
            raise not_found(acted.id)
        check_retry(STATE_BY_CODE[acted.before], self.id)
        if acted.is_held:
            raise held_by_transaction(acted, "retry")
        if acted.after is None or acted.after == acted.before:
            raise WrongState(
                f"job {self.id} was not retried: another job has its idempotency key",
                cure="Wait for that job's end, or cancel it.",
                state=STATE_BY_CODE[acted.before],
            )

    async def _stored_job(self) -> StoredJob:
        store = await self._client.store()
        job_id = self._raw_id
        records = await store.get([job_id])
        if not records:
            raise not_found(job_id)
        return records[0]

    def result_sync(self, timeout: Duration | None = None) -> R_co:
        """Wait for the result without an event loop, as `result` does."""
        return self._client.run_sync(self.result(timeout))

    def status_sync(self) -> JobStatus:
        """Read the status without an event loop, as `status` does."""
        return self._client.run_sync(self.status())

    def cancel_sync(self) -> State:
        """Cancel the job without an event loop, as `cancel` does."""
        return self._client.run_sync(self.cancel())

    def retry_sync(self) -> None:
        """Retry the job without an event loop, as `retry` does."""
        return self._client.run_sync(self.retry())


def status_of(stored: StoredJob, retries: int) -> JobStatus:
    """Return the public view of a stored job."""
    # Options or progress may be damaged in the store; the rest is still useful.
    with suppress(InvalidOption):
        override = row_options(stored.opts).retry
        retries = retries if override is None else override["retries"]
    progress = None
    with suppress(msgspec.DecodeError, TypeError):
        progress = (
            None if stored.progress is None else Progress(**decode(stored.progress))
        )
    created = utc_datetime(stored.created_at)
    return JobStatus(
        id=id_text(stored.id),
        task=stored.task,
        queue=queue_of(stored.lane),
        priority=PRIORITY_MAX - stored.rank,
        state=STATE_BY_CODE[stored.state],
        attempt=attempt_number(stored.retried, stored.losses),
        max_attempts=retries + 1,
        created_at=created,  # type: ignore[arg-type]  # never None
        run_at=utc_datetime(stored.run_at),
        started_at=utc_datetime(stored.started_at),
        finished_at=utc_datetime(stored.finished_at),
        progress=progress,
        error=last_error(stored),
        reason=stored.reason,
        worker=None if stored.worker is None else str(stored.worker),
    )


def last_error(stored: StoredJob) -> JobError | None:
    """Return the newest failed attempt; None if no attempt has failed."""
    errors = job_errors(stored)
    return errors[-1] if errors else None


def job_errors(stored: StoredJob) -> list[JobError]:
    """Return every failed attempt that is kept, oldest first."""
    return [
        JobError(
            type=failure.type,
            message=failure.message,
            traceback=failure.traceback,
            attempt=failure.attempt,
            at=utc_datetime(failure.at),
            worker=failure.worker or None,
            logs=failure.logs,
        )
        for failure in failures(stored.errors)
    ]
