"""`python -m tests.mutants`: plant every bug in turn and see each one caught.

    python -m tests.mutants                     all of them, with progress and a table
    python -m tests.mutants --list              their names, and what is wrong with each
    python -m tests.mutants --only no_fence_at_done lifo
    python -m tests.mutants --json mutants.json

Exit code 0: all caught. 1: one survived, so the harness proves nothing until it is
caught. 2: a name that no mutant has, or a mutant that could not be planted.
"""

import argparse
import sys
from pathlib import Path

import msgspec

from tests.mutants.catalogue import MUTANTS
from tests.mutants.planting import NoSuchPlace
from tests.mutants.trial import Verdict, trial
from tests.progress import meter


def arguments() -> argparse.Namespace:
    told = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=told[0],
        epilog="\n".join(told[2:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these mutants")
    parser.add_argument("--json", metavar="FILE", help="write the verdicts there too")
    parser.add_argument("--list", action="store_true", help="say which there are")
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    names = asked.only or list(MUTANTS)
    unknown = [name for name in names if name not in MUTANTS]
    if unknown:
        print(f"no such mutant: {', '.join(unknown)}; see --list", file=sys.stderr)
        return 2
    if asked.list:
        for name in names:
            print(f"{name:34} {MUTANTS[name].wrong}")
        return 0
    try:
        verdicts = try_all(names)
    except (NoSuchPlace, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    if asked.json:
        Path(asked.json).write_bytes(msgspec.json.format(msgspec.json.encode(verdicts)))
    return summary(verdicts)


def try_all(names: list[str]) -> list[Verdict]:
    """One trial after the other, each with a line."""
    verdicts: list[Verdict] = []
    with meter(len(names)) as shown:
        for done, name in enumerate(names):
            shown.show(done, name)
            verdict = trial(MUTANTS[name])
            verdicts.append(verdict)
            word = "killed" if verdict.killed else "SURVIVED"
            by = verdict.by or verdict.how
            shown.say(f"{word:8} {name:34} {verdict.seconds:6.1f} s  {by}")
        shown.show(len(names), "all tried")
    return verdicts


def summary(verdicts: list[Verdict]) -> int:
    """Killed out of planted, and the survivors by name."""
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
    sys.exit(main())
