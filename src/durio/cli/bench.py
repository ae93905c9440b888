"""`durio bench`: what this machine reaches, held against the bare driver on its disk."""

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from durio.app.connect import masked
from durio.cli import load
from durio.cli.apps import JSON_OPTION
from durio.cli.measure import IDLE_SECONDS, PASSES, WAKEUPS, Measure
from durio.cli.output import show_json, show_table
from durio.model.errors import InvalidURL, UsageError
from durio.ports.browse import Query

JOBS_DEFAULT, JOBS_MAX = 20_000, 10_000_000
STEPS = 3 * PASSES + 4  # what a measurement tells on its way

MEANINGS = {
    "enqueue_one_per_s": "enqueued, one caller who awaits each",
    "enqueue_many_per_s": "enqueued with enqueue_many",
    "enqueue_concurrent_per_s": "enqueued by 100 callers who await each",
    "drain_per_s": "run by one worker, 10 slots, results stored",
    "raw_cycle_per_s": "inserted, claimed, finished by the bare driver",
    "drain_vs_raw": "the worker held against the bare driver",
    "raw_drain_per_s": "claimed and finished by the bare driver",
    "latency_ms": "from the return of enqueue to the task's start, idle worker",
    "latency_from_call_ms": "the same from the call: the durable write comes on top",
    "cpu_us_per_job": "CPU of the worker, user and system, us per job",
    "worker_rss_mb": "memory of the worker after the drain, MiB",
    "idle_cpu_percent": "CPU of an idle worker",
}


@click.command()
@click.option(
    "--store", "url", help="A store to measure; default: new SQLite files here."
)
@click.option(
    "--jobs",
    type=click.IntRange(1, JOBS_MAX),
    default=JOBS_DEFAULT,
    show_default=True,
    help="Jobs per pass; the best of three passes counts.",
)
@click.option(
    "--wakeups",
    type=click.IntRange(2, 100_000),
    default=WAKEUPS,
    show_default=True,
    help="How often an idle worker is woken.",
)
@click.option(
    "--idle-seconds",
    type=click.FloatRange(0.1, 600),
    default=IDLE_SECONDS,
    show_default=True,
    help="How long a worker is watched while it has nothing to do.",
)
@click.option("--yes", is_flag=True, help="Measure a store that already holds jobs.")
@JSON_OPTION
def command(
    *,
    url: str | None,
    jobs: int,
    wakeups: int,
    idle_seconds: float,
    yes: bool,
    is_json: bool,
) -> None:
    """Measure this machine: enqueue, drain, wake-up, cost; and the bare driver beside it.

    The worker is a real process with every default on (each commit survives a power
    cut). Files are made in a temporary folder in the current directory, so that its disk
    is measured, and removed afterwards; jobs in a store named by --store stay there.
    """
    if url is not None and ":memory:" in url:
        raise InvalidURL(
            f"{url} lives in one process; the bench starts another",
            cure="Name a file: sqlite:///bench.db.",
        )
    folder = Path(tempfile.mkdtemp(prefix="durio-bench-", dir=Path.cwd()))
    steps = Steps(visible=not is_json and sys.stderr.isatty())
    measure = Measure(folder, url, jobs, wakeups, idle_seconds, steps.tell)
    try:
        with steps.bar:
            figures = asyncio.run(measured(measure, yes=yes))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if is_json:
        show_json(figures)
    else:
        show(figures)


async def measured(measure: Measure, *, yes: bool) -> dict[str, Any]:
    """Refuse a store in use, then measure."""
    if measure.url is not None and not yes:
        await refuse_jobs(measure.url)
    try:
        figures = await measure.run()
    finally:
        await load.app.close()
    store = masked(measure.url) if measure.url else "sqlite (a new file here)"
    return {"store": store, **figures}


async def refuse_jobs(url: str) -> None:
    """A store that holds jobs is somebody's: ask first."""
    await load.app.close()
    load.app.url = url
    page = await (await load.app.store()).find(Query(), limit=1, cursor=None)
    if page.records:
        raise UsageError(
            f"{masked(url)} already holds jobs",
            cure="Name a new file, or add --yes: the bench's jobs stay in the store.",
        )


class Steps:
    """A bar on a terminal, nothing elsewhere."""

    def __init__(self, *, visible: bool) -> None:
        self.bar = Progress(
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            disable=not visible,
            transient=True,
        )
        self._step = self.bar.add_task("", total=STEPS)

    def tell(self, what: str) -> None:
        """The next measurement begins."""
        self.bar.update(self._step, description=what, advance=1)


def show(figures: dict[str, Any]) -> None:
    """The figures for people."""
    click.echo(
        f"{figures['store']}: {figures['jobs']} jobs, best of {figures['passes']} passes"
    )
    click.echo(
        f"SQLite {figures['sqlite']}, Python {figures['python']}, "
        f"{figures['loop']}, {figures['cores']} cores"
    )
    rows = [[name, shown(figures[name]), told] for name, told in MEANINGS.items()]
    show_table(("figure", "value", "what"), rows, "nothing was measured")


def shown(value: float | dict[str, float]) -> str:
    """A figure, or some with their names."""
    if isinstance(value, dict):
        return "  ".join(f"{name} {part:.2f}" for name, part in value.items())
    return f"{value:,}"
