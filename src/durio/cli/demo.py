"""`durio demo`: runs a small shop, kills its workers, and checks that no job was lost.

The verdict is computed from a ledger that shares nothing with the store (see demo/record.py
and demo/verdict.py). The exit code is 1 if a promise was broken, and also if too little
happened to prove anything.
"""

import asyncio
import shutil
import tempfile
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from durio.cli.apps import JSON_OPTION
from durio.cli.main import keep_lines
from durio.cli.output import has_colour, show_json, show_table
from durio.cli.table import Column
from durio.demo import shop
from durio.demo.run import Demo
from durio.demo.verdict import DemoVerdict, TaskCounts, judge, not_exercised
from durio.host.clock import HostClock
from durio.host.signals import Signals
from durio.model.errors import InvalidURL
from durio.model.quantities import counted
from durio.worker.watchdog import exit_code_for_signal

SECONDS_DEFAULT = 15.0
SECONDS_MIN, SECONDS_MAX = 3.0, 600.0
WORKERS_DEFAULT, WORKERS_MAX = 3, 32
REFRESHES_PER_SECOND = 4
BROKEN = 1
TUTORIAL = "docs/tutorial/01-first-job.md"
TABLE_COLUMNS = (
    "task",
    "enqueued",
    "done",
    "dead",
    "cancelled",
    "retried",
    "re-run after the kill",
)


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(SECONDS_MIN, SECONDS_MAX),
    metavar="SECONDS",
    default=SECONDS_DEFAULT,
    show_default=True,
    help="How long to enqueue jobs; then the remaining jobs finish.",
)
@click.option(
    "--workers",
    type=click.IntRange(2, WORKERS_MAX),
    metavar="N",
    default=WORKERS_DEFAULT,
    show_default=True,
    help="Number of worker processes; one of them is killed.",
)
@click.option(
    "--chaos",
    is_flag=True,
    help="Kill a worker or a child process every few seconds, not only once.",
)
@click.option(
    "--store",
    "url",
    metavar="URL",
    help="Store to use (default: a temporary SQLite file).",
)
@click.option(
    "--keep", is_flag=True, help="Keep the temporary folder: store, ledger, logs."
)
@click.option(
    "--no-browser", is_flag=True, help="Do not open a browser (none is opened yet)."
)
@JSON_OPTION
@keep_lines
def command(
    *,
    seconds: float,
    workers: int,
    chaos: bool,
    url: str | None,
    keep: bool,
    no_browser: bool,
    is_json: bool,
) -> int:
    r"""Run a small shop and kill one of its workers in the middle of jobs.

    The shop sends mail, uses a bank that fails at times, resizes images in child
    processes with progress (one image crashes its process), fails to deliver an order,
    fills a bounded queue, enqueues a job twice with one key, and cancels two jobs. A
    supervisor replaces the killed processes. The demo ends with a table and the line "N
    jobs: D done, X dead, 0 lost, 0 doubled"; cancelled jobs are counted separately.

    \b
    Examples:
      durio demo
      durio demo --seconds 60 --chaos
      durio demo --json --keep

    \b
    Exit codes:
      0    every check passed
      1    a check failed, or too little happened to tell
      130, 143  SIGINT, SIGTERM
    """
    del no_browser
    if url is not None and ":memory:" in url:
        raise InvalidURL(
            f"{url} exists in one process only; the demo starts several",
            cure="Name a file: sqlite:///demo.db.",
        )
    folder = Path(tempfile.mkdtemp(prefix="durio-demo-"))
    narrator = DemoOutput(quiet=is_json)
    stage = Demo(
        folder=folder,
        url=url or f"sqlite:///{folder / 'shop.db'}",
        seconds=seconds,
        workers=workers,
        print_line=narrator.print_line,
        is_chaotic=chaos,
    )
    try:
        verdict = asyncio.run(run_until_signal(stage, narrator))
    finally:
        if keep:
            narrator.print_line(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return (
        verdict if isinstance(verdict, int) else show_result(verdict, is_json=is_json)
    )


async def run_until_signal(demo: Demo, output: "DemoOutput") -> DemoVerdict | int:
    """Run to the end, or until a signal; then return the signal's exit code."""
    playing = asyncio.current_task()
    received: list[str] = []

    def stop(name: str, _count: int) -> None:
        received.append(name)
        if playing is not None:
            playing.cancel()

    try:
        async with Signals(stop):
            with output.live_table(demo):
                return await demo.run()
    except asyncio.CancelledError:
        if not received:
            raise
        return exit_code_for_signal(received[0])


class DemoOutput:
    """Prints progress line by line; on a terminal with a live table below."""

    def __init__(self, *, quiet: bool) -> None:
        self._clock = HostClock()
        self._quiet = quiet
        self._began = self._clock.monotonic()
        self._console = Console()

    def print_line(self, line: str, /, style: str = "") -> None:
        """Print a line with the seconds since the start, on a terminal in this colour."""
        if not self._quiet:
            passed = self._clock.monotonic() - self._began
            text = Text(f"{passed:5.1f} s  {line}", style)
            self._console.print(text, soft_wrap=True)

    def live_table(self, demo: Demo) -> Any:
        """Show the live table while the block runs; on a terminal only."""
        if self._quiet or not has_colour():
            return nullcontext()
        return Live(
            get_renderable=lambda: live_table(demo),
            console=self._console,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
        )


def live_table(demo: Demo) -> RenderableType:
    """Return the current counts, from the ledger alone."""
    if not demo.tasks:
        return Spinner("dots", "the shop opens ...")
    table = Table(box=None, pad_edge=False)
    for name in TABLE_COLUMNS:
        table.add_column(name, justify="left" if name == "task" else "right")
    for line in table_rows(judge(demo.ledger_lines(), {}).rows):
        table.add_row(*line)
    return table


def table_rows(rows: dict[str, TaskCounts]) -> list[list[str]]:
    return [
        [task, *(str(count) if count else "-" for count in asdict(row).values())]
        for task, row in sorted(rows.items())
    ]


def show_result(verdict: DemoVerdict, *, is_json: bool) -> int:
    """Print the result; return the exit code."""
    missing = not_exercised(verdict)
    if is_json:
        show_json(verdict_fields(verdict, missing))
    else:
        show_verdict(verdict, missing)
    return BROKEN if verdict.problems or missing else 0


def show_verdict(verdict: DemoVerdict, missing: list[str]) -> None:
    show_table(
        [Column(name) for name in TABLE_COLUMNS], table_rows(verdict.rows), "no jobs"
    )
    again = f"{counted(verdict.rerun, 'job')} ran again"
    notes = [
        "",
        f"{count_text(verdict.cancelled, 'job')} cancelled on request and not counted below",
        f"{counted(verdict.repeated, 'customer')} clicked twice: one job for each, by key",
        f"{count_text(verdict.refused, 'parcel')} refused by a full queue",
        f"{count_text(verdict.poisoned, 'job')} dead-lettered for a crash; no others",
        f"{count_text(verdict.kills, 'process')} killed: {again}",
        *(f"BROKEN: {problem}" for problem in verdict.problems),
        *(f"TOO LITTLE HAPPENED: {complaint}" for complaint in missing),
    ]
    next_steps = [
        "",
        f"the code of this shop: {shop.__file__}",
        "its store, ledger and logs: durio demo --keep",
        f"your own first job: {TUTORIAL} in the source repository",
        "",
    ]
    for line in notes + next_steps:
        click.echo(line)
    click.echo(verdict.line)


def count_text(number: int, what: str) -> str:
    return f"{counted(number, what)} {'was' if number == 1 else 'were'}"


def verdict_fields(verdict: DemoVerdict, missing: list[str]) -> dict[str, Any]:
    fields = asdict(verdict)
    tasks = fields.pop("rows")
    held = not verdict.problems and not missing
    return {
        "held": held,
        **fields,
        "missing": missing,
        "tasks": tasks,
        "line": verdict.line,
    }
