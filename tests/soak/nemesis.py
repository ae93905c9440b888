"""What goes wrong, and when: phases, and seeded faults on real processes.

Worker 1 is only ever paused, so that one process lives as long as the run and shows the
effects of a long life. Worker 2 is also killed and stopped, and replaced immediately.
"""

import random
import signal
from dataclasses import dataclass, replace

from tests.e2e.workers import Process
from tests.soak.record import Fault, Phase, PhaseName

BASE_SHARE, BASE_SECONDS_MAX = 0.25, 60.0
CYCLE_SECONDS = 90.0  # faults, then recovery
FAULTS_SHARE = 0.5  # of a cycle
GAP_SECONDS = (2.0, 5.0)  # between two faults
STOP_SECONDS = (1.0, 9.0)  # pauses, shorter and longer than a lease
KINDS = {"stop": 3, "kill": 3, "term": 2, "kill producer": 1}


def phases_of(seconds: float) -> list[Phase]:
    """A calm base, then faults and recovery by turns, all cycles of one length."""
    base = min(BASE_SHARE * seconds, BASE_SECONDS_MAX)
    cycles = max(1, round((seconds - base) / CYCLE_SECONDS))
    cycle = (seconds - base) / cycles
    phases = [Phase(PhaseName.BASE, 0.0, base)]
    for number in range(cycles):
        begin = base + number * cycle
        middle = begin + FAULTS_SHARE * cycle
        phases.append(Phase(PhaseName.FAULTS, begin, middle))
        phases.append(Phase(PhaseName.HEALED, middle, begin + cycle))
    return phases


@dataclass
class Slot:
    """A worker or producer by name, and the process that runs as it now."""

    name: str
    process: Process
    began: float  # start of this process
    ready_text: str  # in its log, once it is ready
    expected: frozenset[int] = frozenset()  # exit codes that a fault explains
    stopped_until: float | None = None

    @property
    def is_ready(self) -> bool:
        if self.ready_text and self.ready_text in self.process.log:
            self.ready_text = ""  # it stays ready: the log is not read again
        return not self.ready_text

    @property
    def can_be_hit(self) -> bool:
        return (
            self.stopped_until is None
            and not self.expected
            and self.process.exit_code is None
            and self.is_ready
        )


class Nemesis:
    """Carries out faults in the phases for them; the same seed draws the same faults."""

    def __init__(self, seed: int, phases: list[Phase]) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self._phases = [p for p in phases if p.name is PhaseName.FAULTS]
        self._strike_at = self._phases[0].begin + self._chance.uniform(0.2, 1.0)
        self.faults: list[Fault] = []

    def tick(self, now: float, workers: list[Slot], producers: list[Slot]) -> None:
        """Carry out a fault if it is time; resume processes whose pause is over."""
        in_faults = any(phase.begin <= now < phase.end for phase in self._phases)
        for slot in workers:
            if slot.stopped_until is not None and (
                now >= slot.stopped_until or not in_faults
            ):
                self._go_on(now, slot)
        while in_faults and now >= self._strike_at:
            self._strike(now, workers, producers)
            self._strike_at += self._chance.uniform(*GAP_SECONDS)
        if not in_faults:  # the next phase of faults begins with one
            later = [phase.begin for phase in self._phases if phase.begin > now]
            if later and self._strike_at < later[0]:
                self._strike_at = later[0] + self._chance.uniform(0.2, 1.0)

    def _strike(self, now: float, workers: list[Slot], producers: list[Slot]) -> None:
        [kind] = self._chance.choices([*KINDS], [*KINDS.values()])
        stopped, producer = self._chance.choice(workers), self._chance.choice(producers)
        seconds = self._chance.uniform(*STOP_SECONDS)
        slot = {"stop": stopped, "kill producer": producer}.get(kind, workers[-1])
        if not slot.can_be_hit:
            return
        end = now + seconds if kind == "stop" else now
        self.faults.append(Fault(kind, slot.name, slot.process.pid, now, end))
        if kind == "stop":
            slot.stopped_until = end
            slot.process.send(signal.SIGSTOP)
        elif kind == "term":
            slot.expected = frozenset({0, 128 + signal.SIGTERM})
            slot.process.send(signal.SIGTERM)
        else:
            slot.expected = frozenset({-signal.SIGKILL})
            slot.process.send(signal.SIGKILL)

    def _go_on(self, now: float, slot: Slot) -> None:
        slot.process.go_on()
        slot.stopped_until = None
        stops = [
            place
            for place, fault in enumerate(self.faults)
            if fault.pid == slot.process.pid and fault.kind == "stop"
        ]
        self.faults[stops[-1]] = replace(self.faults[stops[-1]], end=now)
