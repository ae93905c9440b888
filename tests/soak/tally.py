"""Reads the ledger as it grows, and tracks the state of every job.

A worker that is killed between the store's answer and its own line leaves a job without
a recorded end. Such a job is looked up in the store while its row exists: only a row in
state done counts as an end.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from durio.model.job import STATE_BY_CODE
from tests.command import undisturbed
from tests.soak.outside import FINAL
from tests.soak.record import Fault, Totals

UNSEEN_SECONDS = 1.0  # from effect to end; then the store is asked
# A writer that is paused in a transaction delays the renewals of all others.
AFTERMATH_SECONDS = 15.0

UNFINISHED = {state.value for state in STATE_BY_CODE} - FINAL

Look = Callable[[Sequence[str]], dict[str, str]]  # job ids -> their states


@dataclass
class Start:
    pid: int
    at: float
    failed: bool = False


@dataclass
class Story:
    """One job: what was promised, started and accepted."""

    asked: float | None = None
    job: str = ""
    acknowledged: bool = False
    starts: list[Start] = field(default_factory=list[Start])
    effect: float | None = None
    accepted: int = 0
    dead: bool = False
    was_done: bool = False  # seen in the store
    is_waiting: bool = False  # seen unfinished in the store, when the run was cut short

    @property
    def has_ended(self) -> bool:
        return self.accepted > 0 or self.was_done or self.dead


@dataclass
class Fresh:
    """What has happened since the last call of `look`."""

    ends: Counter[int] = field(default_factory=Counter[int])  # by process id
    waits: list[float] = field(
        default_factory=list[float]
    )  # seconds to the first start


class Tally:
    def __init__(self, folder: Path, began_ns: int) -> None:
        self._folder, self._began_ns = folder, began_ns
        self._read: dict[Path, int] = defaultdict(int)
        self._numbers: dict[str, int] = {}  # by job id
        self._early: dict[
            str, list[tuple[str, int]]
        ] = {}  # ends before their start is read
        self.stories: dict[int, Story] = defaultdict(Story)
        self.open: set[int] = set()  # acknowledged or started, and not ended

    # --- reading

    @undisturbed()
    def look(self) -> Fresh:
        """Read new lines, in the order of time."""
        lines: list[tuple[int, int, str, int, str]] = []
        for path in self._folder.iterdir():
            for letter, number, job, _, ns in self._new_lines(path):
                lines.append((int(ns), int(path.name), letter, int(number), job))
        fresh = Fresh()
        for ns, pid, letter, number, job in sorted(lines):
            at = (ns - self._began_ns) / 1e9
            if letter in "ad":
                self._ended(job, letter, pid, fresh)
            else:
                self._step(letter, number, job, pid, at, fresh)
        return fresh

    def _new_lines(self, path: Path) -> Iterable[list[str]]:
        with path.open("rb") as file:
            file.seek(self._read[path])
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self._read[path] += whole
        return (line.split() for line in data[:whole].decode().splitlines())

    def _step(
        self, letter: str, number: int, job: str, pid: int, at: float, fresh: Fresh
    ) -> None:
        story = self.stories[number]
        if letter == "i":
            story.asked = at
        elif letter == "k":
            story.acknowledged = True
            self._named(number, story, job, fresh)
        elif letter == "s":
            if not story.starts and story.asked is not None:
                fresh.waits.append(at - story.asked)
            story.starts.append(Start(pid, at))
            self._named(number, story, job, fresh)
        elif letter == "f":
            mine = [start for start in story.starts if start.pid == pid]
            mine[-1].failed = True
        else:
            story.effect = at

    def _named(self, number: int, story: Story, job: str, fresh: Fresh) -> None:
        story.job = job
        self._numbers[job] = number
        if not story.has_ended:
            self.open.add(number)
        for letter, pid in self._early.pop(job, []):
            self._ended(job, letter, pid, fresh)

    def _ended(self, job: str, letter: str, pid: int, fresh: Fresh) -> None:
        number = self._numbers.get(job)
        if number is None:  # the line that names it is not read yet
            self._early.setdefault(job, []).append((letter, pid))
            return
        story = self.stories[number]
        story.accepted += letter == "a"
        story.dead |= letter == "d"
        fresh.ends[pid] += 1
        self.open.discard(number)

    @undisturbed()
    def ask_store(self, now: float, look: Look) -> None:
        """Find the ends that no process could record."""
        unseen = [
            number
            for number in self.open
            if (effect := self.stories[number].effect) is not None
            and now - effect > UNSEEN_SECONDS
        ]
        states = look([self.stories[number].job for number in unseen])
        for number in unseen:
            story = self.stories[number]
            if states.get(story.job) == "done":
                story.was_done = True
                self.open.discard(number)

    def leave_waiting(self, look: Look) -> None:
        """The run was cut short: jobs that are safe in the store are not lost."""
        unseen = list(self.open)
        states = look([self.stories[number].job for number in unseen])
        for number in unseen:
            story = self.stories[number]
            state = states.get(story.job)
            story.was_done = state == "done"
            story.is_waiting = state in UNFINISHED

    # --- judging

    def totals(self, faults: Sequence[Fault]) -> Totals:
        totals = Totals()
        for number, story in self.stories.items():
            is_ok = story.has_ended and not story.dead and story.effect is not None
            exists = bool(story.starts or story.has_ended)
            is_waiting = story.acknowledged and story.is_waiting
            lost = story.acknowledged and not is_ok and not is_waiting
            unexpected = exists and story.asked is None
            unexplained = unexplained_starts(story, faults)
            totals.attempted += story.asked is not None
            totals.acknowledged += story.acknowledged
            totals.ok += story.acknowledged and is_ok
            totals.lost += lost
            totals.unfinished += is_waiting
            totals.unexpected += unexpected
            totals.duplicated += max(0, story.accepted - 1)
            totals.recovered += exists and not story.acknowledged
            totals.reruns += max(0, len(story.starts) - 1)
            totals.unexplained += unexplained
            if lost or unexpected or unexplained or story.accepted > 1:
                totals.problems.append(f"job {number}: {story}")
        totals.unexpected += len(self._early)
        totals.problems += [f"an end of an unknown job: {job}" for job in self._early]
        return totals


def unexplained_starts(story: Story, faults: Sequence[Fault]) -> int:
    """Starts after the first that no failure and no fault explains."""
    count = 0
    for before, start in zip(story.starts, story.starts[1:], strict=False):
        explained = before.failed or any(
            fault.begin < start.at
            and before.at < fault.end + AFTERMATH_SECONDS
            and (fault.pid == before.pid or fault.kind == "stop")
            for fault in faults
        )
        count += not explained
    return count
