r"""Jobs with a limited key on several worker processes, some of which are killed.

    .venv/bin/python -m benchmarks.limited_fleet --keys 1000 --jobs 40000 --kills 3
    .venv/bin/python -m benchmarks.limited_fleet --keys 1 --cap 10 --waiting 100000 \
        --snapshot-seconds 600

Stores jobs with `Concurrency(cap, key=...)`, lets worker processes run them, and kills one
after each equal part of the jobs; another takes its place. Each job notes when it starts and
ends, in a file. With `--snapshot-seconds` (PostgreSQL) that many jobs wait before the gates all
the time, first for 30 s and then while another connection keeps a snapshot open, so that no
dead row version can be removed. Prints jobs per second. Exits with 1 if more jobs of a key ran
at once than its limit allows, if a job is lost, or if a place was left taken.
"""

import argparse
import asyncio
import os
import struct
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.limits import ROWS, stores
from benchmarks.postgres_target import connected
from durio import App, Concurrency

NOTES_VARIABLE, CAP_VARIABLE = "LIMITED_FLEET_NOTES", "LIMITED_FLEET_CAP"
NOTE = struct.Struct("<qqqq")  # key, 1 for a start and -1 for an end, process, time
WITHOUT_SECONDS = SHOWN_SECONDS = 30.0
WAIT_SECONDS = 1800.0
APP_PATH = "benchmarks.limited_fleet:make_app"


def make_app(url: str | None = None) -> App:
    app = App(url, name="limits")
    cap = int(os.environ[CAP_VARIABLE])
    app.task(name="noted", limits=[Concurrency(cap, key="key")])(noted)
    return app


async def noted(key: int) -> None:
    """Note the start and the end, and let other jobs run in between."""
    note(key, 1)
    await asyncio.sleep(0)
    note(key, -1)


def note(key: int, change: int) -> None:
    global notes_file  # noqa: PLW0603 - opened by the first job of the process
    if notes_file is None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        notes_file = os.open(os.environ[NOTES_VARIABLE], flags, 0o600)
    os.write(notes_file, NOTE.pack(key, change, os.getpid(), time.monotonic_ns()))


notes_file: int | None = None


class Fleet:
    """Worker processes, and what their jobs have noted."""

    def __init__(self, folder: Path, url: str) -> None:
        self.notes = folder / "notes"
        self.notes.touch()
        self.log = (folder / "worker.log").open("wb")
        self.command = [sys.executable, "-m", "durio", "worker", APP_PATH]
        self.command += ["--store", url, "--concurrency", "50"]
        self.environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            NOTES_VARIABLE: str(self.notes),
        }
        self.workers: list[subprocess.Popen[bytes]] = []
        self.killed: dict[int, int] = {}  # process -> when it had ended

    def start(self) -> None:
        log = self.log
        self.workers.append(
            subprocess.Popen(  # noqa: S603 - our own program
                self.command, env=self.environ, stdout=log, stderr=log
            )
        )

    def kill_oldest(self) -> None:
        worker = self.workers.pop(0)
        worker.kill()
        worker.wait()
        self.killed[worker.pid] = time.monotonic_ns()

    def ended(self) -> int:
        """Return about how many jobs have ended, by the size of the notes."""
        return self.notes.stat().st_size // (2 * NOTE.size)

    def most_at_once(self) -> int:
        """Return the most jobs of one key that ran at a time."""
        changes: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        running: defaultdict[tuple[int, int], int] = defaultdict(int)
        for key, change, process, at in NOTE.iter_unpack(self.notes.read_bytes()):
            changes[key].append((at, change))
            running[key, process] += change
        for (key, process), number in running.items():
            for _ in range(number):  # jobs that were running when it was killed
                changes[key].append((self.killed[process], -1))
        most = 0
        for of_key in changes.values():
            now = 0
            for _, change in sorted(of_key):
                now += change
                most = max(most, now)
        return most


@contextmanager
def fleet_of(processes: int, url: str) -> Generator[Fleet]:
    with TemporaryDirectory(prefix="durio-fleet-", dir=Path.cwd()) as folder:
        fleet = Fleet(Path(folder), url)
        try:
            for _ in range(processes):
                fleet.start()
            yield fleet
        finally:
            for worker in fleet.workers:
                worker.terminate()
            for worker in fleet.workers:
                worker.wait()
            fleet.log.close()


class Producer:
    """Stores jobs with the next keys."""

    def __init__(self, app: App, keys: int) -> None:
        self.app, self.keys = app, keys
        self.stored = 0

    async def add(self, jobs: int) -> None:
        for _ in range(0, jobs, ROWS):
            first = self.stored
            rows = [(n % self.keys,) for n in range(first, first + ROWS)]
            await self.app.named("noted").enqueue_many(rows)
            self.stored += ROWS


async def run_with_kills(
    fleet: Fleet, producer: Producer, jobs: int, kills: int
) -> None:
    await producer.add(jobs)
    began = time.monotonic()
    for number in range(1, kills + 1):
        await until_number(fleet, number * producer.stored // (kills + 1))
        fleet.kill_oldest()
        fleet.start()
    await until_ended(fleet, producer)
    took = time.monotonic() - began
    print(
        f"{producer.stored:,} jobs in {took:.1f} s, {kills} workers killed", flush=True
    )


async def keep_waiting(
    fleet: Fleet, producer: Producer, waiting: int, seconds: float, head: str
) -> None:
    """Let that many jobs wait all the time, and print the speed at which others run."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        began, before = time.monotonic(), fleet.ended()
        stop = min(until, began + SHOWN_SECONDS)
        while time.monotonic() < stop:
            await producer.add(max(0, waiting - (producer.stored - fleet.ended())))
            await asyncio.sleep(0.05)
        took, done = time.monotonic() - began, fleet.ended() - before
        print(f"{head}: {done / took:,.0f} jobs/s, {waiting:,} wait", flush=True)


@asynccontextmanager
async def snapshot(url: str) -> AsyncGenerator[None]:
    async with connected(url) as ask:
        await ask("set idle_in_transaction_session_timeout = 0")
        await ask("begin isolation level repeatable read")
        await ask("select count(*) from pg_class")
        yield
        await ask("rollback")


async def until_number(fleet: Fleet, ended: int) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while (found := fleet.ended()) < ended:
        if time.monotonic() > until:
            sys.exit(f"{found:,} of {ended:,} jobs ended in {WAIT_SECONDS:.0f} s")
        await asyncio.sleep(0.02)


async def until_ended(fleet: Fleet, producer: Producer) -> None:
    """Wait until every job is done or, as kills have met it often, dead."""
    await until_number(fleet, producer.stored - 100)
    unended = producer.app.jobs(state=("ready", "blocked", "scheduled", "running"))
    for _ in range(600):
        if not await unended.count():
            return
        await asyncio.sleep(0.2)
    sys.exit(f"{await unended.count()} jobs have not ended")


async def main(options: argparse.Namespace) -> None:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(stores(options.store))
        app = await stack.enter_async_context(make_app(url))
        fleet = stack.enter_context(fleet_of(options.processes, url))
        producer = Producer(app, options.keys)
        if options.snapshot_seconds:
            size, seconds = options.waiting, options.snapshot_seconds
            await producer.add(size)
            await keep_waiting(
                fleet, producer, size, WITHOUT_SECONDS, "no old snapshot"
            )
            async with snapshot(url):
                await keep_waiting(fleet, producer, size, seconds, "snapshot held")
            await until_ended(fleet, producer)
        else:
            await run_with_kills(fleet, producer, options.jobs, options.kills)
        dead = await app.jobs(state="dead").count()
        done = await app.jobs(state="done").count()
        left = [g for g in await (await app.store()).gates("1k:", limit=9999) if g.used]
        most = fleet.most_at_once()
    print(f"{done:,} done, {dead} dead by kills, at most {most} of a key at once")
    if left or most > options.cap or done + dead != producer.stored:
        sys.exit(f"places left: {left[:3]}; {producer.stored} jobs were stored")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=40_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--cap", type=int, default=2)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--snapshot-seconds", type=float, default=0.0)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="postgres")
    chosen = parser.parse_args()
    os.environ[CAP_VARIABLE] = str(chosen.cap)
    asyncio.run(main(chosen))
