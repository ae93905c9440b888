"""`python -m tests.simulation`: attack the engine with seeded disasters."""

import os
import sys
import time
from pathlib import Path

import click
import msgspec

from tests.checkout import commit
from tests.progress import meter
from tests.simulation.account import Account, account_of
from tests.simulation.runner import Plan, run
from tests.simulation.scenario import play
from tests.simulation.shrink import FOLDER, Shrinker, drawn
from tests.simulation.story import timeline
from tests.simulation.summary import Summary, failure

SEEDS = 100
STOPPED = 130  # as a shell says after Ctrl-C

EPILOG = """\b
Examples:
  python -m tests.simulation --seeds 1000 --first 1
  python -m tests.simulation --seconds 120 --json report.json
  python -m tests.simulation --seed 4711
  python -m tests.simulation --seed 4711 --job 17
  python -m tests.simulation --seed 4711 --shrink

\b
Exit codes:
  0  every promise that was put to the test held
  1  a promise was broken, or a seed gave two histories
  2  nothing was put to the test, or the command is wrong
  130  stopped by Ctrl-C
"""


@click.command(epilog=EPILOG)
@click.option("--seeds", type=click.IntRange(1), help=f"How many [default: {SEEDS}].")
@click.option("--first", type=click.IntRange(0), default=1, show_default=True)
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="A time box.")
@click.option("--seed", type=click.IntRange(0), help="Replay this one, with its story.")
@click.option("--job", type=click.IntRange(0), help="With --seed: only this job.")
@click.option("--shrink", is_flag=True, help="Make failing worlds small and keep them.")
@click.option("--shrink-seconds", default=300.0, show_default=True, help="At most.")
@click.option("--keep", type=Path, default=FOLDER, help="Where small worlds are kept.")
@click.option("--pick", type=click.IntRange(1), help="Name a fixed set of so many.")
@click.option("--jobs", type=click.IntRange(1), help="Processes [default: cores].")
@click.option(
    "--json", "report", type=Path, help="Write the whole report to this file."
)
def main(  # noqa: PLR0913 - one parameter per option
    *,
    seeds: int | None,
    first: int,
    seconds: float | None,
    seed: int | None,
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
    if seed is not None and (seeds or seconds):
        raise click.UsageError(
            "--seed replays one world: leave --seeds, --seconds out."
        )
    if job is not None and seed is None:
        raise click.UsageError("--job needs --seed.")
    if seed is not None:
        summary, real_seconds, code = replay(seed, job)
    else:
        many = seeds or (None if seconds else SEEDS)
        plan = Plan(first, many, seconds=seconds, jobs=jobs or os.cpu_count() or 1)
        summary, real_seconds, code = attack(plan)
    if report is not None:
        told = msgspec.json.encode(summary.as_json(real_seconds))
        report.write_bytes(msgspec.json.format(told) + b"\n")
    if pick is not None:
        named = ", ".join(str(number) for number in summary.pick(pick))
        click.echo(f"most is put to the test by seeds {named}")
    if shrink:
        for account in summary.failing:
            make_small(account, shrink_seconds, keep)
    sys.exit(code)


def replay(seed: int, job: int | None) -> tuple[Summary, float, int]:
    """One world with its timeline, in this process."""
    began, at_work = time.perf_counter(), time.process_time()
    played = play(seed)
    account = account_of(played)
    real_seconds = account.wall_seconds = time.perf_counter() - began
    account.cpu_seconds = time.process_time() - at_work
    summary = Summary()
    summary.add(account)
    for line in timeline(played, job):
        click.echo(line)
    click.echo("")
    if account.has_failed:
        click.echo(failure(account, commit()))
        click.echo(f"shrink  make sim SEED={seed} SIM_ARGS=--shrink")
        click.echo("")
    for line in summary.lines(real_seconds):
        click.echo(line)
    click.echo(f"digest          {played.digest}")
    return summary, real_seconds, summary.exit_code


def attack(plan: Plan) -> tuple[Summary, float, int]:
    """Many worlds."""
    summary, here, began = Summary(), commit(), time.perf_counter()
    whole = float(plan.seeds or plan.seconds or 1)
    is_stopped = False
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
            is_stopped = True
    real_seconds = time.perf_counter() - began
    for line in summary.lines(real_seconds):
        click.echo(line)
    return summary, real_seconds, STOPPED if is_stopped else summary.exit_code


def make_small(account: Account, seconds: float, keep: Path) -> None:
    """Shrink one failing world, once for each promise that it broke, and keep it."""
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
            f"kept as {os.path.relpath(path)}"
        )
        for what in kept.showed:
            click.echo(f"  {what}")


if __name__ == "__main__":
    main()
