"""Measure this checkout on both stores and write the report of the release.

    .venv/bin/python -m benchmarks.release                          # or: make speed
    .venv/bin/python -m benchmarks.release --peer-python /path/to/python
    .venv/bin/python -m benchmarks.release --quick --report /tmp    # does it work?
    .venv/bin/python -m benchmarks.release --draw                   # write the page again

Each round runs `speed.py --sweep` on a new SQLite file in the current directory and on a
durable PostgreSQL server of its own, then `floors.py`, then `peers.py` on the same server. All
of them take turns, so that a machine that becomes slower affects them all. Figures are the
medians of the rounds. `cpu_per_job.py` runs once per store, and its best pass counts.

It writes three files: `speed.json` has one entry per version, the newest first, and an entry
of the same version is replaced; `speed.md` and `speed.svg` show the newest entry, and the main
figures of the others. Close other programs first. It exits with 1 when a job was lost or
doubled; then no file is written.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import asyncpg

import durio
from benchmarks.compare_cpu import CPU, SETTINGS, SPEED, measured
from benchmarks.floors import floors
from benchmarks.release_page import STORES, page, svg
from durio.host.processes import loop_factory
from tests.checkout import ROOT, commit
from tests.progress import meter
from tests.servers.postgres import PostgresServer

PEERS = Path(__file__).resolve().with_name("peers.py")
NOT_INSTALLED = 3  # exit code of peers.py
QUICK = {"rounds": 1, "jobs": 2_000, "wakeups": 30, "passes": 1}


class Release:
    """The measurements of one release, on a server of its own."""

    def __init__(
        self, options: argparse.Namespace, folder: Path, server: PostgresServer
    ) -> None:
        self.options = options
        self.folder = folder
        self.server = server
        self.flags = {"sqlite": [], "postgresql": [f"--store={server.url()}"]}
        self.steps = 0

    def measure(self) -> dict[str, Any]:
        version = asyncio.run(self.prepare())
        with meter(3 * self.options.rounds + 2) as self.progress:
            costs = {store: self.cpu(store) for store in STORES}
            rounds = [self.round(n + 1) for n in range(self.options.rounds)]
        return {
            "version": durio.__version__,
            "commit": commit(),
            "date": commit_date(),
            "quick": self.options.quick,
            **{name: getattr(self.options, name) for name in QUICK},
            "machine": {**machine(), "postgresql": version},
            "speed": {s: medians([one[s] for one in rounds]) for s in STORES},
            "cpu_us_per_job": costs,
            "floors_us": medians([one["floors"] for one in rounds]),
            "peers": merged([one["peer"] for one in rounds if one["peer"]]),
        }

    async def prepare(self) -> str:
        """Create the database of the peers; return the version of the server."""
        connection = await asyncpg.connect(self.server.url())
        await connection.execute("create database peer")
        version: str = await connection.fetchval("show server_version")
        await connection.close()
        return version

    def cpu(self, store: str) -> dict[str, Any]:
        self.show(f"CPU time per job, {store}")
        flags = [*self.flags[store], *self.same("jobs", "passes"), "--wakeups=1"]
        if store == "postgresql":
            flags.append(f"--server-pid={self.server.pid}")
        return measured(CPU, ROOT, self.folder, flags)["cpu_us_per_job"]

    def round(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for store in STORES:
            self.show(f"round {number} of {self.options.rounds}, {store}")
            flags = [*self.flags[store], "--sweep", *self.same("jobs", "wakeups")]
            found[store] = measured(SPEED, ROOT, self.folder, flags)["figures"]
        self.show(f"round {number} of {self.options.rounds}, floors and peers")
        found["floors"] = floors(self.folder, self.server.url(), self.options.wakeups)
        found["peer"] = self.peer() if self.options.peer_python else None
        return found

    def peer(self) -> dict[str, Any] | None:
        """Return None if it is not installed."""
        place = f"--store={self.server.url('peer')}"
        answer = subprocess.run(  # noqa: S603 - our own program
            [self.options.peer_python, PEERS, place, *self.same("jobs", "wakeups")],
            cwd=self.folder,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
            stdout=subprocess.PIPE,
            check=False,
        )
        if answer.returncode not in {0, NOT_INSTALLED}:
            sys.exit(f"peers.py failed ({answer.returncode})")
        return json.loads(answer.stdout) if answer.returncode == 0 else None

    def same(self, *names: str) -> list[str]:
        """Return flags of this program for another one."""
        return [f"--{name}={getattr(self.options, name)}" for name in names]

    def show(self, what: str) -> None:
        self.progress.show(self.steps, what)
        self.steps += 1


def medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {
        name: round(statistics.median(one[name] for one in rounds), 3)
        for name in rounds[0]
    }


def merged(peers: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return medians by name and version."""
    return {peers[0]["name"]: medians([p["figures"] for p in peers])} if peers else {}


def machine() -> dict[str, str | int]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory),
        "python": platform.python_version(),
        "event_loop": "asyncio" if loop_factory() is None else "uvloop",
        "sqlite": apsw.sqlite_lib_version(),
    }


def commit_date() -> str:
    command = ["git", "-C", str(ROOT), "show", "--no-patch", "--format=%cs"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return answer.stdout.strip() or "unknown"


def read_entries(folder: Path) -> list[dict[str, Any]]:
    with suppress(FileNotFoundError):
        return json.loads((folder / "speed.json").read_text(encoding="utf-8"))
    return []


def with_entry(
    entries: list[dict[str, Any]], entry: dict[str, Any]
) -> list[dict[str, Any]]:
    """Put the entry first; it replaces one of the same version."""
    return [entry, *(one for one in entries if one["version"] != entry["version"])]


def write_entries(folder: Path, entries: list[dict[str, Any]]) -> None:
    texts = {
        "speed.json": json.dumps(entries, indent=1) + "\n",
        "speed.md": page(entries),
        "speed.svg": svg(entries[0]),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def main(options: argparse.Namespace) -> None:
    entries = read_entries(options.report)
    if not options.draw:
        with (
            tempfile.TemporaryDirectory(prefix="durio-speed-", dir=Path.cwd()) as name,
            PostgresServer(settings=SETTINGS) as server,
        ):
            entry = Release(options, Path(name), server).measure()
        entries = with_entry(entries, entry)
    write_entries(options.report, entries)
    print(f"written: {options.report / 'speed.md'}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.release",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--rounds",
        type=int,
        default=5,
        help="how often to repeat everything (default 5)",
    )
    add("--jobs", type=int, default=30_000, help="jobs per drain (default 30000)")
    add("--wakeups", type=int, default=300, help="wake-ups per round (default 300)")
    add(
        "--passes", type=int, default=4, help="passes that measure CPU time (default 4)"
    )
    text = "a Python that has PgQueuer; default: the report says 'not installed'"
    add("--peer-python", type=Path, metavar="PATH", help=text)
    text = "where to write (default docs/reports)"
    add(
        "--report",
        type=Path,
        default=ROOT / "docs/reports",
        metavar="FOLDER",
        help=text,
    )
    text = "one round of 2,000 jobs, about a minute; the report says that it is a trial"
    add("--quick", action="store_true", help=text)
    add("--draw", action="store_true", help="only write speed.md and speed.svg again")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds: at least 1")
    if options.draw and not (options.report / "speed.json").exists():
        parser.error(f"--draw: {options.report} has no speed.json")
    if options.quick:
        vars(options).update(QUICK)
    if options.peer_python is not None:  # not resolved: a venv's Python is a link
        options.peer_python = options.peer_python.absolute()
    options.report = options.report.absolute()
    options.report.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    main(parse())
