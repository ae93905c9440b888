"""`python -m tests.soak --minutes 30`: sustained load with faults, judged and plotted."""

import argparse
import os
import platform
import random
import shlex
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import apsw

from tests.checkout import commit
from tests.command import STOPPED, careful, positive, writable, writable_folder
from tests.progress import meter
from tests.soak.judge import exit_code, judge
from tests.soak.record import Record
from tests.soak.report import write_report
from tests.soak.run import Soak

MINUTES_MIN = 0.2  # enough for a base, a fault and a recovery
DESCRIPTION = """\
Two workers and two producers as real processes on one SQLite file. A calm base phase, then
faults (kill -9, SIGSTOP, SIGTERM, a killed producer) and healing by turns. Memory,
descriptors, file size, throughput and latency are recorded; a ledger of its own says
whether a job was lost or ended twice.
"""
EPILOG = """\
examples:
  python -m tests.soak --minutes 30 --report docs/reports
  python -m tests.soak --minutes 2 --seed 7 --json soak.json

exit codes:
  0  everything held
  1  something is broken: it is named
  2  too little happened to say so, or wrong usage
  74  what it says could not be written: the disk is full, or the reader has gone
  130  stopped by Ctrl-C or SIGTERM: the figures so far are written, as cut short
"""


def main(arguments: list[str]) -> int:
    given = parsed(arguments)
    seed = given.seed
    if seed is None:
        seed = random.SystemRandom().randrange(10**6)
    record = Record(
        command=shlex.join(["python", "-m", "tests.soak", *arguments]),
        commit=commit(),
        machine=machine(),
        seed=seed,
        rate=given.rate,
        retention_seconds=given.retention,
    )
    with careful():
        play(record, 60 * given.minutes, given.every)
        return tell(record, given.json, given.report)


def play(record: Record, seconds: float, every: float) -> None:
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, meter(seconds) as shown:
        shown.say(f"soak of {seconds / 60:g} min, seed {record.seed}")
        Soak(Path(folder), record, seconds, every, shown.show).play()


def tell(record: Record, json: Path | None, report: Path | None) -> int:
    if not record.phases:
        print("cut short before the load began: no figures", file=sys.stderr)
        return STOPPED
    findings = judge(record)
    if json is not None:
        json.write_text(record.as_json(findings=[asdict(each) for each in findings]))
    if report is not None:
        write_report(record, findings, report)
    for each in findings:
        print(f"{each.judgement:13} {each.what}: {each.text}", file=sys.stderr)
    for problem in record.totals.problems[:5]:
        print(problem, file=sys.stderr)
    return STOPPED if record.cut_short else exit_code(findings)


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--minutes", type=minutes, default=30, help="how long the load lasts (30)")
    add("--seed", type=int, help="of the faults; drawn and printed when not given")
    add("--rate", type=positive, default=200, help="jobs a second, in all (200)")
    add("--retention", type=positive, default=20, help="seconds a done job stays (20)")
    add("--every", type=positive, default=2, help="seconds between two samples (2)")
    figures = "write the record and the findings"
    add("--json", type=writable, metavar="FILE", help=figures)
    page = "write soak.md and soak.svg there"
    add("--report", type=writable_folder, metavar="FOLDER", help=page)
    return parser.parse_args(arguments)


def minutes(text: str) -> float:
    value = positive(text)
    if value < MINUTES_MIN:
        raise argparse.ArgumentTypeError(f"{text} is below {MINUTES_MIN:g} minutes")
    return value


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{platform.system()} {platform.machine()}, {len(os.sched_getaffinity(0))} cores, "
        f"{memory:.0f} GB, Python {platform.python_version()}, "
        f"SQLite {apsw.sqlite_lib_version()}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
