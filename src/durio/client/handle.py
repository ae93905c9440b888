"""A handle: the caller's reference to a job, a plain value that works in any process."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import msgspec

from durio.client.explain import ExplainClient, explain_job
from durio.client.job_view import details_of, job_errors, retries_of_tasks, status_of
from durio.client.plan_retry import resume_plans
from durio.client.result_waiters import (
    Waiters,
    describe_wait,
    held_by_transaction,
    not_found,
)
from durio.model.codec import decode
from durio.model.errors import (
    JobCancelled,
    JobDead,
    OperatingError,
    ResultExpired,
    StoreError,
    UsageError,
    WrongState,
)
from durio.model.explanation import JobExplanation
from durio.model.ids import id_bytes, id_text
from durio.model.job import (
    CANCELLED,
    DONE,
    STATE_BY_CODE,
    JobDetails,
    JobStatus,
    State,
    StoredJob,
)
from durio.model.plan_change import replacing_plan
from durio.model.quantities import Duration, format_duration, seconds
from durio.model.transitions import check_retry, check_run_now
from durio.ports.clock import Clock
from durio.ports.control import CancelJobs, RetryJobs, RunJobsNow
from durio.telemetry.log import in_job

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
# For the reads that say why a wait is over; without an answer the error says less.
DESCRIBE_SECONDS = 1.0


class JobClient(ExplainClient, Protocol):
    """The part of an App that its handles use."""

    async def waiters(self) -> Waiters:
        """Return the shared poller of this loop."""
        ...

    def decoder_of(self, task: str) -> Callable[[bytes], Any] | None:
        """Return the decoder of the task's results; None if the task is unknown here."""
        ...

    async def plan(self, plan_id: str) -> Any:
        """Return the handle of a plan."""
        ...

    def acting_user(self) -> str:
        """Return the user for the audit."""
        ...

    @property
    def clock(self) -> Clock: ...

    def run_sync(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine for a caller without a loop."""
        ...


class Job(Awaitable[R_co]):
    """A reference to one stored job: read, cancel or retry it, or wait for its result.

    It holds no data of the job: each call reads the store.
    """

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
        # True: the enqueue stored a new job. False: another job has the idempotency key,
        # and this is its handle.
        self.created = created
        self.same_args = same_args  # whether that job has the arguments of this enqueue
        self.replaced = replaced  # whether this enqueue replaced its arguments

    @property
    def id(self) -> str:
        """The id of the job, such as `0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55`."""
        return id_text(self._raw_id)

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self._raw_id)

    def __await__(self) -> Generator[Any, None, R_co]:
        """Wait for the result, as `result()` does; `asyncio.gather(*jobs)` works too."""
        return self.result().__await__()

    async def status(self) -> JobStatus:
        """Return the state, times and progress of the job; raises JobNotFound.

        The result is safe to return from a web route: it has no arguments or tracebacks.
        """
        return status_of(*await self._stored_with_retries())

    async def details(self) -> JobDetails:
        """Return the status, arguments, options and failed attempts; raises JobNotFound."""
        return details_of(*await self._stored_with_retries())

    async def explain(self) -> JobExplanation:
        """Return why the job does not run now, or how it ended; raises JobNotFound.

        Each reason has a text, what would unblock the job, and a command that does so. The
        texts have errors in them, but no arguments and no tracebacks.
        """
        return await explain_job(self._client, await self._stored_job())

    async def _stored_with_retries(self) -> tuple[StoredJob, int | None]:
        client, stored = self._client, await self._stored_job()
        store = await client.store()
        retries = await retries_of_tasks(store, client.retries_of, [stored])
        return stored, retries[stored.task]

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait until the job has ended and return its result.

        Without a `timeout` it waits as long as it takes. Raises JobDead or JobCancelled if
        the job ended so, ResultExpired if the result is no longer stored, and TimeoutError
        after `timeout`; the job goes on then. Inside a task it does not wait: it raises
        UsageError unless the job has ended.
        """
        inside = in_job.get()
        if inside is not None:
            return await self._value_now(await self._stored_job(), inside.task)
        waiters = await self._client.waiters()
        limit = None if timeout is None else seconds(timeout, "timeout")
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(limit):
                await waiters.wait_final(self._raw_id)
        except TimeoutError:
            raise TimeoutError(
                f"job {self.id} is not finished after {format_duration(limit or 0.0)}"
                f"{await self._describe_wait()}"
            ) from None
        stored = await self._stored_job()
        if not stored.result or not stored.result.startswith(b"~"):
            return self._value(stored)
        plan_id = replacing_plan(stored.result)
        if plan_id is None:
            return self._value(stored)
        left = None if limit is None else max(0.0, limit - (loop.time() - began))
        return await (await self._client.plan(id_text(plan_id))).result(left)

    async def _describe_wait(self) -> str:
        """Return the job's state and its queue's workers; nothing if the store does not answer."""
        with suppress(TimeoutError, StoreError):
            async with asyncio.timeout(DESCRIBE_SECONDS):
                store = await self._client.store()
                return await describe_wait(store, self._raw_id)
        return ""

    async def _value_now(self, stored: StoredJob, task: str) -> Any:
        """Return the result inside a task, which must not wait: it would block a slot."""
        if stored.state < DONE:
            raise UsageError(
                f"{task} waits for job {self.id} ({stored.task}): a waiting task "
                "keeps its slot, and when every slot waits no job can run",
                cure="Use a plan: other.s() | this_task.s(); or check job.status() "
                "and raise Snooze('10s') until it is final.",
                task=task,
                job_id=self.id,
            )
        plan_id = replacing_plan(stored.result)
        if plan_id is not None:  # it refuses a plan that has not ended
            return await (await self._client.plan(id_text(plan_id))).result()
        return self._value(stored)

    def _value(self, stored: StoredJob) -> Any:
        if stored.state == CANCELLED:
            raise JobCancelled(f"job {self.id} was cancelled")
        if stored.state != DONE:
            errors = job_errors(stored)
            cause = f": {errors[-1].type}: {errors[-1].message}" if errors else ""
            dead = JobDead(
                f"job {self.id} ({stored.task}) is dead ({stored.reason}){cause}",
                reason=stored.reason or "",
                error=errors[-1] if errors else None,
                job_id=self.id,
            )
            dead.cure = self._client.pasteable(dead.cure)
            raise dead
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
                f"the result of job {self.id} ({stored.task}) does not fit its "
                f"annotation: {error}",
                cure="Correct the task's return annotation, or what it returns.",
            ) from None

    async def cancel(self) -> State:
        """Cancel the job and return its new state; raises JobNotFound.

        A job that waits is cancelled at once. A running job is asked to stop: the state is
        still `running`. A job that has ended keeps its state.
        """
        store = await self._client.store()
        acted = (await store.act([self._raw_id], CancelJobs()))[0]
        if acted.after is None:
            raise not_found(acted.id)
        if acted.is_held:
            raise held_by_transaction(acted, "cancel")
        return STATE_BY_CODE[acted.after]

    async def retry(self) -> None:
        """Make a dead or cancelled job ready again, with the same id and all its retries.

        A job of a failed plan resumes the plan: jobs that were cancelled because of it wait
        again. If the plan is gone, or was cancelled, the job runs alone. This call does not
        say which of the two happened; `durio jobs retry` does, and the state of the plan is
        `running` again if it was resumed. Raises WrongState for a job in another state, or
        if another job has its key.
        """
        store = await self._client.store()
        client = self._client
        await resume_plans(store, [self._raw_id], client.clock, client.acting_user())
        acted = (await store.act([self._raw_id], RetryJobs()))[0]
        if acted.before is None:
            raise not_found(acted.id)
        check_retry(STATE_BY_CODE[acted.before], self.id)
        if acted.is_held:
            raise held_by_transaction(acted, "retry")
        if acted.after is None or acted.after == acted.before:
            raise WrongState(
                f"job {self.id} was not retried: another job has its idempotency key",
                cure="Wait until that job ends, or cancel it.",
                state=STATE_BY_CODE[acted.before],
            )

    async def run_now(self) -> None:
        """Make a scheduled job ready now, also one that waits for its next attempt.

        Raises WrongState for a job in another state.
        """
        store = await self._client.store()
        acted = (await store.act([self._raw_id], RunJobsNow()))[0]
        if acted.before is None:
            raise not_found(acted.id)
        check_run_now(STATE_BY_CODE[acted.before], self.id)
        if acted.is_held:
            raise held_by_transaction(acted, "run_now")

    async def _stored_job(self) -> StoredJob:
        return await stored_job(self._client, self._raw_id)

    def result_sync(self, timeout: Duration | None = None) -> R_co:
        """Wait for the result without an event loop, as `result` does."""
        return self._client.run_sync(self.result(timeout))

    def status_sync(self) -> JobStatus:
        """Read the status without an event loop, as `status` does."""
        return self._client.run_sync(self.status())

    def details_sync(self) -> JobDetails:
        """Read the details without an event loop, as `details` does."""
        return self._client.run_sync(self.details())

    def explain_sync(self) -> JobExplanation:
        """Explain the job without an event loop, as `explain` does."""
        return self._client.run_sync(self.explain())

    def cancel_sync(self) -> State:
        """Cancel the job without an event loop, as `cancel` does."""
        return self._client.run_sync(self.cancel())

    def retry_sync(self) -> None:
        """Retry the job without an event loop, as `retry` does."""
        return self._client.run_sync(self.retry())

    def run_now_sync(self) -> None:
        """Make the job ready without an event loop, as `run_now` does."""
        return self._client.run_sync(self.run_now())


async def stored_job(client: JobClient, job_id: bytes) -> StoredJob:
    """Return a job by its id; raises JobNotFound if there is none."""
    records = await (await client.store()).get([job_id])
    if not records:
        raise not_found(job_id)
    return records[0]


async def find_job(client: JobClient, job_id: str, task: str | None = None) -> Job[Any]:
    """Return a handle to an existing job, which must be of this task if one is given."""
    raw = id_bytes(job_id)
    stored = await stored_job(client, raw)
    # A task has one decoder, whatever older names it is known by.
    if task is not None and (
        task != stored.task
        and client.decoder_of(stored.task) != client.decoder_of(task)
    ):
        raise UsageError(
            f"job {id_text(raw)} is a job of {stored.task}, not of {task}",
            cure="Use the handle of any task: await app.job(job_id).",
            task=stored.task,
        )
    return Job(client, raw)
