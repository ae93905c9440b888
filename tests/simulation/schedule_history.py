"""The history of one schedule in a simulated world, as the checks read it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from durio.testing.clock import EPOCH, STARTED_SECONDS
from tests.simulation.checks import FINAL_KINDS, FIRST_FINAL, Case
from tests.simulation.ledger import LedgerLine
from tests.simulation.schedule_recorder import MadeJob
from tests.simulation.schedule_times import ScheduleRule
from tests.simulation.schedule_workload import ScheduleWish

MARKS = 10  # more than any schedule gets
REQUEST_SECONDS = 60.0  # a request is written at most this long after it was sent


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """A schedule as it was stored."""

    rule: ScheduleRule
    is_paused: bool
    next_at: float | None
    waiting: list[float]

    @property
    def is_complete(self) -> bool:
        """Whether every tick of it makes a job, however late."""
        rule = self.rule
        is_all = rule.catchup == "all" and rule.catchup_max >= 1000
        is_running = not self.is_paused and not rule.fixed_delay
        return is_all and is_running and rule.overlap == "allow"


@dataclass(frozen=True, slots=True)
class ScheduleStep:
    """One write of a schedule."""

    place: int  # of its line in the ledger
    line: LedgerLine
    before: ScheduleState | None  # None: there was no such schedule
    after: ScheduleState | None

    @property
    def is_client(self) -> bool:
        return self.line.fields["is_client"]

    @property
    def made(self) -> list[MadeJob]:
        return self.line.fields["made"]

    @property
    def made_times(self) -> list[float]:
        return [job.due for job in self.made]

    @property
    def reads(self) -> list[tuple[float, int]]:
        """Time of the store and place in the ledger of each read that it may follow."""
        return self.line.fields["reads"]


class WallPeriod(NamedTuple):
    """The lowest and the highest time of the store in some period of the world."""

    low: float
    high: float


class WorldTimes:
    """What all schedules of a world share: ends of jobs, and steps of the clock."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.steps: list[tuple[float, float]] = [(0.0, 0.0)]  # at, of the wall clock
        self.schedule_lines: dict[int, list[tuple[int, LedgerLine]]] = {}
        self.ends: dict[int, tuple[int, float]] = {}  # job -> place, time of the store
        ticks: set[int] = set()
        for place, entry in enumerate(case.ledger.entries):
            if entry.what == "clock":
                self.steps.append((entry.at, entry.fields["step"]))
            elif entry.what == "schedule":
                self.schedule_lines.setdefault(entry.n or 0, []).append((place, entry))
            elif entry.what == "tick":
                ticks.add(entry.n or 0)
            elif entry.n in ticks and is_final(entry):
                self.ends.setdefault(entry.n or 0, (place, self.wall(entry.at)))

    def wall(self, at: float) -> float:
        """Return the time of the store now, while the ledger is read in order."""
        return EPOCH - STARTED_SECONDS + at + self.steps[-1][1]

    def period(self, since: float, until: float) -> WallPeriod:
        base = EPOCH - STARTED_SECONDS
        following = [at for at, _ in self.steps[1:]] + [float("inf")]
        times = [
            base + at + step
            for (began, step), ended in zip(self.steps, following, strict=True)
            if began <= until and ended >= since
            for at in (max(began, since), min(ended, until))
        ]
        return WallPeriod(min(times), max(times))

    def is_live(self, jobs: set[int], place: int) -> bool:
        """Whether one of these jobs had not ended before this place of the ledger."""
        never = len(self.case.ledger.entries), 0.0
        return any(self.ends.get(job, never)[0] > place for job in jobs)


def is_final(entry: LedgerLine) -> bool:
    if entry.what == "end":
        return entry.fields["kind"] in FINAL_KINDS
    return entry.what == "rescued" and entry.fields["state"] >= FIRST_FINAL


class ScheduleHistory:
    """All writes of one schedule, in order."""

    def __init__(self, times: WorldTimes, n: int, wish: ScheduleWish) -> None:
        self.times = times
        self.case = times.case
        self.n = n
        self.wish = wish
        self.steps: list[ScheduleStep] = []
        before: ScheduleState | None = None
        for place, line in times.schedule_lines.get(n, []):
            after = state_of(line)
            self.steps.append(ScheduleStep(place, line, before, after))
            before = after

    @property
    def last(self) -> ScheduleState | None:
        return self.steps[-1].after if self.steps else None

    @property
    def is_over(self) -> bool:
        """Whether the world lasted long enough for its last tick."""
        at = max(self.wish.until, self.case.healed_at)
        return self.case.world.seconds > at + REQUEST_SECONDS

    @cached_property
    def lives(self) -> list[list[ScheduleStep]]:
        """The steps from each creation to the deletion, which is not included."""
        found: list[list[ScheduleStep]] = []
        for step in self.steps:
            if step.before is None and step.after is not None and step.is_client:
                found.append([])
            if step.after is not None and found:
                found[-1].append(step)
        return found

    def periods(self) -> Iterator[tuple[list[ScheduleStep], bool]]:
        """Yield the steps from each change to the next, and whether it is the last."""
        for life in self.lives:
            changes = [i for i, step in enumerate(life) if is_change(step)]
            for first, beyond in pairwise([*changes, len(life)]):
                steps = life[first:beyond]
                yield steps, steps[-1] is self.steps[-1]

    def watched(self) -> Iterator[tuple[ScheduleStep, set[int]]]:
        """Yield each step, and the jobs before it whose end a scheduler looks for."""
        for life in self.lives:
            jobs: set[int] = set()
            for step in life:
                yield step, set(jobs)
                if step.after is not None and step.after.rule.is_watched:
                    jobs |= {job.n for job in step.made}

    def request_period(self, step: ScheduleStep) -> WallPeriod:
        """Return the time of the store between a request and its write."""
        until, acts = step.line.at, requests_of(step)
        sent = [
            line.at
            for line in self.case.of(self.n, "sched.invoke")
            if until - REQUEST_SECONDS <= line.at <= until
            and (line.fields["act"], line.fields["mark"]) in acts
        ]
        return self.times.period(min(sent, default=until), until)

    def states(self, since: float, until: float) -> list[ScheduleState | None]:
        """Return the states that it had between these times of the world."""
        found: list[ScheduleState | None] = [None]
        for step in self.steps:
            if step.line.at < since:
                found = [step.after]
            elif step.line.at <= until:
                found.append(step.after)
        return found


def requests_of(step: ScheduleStep) -> set[tuple[str, int]]:
    """Return act and mark of the requests that may have written this."""
    before, after = step.before, step.after
    if after is None:
        return set()
    if before is None or before.rule != after.rule:
        return {("create" if before is None else "change", after.rule.mark)}
    act = "run" if step.made else "pause" if after.is_paused else "resume"
    return {(act, mark) for mark in range(MARKS)}


def is_change(step: ScheduleStep) -> bool:
    """Whether a client has created, changed, paused or resumed it."""
    before, after = step.before, step.after
    if not step.is_client or after is None:
        return False
    is_same = before is not None and before.rule == after.rule
    return not is_same or before is None or before.is_paused != after.is_paused


def state_of(line: LedgerLine) -> ScheduleState | None:
    fields = line.fields
    if fields["body"] is None:
        return None
    rule = ScheduleRule.of(fields["body"])
    waiting: list[float] = fields["waiting"]
    return ScheduleState(rule, fields["is_paused"], fields["next_at"], waiting)
