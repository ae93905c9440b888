"""`durio bench`: measures a store on this machine, and the bare driver in the same run."""

import asyncio
import sys
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from durio.bench.cpu import CPU_PASSES, CpuBenchmark
from durio.bench.measure import (
    IDLE_SECONDS,
    PASSES,
    WAKEUPS,
    Benchmark,
    run_benchmark,
    scratch_folder,
    target_of,
)
from durio.bench.plans import SECONDS, PlansBenchmark
from durio.cli.apps import JSON_OPTION
from durio.cli.main import keep_lines
from durio.cli.output import show_json, show_table
from durio.cli.table import Column
from durio.host.signals import interruptible
from durio.model.errors import UsageError
from durio.model.quantities import counted

COLUMNS = (Column("figure"), Column("value"), Column("what", 1, least=20))
JOBS_DEFAULT, JOBS_MAX = 20_000, 10_000_000
PASSES_MAX = 1_000

MEANINGS = {
    "enqueue_one_per_s": "enqueue, one caller, each awaited",
    "enqueue_many_per_s": "enqueue_many",
    "enqueue_concurrent_per_s": "enqueue, 100 concurrent callers, each awaited",
    "drain_per_s": "one worker, 10 slots, results stored",
    "raw_cycle_per_s": "inserted, claimed, finished by the bare driver",
    "drain_vs_raw": "the worker relative to the bare driver",
    "raw_drain_per_s": "claim and finish with the bare driver",
    "drain_vs_raw_drain": "the worker relative to that",
    "latency_ms": "from the return of enqueue to the start of the task, idle worker",
    "latency_from_call_ms": (
        "the same from the call of enqueue: includes the durable write"
    ),
    "cpu_us_per_job": "CPU of the worker, user and system, us per job",
    "worker_rss_mb": "memory of the worker after the drain, MiB",
    "idle_cpu_percent": "CPU of an idle worker",
    "wal_bytes_per_job": "WAL written by the server",
    "commits_per_job": "transactions of the database",
    "dead_tuples_per_job": "dead row versions",
    "dead_tuples_left": "of these, not vacuumed when the last drain ended",
}
CPU_MEANINGS = {
    "drain": "one worker runs jobs, CPU us per job",
    "enqueue_many": "enqueue_many, CPU us per job",
    "enqueue_concurrent": "enqueue, 100 callers, CPU us per job",
    "latency_ms": MEANINGS["latency_ms"],
}

PLAN_MEANINGS = {
    "jobs_per_s": "plain jobs, 100 callers and one worker at the same time",
    "chains_per_s": "chains of 3 jobs, in the same way",
    "chords_per_s": "chords of 10 jobs and a callback, in the same way",
    "jobs_cpu_us": "CPU us per job",
    "chains_cpu_us": "CPU us per chain",
    "chords_cpu_us": "CPU us per chord",
    "chains_unmarked": "chains that had ended when callers stopped, not yet marked done",
    "chords_unmarked": "chords that had ended when callers stopped, not yet marked done",
}


class Mode(NamedTuple):
    """One kind of measurement."""

    kind: type[Benchmark]
    passes: int  # unless the user gives a number
    meanings: dict[str, str]  # of its figures


MODES = {
    "jobs": Mode(Benchmark, PASSES, MEANINGS),
    "cpu": Mode(CpuBenchmark, CPU_PASSES, CPU_MEANINGS),
    "plans": Mode(PlansBenchmark, 1, PLAN_MEANINGS),
}


@click.command()
@click.option(
    "--store",
    "url",
    metavar="URL",
    help="Store to measure (default: new SQLite files in this directory).",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, JOBS_MAX),
    metavar="N",
    default=JOBS_DEFAULT,
    show_default=True,
    help="Jobs per pass.",
)
@click.option(
    "--passes",
    type=click.IntRange(1, PASSES_MAX),
    metavar="N",
    help=f"Number of passes; the best is reported.  [default: {PASSES}; with --cpu {CPU_PASSES}]",
)
@click.option(
    "--wakeups",
    type=click.IntRange(2, 100_000),
    metavar="N",
    default=WAKEUPS,
    show_default=True,
    help="Number of wake-ups of an idle worker to measure.",
)
@click.option(
    "--idle-seconds",
    type=click.FloatRange(0.1, 600),
    metavar="SECONDS",
    default=IDLE_SECONDS,
    show_default=True,
    help="How long to observe an idle worker.",
)
@click.option(
    "--cpu",
    "is_cpu",
    is_flag=True,
    help="Measure only CPU time per job and wake-up latency.",
)
@click.option(
    "--scenario",
    type=click.Choice(["jobs", "plans"]),
    default="jobs",
    show_default=True,
    help="What to measure: jobs, or plans compared with jobs.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 3600),
    metavar="SECONDS",
    default=SECONDS,
    show_default=True,
    help="With --scenario plans: how long to enqueue jobs, chains and chords, each.",
)
@click.option("--yes", is_flag=True, help="Allow a store that already has jobs.")
@JSON_OPTION
@keep_lines
def command(
    *,
    url: str | None,
    passes: int | None,
    is_cpu: bool,
    scenario: str,
    seconds: float,
    yes: bool,
    is_json: bool,
    **amounts: Any,
) -> None:
    r"""Measure enqueue, drain, wake-up and cost here, compared with the bare driver.

    The worker is a separate process with default settings (each commit survives a power
    cut). Files are created in a temporary folder in the current directory, so that its
    disk is measured, and removed afterwards. Jobs in a SQLite file that --store names
    stay there.

    On PostgreSQL the command creates a schema of its own (durio_bench_...) and drops it
    afterwards; nothing else in the database is touched. WAL, commits and dead rows are
    counted for the whole server, including other clients.

    --cpu measures user and system time per job: of the worker, of the process that
    enqueues, and of all processes of a PostgreSQL server on this host (null for a
    remote server). CPU time varies much less than a rate, so use it to compare two
    releases.

    --scenario plans measures plans per second: 100 callers enqueue plain jobs, then
    chains of 3, then chords of 10, while one worker runs them. Its other options are
    --store, --seconds and --yes.

    \b
    Examples:
      durio bench
      durio bench --store postgresql://app@db/shop --jobs 5000
      durio bench --cpu --json
      durio bench --scenario plans --seconds 60
    """
    mode = mode_of(scenario, is_cpu=is_cpu)
    if scenario == "plans":
        amounts["seconds"] = seconds
    passes = passes or mode.passes
    steps = BenchProgress(
        mode.kind.steps(passes), visible=not is_json and sys.stderr.isatty()
    )
    with interruptible(), scratch_folder() as folder:
        target = target_of(folder, url)
        measure = mode.kind(
            folder=folder,
            target=target,
            show_progress=steps.advance,
            passes=passes,
            **amounts,  # jobs, wakeups, idle_seconds, seconds
        )
        with steps.bar:
            figures = asyncio.run(run_benchmark(measure, url, yes=yes))
    if is_json:
        show_json(figures)
    else:
        show_figures(figures, mode.meanings)


def mode_of(scenario: str, *, is_cpu: bool) -> Mode:
    if is_cpu and scenario == "plans":
        raise UsageError(
            "--cpu and --scenario plans exclude each other",
            cure="Leave out --cpu: the scenario plans reports CPU time as well.",
        )
    return MODES["cpu" if is_cpu else scenario]


class BenchProgress:
    """A progress bar on a terminal; shows nothing elsewhere."""

    def __init__(self, total: int, *, visible: bool) -> None:
        self.bar = Progress(
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            disable=not visible,
            transient=True,
        )
        self._step = self.bar.add_task("", total=total)

    def advance(self, what: str) -> None:
        self.bar.update(self._step, description=what, advance=1)


def show_figures(figures: dict[str, Any], meanings: dict[str, str]) -> None:
    if meanings is CPU_MEANINGS:
        figures = {**figures, **figures["cpu_us_per_job"]}
    if "seconds" in figures:
        amount = f"{figures['seconds']:g} s each"
    else:
        best = counted(figures["passes"], "pass")
        amount = f"{counted(figures['jobs'], 'job')}, best of {best}"
    click.echo(f"{figures['store']}: {amount}")
    click.echo(
        f"{engine_text(figures)}, Python {figures['python']}, "
        f"{figures['loop']}, {counted(figures['cores'], 'core')}"
    )
    rows = [
        [name, figure_text(figures[name]), meaning]
        for name, meaning in meanings.items()
        if name in figures
    ]
    show_table(COLUMNS, rows, "nothing was measured")


def engine_text(figures: dict[str, Any]) -> str:
    """Return the engine that was measured, and which durability settings are off."""
    if "sqlite" in figures:
        return f"SQLite {figures['sqlite']}"
    off = [name for name, value in figures["settings"].items() if value == "off"]
    careless = f" with {', '.join(off)} off" if off else ""
    return f"PostgreSQL {figures['postgresql']}{careless} ({figures['driver']})"


def figure_text(value: float | dict[str, float | None]) -> str:
    """Return one figure, or several with their names; leave out those that are None."""
    if isinstance(value, dict):
        return "  ".join(
            f"{name} {part:.2f}" for name, part in value.items() if part is not None
        )
    return f"{value:,}"
