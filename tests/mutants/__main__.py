"""`python -m tests.mutants`: plant each bug in turn and check that it is caught."""

import argparse
import sys
from pathlib import Path

import msgspec

from tests.command import STOPPED, careful, writable
from tests.mutants.catalogue import MUTANTS
from tests.mutants.planting import PatchDoesNotFit
from tests.mutants.trial import Verdict, trial
from tests.progress import meter

EPILOG = """\
examples:
  python -m tests.mutants                     all of them, with progress and a table
  python -m tests.mutants --list              their names, and what is wrong with each
  python -m tests.mutants --only one_retry_too_many last_in_first_out
  python -m tests.mutants --only one_retry_too_many --story
  python -m tests.mutants --json mutants.json

exit codes:
  0  all caught
  1  one survived: the harness proves nothing until it is caught
  2  wrong usage, or a mutant that could not be planted or tried
  74  what it says could not be written: the disk is full, or the reader has gone
  130  stopped by Ctrl-C or SIGTERM: those tried so far are told, as cut short
"""

UNTRIED = 2


def main(args: list[str]) -> int:
    asked = parse(args)
    names = asked.only or list(MUTANTS)
    with careful():
        if asked.list:
            for name in names:
                print(f"{name:34} {MUTANTS[name].wrong}")
            return 0
        verdicts: list[Verdict] = []
        code = 0
        try:
            try_all(names, verdicts, with_story=asked.story)
        except (PatchDoesNotFit, RuntimeError) as error:
            print(error, file=sys.stderr)
            code = UNTRIED
        except KeyboardInterrupt:
            code = STOPPED
        if asked.json:
            write(asked.json, verdicts, is_cut_short=bool(code))
        survived = summary(verdicts)
        if code:
            print(f"cut short: {len(verdicts)} of {len(names)} were tried")
    return code or survived


def parse(args: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description="Plant every bug in turn, in a copy of the engine, and see each one caught.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", nargs="+", type=known, metavar="NAME", help="only these mutants")
    add("--story", action="store_true", help="tell what was seen before each catch")
    add("--json", type=writable, metavar="FILE", help="write the verdicts there too")
    add("--list", action="store_true", help="say which there are")
    return parser.parse_args(args)


def known(name: str) -> str:
    if name not in MUTANTS:
        raise argparse.ArgumentTypeError(f"no such mutant: {name}; see --list")
    return name


def try_all(names: list[str], verdicts: list[Verdict], *, with_story: bool) -> None:
    """Run one trial after another, with a line of output for each."""
    with meter(len(names)) as shown:
        for done, name in enumerate(names):
            shown.show(done, name)
            verdict = trial(MUTANTS[name])
            verdicts.append(verdict)
            word = "killed" if verdict.killed else "SURVIVED"
            by = verdict.by or verdict.how
            shown.say(f"{word:8} {name:34} {verdict.seconds:6.1f} s  {by}")
            if with_story and verdict.story:
                shown.say(verdict.story + "\n")
        shown.show(len(names), "all tried")


def write(path: Path, verdicts: list[Verdict], *, is_cut_short: bool) -> None:
    told = msgspec.json.encode({"cut_short": is_cut_short, "verdicts": verdicts})
    path.write_bytes(msgspec.json.format(told) + b"\n")


def summary(verdicts: list[Verdict]) -> int:
    """Print killed out of planted, and the survivors by name; return the exit code."""
    survivors = [v.name for v in verdicts if not v.killed]
    seconds = sum(v.seconds for v in verdicts)
    print(
        f"\n{len(verdicts) - len(survivors)} of {len(verdicts)} killed, {seconds:.0f} s"
    )
    for verdict in verdicts:
        if verdict.killed:
            print(f"  {verdict.name:34} {verdict.how}")
    for name in survivors:
        print(f"  SURVIVED: {name}: {MUTANTS[name].wrong}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
