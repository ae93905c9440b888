"""One soak: workers and producers as real processes, disturbed, measured and counted."""

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.checkout import ROOT
from tests.command import end_children
from tests.e2e.workers import Process, now_ns, wait_until
from tests.soak.nemesis import Nemesis, Slot, phases_of
from tests.soak.outside import Outside
from tests.soak.record import Record
from tests.soak.samples import Sampler
from tests.soak.tally import Tally
from tests.soak.work import VARIABLE

WORKERS, PRODUCERS = 2, 2
TICK_SECONDS = 0.05
START_SECONDS = 60.0
SETTLE_SECONDS = 90.0
NUMBERS_EACH = 10**9  # for one producer process
SETTINGS = {
    "DURIO_WORKER__LEASE_SECONDS": "5",
    "DURIO_WORKER__HEARTBEAT_SECONDS": "1",
    "DURIO_WORKER__RESCUE_SECONDS": "1",
    "DURIO_WORKER__LIFE_SECONDS": "1",
    "DURIO_WORKER__LEADER_SECONDS": "2",
    "DURIO_WORKER__GRACE_SECONDS": "5",
    "DURIO_RETENTION__RESULT_SECONDS": "10",
    "DURIO_LOG__FORMAT": "json",
}

Progress = Callable[[float, str], None]  # seconds so far, and what is going on


@dataclass
class Soak:
    folder: Path
    record: Record
    seconds: float
    every: float  # seconds between two samples
    progress: Progress
    workers: list[Slot] = field(default_factory=list[Slot])
    producers: list[Slot] = field(default_factory=list[Slot])
    problems: list[str] = field(default_factory=list[str])
    made: int = 0
    began: float = 0.0

    def __post_init__(self) -> None:
        self.path = self.folder / "jobs.db"
        self.outside = Outside(self.path)
        self.ledger = self.folder / "ledger"
        self.ledger.mkdir()

    # --- processes

    def start(self, name: str, *args: str) -> Slot:
        self.made += 1
        log = self.folder / f"{self.made}.log"
        environ = {
            **os.environ,
            **SETTINGS,
            "PYTHONPATH": str(ROOT),
            "DURIO_URL": f"sqlite:///{self.path}",
            "DURIO_RETENTION__DONE_SECONDS": f"{self.record.retention_seconds:g}",
            VARIABLE: str(self.ledger),
        }
        process = Process([sys.executable, "-m", *args], log, environ)
        word = "worker.started" if args[0] == "durio" else ""
        return Slot(name, process, self.now, word)

    def start_worker(self, name: str) -> Slot:
        return self.start(name, "durio", "worker", "tests.soak.work:app")

    def start_producer(self, name: str) -> Slot:
        first, pace = self.made * NUMBERS_EACH, self.record.rate / PRODUCERS
        return self.start(name, "tests.soak.producer", str(first), f"{pace:g}")

    def replace_the_dead(self) -> None:
        for slots, start in (
            (self.workers, self.start_worker),
            (self.producers, self.start_producer),
        ):
            for place, slot in enumerate(slots):
                code = slot.process.exit_code
                if code is not None:
                    self.check_exit(slot, code)
                    slots[place] = start(slot.name)

    def check_exit(self, slot: Slot, code: int) -> None:
        if code not in slot.expected:
            tail = slot.process.log[-500:]
            self.problems.append(f"{slot.name} ended by itself ({code}): {tail}")

    def clear_away(self) -> None:
        for slot in (*self.producers, *self.workers):
            slot.process.clear_away()

    @property
    def now(self) -> float:
        """Seconds since the load began."""
        return time.monotonic() - self.began

    # --- the run

    def play(self) -> Record:
        """Load, faults, recovery, settling; the record has all of it, or all so far."""
        tally: Tally | None = None
        try:
            self.began = time.monotonic()
            names = [f"worker {number + 1}" for number in range(WORKERS)]
            for name in names:
                self.workers.append(self.start_worker(name))
            self.wait_for_workers()
            self.began = time.monotonic()
            tally = Tally(self.ledger, now_ns())
            names = [f"producer {number + 1}" for number in range(PRODUCERS)]
            for name in names:
                self.producers.append(self.start_producer(name))
            self.load(tally)
            self.settle(tally)
        except KeyboardInterrupt:
            self.record.cut(self.now)
            self.clear_away()
            end_children()
        finally:
            self.clear_away()
        if tally is not None:
            self.count(tally)
        return self.record

    def count(self, tally: Tally) -> None:
        """Compute the totals, after all processes have ended."""
        tally.look()
        if self.record.cut_short:
            tally.leave_waiting(self.outside.states)
        self.record.totals = tally.totals(self.record.faults)
        self.record.totals.problems += self.problems
        self.record.totals.quick_check = self.outside.quick_check()

    def wait_for_workers(self) -> None:
        wait_until(
            lambda: all(slot.is_ready for slot in self.workers),
            START_SECONDS,
            "the workers have started",
        )

    def load(self, tally: Tally) -> None:
        record = self.record
        record.phases = phases_of(self.seconds)
        nemesis = Nemesis(record.seed, record.phases)
        record.faults = nemesis.faults
        sampler = Sampler(self.path, tally)
        next_sample = self.every
        while self.now < self.seconds:
            nemesis.tick(self.now, self.workers, self.producers)
            self.replace_the_dead()
            if self.now >= next_sample:
                record.samples.append(
                    sampler.take(self.now, self.workers, self.producers)
                )
                tally.ask_store(self.now, self.outside.states)
                next_sample = max(next_sample + self.every, self.now)
            phase = next(p for p in reversed(record.phases) if p.begin <= self.now)
            self.progress(self.now, phase.name)
            time.sleep(TICK_SECONDS)
        nemesis.tick(self.seconds, self.workers, self.producers)  # resumes paused ones

    def settle(self, tally: Tally) -> None:
        """Stop the load; every job must end, then every process."""
        self.replace_the_dead()
        for slot in self.producers:
            slot.process.send(signal.SIGTERM)
        for slot in self.producers:
            self.check_exit_of(slot, {0, -signal.SIGTERM})
        deadline = time.monotonic() + SETTLE_SECONDS
        tally.look()
        while self.is_open(tally) and time.monotonic() < deadline:
            self.progress(self.seconds, "settling")
            time.sleep(TICK_SECONDS)
            tally.look()
            tally.ask_store(self.now, self.outside.states)
        self.wait_for_workers()
        for slot in self.workers:
            slot.process.send(signal.SIGTERM)
        for slot in self.workers:
            self.check_exit_of(slot, {0})

    def check_exit_of(self, slot: Slot, codes: set[int]) -> None:
        slot.expected |= frozenset(codes)
        self.check_exit(slot, slot.process.ended(START_SECONDS))

    def is_open(self, tally: Tally) -> bool:
        """Whether a job of the ledger or of the store has not ended."""
        return bool(tally.open) or bool(self.outside.unfinished())
