"""`python -m tests.e2e.postgres_chaos`: the large run, with its report."""

import argparse
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.command import careful, positive, writable
from tests.e2e.chaos.__main__ import Parser
from tests.e2e.chaos.judge import HELD
from tests.e2e.chaos.report import write
from tests.e2e.postgres_chaos.play import ChaosConfig, play, strikes
from tests.e2e.postgres_chaos.report import as_json, as_page, in_short
from tests.progress import meter

EPILOG = """\
examples:
  python -m tests.e2e.postgres_chaos --page docs/reports/chaos-postgres.md
  python -m tests.e2e.postgres_chaos --restarts 4 --kills 2 --cuts 10 --jobs 2000

exit codes:
  0  held: nothing lost, nothing doubled, everybody works again, no deadlock
  1  broken: a promise was not kept; the folder of the run is kept and named
  2  unknown: too little happened to prove anything
  64 wrong usage
  74 what it says could not be written: the disk is full, or the reader has gone
  130 stopped by Ctrl-C or SIGTERM
"""


def parse(args: list[str]) -> argparse.Namespace:
    parser = Parser(
        prog="python -m tests.e2e.postgres_chaos",
        description="Disturb real processes on one PostgreSQL, and judge what is left.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--restarts", type=whole, default=50, help="of the server (50)")
    add("--kills", type=whole, default=20, help="kill -9 of the server (20)")
    add("--cuts", type=whole, default=200, help="of each kind (200)")
    add("--others", type=whole, default=10, help="each other fault, so often (10)")
    add("--jobs", type=whole, default=200_000, help="acknowledged, at least (200000)")
    add("--workers", type=whole, default=4, help="processes (4)")
    add("--producers", type=whole, default=8, help="processes (8)")
    add("--rate", type=positive, default=40.0, help="enqueues/s of a producer (40)")
    add("--seed", type=int, help="of the nemesis (by chance, printed)")
    add("--json", type=writable, metavar="FILE", help="write the figures")
    add("--page", type=writable, metavar="FILE", help="write the page")
    return parser.parse_args(args)


def whole(text: str) -> int:
    """Parse a count; 0 leaves a fault out."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a whole number")
    return int(text)


def main(args: list[str]) -> int:
    chosen = parse(args)
    # Under nohup, or in the background, these are ignored, and processes that we start
    # inherit that.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with careful():
        return run(chosen)


def run(chosen: argparse.Namespace) -> int:
    plan = ChaosConfig(
        strikes(
            restarts=chosen.restarts,
            kills=chosen.kills,
            cuts=chosen.cuts,
            commits=chosen.cuts,
            others=chosen.others,
        ),
        chosen.jobs,
        max(1, chosen.workers),
        max(1, chosen.producers),
        chosen.rate,
    )
    by_chance = random.SystemRandom().randrange(10**6)
    seed = by_chance if chosen.seed is None else chosen.seed
    count = sum(plan.strikes.values())
    print(f"seed {seed}, {count} faults, {plan.jobs} jobs", file=sys.stderr)
    folder = Path(tempfile.mkdtemp(prefix="durio-chaos-postgres-"))
    is_held = False
    try:
        with meter(count) as shown:
            played = play(plan, seed, folder, shown.show)
        is_held = played.verdict.code == HELD
    except KeyboardInterrupt:
        is_held = True  # there is nothing to check
        raise
    finally:
        if is_held:
            shutil.rmtree(folder, ignore_errors=True)
    if chosen.json:
        write(chosen.json, as_json(played) + "\n")
    if chosen.page:
        write(chosen.page, as_page(played))
    print(in_short(played) if is_held else f"{in_short(played)}\nsee {folder}")
    return played.verdict.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
