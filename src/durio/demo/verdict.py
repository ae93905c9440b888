"""The verdict: compares what the ledger says with the states in the store.

Pure: takes ledger lines and states, returns findings. The store says only which state each
job has now. The ledger alone says what was acknowledged, begun and recorded.

  lost        acknowledged, but not final in the store, or done without an effect
  doubled     its end was recorded more than once
  phantom     in the store, but never acknowledged
  unexplained ran again without a failure or a kill before, or its end was never seen
  disagreed   ledger and store name different ends
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from durio.demo.record import LedgerLine, LedgerLineKind
from durio.model.outcome import Reason

FINAL = frozenset({"done", "dead", "cancelled"})
FAILED_KINDS = frozenset({LedgerLineKind.FAILED, LedgerLineKind.CRASHING})
ATTEMPT_KINDS = FAILED_KINDS | {LedgerLineKind.STARTED, LedgerLineKind.EFFECT}


@dataclass(slots=True)
class TaskCounts:
    """One row of the table."""

    enqueued: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    retried: int = 0
    rerun: int = 0


@dataclass(slots=True)
class DemoVerdict:
    """The result for all jobs; `problems` is empty when every promise was kept."""

    rows: dict[str, TaskCounts] = field(default_factory=dict[str, TaskCounts])
    jobs: int = 0  # acknowledged jobs, without those cancelled on request
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    lost: int = 0
    doubled: int = 0
    rerun: int = 0
    kills: int = 0
    repeated: int = 0
    refused: int = 0  # by a full queue
    poisoned: int = 0  # dead because they crash every process that runs them
    problems: list[str] = field(default_factory=list[str])

    @property
    def line(self) -> str:
        """The last line of the demo."""
        return (
            f"{self.jobs} jobs: {self.done} done, {self.dead} dead, "
            f"{self.lost} lost, {self.doubled} doubled"
        )

    def add_problem(self, what: str, jobs: Iterable[str]) -> int:
        """Add a problem if any job has it; return the number of these jobs."""
        named = sorted(jobs)
        if named:
            self.problems.append(f"{len(named)} {what}: {', '.join(named[:3])}")
        return len(named)


class LedgerIndex:
    """The ledger's lines by job."""

    def __init__(self, lines: Sequence[LedgerLine]) -> None:
        by_event: dict[str, list[LedgerLine]] = defaultdict(list)
        self.attempt_lines: dict[str, list[LedgerLine]] = defaultdict(list)
        for entry in lines:
            by_event[entry.ev].append(entry)
            if entry.ev in ATTEMPT_KINDS:
                self.attempt_lines[entry.job].append(entry)
        self.tasks = {
            entry.job: entry.task for entry in by_event[LedgerLineKind.ENQUEUED]
        }
        self.repeated = {entry.job for entry in by_event[LedgerLineKind.REPEATED]}
        self.cancel_requested = {
            entry.job for entry in by_event[LedgerLineKind.CANCELLED]
        }
        self.killed = {entry.victim for entry in by_event[LedgerLineKind.KILLED]}
        self.kills_begun = {entry.victim for entry in by_event[LedgerLineKind.KILLING]}
        self.retried = Counter(entry.task for entry in by_event[LedgerLineKind.RETRIED])
        self.refused = len(by_event[LedgerLineKind.REFUSED])
        self.poisoned: set[str] = set()
        self.ends: dict[str, list[str]] = defaultdict(list)
        for entry in by_event[LedgerLineKind.FINISHED]:
            self.ends[entry.job].append(entry.state)
            if entry.reason == Reason.WORKER_LOST:
                self.poisoned.add(entry.job)

    def end_of(self, job: str) -> str:
        """Return the end of a job according to the ledger; empty if there is none."""
        if self.ends[job]:
            return self.ends[job][-1]
        last = self.attempt_lines[job][-1] if self.attempt_lines[job] else None
        if last and last.ev == LedgerLineKind.EFFECT and self.was_killed(last):
            # The process that would have written the end was killed.
            return "done"
        return "cancelled" if job in self.cancel_requested else ""

    def has_crashed(self, job: str) -> bool:
        return any(
            step.ev == LedgerLineKind.CRASHING for step in self.attempt_lines[job]
        )

    def has_effect(self, job: str) -> bool:
        return any(step.ev == LedgerLineKind.EFFECT for step in self.attempt_lines[job])

    def was_killed(self, line: LedgerLine) -> bool:
        """Whether the process that wrote the line was killed, or died with its worker."""
        return line.pid in self.kills_begun or line.parent in self.kills_begun

    def was_rerun(self, job: str) -> bool:
        """Whether an attempt died with a killed process and another followed."""
        return any(
            self.was_killed(before) and before.ev not in FAILED_KINDS
            for before in self.restarts(job)
        )

    def is_unexplained(self, job: str) -> bool:
        """Whether an attempt began although the one before it neither failed nor died."""
        return any(
            not self.was_killed(before) and before.ev not in FAILED_KINDS
            for before in self.restarts(job)
        )

    def restarts(self, job: str) -> Iterable[LedgerLine]:
        """Yield the job's last line before each start but the first."""
        for before, step in pairwise(self.attempt_lines[job]):
            if step.ev == LedgerLineKind.STARTED:
                yield before


def judge(lines: Sequence[LedgerLine], stored: Mapping[str, str]) -> DemoVerdict:
    """Compare the ledger with the states in the store, by job id."""
    seen = LedgerIndex(lines)
    verdict = DemoVerdict(
        kills=len(seen.killed),
        repeated=len(seen.repeated),
        refused=seen.refused,
        poisoned=len(seen.poisoned),
    )
    find_problems(verdict, seen, stored)
    for job, task in seen.tasks.items():
        row = verdict.rows.setdefault(task, TaskCounts())
        row.enqueued += 1
        end = seen.end_of(job)
        row.done += end == "done"
        row.dead += end == "dead"
        row.cancelled += end == "cancelled"
        row.rerun += seen.was_rerun(job)
    for task, row in verdict.rows.items():
        row.retried = seen.retried[task]
        verdict.done += row.done
        verdict.dead += row.dead
        verdict.cancelled += row.cancelled
        verdict.rerun += row.rerun
    verdict.jobs = len(seen.tasks) - verdict.cancelled
    return verdict


def find_problems(
    verdict: DemoVerdict, index: LedgerIndex, stored: Mapping[str, str]
) -> None:
    """Add every promise that was not kept."""
    jobs = index.tasks
    ended = {job: index.end_of(job) for job in jobs}
    lost = {job for job in jobs if stored.get(job) not in FINAL}
    lost |= {j for j in jobs if stored.get(j) == "done" and not index.has_effect(j)}
    verdict.lost = verdict.add_problem("lost", lost)
    doubled = {job for job, ends in index.ends.items() if len(ends) > 1}
    verdict.doubled = verdict.add_problem("doubled", doubled)
    verdict.add_problem("stored but never acknowledged", set(stored) - set(jobs))
    verdict.add_problem(
        "seen but never acknowledged", set(index.attempt_lines) - set(jobs)
    )
    verdict.add_problem("repeated but never acknowledged", index.repeated - set(jobs))
    others = {j for j in jobs if j not in lost and ended[j] and ended[j] != stored[j]}
    verdict.add_problem("ended otherwise than the store says", others)
    unseen = {j for j in jobs if j not in lost and not ended[j]}
    verdict.add_problem("ended without an end in the ledger", unseen)
    verdict.add_problem("ran again for no reason", filter(index.is_unexplained, jobs))
    cancelled = {job for job, end in ended.items() if end == "cancelled"}
    verdict.add_problem(
        "cancelled without a request", cancelled - index.cancel_requested
    )
    verdict.add_problem(
        "not cancelled after a request", index.cancel_requested - cancelled
    )
    crashed = {job for job in jobs if index.has_crashed(job)}
    verdict.add_problem("dead for crashes of other jobs", index.poisoned - crashed)
    verdict.add_problem("crashed and not dead-lettered", crashed - index.poisoned)


def not_exercised(verdict: DemoVerdict) -> list[str]:
    """Return the events that a run needs to prove anything, and that this one lacks."""
    retried = sum(row.retried for row in verdict.rows.values())
    wanted = {
        "no job was done": verdict.done,
        "no job died": verdict.dead,
        "no job was retried": retried,
        "no job was cancelled": verdict.cancelled,
        "no order came twice": verdict.repeated,
        "no worker was killed": verdict.kills,
        "no job ran again after the kill": verdict.rerun,
        "no full queue refused a job": verdict.refused,
        "no job was dead-lettered for crashing processes": verdict.poisoned,
    }
    return [complaint for complaint, count in wanted.items() if not count]
