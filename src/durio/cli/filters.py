"""Filters for jobs from the command line, as a query and as text."""

from dataclasses import dataclass

import click

from durio.app.app import App
from durio.cli.apps import grouped_options, with_options
from durio.cli.known_names import stored_lane, stored_task
from durio.client.job_filter import REASONS, JobFilter
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

    def is_empty(self) -> bool:
        return not any(getattr(self, name) is not None for name in NARROWING) and (
            not self.states
        )

    async def query(self, app: App, scope: str | None) -> Query:
        """Return the query for jobs that match now; raises for names that nothing has."""
        state = ("dead",) if self.states is None else self.states or None
        query = JobFilter(
            state=state,
            error=self.error,
            reason=self.reason,
            older=self.older,
            newer=self.newer,
        ).store_query(app=app.name, namespace=scope, now=app.now(), dashes="--")
        queue, task = self.queue, self.task
        return query._replace(
            lane=None if queue is None else await stored_lane(app, queue, scope),
            task=None if task is None else await stored_task(app, task, scope),
        )

    def text(self) -> str:
        """Return the filters as text, such as ` of task send, error ~timeout`."""
        whose = [f"{n} {v}" for n in ("task", "queue") if (v := getattr(self, n))]
        why = [f"state {' or '.join(self.states)}"] if self.states else []
        why += [f"reason {self.reason}"] if self.reason else []
        why += [f"error ~{self.error}"] if self.error else []
        ages = [f"{n} than {v}" for n in ("older", "newer") if (v := getattr(self, n))]
        joined = ", ".join(whose + why + ages)
        return (
            f" {'of ' if whose else 'with ' if why else ''}{joined}" if joined else ""
        )

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
filter_options = grouped_options(
    "filters",
    Filters,
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
job_filter_options = grouped_options(
    "filters",
    Filters,
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


async def find(app: App, query: Query, limit: int, cursor: str | None) -> Page:
    """Read pages until `limit` jobs are found or none is left."""
    store = await app.store()
    found: list[StoredJob] = []
    while True:
        wanted = min(limit - len(found), PAGE_MAX)
        page = await store.find(query, limit=wanted, cursor=cursor)
        found += page.jobs
        cursor = page.cursor
        if cursor is None or len(found) >= limit:
            return Page(found, cursor)
