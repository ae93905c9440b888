"""The field of one cell: a file, four workers, two producers, and the record of faults."""

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from durio.model.ids import id_text
from durio.model.job import DONE, STATE_BY_CODE
from tests.e2e.chaos.jobs import CHILDLESS, app
from tests.e2e.chaos.judge import Line, Row
from tests.e2e.workers import Place, Process, now_ns, wait_until

WORKERS, PRODUCERS = 4, 2
PER_SECOND = 20.0  # enqueues of one producer
MODULE = "tests.e2e.chaos.jobs:app"
NUMBERS = 900_000_000  # first number of the nemesis's own jobs
HEAL_SECONDS = 60.0
END_SECONDS = 45.0
LOOK_SECONDS = 0.1
DUMP = "dump.json"

T = TypeVar("T")


def until(condition: Callable[[], T], seconds: float, what: str) -> T:
    """Poll until the condition holds; polls are rare, because the machine is busy."""
    return wait_until(condition, seconds, what, look_seconds=LOOK_SECONDS)


class Record:
    """The nemesis's append-only file; a disturbance is recorded before it begins."""

    def __init__(self, path: Path) -> None:
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        self._numbers = count(1)

    def note(self, ev: str, **facts: Any) -> None:
        line = {"ev": ev, "job": "", "pid": os.getpid(), **facts, "mono_ns": now_ns()}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def begin(self, fault: str, pids: list[int], *, lasting: bool = False) -> int:
        of = next(self._numbers)
        self.note("nemesis.begin", fault=fault, pids=pids, of=of, lasting=lasting)
        return of

    def end(self, of: int) -> None:
        self.note("nemesis.end", of=of)

    def close(self) -> None:
        os.close(self._file)


class Field(Place):
    """A Place with a load on it."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder)
        self.rng = rng
        self.record = Record(self.ledger_folder / "nemesis.jsonl")
        self.workers: list[Process] = []
        self.producers: list[Process] = []
        self.extra = {CHILDLESS: "1"}  # environment of every process
        self.state: dict[str, Any] = {}  # state of a fault between its strikes
        self.start_one: Callable[[Field], Process] = lambda field: field.begin_worker()
        self.producer_options: Callable[[], list[str]] = list
        self.size, self.producer_size = WORKERS, PRODUCERS
        self.per_second = PER_SECOND
        self.end_seconds = END_SECONDS
        self.is_supervised = False
        self._numbers = count(NUMBERS)
        self._producers_made = count(1)

    def move_to(self, folder: Path) -> None:
        """Keep the database in another folder; ledger and logs stay."""
        self.path = folder / "jobs.db"
        self.url = f"sqlite:///{self.path}"

    # --- processes

    def environ(self, settings: dict[str, Any]) -> dict[str, str]:
        return {**super().environ(settings), **self.extra}

    def begin_worker(self, *options: str, **settings: Any) -> Process:
        return self.run("durio", "worker", MODULE, *options, **settings)

    def begin(self) -> None:
        """Start all processes; wait until workers claim and producers enqueue."""
        # Creates the file, so that a process that dies early leaves it whole.
        self.ask("work", 0.1)
        self.gather()
        self.mend_producers()
        until(
            lambda: len(self.lines_of("enq.ok")) > self.producer_size,
            30,
            "producers enqueue",
        )

    def mend(self) -> None:
        """Start a worker for every one that has ended, as a process manager would."""
        self.workers = [worker for worker in self.workers if worker.exit_code is None]
        while len(self.workers) < self.size:
            self.workers.append(self.start_one(self))

    def gather(self) -> None:
        """Wait until all workers are up; on a busy machine a start takes seconds."""
        self.mend()
        for worker in list(self.workers):
            until(lambda w=worker: is_up(w), 60, f"worker {worker.pid} has started")

    def mend_producers(self) -> None:
        self.producers = [one for one in self.producers if one.exit_code is None]
        while len(self.producers) < self.producer_size:
            self.producers.append(self.begin_producer())

    def begin_producer(self) -> Process:
        index, rate = str(next(self._producers_made)), str(self.per_second)
        options = self.producer_options()
        return self.run("tests.e2e.chaos.producer", index, rate, *options)

    def victim(self) -> Process:
        """Return a worker that has started and is alive."""

        def choose() -> Process | None:
            self.mend()
            living = [w for w in self.workers if "worker.started" in w.log]
            return self.rng.choice(living) if living else None

        return until(choose, 30, "a worker that runs")

    def worker_pids(self) -> list[int]:
        """Return the processes that claim: for a supervisor, its workers."""
        living = [worker for worker in self.workers if worker.exit_code is None]
        if self.is_supervised:
            return [pid for worker in living for pid in worker.children()]
        return [worker.pid for worker in living]

    @property
    def all_processes(self) -> list[Process]:
        return self._processes

    # --- actions of the nemesis

    @contextmanager
    def disturbed(self, fault: str, *pids: int) -> Iterator[None]:
        """Record a disturbance with an end."""
        of = self.record.begin(fault, list(pids))
        yield
        self.record.end(of)

    def kill(self, process: Process, fault: str) -> None:
        self.record.begin(fault, [process.pid, *process.children()], lasting=True)
        process.kill()

    def signal(self, process: Process, which: signal.Signals, *, cuts: bool) -> None:
        """Send a signal; only one that interrupts jobs explains a second start."""
        pids = [process.pid] if cuts else []
        self.record.begin(which.name, pids, lasting=True)
        process.send(which)

    def ask(self, task: str, *args: Any) -> None:
        """Enqueue a job of the nemesis's own, with a number like the others."""
        n = next(self._numbers)

        async def ask() -> None:
            app.url = self.url
            self.record.note("enq.invoke", n=n)
            async with app:
                job = await app.enqueue(task, n, *args)
            self.record.note("enq.ok", n=n, job=job.id)

        asyncio.run(ask())

    def sleep(self, least: float, most: float) -> None:
        time.sleep(self.rng.uniform(least, most))

    def clear_away(self) -> None:
        super().clear_away()
        self.record.close()

    # --- the end of a cell

    def heal(self) -> None:
        """Start all processes; wait until every worker begins a job."""
        self.mend()
        self.mend_producers()
        healed_ns = now_ns()

        def nobody_is_deaf() -> bool:
            self.mend()
            self.mend_producers()
            starts = self.lines_of("start", since_ns=healed_ns)
            busy = {pid for line in starts for pid in (line["pid"], line["parent"])}
            return set(self.worker_pids()) <= busy

        until(nobody_is_deaf, HEAL_SECONDS, "every worker begins a job")

    def finish(self) -> None:
        """Stop producers; wait until every job has ended; then stop all processes."""
        (self.ledger_folder / "stop").touch()
        for producer in self.producers:
            producer.ended()
        left = self.unfinished()
        while left:  # many may wait: no failure while they become fewer

            def are_fewer(before: int = left) -> bool:
                self.mend()
                return self.unfinished() < before

            until(are_fewer, self.end_seconds, f"fewer than {left} jobs are unfinished")
            left = self.unfinished()
        for worker in self.workers:
            self.started(worker)
            worker.send(signal.SIGTERM)
        for worker in self.workers:
            assert worker.ended() == 0, worker.log[-2000:]

    def unfinished(self) -> int:
        """Return the number of jobs that have not ended."""
        return self.select("select count(*) from job where state < ?", DONE)[0][0]

    # --- what the judge gets

    def lines(self) -> list[Line]:
        return ledger_of(self.folder)

    def lines_of(self, ev: str, since_ns: int = 0) -> list[Line]:
        return [
            line
            for line in self.lines()
            if line["ev"] == ev and line["mono_ns"] >= since_ns
        ]

    def dump(self) -> None:
        """Write every job to a file beside the ledger."""
        rows = [
            {
                "id": id_text(row[0]),
                "n": json.loads(row[1])[1]["n"],
                "task": row[2],
                "state": STATE_BY_CODE[row[3]],
                "reason": row[4],
                "result": row[5] and json.loads(row[5]),
            }
            for row in self.stored()
        ]
        (self.folder / DUMP).write_text(json.dumps(rows))

    def stored(self) -> list[tuple[Any, ...]]:
        """Return every job: id, payload, task, state, reason, result."""
        return self.select("select id, payload, task, state, reason, result from job")


def is_up(worker: Process) -> bool:
    """Whether the worker has started; True also after its end, because some die early."""
    return worker.exit_code is not None or "worker.started" in worker.log


def ledger_of(folder: Path) -> list[Line]:
    paths = sorted((folder / "ledger").glob("*.jsonl"))
    return [line for path in paths for line in read(path)]


def dump_of(folder: Path) -> list[Row]:
    return [Row(**row) for row in json.loads((folder / DUMP).read_text())]


def read(path: Path) -> list[Line]:
    """Return the complete lines of one process; a killed one may leave half a line."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
