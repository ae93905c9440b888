"""Read, count and change jobs by filters: `app.jobs(state="dead")`.

Reading goes newest first, page by page. An action counts first and changes only jobs that
were counted: a job that matches later, or that dies again meanwhile, is not changed.
"""

from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from durio.client.bulk import CountedJobs, act_in_bulk, count_by_task
from durio.client.handle import JobClient
from durio.client.job_filter import JobFilter
from durio.client.job_search import (
    JobSearch,
    LookBounds,
    SearchScope,
    next_jobs,
    prepare_search,
)
from durio.client.job_view import details_of, retries_of_tasks
from durio.client.namespaces import has_jobs
from durio.client.task_by_name import published_tasks
from durio.model.errors import (
    InvalidOption,
    UnknownQueue,
    UnknownTask,
    UsageError,
    WrongState,
)
from durio.model.job import JobDetails, StoredJob
from durio.model.names import did_you_mean, known_as, queue_of
from durio.model.queues import DEFAULT_QUEUE
from durio.ports.browse import Query, states_in_words
from durio.ports.control import (
    Action,
    CancelJobs,
    DiscardJobs,
    RetryJobs,
    RunJobsNow,
)
from durio.ports.store import Store

PAGE_JOBS = 200
COUNT_MAX = 100_000
NAMES_SHOWN_MAX = 8


class NamespaceClient(JobClient, Protocol):
    """The part of an App that queries and queue handles use."""

    @property
    def name(self) -> str:
        """The namespace of the App."""
        ...

    def declared_names(self) -> tuple[set[str], set[str]]:
        """Return the tasks and the queues that the code names."""
        ...

    def acting_user(self) -> str:
        """Return the user for the audit."""
        ...


@dataclass(frozen=True, slots=True)
class BulkResult:
    """The numbers of jobs that a bulk action matched and changed."""

    matched: int  # jobs that match the filters, in a state that the action changes
    changed: int  # jobs that the action changed
    held: int  # jobs left unchanged: an open transaction holds them or their keys
    # Of those changed, jobs of plans that do not go on with them: deleted or cancelled ones.
    alone: int = 0


class JobQuery:
    """The jobs of an App that match some filters.

    The actions count the matching jobs first, and change only jobs that were counted. They
    are written to the audit. Without any filter they raise UsageError, unless
    `everything=True`.

        old = app.jobs(state="dead", task=send, older="7d")
        print(old.count_sync(), old.discard_sync().changed)
    """

    __module__ = "durio"

    def __init__(
        self, client: NamespaceClient, filters: JobFilter, limit: int | None = None
    ) -> None:
        self._client = client
        self._filters = filters
        self._limit = limit
        self._text = filters.text()
        self._query(client.now())  # raises here for a filter that cannot be

    def __repr__(self) -> str:
        words = self._query(self._client.now()).in_words()
        return f"<jobs: {' '.join(filter(None, (words, str(self._text))))}>"

    def limit(self, jobs: int) -> "JobQuery":
        """Return the same query for at most this number of jobs, from 1."""
        if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
            raise InvalidOption(
                f"limit cannot be {jobs!r}", cure="Give a whole number of jobs, from 1."
            )
        return JobQuery(self._client, self._filters, jobs)

    def _query(self, now: float) -> Query:
        name = self._client.name
        return self._filters.store_query(app=name, namespace=name, now=now)

    async def _search(self) -> JobSearch:
        """Return the query as the store is asked."""
        client, store = self._client, await self._client.store()
        scope = SearchScope(client.name, self._query)
        search, _ = await prepare_search(store, self._text, scope, now=client.now())
        return search

    # --- reading

    async def __aiter__(self) -> AsyncIterator[JobDetails]:
        """Read the jobs as JobDetails, newest first, 200 at a time."""
        pages = JobPages(self._client, await self._search(), self._limit)
        while page := await pages.read():
            for job in page:
                yield job

    def __iter__(self) -> Iterator[JobDetails]:
        """Read the jobs without an event loop."""
        search = self._client.run_sync(self._search())
        pages = JobPages(self._client, search, self._limit)
        while page := self._client.run_sync(pages.read()):
            yield from page

    async def count(self) -> int:
        """Return the number of matching jobs: exact up to 100,000; 100,001 means more."""
        store, search = await self._client.store(), await self._search()
        most = self._at_most(COUNT_MAX + 1)
        if search.keeps is None:
            jobs = (await store.count(search.query, most=most)).jobs
        else:
            pages = JobPages(self._client, search, most)
            jobs = 0
            while found := await pages.read_stored():
                jobs += len(found)
        if not jobs:
            await refuse_unknown_names(self._client, store, search.query)
        return jobs

    def count_sync(self) -> int:
        """Count without an event loop, as `count` does."""
        return self._client.run_sync(self.count())

    def _at_most(self, jobs: int) -> int:
        return jobs if self._limit is None else min(jobs, self._limit)

    # --- acting

    async def retry(self, *, everything: bool = False) -> BulkResult:
        """Make dead and cancelled jobs ready again, with all their retries.

        Jobs of failed plans resume their plans, as `Job.retry` does.
        """
        return await self._act(RetryJobs(), everything=everything)

    async def cancel(self, *, everything: bool = False) -> BulkResult:
        """Cancel jobs that have not ended; running jobs are asked to stop."""
        return await self._act(CancelJobs(), everything=everything)

    async def discard(self, *, everything: bool = False) -> BulkResult:
        """Delete dead jobs; they cannot be brought back."""
        return await self._act(DiscardJobs(), everything=everything)

    async def run_now(self, *, everything: bool = False) -> BulkResult:
        """Make scheduled jobs ready now, also those that wait for their next attempt."""
        return await self._act(RunJobsNow(), everything=everything)

    def retry_sync(self, *, everything: bool = False) -> BulkResult:
        """Retry jobs without an event loop, as `retry` does."""
        return self._client.run_sync(self.retry(everything=everything))

    def cancel_sync(self, *, everything: bool = False) -> BulkResult:
        """Cancel jobs without an event loop, as `cancel` does."""
        return self._client.run_sync(self.cancel(everything=everything))

    def discard_sync(self, *, everything: bool = False) -> BulkResult:
        """Delete dead jobs without an event loop, as `discard` does."""
        return self._client.run_sync(self.discard(everything=everything))

    def run_now_sync(self, *, everything: bool = False) -> BulkResult:
        """Make jobs ready without an event loop, as `run_now` does."""
        return self._client.run_sync(self.run_now(everything=everything))

    async def _act(self, action: Action, *, everything: bool) -> BulkResult:
        client = self._client
        if self._filters.is_empty() and not everything:
            raise UsageError(
                f"app.jobs() without a filter: {action.verb}() would change every job of "
                f"App {client.name}",
                cure="Give a filter, such as app.jobs(state='dead'); or "
                f"{action.verb}(everything=True).",
            )
        store, search = await client.store(), await self._search()
        chosen = await count_to_act(store, action, search)
        matched = chosen.limit
        if not matched:
            await refuse_unknown_names(client, store, chosen.query)
        changed = held = alone = 0
        chosen = chosen._replace(limit=self._at_most(matched))
        steps = act_in_bulk(
            store, action, chosen, clock=client.clock, by=client.acting_user()
        )
        async for step in steps:
            changed, held = changed + step.jobs, held + step.held
            alone += step.alone
        held = min(held, chosen.limit - changed)
        return BulkResult(matched, changed, held, alone)


def jobs_of(client: NamespaceClient, **filters: Any) -> JobQuery:
    """Return the jobs of an App that these filters choose."""
    return JobQuery(client, JobFilter(**filters))


async def count_to_act(store: Store, action: Action, search: JobSearch) -> CountedJobs:
    """Count exactly the jobs that an action would change; the number is the limit."""
    query = query_for(action, search.query)
    counted = await store.count(query)
    words = f"matching {search.text.masked()}" if search.keeps else ""
    chosen = CountedJobs(query, counted.mark, counted.jobs, search.keeps, words)
    if search.keeps is None or not counted.jobs:
        return chosen
    tasks = await count_by_task(store, action, chosen)
    return chosen._replace(limit=tasks.total())


def query_for(action: Action, query: Query) -> Query:
    """Narrow the query to the states that the action changes."""
    asked = action.states if query.states is None else query.states
    states = tuple(state for state in action.states if state in asked)
    if asked and not states:
        raise WrongState(
            f"{action.verb} changes {states_in_words(action.states)} jobs, not "
            f"{states_in_words(asked)} ones",
            cure="Leave the state out to choose all jobs that it can change.",
        )
    return query._replace(states=states)


class JobPages:
    """Reads the jobs of a query page by page, newest first."""

    def __init__(
        self, client: NamespaceClient, search: JobSearch, limit: int | None
    ) -> None:
        self._client = client
        self._search = search
        self._left: int | None = limit
        self._cursor: str | None = None
        self._is_over = False
        self._has_read = False

    async def read(self) -> list[JobDetails]:
        """Return the next jobs, or an empty list at the end."""
        store, jobs = await self._client.store(), await self.read_stored()
        if not jobs and not self._has_read:
            await refuse_unknown_names(self._client, store, self._search.query)
        self._has_read = True
        retries = await retries_of_tasks(store, self._client.retries_of, jobs)
        return [details_of(job, retries[job.task]) for job in jobs]

    async def read_stored(self) -> list[StoredJob]:
        """Return the next jobs as they are stored, or an empty list at the end."""
        store = await self._client.store()
        while not self._is_over and self._left != 0:
            room = PAGE_JOBS if self._left is None else min(PAGE_JOBS, self._left)
            bounds = LookBounds(self._client.clock)
            jobs, self._cursor = await next_jobs(
                store, self._search, self._cursor, room, bounds
            )
            self._is_over = self._cursor is None
            if jobs:
                if self._left is not None:
                    self._left -= len(jobs)
                return jobs
        return []


# --- names that nothing knows


async def refuse_unknown_names(
    client: NamespaceClient, store: Store, query: Query
) -> None:
    """Raise UnknownTask or UnknownQueue if a filter names what nothing knows."""
    if query.task is not None:
        namespace = query.task.partition(".")[0]
        known = await known_tasks(client, store, namespace)
        if (
            known
            and not known_as(query.task, known)
            and not await has_jobs(store, namespace, query.task)
        ):
            raise UnknownTask(
                f"there is no task {query.task!r}",
                cure=names_known(query.task, known),
                task=query.task,
            )
    if query.lane is not None:
        await check_queue(client, store, queue_of(query.lane))


async def known_tasks(
    client: NamespaceClient, store: Store, namespace: str
) -> set[str]:
    """Return tasks that the code declares or that workers published."""
    published = await published_tasks(store, namespace) or {}
    declared, _ = client.declared_names()
    return {*published, *(t for t in declared if t.partition(".")[0] == namespace)}


async def check_queue(client: NamespaceClient, store: Store, queue: str) -> None:
    """Raise UnknownQueue for a queue that was never used and that no task names."""
    _, declared = client.declared_names()
    if queue in declared or queue == DEFAULT_QUEUE:
        return
    published = await published_tasks(store, client.name) or {}
    known = {queue_of(row.name) for row in await store.queues(client.name)}
    known |= {DEFAULT_QUEUE, *declared, *(task["queue"] for task in published.values())}
    if queue not in known:
        raise UnknownQueue(
            f"app {client.name} has no queue {queue!r}",
            cure=names_known(queue, known),
            queue=queue,
        )


def names_known(name: str, known: Collection[str]) -> str:
    shown = ", ".join(sorted(known)[:NAMES_SHOWN_MAX])
    return f"Known: {shown}.{did_you_mean(name, known)}"
