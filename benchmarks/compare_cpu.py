"""Compare the CPU time per job of two checkouts, A and B, on SQLite and on PostgreSQL.

    .venv/bin/python -m benchmarks.compare_cpu /path/to/A /path/to/B

Runs `cpu_per_job.py` of this checkout against the package of A and of B in turn, with
PYTHONPATH=<checkout>/src and this Python, `--pairs` times on each store. Each run is the best
of `--passes` passes. The order within a pair changes from pair to pair, so that a machine
that becomes slower favours neither side. The PostgreSQL server is durable, runs on this host
and serves both sides; it is started from the programs that the tests use, and removed.

Each row shows the median of the paired ratios A/B, the lowest and the highest ratio, and the
medians of both sides in microseconds per job. With the older commit as A, the ratio is the
speed of B as a share of the speed of A: 1.00 is equal, 0.97 means that B costs 3 % more CPU
time. "total" adds the server's time to that of the worker or client. Pairs scatter by 2 to
3 %, more on a machine that does other work; 10 pairs take about 40 minutes. Wake-ups are
wall time and are only printed.

With `--speed` it runs `speed.py` instead and shows the ratios B/A of its figures: above 1.00
B does more jobs per second, and for times ("naps", wake-ups) B takes longer. These are wall
times, so the machine must be quiet.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.servers.postgres import PostgresServer

CPU, SPEED = (
    Path(__file__).resolve().with_name(f"{n}.py") for n in ("cpu_per_job", "speed")
)
STORES = ("sqlite", "postgresql")
SETTINGS = {
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "autovacuum_naptime": "10min",  # a vacuum would fall into one run of a pair
}


def measured(
    program: Path, checkout: Path, folder: Path, flags: list[str]
) -> dict[str, Any]:
    """One run against the package of a checkout."""
    source = (checkout / "src").resolve()
    answer = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-P", str(program), *flags],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(source), "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        sys.exit(f"{checkout}: the measurement failed ({answer.returncode})")
    figures = json.loads(answer.stdout)
    if figures["package"] != str(source / "durio"):
        sys.exit(f"{checkout}: {figures['package']} was measured instead")
    return figures


def costs(figures: dict[str, Any]) -> dict[str, float]:
    """Microseconds per job by row of the table, such as "drain worker"."""
    found: dict[str, float] = {}
    for what, parts in figures["cpu_us_per_job"].items():
        known = {name: cost for name, cost in parts.items() if cost is not None}
        found |= {f"{what} {name}": cost for name, cost in known.items()}
        if len(known) > 1:
            found[f"{what} total"] = sum(known.values())
    return found


def run_pairs(
    program: Path, options: argparse.Namespace, flags: list[str], folder: Path
) -> dict[str, list[dict[str, Any]]]:
    runs: dict[str, list[dict[str, Any]]] = {"A": [], "B": []}
    for number in range(options.pairs):
        sides = [("A", options.a), ("B", options.b)]
        for name, checkout in sides if number % 2 == 0 else reversed(sides):
            runs[name].append(measured(program, checkout, folder, flags))
        print(f"  pair {number + 1} of {options.pairs}", file=sys.stderr, flush=True)
    return runs


def show(head: str, of_a: list[dict[str, float]], of_b: list[dict[str, float]]) -> None:
    """Print medians; the ratios are those of the first side to the second."""
    print(f"  {'':<28} {head:>6} {'low':>6} {'high':>6} {head[0]:>10} {head[2]:>10}")
    for row in of_a[0]:
        ratios = [x[row] / y[row] for x, y in zip(of_a, of_b, strict=True)]
        middle = [statistics.median(one[row] for one in side) for side in (of_a, of_b)]
        print(
            f"  {row:<28} {statistics.median(ratios):6.3f} {min(ratios):6.3f} "
            f"{max(ratios):6.3f} {middle[0]:10.2f} {middle[1]:10.2f}",
            flush=True,
        )


def compare(options: argparse.Namespace, flags: list[str], folder: Path) -> None:
    """Run the pairs on one store and print the table."""
    if options.speed:
        cases = [f"--only={case}" for case in options.case]
        runs = run_pairs(SPEED, options, [*flags, *cases], folder)
        show("B/A", *([one["figures"] for one in runs[name]] for name in "BA"))
        return
    runs = run_pairs(CPU, options, [*flags, f"--passes={options.passes}"], folder)
    show("A/B", *([costs(one) for one in runs[name]] for name in "AB"))
    waits = [
        statistics.median(one["latency_ms"]["p50"] for one in runs[name])
        for name in "AB"
    ]
    print(f"  wake-up p50: A {waits[0]:.2f} ms, B {waits[1]:.2f} ms", flush=True)


def main(options: argparse.Namespace) -> None:
    flags = [f"--jobs={options.jobs}", f"--wakeups={options.wakeups}"]
    with tempfile.TemporaryDirectory(prefix="durio-cpu-", dir=Path.cwd()) as name:
        folder = Path(name)
        if options.only != "postgresql":
            print("sqlite:")
            compare(options, flags, folder)
        if options.only != "sqlite":
            with PostgresServer(settings=SETTINGS) as server:
                print("postgresql:")
                place = [f"--store={server.url()}"]
                if not options.speed:
                    place.append(f"--server-pid={server.pid}")
                compare(options, [*flags, *place], folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("a", type=Path, help="a checkout, as a rule the older one")
    parser.add_argument("b", type=Path, help="another checkout")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--only", choices=STORES)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--wakeups", type=int, default=300)
    parser.add_argument("--speed", action="store_true", help="compare speed.py instead")
    parser.add_argument(
        "--case", action="append", default=[], help="only this of speed.py"
    )
    main(parser.parse_args())
