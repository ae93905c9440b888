"""A handle to a stored plan."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
)
from contextlib import suppress
from typing import Any, TypeVar, cast

from durio.client.handle import DESCRIBE_SECONDS, Job, JobClient
from durio.client.plan_actions import cancel_plan, retry_plan, stored_plan
from durio.client.plan_no_value import value_expired, why_no_value
from durio.client.plan_view import PlanStatus as PlanStatus
from durio.client.plan_view import (
    counts_of,
    describe_plan,
    jobs_of,
    plan_status,
    plan_tree,
)
from durio.model.errors import (
    JobNotFound,
    PlanNotFound,
    StoreError,
    UsageError,
)
from durio.model.ids import id_bytes, id_text
from durio.model.job import (
    DONE,
    State,
    StoredJob,
)
from durio.model.plan_change import replacing_plan
from durio.model.plan_record import PlanState
from durio.model.plan_shape import plan_of_shape
from durio.model.plan_tree import MEMBERS_SHOWN_MAX, PlanTree
from durio.model.plan_values import plan_value
from durio.model.quantities import Duration, format_duration, seconds
from durio.ports.plan_reader import StoredPlan
from durio.ports.plan_sweep import current_state
from durio.telemetry.log import in_job

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


# Pauses between looks for the end of a plan whose last job has ended.
END_LOOK_SECONDS, END_LOOK_SECONDS_MAX = 0.05, 1.0


async def find_plan_job(client: JobClient, plan_id: str) -> "PlanJob[Any]":
    """Return a handle to an existing plan."""
    try:
        raw = id_bytes(plan_id)
    except JobNotFound as error:
        text = error.values["id"]
        what = f"{text!r} is not a plan id"
        raise PlanNotFound(what, cure=error.cure, id=text) from None
    await stored_plan(await client.store(), client.name, raw)
    return PlanJob(client, raw)


class PlanJob(Awaitable[R_co]):
    """A reference to one stored plan: read, cancel or retry it, or wait for its value.

    It holds no data of the plan: each call reads the store.
    """

    __module__ = "durio.plans"
    __slots__ = ("_client", "_raw_id", "created", "same_args")

    def __init__(
        self,
        client: JobClient,
        plan_id: bytes,
        *,
        created: bool = False,
        same_args: bool = True,
    ) -> None:
        self._client = client
        self._raw_id = plan_id
        # False: another plan has the key, and this is its handle.
        self.created = created
        self.same_args = same_args  # whether that plan has the same arguments

    @property
    def id(self) -> str:
        """The id of the plan."""
        return id_text(self._raw_id)

    def __repr__(self) -> str:
        return f"PlanJob({self.id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlanJob) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self._raw_id)

    def __await__(self) -> Generator[Any, None, R_co]:
        """Wait for the value, as `result()` does."""
        return self.result().__await__()

    # --- waiting

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait until the plan has ended and return its value.

        Raises JobDead with the error of the first job that failed, JobCancelled if the plan
        was cancelled, ResultExpired if the value is no longer stored, and TimeoutError
        after `timeout`; the plan goes on then.
        """
        plan, last = await self._within(timeout, self._wait_for_last)
        ends_in_group = plan.layout.nodes[-1].signature is None
        if last is None or last.state != DONE or ends_in_group:
            # The plan was read before it ended: it has failed, or has new members.
            plan, last = await self._last(await self._plan())
        if last is not None and last.state == DONE:
            return self._value(plan, last)
        raise await why_no_value(self._client, self.id, plan, last)

    async def results(self, timeout: Duration | None = None) -> R_co:
        """Wait for the list of results of a group, as `result` does."""
        return await self.result(timeout)

    async def wait(self, timeout: Duration | None = None) -> PlanState:
        """Wait until the plan has ended; raises TimeoutError after `timeout`.

        Until a worker has marked the plan as failed or cancelled, it has not ended.
        """
        return await self._within(timeout, self._wait_for_end)

    async def as_completed(self) -> AsyncIterator[Job[Any]]:
        """Yield the jobs of the plan as they end, each once, with members that are added.

        Jobs that only join the results of a group are not among them.
        """
        await self._refuse_in_task()
        waiters = await self._client.waiters()
        seen: set[bytes] = set()
        waits: dict[bytes, asyncio.Future[int]] = {}
        try:
            while True:
                plan = await self._plan()  # jobs that have ended may have added members
                node = plan.layout.node
                tasks = [n for n in plan.numbers if node(n).signature is not None]
                new = [each for each in plan.ids(tasks) if each not in seen]
                seen.update(new)
                waits |= {job_id: waiters.final(job_id) for job_id in new}
                if not waits:
                    return
                await asyncio.wait(waits.values(), return_when=asyncio.FIRST_COMPLETED)
                for job_id in [each for each, wait in waits.items() if wait.done()]:
                    with suppress(JobNotFound):  # deleted after its end
                        waits.pop(job_id).result()
                    yield Job(self._client, job_id)
        finally:
            for wait in waits.values():
                wait.cancel()

    # --- reading

    async def status(self) -> PlanStatus:
        """Return the state of the plan and the number of its jobs by state."""
        return await plan_status(await self._client.store(), await self._plan())

    async def counts(self) -> dict[State, int]:
        """Return the number of jobs by state, with those of plans in places of jobs."""
        store = await self._client.store()
        return counts_of(await jobs_of(store, await self._plan()))

    async def tree(self, *, members_max: int = MEMBERS_SHOWN_MAX) -> PlanTree:
        """Return the plan as it was written, with the id and the state of each job.

        A group of more than `members_max` members has only the counts of its jobs.
        """
        plan = await self._plan()
        return await plan_tree(await self._client.store(), plan, members_max)

    async def progress(self) -> float:
        """Return the share of jobs that have ended, from 0 to 1.

        It goes back when a task adds members, or puts a plan in its place.
        """
        jobs = await jobs_of(await self._client.store(), await self._plan())
        # Only jobs that have ended are deleted.
        ended = sum(state is None or state >= DONE for state in jobs.values())
        return ended / len(jobs)

    # --- acting

    async def cancel(self) -> PlanState:
        """Cancel all jobs that have not ended; return the state of the plan after it."""
        store, client = await self._client.store(), self._client
        by = client.acting_user()
        return await cancel_plan(store, client.name, self._raw_id, by)

    async def retry(self) -> int:
        """Resume a failed or cancelled plan; return how many of its jobs run again.

        Raises WrongState for a plan in another state. While the leader still cancels what
        depends on a failed job, it waits for that, at most 10 s.
        """
        store, client = await self._client.store(), self._client
        by = client.acting_user()
        return await retry_plan(store, client.name, self._raw_id, client.clock, by)

    # --- for callers without an event loop

    def result_sync(self, timeout: Duration | None = None) -> R_co:
        """Wait for the value without an event loop, as `result` does."""
        return self._client.run_sync(self.result(timeout))

    def results_sync(self, timeout: Duration | None = None) -> R_co:
        """Wait for the list of results without an event loop, as `results` does."""
        return self._client.run_sync(self.results(timeout))

    def wait_sync(self, timeout: Duration | None = None) -> PlanState:
        """Wait for the end without an event loop, as `wait` does."""
        return self._client.run_sync(self.wait(timeout))

    def as_completed_sync(self) -> Iterator[Job[Any]]:
        """Yield the jobs without an event loop, as `as_completed` does."""
        jobs = cast("AsyncGenerator[Job[Any]]", self.as_completed())
        try:
            while job := self._client.run_sync(next_job(jobs)):
                yield job
        finally:
            self._client.run_sync(jobs.aclose())

    def status_sync(self) -> PlanStatus:
        """Read the status without an event loop, as `status` does."""
        return self._client.run_sync(self.status())

    def counts_sync(self) -> dict[State, int]:
        """Count the jobs without an event loop, as `counts` does."""
        return self._client.run_sync(self.counts())

    def tree_sync(self, *, members_max: int = MEMBERS_SHOWN_MAX) -> PlanTree:
        """Read the tree without an event loop, as `tree` does."""
        return self._client.run_sync(self.tree(members_max=members_max))

    def progress_sync(self) -> float:
        """Read the progress without an event loop, as `progress` does."""
        return self._client.run_sync(self.progress())

    def cancel_sync(self) -> PlanState:
        """Cancel the plan without an event loop, as `cancel` does."""
        return self._client.run_sync(self.cancel())

    def retry_sync(self) -> int:
        """Retry the plan without an event loop, as `retry` does."""
        return self._client.run_sync(self.retry())

    # --- parts

    async def _within(
        self, timeout: Duration | None, wait: Callable[[], Awaitable[T]]
    ) -> T:
        await self._refuse_in_task()
        limit = None if timeout is None else seconds(timeout, "timeout")
        try:
            async with asyncio.timeout(limit):
                return await wait()
        except TimeoutError:
            raise TimeoutError(
                f"plan {self.id} is not finished after {format_duration(limit or 0.0)}"
                f"{await self._describe_wait()}"
            ) from None

    async def _refuse_in_task(self) -> None:
        """Refuse to wait inside a task, unless the plan has ended."""
        if in_job.get() is None:
            return
        plan = await self._plan()
        if (await current_state(await self._client.store(), plan)).is_final:
            return
        raise UsageError(
            "a task waits for a plan: a waiting task keeps its slot, and when every "
            "slot waits no job can run",
            cure="Let the plan go on with another task: plan | next_task.s().",
        )

    async def _wait_for_last(self) -> tuple[StoredPlan, StoredJob | None]:
        """Wait for the last job, and for that of a plan in its place.

        Return that job, and its plan as it was before the wait.
        """
        plan, waiters = await self._plan(), await self._client.waiters()
        while True:
            try:
                await waiters.wait_final(plan.last_id)
            except JobNotFound:
                plan = await self._plan()
                if not plan.record.state.is_final:
                    raise
                return plan, None  # deleted after the end of the plan
            inner, last = await self._last(plan)
            if inner.id == plan.id:
                return plan, last
            plan = inner

    async def _wait_for_end(self) -> PlanState:
        await self._wait_for_last()
        store, pause = await self._client.store(), END_LOOK_SECONDS
        while not (state := await current_state(store, await self._plan())).is_final:
            await self._client.clock.sleep(pause)
            pause = min(2 * pause, END_LOOK_SECONDS_MAX)
        return state

    async def _plan(self) -> StoredPlan:
        store = await self._client.store()
        return await stored_plan(store, self._client.name, self._raw_id)

    async def _describe_wait(self) -> str:
        """Return jobs by state, and queues without a worker; nothing without an answer."""
        with suppress(TimeoutError, StoreError):
            async with asyncio.timeout(DESCRIBE_SECONDS):
                store = await self._client.store()
                return await describe_plan(store, await self._plan())
        return ""

    async def _last(self, plan: StoredPlan) -> tuple[StoredPlan, StoredJob | None]:
        """Return the last job of the plan, or of the plan that has taken its place."""
        store = await self._client.store()
        while True:
            last = await self._job(plan.last_id)
            inner_id = None if last is None else replacing_plan(last.result)
            if inner_id is None:
                return plan, last
            plan = await stored_plan(store, plan.namespace, inner_id)

    async def _job(self, job_id: bytes) -> StoredJob | None:
        found = await (await self._client.store()).get([job_id])
        return found[0] if found else None

    def _value(self, plan: StoredPlan, last: StoredJob) -> Any:
        until = last.result_until
        if last.result is None or (until is not None and until < self._client.now()):
            raise value_expired(self.id)
        link = plan_of_shape(plan.shape)
        group = plan.layout.nodes[-1].input
        added = [
            node.signature.task
            for node in plan.layout.added.values()
            if node.signature is not None
            and node.group is not None
            and group is not None
            and plan.layout.groups[node.group].log == group.log
        ]
        return plan_value(link, last.result, self._client.decoder_of, added)


async def next_job(jobs: "AsyncGenerator[Job[Any]]") -> Job[Any] | None:
    return await anext(jobs, None)
