"""The result of a soak: plain values, written as JSON, read by judge and plot.

Times are seconds since the load began.
"""

import json
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from tests.figures import JobTotals


class PhaseName(StrEnum):
    BASE = "base"  # calm: the throughput that must come back
    FAULTS = "faults"
    HEALED = "healed"


@dataclass(frozen=True)
class Phase:
    name: PhaseName
    begin: float
    end: float


@dataclass(frozen=True)
class Fault:
    """Recorded before it begins; it ends when its victim can work again."""

    kind: str  # kill, stop, term, kill producer
    slot: str  # the victim's slot: worker 1, producer 2
    pid: int
    begin: float
    end: float


@dataclass(frozen=True)
class Vitals:
    """One worker process at one moment."""

    slot: str
    pid: int
    age: float  # of this process
    rss_bytes: int
    fds: int
    ends: int  # accepted from it since the last sample


@dataclass(frozen=True)
class Sample:
    at: float
    seconds: float  # since the last sample
    jobs_per_second: float  # accepted ends
    backlog: int  # acknowledged and not ended
    p50_ms: float | None  # from the enqueue to the first start; None: nothing started
    p99_ms: float | None
    file_bytes: int
    wal_bytes: int
    workers: list[Vitals]
    own_cores: float = 0.0  # busy with the soak
    other_cores: float = 0.0  # busy with anything else on this machine


@dataclass
class Totals(JobTotals):
    """The totals of all reports, and the reruns."""

    reruns: int = 0
    unexplained: int = 0
    unfinished: int = 0  # still in the store when the run was cut short
    quick_check: str = "ok"
    problems: list[str] = field(default_factory=list[str])


@dataclass
class Record:
    command: str
    commit: str
    machine: str
    seed: int
    rate: float  # jobs per second, requested
    retention_seconds: float
    phases: list[Phase] = field(default_factory=list[Phase])
    faults: list[Fault] = field(default_factory=list[Fault])
    samples: list[Sample] = field(default_factory=list[Sample])
    totals: Totals = field(default_factory=Totals)
    cut_short: bool = False  # stopped early; then the last phase is incomplete

    def cut(self, now: float) -> None:
        """Remove what was planned for later."""
        self.cut_short = True
        self.phases = [
            replace(phase, end=min(phase.end, now))
            for phase in self.phases
            if phase.begin < now
        ]

    @property
    def seconds(self) -> float:
        return self.phases[-1].end if self.phases else 0.0

    def named(self, name: PhaseName) -> list[Phase]:
        return [phase for phase in self.phases if phase.name is name]

    def within(self, begin: float, end: float) -> list[Sample]:
        """The samples whose whole interval lies there."""
        return [s for s in self.samples if begin <= s.at - s.seconds and s.at <= end]

    def lives(self) -> dict[int, list[tuple[float, Vitals]]]:
        """Each worker process, from its first to its last sample."""
        found: dict[int, list[tuple[float, Vitals]]] = {}
        for sample in self.samples:
            for vitals in sample.workers:
                found.setdefault(vitals.pid, []).append((sample.at, vitals))
        return found

    def as_json(self, **more: Any) -> str:
        return json.dumps({**asdict(self), **more}, indent=1)
