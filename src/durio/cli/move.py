"""`durio move`: moves a live installation from a SQLite file to PostgreSQL."""

import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from durio.app.app import App
from durio.app.connect import connect, masked
from durio.app.move import (
    Mover,
    MoveStatus,
    check_stores,
    export_jobs_from,
    import_jobs_into,
)
from durio.app.move_verify import Comparison
from durio.cli.apps import JSON_OPTION, AppSelection
from durio.cli.main import keep_lines
from durio.cli.output import safe, show_json, show_text
from durio.cli.prompts import BY_OPTION, DRY_RUN_OPTION, YES_OPTION, confirm, operator
from durio.model.errors import UsageError
from durio.model.job import STATE_BY_CODE
from durio.model.quantities import counted, seconds
from durio.ports.move import Counts

T = TypeVar("T")
DRAIN_SECONDS = 120.0
WIDTH = 24


@click.command("move", short_help="Move all jobs from a SQLite file to PostgreSQL.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option(
    "--timeout",
    metavar="DURATION",
    help="How long workers may finish running jobs (default 2m).",
)
@click.option(
    "--back-out",
    is_flag=True,
    help="Undo the move and reopen FROM; only before TO has opened.",
)
@YES_OPTION
@DRY_RUN_OPTION
@BY_OPTION
@JSON_OPTION
@keep_lines
def command(*, source: str, target: str, is_json: bool, **given: Any) -> int:
    r"""Move all jobs from a SQLite file to PostgreSQL while both are in use.

    First the workers on the file drain: they finish running jobs or give them back.
    Then the file is frozen: every write to it fails with `store_moved`, which names the
    new store. Every job is copied with its id, state, counters, key, times and result,
    and both sides are compared. Finally the queues open in the new store, in the state
    they had in the file. The file stays frozen.

    Plans go along, in whatever state: they continue in the new store, where failed ones
    can be retried.

    After a crash or a lost connection run the command again: it continues, and copies
    no job twice. The schema must exist: durio migrate --store TO. You can start workers
    and producers with the new URL at any time; they wait until the move is over.

    \b
    Examples:
      durio move sqlite:///jobs.db postgresql://app@db/shop --dry-run
      durio move sqlite:///jobs.db postgresql://app@db/shop --yes
      durio move sqlite:///jobs.db postgresql://app@db/shop --back-out

    With --json: {"from", "to", "stage", "jobs": {"namespace": {"state": n}}, "workers",
    "running", "keys", "records", "logs", "entries", "pruned", "other_jobs", "digest",
    "seconds", "dry_run"}. "pruned" counts jobs whose retention ended during the move,
    "other_jobs" jobs of the same Apps that the new store has and the file does not.

    \b
    Exit codes: 1 the two sides differ, or TO has jobs of these Apps already
                2 usage, not confirmed; 3 store; 5 schema of TO
                7 workers did not stop in time; 130 interrupted; run it again
    """
    check_stores(source, target)
    place = AppSelection(app_path=None, store=source, name=None, is_json=is_json)
    return run_move(MoveRequest(place, target, **given))


@dataclass(frozen=True)
class MoveRequest:
    selection: AppSelection
    target: str
    timeout: str | None
    back_out: bool
    yes: bool
    dry_run: bool
    by: str | None

    @property
    def stores(self) -> dict[str, str]:
        """The source and target for people, without passwords."""
        return {"from": masked(self.selection.store or ""), "to": masked(self.target)}

    def drain_seconds(self) -> float:
        """Return how long workers may take to end."""
        text = self.timeout
        return DRAIN_SECONDS if text is None else seconds(text, "--timeout")


def run_move(request: MoveRequest) -> int:
    """Check, confirm, move; return the exit code."""
    ends, limit, name = request.stores, request.drain_seconds(), operator(request.by)
    if request.back_out:
        return take_back(request)
    outlook = with_both_stores(request, check_move)
    if request.dry_run or outlook.is_over:
        show_outlook(request, outlook)
        return 0
    confirm(
        f"{counted(outlook.total, 'job')} will move from {ends['from']} to {ends['to']}, "
        f"and {counted(outlook.active_workers.workers, 'worker')} there will be asked to end",
        yes=request.yes,
    )

    async def do(mover: Mover) -> tuple[MoveStatus, Comparison | None, float]:
        began = mover.clock.monotonic()
        verdict = await mover.move(drain_seconds=limit, by=name)
        return await mover.status(), verdict, mover.clock.monotonic() - began

    try:
        after, verdict, took_seconds = with_both_stores(request, do)
    except KeyboardInterrupt:
        click.echo("stopped: run it again, or undo it with --back-out", err=True)
        raise
    show_moved(request, after, verdict, took_seconds)
    return 0


def with_both_stores(request: MoveRequest, work: Callable[[Mover], Awaitable[T]]) -> T:
    async def ask(app: App) -> T:
        leaving = await app.store()
        departure = export_jobs_from(leaving)
        arriving = connect(request.target, app.clock, app.settings)
        await arriving.open()
        try:
            with move_progress(is_quiet=request.selection.is_json) as progress:
                arrival = import_jobs_into(arriving)
                mover = Mover(
                    departure,
                    arrival,
                    request.stores["to"],
                    leaving,
                    arriving,
                    app.clock,
                    progress,
                )
                return await work(mover)
        finally:
            await arriving.close()

    return request.selection.run_unscoped(ask)


async def check_move(mover: Mover) -> MoveStatus:
    """Return the status of the move; raise if it is not possible."""
    outlook = await mover.status()
    await mover.check(outlook)
    return outlook


def take_back(request: MoveRequest) -> int:
    """Undo a move whose target has not been opened."""
    if request.dry_run:
        raise UsageError("--back-out and --dry-run are both given", cure="Give one.")
    ends, name = request.stores, operator(request.by)
    action = f"open {ends['from']} again and take its jobs out of {ends['to']}"
    confirm(action, yes=request.yes)
    jobs = with_both_stores(request, lambda mover: mover.back_out(by=name))
    if request.selection.is_json:
        show_json({**ends, "stage": None, "backed_out": True, "jobs": jobs})
    else:
        show_text(
            f"{ends['from']} is open again, with {counted(jobs, 'job')}; start its workers"
        )
    return 0


# --- output


class MoveProgress:
    """Shows progress: a bar on a terminal, one line per stage elsewhere."""

    def __init__(self, *, is_quiet: bool) -> None:
        self.is_live = sys.stderr.isatty() and not is_quiet
        self.is_quiet = is_quiet
        self.stage = ""
        self.length = 0

    def __call__(self, stage: str, done: int, total: int) -> None:
        line = progress_text(stage, done, total)
        if self.is_live:
            if stage != self.stage and self.stage:
                click.echo("", err=True)
                self.length = 0
            click.echo(f"\r{line.ljust(self.length)}", err=True, nl=False)
            self.length = len(line)
        elif stage != self.stage and not self.is_quiet:
            click.echo(safe(line), err=True)
        self.stage = stage


def progress_text(stage: str, done: int, total: int) -> str:
    if stage == "draining":
        return f"draining: {counted(total, 'worker')}, {counted(done, 'running job')}"
    full = WIDTH if not total else WIDTH * min(done, total) // total
    return f"{stage:9}  [{'#' * full}{'-' * (WIDTH - full)}]  {done} of {total} jobs"


@contextmanager
def move_progress(*, is_quiet: bool) -> Generator[MoveProgress]:
    """Yield the progress display; end the line of its bar in any case."""
    progress = MoveProgress(is_quiet=is_quiet)
    try:
        yield progress
    finally:
        if progress.is_live and progress.stage:
            click.echo("", err=True)


def counts_by_state_name(counts: Counts) -> dict[str, dict[str, int]]:
    return {
        namespace: {STATE_BY_CODE[state].value: n for state, n in sorted(jobs.items())}
        for namespace, jobs in sorted(counts.items())
    }


def outlook_fields(stores: dict[str, str], outlook: MoveStatus) -> dict[str, Any]:
    return {
        **stores,
        "stage": None if outlook.mark is None else outlook.mark.stage,
        "jobs": counts_by_state_name(outlook.jobs),
        "workers": outlook.active_workers.workers,
        "running": outlook.active_workers.running,
    }


def show_outlook(request: MoveRequest, outlook: MoveStatus) -> None:
    """Show what a move would do, or that it is done."""
    ends = request.stores
    if request.selection.is_json:
        show_json({**outlook_fields(ends, outlook), "dry_run": request.dry_run})
    elif outlook.is_over:
        show_text(f"the jobs of {ends['from']} have moved to {ends['to']} already")
    else:
        show_text(
            f"{counted(outlook.total, 'job')} would move from {ends['from']} to {ends['to']}; "
            f"{counted(outlook.active_workers.workers, 'worker')} with "
            f"{counted(outlook.active_workers.running, 'running job')} "
            "would be asked to end\n" + "\n".join(count_lines(outlook.jobs))
        )


def count_lines(counts: Counts) -> list[str]:
    """Return lines such as `shop 12 ready, 3 done`."""
    return [
        f"  {namespace}  " + ", ".join(f"{n} {state}" for state, n in states.items())
        for namespace, states in counts_by_state_name(counts).items()
        if states
    ]


def show_moved(
    request: MoveRequest,
    outlook: MoveStatus,
    verdict: Comparison | None,
    took_seconds: float,
) -> None:
    """Show that the move is done, and how both sides compare."""
    ends, seen = request.stores, verdict or Comparison()
    if request.selection.is_json:
        figures = {"keys": seen.keys, "records": seen.rows["record"]}
        figures |= {"logs": seen.rows["log"], "entries": seen.rows["entry"]}
        figures |= {"pruned": seen.pruned, "other_jobs": seen.other_jobs}
        rest = {"digest": seen.digest or None, "seconds": round(took_seconds, 3)}
        show_json(
            {**outlook_fields(ends, outlook), **figures, **rest, "dry_run": False}
        )
        return
    summary = (
        f"{counted(outlook.total, 'job')} moved from {ends['from']} to {ends['to']}"
    )
    lines = [f"{summary} in {took_seconds:.1f} s", *count_lines(outlook.jobs)]
    if verdict is not None:
        lines.append(f"both stores have the same contents: sha256 {seen.digest}")
    if seen.pruned:
        lines.append(f"{seen.pruned} of them were past their retention")
    if seen.other_jobs > 0:
        lines.append(
            f"{counted(seen.other_jobs, 'job')} came to {ends['to']} from elsewhere"
        )
    show_text("\n".join(lines))
