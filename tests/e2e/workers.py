"""Real processes on one file: started, signalled, watched and ended.

Tests wait for conditions (`wait_until`), never for time. Only processes that a Place has
started are ever signalled, each by its own pid.
"""

import asyncio
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import apsw

from durio import App
from durio.model.ids import id_text
from durio.model.job import CANCELLED, DEAD, DONE
from tests.e2e.jobs import make_app
from tests.e2e.ledger import VARIABLE, Ledger

ROOT = Path(__file__).parents[2]
LOOK_SECONDS = 0.02
START_SECONDS = 30.0
FINAL = {DONE, DEAD, CANCELLED}

T = TypeVar("T")

# Makes one host look like several: no life locks, short leases.
ELSEWHERE = {
    "worker": {
        "lease_seconds": 3,
        "heartbeat_seconds": 1,
        "rescue_seconds": 1,
        "leader_seconds": 1,
    }
}


def wait_until(
    condition: Callable[[], T],
    seconds: float,
    what: str,
    *,
    look_seconds: float = LOOK_SECONDS,
) -> T:
    """Poll until the condition holds; return its value."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(look_seconds)


@contextmanager
def reading(path: Path) -> Generator[Any]:
    """Open a database with the bare driver, without changing its log."""
    db: Any = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    db.set_busy_timeout(5000)
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    db.execute("pragma query_only=1")
    try:
        yield db
    finally:
        db.close()


@dataclass(frozen=True)
class Row:
    """A job as stored in the file."""

    state: int
    retried: int
    lost: int
    losses: int
    claim_no: int
    reason: str | None
    result: Any
    progress: Any
    errors: Any


class Process:
    """One process of a test."""

    def __init__(self, command: list[str], log: Path, environ: dict[str, str]) -> None:
        self.log_path = log
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env=environ,
                process_group=0,
            )
        self.pid = self._process.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def records(self) -> list[dict[str, Any]]:
        """Return the log's records, in order."""
        return [json.loads(line) for line in self.log.splitlines() if line[:1] == "{"]

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the log's records of this name."""
        return [row for row in self.records() if row.get("event") == name]

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def send(self, which: signal.Signals) -> None:
        self._process.send_signal(which)

    def kill(self) -> None:
        """Send SIGKILL, and reap the process."""
        self._process.kill()
        self._process.wait(START_SECONDS)

    def stop(self) -> None:
        """Send SIGSTOP; return when every thread of the process is stopped."""
        self.send(signal.SIGSTOP)
        wait_until(self.is_stopped, START_SECONDS, f"process {self.pid} stands still")

    def maps(self) -> str:
        """Return the files that it has mapped, which show the loaded libraries."""
        return Path(f"/proc/{self.pid}/maps").read_text(encoding="utf-8")

    def is_stopped(self) -> bool:
        return is_stopped(self.pid)

    def go_on(self) -> None:
        self.send(signal.SIGCONT)

    def ended(self, seconds: float = START_SECONDS) -> int:
        """Return its exit code, once it has ended by itself."""
        wait_until(
            lambda: self.exit_code is not None,
            seconds,
            f"process {self.pid} ends; see {self.log_path}",
        )
        return self._process.returncode

    def children(self) -> list[int]:
        """Return the processes that it has started and that are not reaped yet."""
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def clear_away(self) -> None:
        if self.exit_code is None:
            children = self.children()
            self.kill()
            for pid in children:  # without their supervisor they would drain first
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def is_stopped(pid: int) -> bool:
    """Whether every thread of a process is stopped."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    states = [(task / "stat").read_text().rpartition(")")[2] for task in tasks]
    return all(state.split()[0] == "T" for state in states)


class Place:
    """A database in a folder of its own, its ledger, and the processes of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "jobs.db"
        self.ledger_folder = folder / "ledger"
        self.ledger_folder.mkdir()
        self.url = f"sqlite:///{self.path}"
        self.settings: dict[str, dict[str, Any]] = {}
        self._processes: list[Process] = []

    def look_like_several_hosts(self) -> None:
        """Let only the lease show a death, and make it short."""
        self.url += "?life=off"
        self.settings = ELSEWHERE

    # --- processes

    def worker(self, *options: str, **settings: Any) -> Process:
        """Start `durio worker`; return when it claims."""
        worker = self.begin_worker(*options, **settings)
        self.started(worker)
        return worker

    def begin_worker(self, *options: str, **settings: Any) -> Process:
        """Start `durio worker`, without waiting for it."""
        return self.run("durio", "worker", "tests.e2e.jobs:app", *options, **settings)

    def worker_that_dies(self, point: str, **settings: Any) -> Process:
        """Start a worker that kills itself at a named point: see runner.py."""
        return self.run("tests.e2e.runner", point, **settings)

    def run(self, module: str, *args: str, **settings: Any) -> Process:
        """Start a Python program; `settings` are the worker's."""
        return self._start(["-m", module, *args], settings)

    def run_script(self, text: str) -> Process:
        """Start a plain script, as a user would write it."""
        script = self.folder / "script.py"
        script.write_text(text)
        return self._start([str(script)], {})

    def _start(self, args: list[str], settings: dict[str, Any]) -> Process:
        log = self.folder / f"{len(self._processes)}.log"
        process = Process([sys.executable, *args], log, self.environ(settings))
        self._processes.append(process)
        return process

    def environ(self, settings: dict[str, Any]) -> dict[str, str]:
        chosen = {**self.settings.get("worker", {}), **settings}
        return {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "DURIO_URL": self.url,
            "DURIO_LOG__FORMAT": "json",
            **{f"DURIO_WORKER__{k.upper()}": str(v) for k, v in chosen.items()},
            VARIABLE: str(self.ledger_folder),
        }

    def started(self, worker: Process) -> None:
        def has_started() -> bool:
            assert worker.exit_code is None, worker.log
            return "worker.started" in worker.log

        wait_until(has_started, START_SECONDS, f"worker {worker.pid} has started")

    def open_gate(self, only: Process | None = None) -> None:
        """Let waiting tasks continue, in all processes or in one."""
        name = "gate" if only is None else f"gate-{only.pid}"
        (self.ledger_folder / name).touch()

    def clear_away(self) -> None:
        # Forked children of a task end when this exists.
        (self.ledger_folder / "over").touch()
        for process in self._processes:
            process.clear_away()

    def logs(self) -> str:
        return "\n".join(process.log for process in self._processes)

    # --- the store, from outside

    def app(self) -> App:
        return make_app(self.url, self.settings)

    def enqueue(self, task: str, *rows: tuple[Any, ...]) -> list[str]:
        """Enqueue one job per row; return their ids."""

        async def ask() -> list[str]:
            async with self.app() as app:
                return [(await app.enqueue(task, *row)).id for row in rows]

        return asyncio.run(ask())

    def enqueue_many(self, task: str, jobs: int) -> list[str]:
        """Enqueue this many jobs of a task without arguments; return their ids."""

        async def ask() -> list[str]:
            async with self.app() as app, asyncio.TaskGroup() as group:
                asked = [group.create_task(app.enqueue(task)) for _ in range(jobs)]
            return [task.result().id for task in asked]

        return asyncio.run(ask())

    def rows(self) -> dict[str, Row]:
        """Return every job, read by the bare driver."""
        found = self.select(
            "select id, state, retried, lost, losses, claim_no, reason, result,"
            " progress, errors from job"
        )
        return {
            id_text(row[0]): Row(
                *row[1:7], *(value and json.loads(value) for value in row[7:])
            )
            for row in found
        }

    def count(self, state: int) -> int:
        sql = "select count(*) from job where state = ?"
        return self.select(sql, state)[0][0]

    def check(self, pragma: str) -> list[str]:
        return [row[0] for row in self.select(f"pragma {pragma}")]

    def select(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with reading(self.path) as db:
            return db.execute(sql, values).fetchall()

    @contextmanager
    def writer_lock(self) -> Iterator[None]:
        """While this is held, no process is inside a transaction."""
        path = Path(f"{self.path}-durio") / "writer.lock"
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # --- waiting and judging

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.ledger_folder)

    def wait_for(self, ev: str, jobs: int, seconds: float = START_SECONDS) -> None:
        """Wait until the ledger has this event for this many jobs."""
        wait_until(
            lambda: len(self.ledger.jobs(ev)) >= jobs,
            seconds,
            f"{jobs} jobs with {ev!r}",
        )

    def wait_for_attempt(self, number: int, jobs: int) -> None:
        """Wait until this many jobs have begun this attempt."""
        wait_until(
            lambda: (
                sum(line.attempt == number for line in self.ledger.of("start")) >= jobs
            ),
            START_SECONDS,
            f"{jobs} jobs at attempt {number}",
        )

    def wait_final(self, ids: list[str], seconds: float) -> dict[str, Row]:
        """Wait until every one of these jobs has ended."""

        def finals() -> dict[str, Row]:
            rows = self.rows()
            there = all(job in rows and rows[job].state in FINAL for job in ids)
            return rows if there else {}

        return wait_until(finals, seconds, f"{len(ids)} jobs are final")

    def check_all_done(
        self, ids: list[str], seconds: float, *, killed: tuple[Process, ...] = ()
    ) -> dict[str, Row]:
        """Check that every job is done, each finish accepted once, every re-run explained.

        Only a kill explains a re-run.
        """
        rows = self.wait_final(ids, seconds)
        assert set(rows) == set(ids), "as many jobs as were enqueued"
        others = {key: repr(row) for key, row in rows.items() if row.state != DONE}
        assert not others, others
        ledger, guilty = self.ledger, {process.pid for process in killed}
        for job, ends in ledger.by_job("accepted").items():
            assert len(ends) == 1, f"{job} was accepted twice: {ends}"
        for job, starts in ledger.by_job("start").items():
            again = [line for line in starts[:-1] if line.pid not in guilty]
            assert not again, f"{job} ran again without a reason: {starts}"
            assert len(starts) <= rows[job].claim_no
        effects = ledger.by_job("effect")
        assert set(effects) == set(ids), "a job is done without its effect"
        assert self.check("quick_check") == ["ok"]
        return rows

    def seconds_to_run_again(self, victim: Process, killed_ns: int) -> float:
        """Return the time from the kill until all jobs of the victim run in other
        processes.
        """
        ledger = self.ledger
        held = ledger.jobs("start", pid=victim.pid) - ledger.jobs(
            "accepted", pid=victim.pid
        )
        again = {
            line.job: line.mono_ns
            for line in reversed(ledger.of("start"))
            if line.job in held and line.pid != victim.pid
        }
        return max((at - killed_ns for at in again.values()), default=0) / 1e9


def seeded() -> random.Random:
    """Return a random source that can be replayed: its seed is printed."""
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    return random.Random(seed)  # noqa: S311 - no secret


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
