"""`python -m tests.simulation`: test the engine with seeded faults in virtual time."""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import click
import msgspec

from tests.checkout import commit
from tests.command import STOPPED, careful, positive, writable
from tests.progress import meter
from tests.simulation.account import Account, account_of
from tests.simulation.runner import WorldSelection, run
from tests.simulation.scenario import Played, play
from tests.simulation.shrink import FOLDER, Shrinker, drawn, read
from tests.simulation.story import is_known, timeline
from tests.simulation.summary import Summary, failure

SEEDS = 100

EPILOG = """\b
Examples:
  python -m tests.simulation --seeds 1000 --first 1
  python -m tests.simulation --seconds 120 --json report.json
  python -m tests.simulation --seed 4711
  python -m tests.simulation --seed 4711 --job 17
  python -m tests.simulation --seed 4711 --shrink
  python -m tests.simulation --world tests/simulation/regress/seed_1_I4.json

\b
Exit codes:
  0  every promise that was put to the test held
  1  a promise was broken, or a seed gave two histories
  2  nothing was put to the test, or the command is wrong
  74  what it says could not be written: the disk is full, or the reader has gone
  130  stopped by Ctrl-C or SIGTERM: what was played so far is told, as cut short

A world that is not over after 300 s of real time is played once more before it counts.
"""


@final
class Checked(click.ParamType[Any]):
    """A click parameter that is validated before any world is played."""

    def __init__(self, name: str, check: Callable[[str], Any]) -> None:
        self.name = name
        self.check = check

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        try:
            return self.check(str(value))
        except argparse.ArgumentTypeError as error:
            self.fail(str(error), param, ctx)


SECONDS, FILE = Checked("seconds", positive), Checked("file", writable)


@click.command(epilog=EPILOG)
@click.option("--seeds", type=click.IntRange(1), help=f"How many [default: {SEEDS}].")
@click.option("--first", type=click.IntRange(0), help="The first of them [default: 1].")
@click.option("--seconds", type=SECONDS, help="A time box.")
@click.option("--seed", type=click.IntRange(0), help="Replay this one, with its story.")
@click.option("--world", type=Path, metavar="FILE", help="Replay one that was kept.")
@click.option("--job", type=click.IntRange(0), help="Of a replay: only this job.")
@click.option("--shrink", is_flag=True, help="Make failing worlds small and keep them.")
@click.option(
    "--shrink-seconds", type=SECONDS, default=300.0, show_default=True, help="At most."
)
@click.option("--keep", type=Path, default=FOLDER, help="Where small worlds are kept.")
@click.option("--pick", type=click.IntRange(1), help="Name a fixed set of so many.")
@click.option("--jobs", type=click.IntRange(1), help="Processes [default: cores].")
@click.option("--json", "report", type=FILE, help="Write the whole report there.")
def main(  # noqa: PLR0913 - one parameter per option
    *,
    seeds: int | None,
    first: int | None,
    seconds: float | None,
    seed: int | None,
    world: Path | None,
    job: int | None,
    shrink: bool,
    shrink_seconds: float,
    keep: Path,
    pick: int | None,
    jobs: int | None,
    report: Path | None,
) -> None:
    """Play simulated worlds full of disasters, and judge them.

    Each seed is a world: workers, producers, jobs and faults, the real engine in virtual
    time. The same seed gives the same history, byte for byte, on any machine.
    """
    one = seed if seed is not None else world
    if seed is not None and world is not None:
        raise click.UsageError("--seed or --world, not both.")
    if one is not None and (seeds or seconds or first is not None):
        raise click.UsageError(
            "--seed and --world replay one world: leave --seeds, --first, --seconds out."
        )
    if job is not None and one is None:
        raise click.UsageError("--job needs --seed or --world.")
    if shrink and world is not None:
        raise click.UsageError("A world that was kept is small: leave --shrink out.")
    with careful():
        if one is not None:
            summary, real_seconds = replay(one, job)
        else:
            many = seeds or (None if seconds else SEEDS)
            begin = 1 if first is None else first
            plan = WorldSelection(
                begin, many, seconds=seconds, jobs=jobs or os.cpu_count() or 1
            )
            summary, real_seconds = attack(plan)
        if report is not None:
            told = msgspec.json.encode(summary.as_json(real_seconds))
            report.write_bytes(msgspec.json.format(told) + b"\n")
        if pick is not None:
            named = ", ".join(str(number) for number in summary.pick(pick))
            click.echo(f"most is put to the test by seeds {named}")
        if shrink and not summary.is_cut_short:
            for account in summary.failing:
                make_small(account, shrink_seconds, keep)
    sys.exit(STOPPED if summary.is_cut_short else summary.exit_code)


def replay(one: int | Path, job: int | None) -> tuple[Summary, float]:
    """Play one world in this process, from a seed or a file; print its timeline."""
    began, at_work = time.perf_counter(), time.process_time()
    played = play(one) if isinstance(one, int) else replayed(one)
    if not is_known(played, job):
        last = max(wish.n for wish in played.wishes)
        raise click.UsageError(f"This world has no job {job}; its last is {last}.")
    account = account_of(played)
    real_seconds = account.wall_seconds = time.perf_counter() - began
    account.cpu_seconds = time.process_time() - at_work
    summary = Summary()
    summary.add(account)
    for line in timeline(played, job):
        click.echo(line)
    click.echo("")
    if account.has_failed:
        click.echo(failure(account, commit(), one if isinstance(one, Path) else None))
        if isinstance(one, int):
            click.echo(f"shrink  make sim SEED={one} SIM_ARGS=--shrink")
        click.echo("")
    for line in summary.lines(real_seconds):
        click.echo(line)
    click.echo(f"digest          {played.digest}")
    return summary, real_seconds


def replayed(path: Path) -> Played:
    """Replay a world that was kept in a file."""
    try:
        kept = read(path)
    except (OSError, msgspec.DecodeError) as error:
        raise click.UsageError(f"{path} holds no world: {error}") from error
    click.echo(f"seed {kept.seed}, once seen at {kept.commit}: {kept.why}")
    for what in kept.showed:
        click.echo(f"  {what}")
    return kept.replay()


def attack(plan: WorldSelection) -> tuple[Summary, float]:
    summary, here, began = Summary(), commit(), time.perf_counter()
    summary.planned = plan.seeds
    whole = float(plan.seeds or plan.seconds or 1)
    with meter(whole) as shown:

        def tell(account: Account) -> None:
            summary.add(account)
            if account.has_failed:
                shown.say(failure(account, here) + "\n")
            passed = time.perf_counter() - began
            done = summary.worlds if plan.seeds else min(passed, whole)
            note = f"{summary.worlds:,} worlds, {len(summary.failing)} failing"
            shown.show(done, f"{note}, {passed:,.0f} s")

        try:
            run(plan, tell)
        except KeyboardInterrupt:
            summary.is_cut_short = True
    real_seconds = time.perf_counter() - began
    for line in summary.lines(real_seconds):
        click.echo(line)
    return summary, real_seconds


def make_small(account: Account, seconds: float, keep: Path) -> None:
    """Shrink one failing world, once per broken invariant, and write each to a file."""
    for invariant in account.broken:
        until = time.perf_counter() + seconds
        with meter(seconds) as shown:

            def show(note: str) -> None:
                done = seconds - (until - time.perf_counter())  # noqa: B023
                shown.show(min(done, seconds), note)

            shrinker = Shrinker(
                drawn(account.seed, invariant, commit()),
                is_over=lambda: time.perf_counter() > until,  # noqa: B023
                show=show,
            )
            kept = shrinker.run()
        if kept is None:
            click.echo(f"seed {account.seed}: {invariant} is not broken any more")
            continue
        path = kept.write(keep)
        click.echo(
            f"seed {kept.seed}, {invariant}: {len(kept.faults)} faults and "
            f"{len(kept.wishes)} jobs are enough, found in {shrinker.plays} worlds\n"
            f"kept as {os.path.relpath(path)}; see it again:\n"
            f'make sim SIM_ARGS="--world {os.path.relpath(path)}"'
        )
        for what in kept.showed:
            click.echo(f"  {what}")


if __name__ == "__main__":
    main()
