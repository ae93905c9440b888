"""`python -m tests.e2e.chaos`: plays the cells, one fault at a time, and reports."""

import argparse
import random
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from tests.command import STOPPED, careful, end_children, positive, writable
from tests.e2e.chaos.cell import Cell, Fault, play
from tests.e2e.chaos.faults import FAULT_BY_NAME, FAULTS
from tests.e2e.chaos.report import as_json, as_page, exit_code, facts, write
from tests.progress import meter

EPILOG = """\
examples:
  python -m tests.e2e.chaos --list
  python -m tests.e2e.chaos --fault kill-random --fault disk-full --seconds 10
  python -m tests.e2e.chaos --seed 7 --json chaos.json --page docs/reports/chaos.md

exit codes:
  0  held: nothing lost, nothing unexpected, every second start explained
  1  broken: a promise was not kept; the folder of that cell is kept and named
  2  unknown: too little happened to prove anything
  64 wrong usage
  74 what it says could not be written: the disk is full, or the reader has gone
  130 stopped by Ctrl-C or SIGTERM: the cells that were finished are told, as cut short

The seed decides whom the nemesis hits and when; what the processes do meanwhile is real,
so a run cannot be replayed exactly. For that there is the simulator.
"""


class Parser(argparse.ArgumentParser):
    """A parser with its own exit code for wrong usage, because 2 means unknown here."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(64, f"{self.prog}: {message}\n")


def parse(args: list[str]) -> argparse.Namespace:
    parser = Parser(
        prog="python -m tests.e2e.chaos",
        description="Disturb real processes on one SQLite file, and judge what is left.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seconds", type=positive, default=20, help="of disturbance in each cell (20)"
    )
    parser.add_argument(
        "--fault",
        action="append",
        choices=sorted(FAULT_BY_NAME),
        metavar="NAME",
        help="only this fault; may be repeated; see --list",
    )
    parser.add_argument("--seed", type=int, help="of the nemesis (by chance, printed)")
    add = parser.add_argument
    add("--json", type=writable, metavar="FILE", help="write the figures")
    add("--page", type=writable, metavar="FILE", help="write the table")
    parser.add_argument("--list", action="store_true", help="list the faults")
    return parser.parse_args(args)


def main(args: list[str]) -> int:
    chosen = parse(args)
    # Under nohup, or in the background, these are ignored, and processes that we start
    # inherit that.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with careful():
        if chosen.list:
            list_faults()
            return 0
        return run(chosen)


def list_faults() -> None:
    for fault in FAULTS:
        missing = fault.missing()
        lacks = f" (not run here: needs {missing})" if missing else ""
        print(f"{fault.name:22}{fault.what}{lacks}")


def run(chosen: argparse.Namespace) -> int:
    faults = [f for f in FAULTS if not chosen.fault or f.name in chosen.fault]
    seed = (
        random.SystemRandom().randrange(10**6) if chosen.seed is None else chosen.seed
    )
    print(f"seed {seed}, {len(faults)} cells of {chosen.seconds:g} s", file=sys.stderr)
    told = facts(seed, chosen.seconds)
    cells = play_all(faults, chosen.seconds, seed)
    if chosen.json:
        write(chosen.json, as_json(cells, told, len(faults)) + "\n")
    page = as_page(cells, told, len(faults))
    if chosen.page:
        write(chosen.page, page)
    print(page if not chosen.page else f"written: {chosen.page}")
    return exit_code(cells) if len(cells) == len(faults) else STOPPED


def play_all(faults: list[Fault], seconds: float, seed: int) -> list[Cell]:
    """Play one cell after the other; return those that were finished before a stop."""
    root = Path(tempfile.mkdtemp(prefix="durio-chaos-"))
    cells: list[Cell] = []
    with meter(len(faults)) as shown, suppress(KeyboardInterrupt):
        for done, fault in enumerate(faults):
            shown.show(done, fault.name)
            cells.append(play_one(fault, seconds, seed, root / fault.name))
            told = f"{fault.name}: {describe(cells[-1])}"
            is_kept = (root / fault.name).exists()
            shown.say(f"{told}; see {root / fault.name}" if is_kept else told)
        shown.show(len(faults), "all played")
    if not any(root.iterdir()):
        root.rmdir()
    return cells


def play_one(fault: Fault, seconds: float, seed: int, folder: Path) -> Cell:
    """Play a cell; remove its folder, unless it shows a problem."""
    try:
        cell = play(fault, seconds, seed, folder)
    except KeyboardInterrupt:
        end_children()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if cell.verdict is None or not cell.verdict.problems:
        shutil.rmtree(folder, ignore_errors=True)
    return cell


def describe(cell: Cell) -> str:
    verdict = cell.verdict
    if verdict is None:
        return f"not run, needs {cell.not_run}"
    told = (
        f"{verdict.word}, {verdict.faults} faults, {verdict.ok}/{verdict.acknowledged}"
        f" ok, {verdict.lost} lost, {verdict.unexpected} unexpected, "
        f"{verdict.explained}+{verdict.unexplained} re-runs"
    )
    return "; ".join([told, *verdict.problems, *verdict.too_little])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
