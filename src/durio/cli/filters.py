"""Filters for dead letters from the command line, as a query and as text."""

from dataclasses import dataclass

import click

from durio.app.app import App
from durio.cli.apps import AppSelection, grouped_options, with_options
from durio.model.errors import UsageError
from durio.model.job import DEAD, StoredJob
from durio.model.names import check_name, lane, task_name
from durio.model.outcome import Reason
from durio.model.quantities import format_duration, seconds
from durio.ports.browse import Page, Query

PAGE_MAX = 200
LIMIT_MAX = 10_000
REASONS = [text for name, text in vars(Reason).items() if name.isupper()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Filters of a command line; None matches every job."""

    task: str | None
    queue: str | None
    error: str | None
    reason: str | None
    older: str | None
    newer: str | None

    def is_empty(self) -> bool:
        return all(getattr(self, name) is None for name in self.__slots__)

    def query(self, app: App, selection: AppSelection) -> Query:
        """Return the query for dead letters that match now."""
        older, newer = (
            age_seconds(self.older, "--older"),
            age_seconds(self.newer, "--newer"),
        )
        if older is not None and newer is not None and older >= newer:
            raise UsageError(
                f"no job is older than {format_duration(older)} and newer than {format_duration(newer)}",
                cure="--older must be less than --newer.",
            )
        now, queue, task = app.now(), self.queue, self.task
        return Query(
            namespace=selection.scope_of(app),
            states=(DEAD,),
            lane=None if queue is None else lane(app.name, check_name("queue", queue)),
            task=None
            if task is None
            else task_name(app.name, check_name("task", task)),
            reason=self.reason,
            error=check_search_text(self.error),
            before=None if older is None else now - older,
            after=None if newer is None else now - newer,
        )

    def text(self) -> str:
        """Return the filters as text, such as ` of task send, error ~timeout`."""
        whose = [f"{n} {v}" for n in ("task", "queue") if (v := getattr(self, n))]
        why = [f"reason {self.reason}"] if self.reason else []
        why += [f"error ~{self.error}"] if self.error else []
        ages = [f"{n} than {v}" for n in ("older", "newer") if (v := getattr(self, n))]
        joined = ", ".join(whose + why + ages)
        return (
            f" {'of ' if whose else 'with ' if why else ''}{joined}" if joined else ""
        )


def age_seconds(text: str | None, option: str) -> float | None:
    return None if text is None else seconds(text, option)


def check_search_text(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        text = ""
    if not text.strip() or "\0" in text:
        raise UsageError(
            "--error is empty or not valid text", cure="Give a part of the error."
        )
    return text


filter_options = grouped_options(
    "filters",
    Filters,
    click.option("--task", metavar="TASK", help="Only jobs of this task."),
    click.option("--queue", metavar="QUEUE", help="Only jobs of this queue."),
    click.option(
        "--error",
        metavar="TEXT",
        help="Only with this in the type or text of the last error, in any case.",
    ),
    click.option("--reason", type=click.Choice(REASONS), help="Only dead for this."),
    click.option("--older", metavar="DURATION", help="Only dead for longer: 1h, 2d."),
    click.option("--newer", metavar="DURATION", help="Only dead since then: 1h, 2d."),
)


LIMIT_OPTION = click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=50,
    show_default=True,
    help="At most so many.",
)


CURSOR_OPTION = click.option(
    "--cursor", metavar="CURSOR", help="Go on where the last list ended."
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
