"""Filters for jobs from the command line, as a query and as text."""

from dataclasses import dataclass, replace

import click

from durio.app.app import App
from durio.cli.apps import grouped_options, with_options
from durio.cli.known_names import stored_lane, stored_task
from durio.cli.query_words import QUERY_ARGUMENT, query_of
from durio.client.job_filter import REASONS, JobFilter
from durio.client.job_query import refuse_unknown_names
from durio.client.job_search import (
    JobSearch,
    LookBounds,
    SearchScope,
    cursor_of,
    next_jobs,
    prepare_search,
)
from durio.model.job import State, StoredJob
from durio.model.quantities import counted
from durio.ports.browse import Page, Query

PAGE_MAX = 200
LIMIT_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Filters of a command line; None matches every job."""

    task: str | None
    queue: str | None
    error: str | None
    reason: str | None
    older: str | None
    newer: str | None
    states: tuple[str, ...] | None = None  # None: dead letters only; (): every state
    words: tuple[str, ...] = ()  # in the query language

    def is_empty(self) -> bool:
        is_plain = not any(getattr(self, name) is not None for name in NARROWING)
        return is_plain and not self.states and not query_of(self.words).terms

    async def search(
        self, app: App, scope: str | None, cursor: str | None = None
    ) -> tuple[JobSearch, str | None]:
        """Return the search for jobs that match, and where its cursor goes on.

        Raises for names that nothing has.
        """
        text, filters = query_of(self.words), self._filters()
        queue, task = self.queue, self.task
        stored = None if queue is None else await stored_lane(app, queue, scope)
        name = None if task is None else await stored_task(app, task, scope)

        def base(now: float) -> Query:
            query = filters.store_query(
                app=app.name, namespace=scope, now=now, dashes="--"
            )
            return query._replace(lane=stored, task=name)

        base(app.now())  # raises here for a filter that cannot be
        within = SearchScope(scope, base, repr(replace(self, words=())))
        store = await app.store()
        return await prepare_search(
            store, text, within, now=app.now(), cursor=cursor if text.terms else None
        )

    def _filters(self) -> JobFilter:
        return JobFilter(
            state=("dead",) if self.states is None else self.states or None,
            error=self.error,
            reason=self.reason,
            older=self.older,
            newer=self.newer,
        )

    def text(self) -> str:
        """Return the filters as text, such as ` of task send, error ~timeout`."""
        whose = [f"{n} {v}" for n in ("task", "queue") if (v := getattr(self, n))]
        why = [f"state {' or '.join(self.states)}"] if self.states else []
        why += [f"reason {self.reason}"] if self.reason else []
        why += [f"error ~{self.error}"] if self.error else []
        ages = [f"{n} than {v}" for n in ("older", "newer") if (v := getattr(self, n))]
        joined = ", ".join(whose + why + ages)
        query = f" matching {query_of(self.words)}" if self.words else ""
        if not joined:
            return query
        return f" {'of ' if whose else 'with ' if why else ''}{joined}{query}"

    def jobs_text(self, jobs: int) -> str:
        """Return a number of jobs as text: `3 dead letters`, `1 job`, `no jobs`."""
        noun = "dead letter" if self.states is None else "job"
        return counted(jobs, noun)


NARROWING = ("task", "queue", "error", "reason", "older", "newer")
TASK_OPTION = click.option("--task", metavar="TASK", help="Only jobs of this task.")
QUEUE_OPTION = click.option("--queue", metavar="QUEUE", help="Only jobs of this queue.")
ERROR_OPTION = click.option(
    "--error",
    metavar="TEXT",
    help="Only jobs whose last error contains TEXT in type or message; case is ignored.",
)
REASON_OPTION = click.option(
    "--reason", type=click.Choice(REASONS), help="Only jobs that died for this reason."
)
DEAD_FILTERS = (
    TASK_OPTION,
    QUEUE_OPTION,
    ERROR_OPTION,
    REASON_OPTION,
    click.option(
        "--older",
        metavar="DURATION",
        help="Only jobs that died longer ago, such as 1h or 2d.",
    ),
    click.option(
        "--newer",
        metavar="DURATION",
        help="Only jobs that died within this time, such as 1h or 2d.",
    ),
)
JOB_FILTERS = (
    click.option(
        "--state",
        "states",
        multiple=True,
        type=click.Choice([state.value for state in State]),
        help="Only jobs in this state; may be repeated.",
    ),
    TASK_OPTION,
    QUEUE_OPTION,
    ERROR_OPTION,
    REASON_OPTION,
    click.option(
        "--older",
        metavar="DURATION",
        help="Only jobs that ended (if unfinished: were created) longer ago, such as 1h.",
    ),
    click.option(
        "--newer",
        metavar="DURATION",
        help="Only jobs that ended (if unfinished: were created) within this time.",
    ),
)


filter_options = grouped_options("filters", Filters, *DEAD_FILTERS)
job_filter_options = grouped_options("filters", Filters, *JOB_FILTERS)
# For commands that take no ids.
filter_words = grouped_options("filters", Filters, QUERY_ARGUMENT, *DEAD_FILTERS)
job_filter_words = grouped_options("filters", Filters, QUERY_ARGUMENT, *JOB_FILTERS)


LIMIT_OPTION = click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    metavar="N",
    default=50,
    show_default=True,
    help="Show at most N rows.",
)


CURSOR_OPTION = click.option(
    "--cursor",
    metavar="CURSOR",
    help="Continue from the cursor that the previous page printed.",
)
page_options = with_options(LIMIT_OPTION, CURSOR_OPTION)


async def find(
    app: App, filters: Filters, scope: str | None, limit: int, cursor: str | None
) -> Page:
    """Read pages until `limit` jobs are found or none is left."""
    search, inner = await filters.search(app, scope, cursor)
    if not search.text.terms:  # a cursor is that of the store
        inner = cursor
    store, found = await app.store(), list[StoredJob]()
    while True:
        bounds, room = LookBounds(app.clock), min(limit - len(found), PAGE_MAX)
        jobs, inner = await next_jobs(store, search, inner, room, bounds)
        found += jobs
        if inner is None or len(found) >= limit:
            break
    if not found and search.text.terms and scope is not None:
        await refuse_unknown_names(app, store, search.query)
    return Page(found, cursor_of(search, inner) if search.text.terms else inner)
