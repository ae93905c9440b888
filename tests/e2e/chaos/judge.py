"""The verdict on one cell: the ledger and the nemesis against a dump of the store.

Pure and offline: lines and rows in, figures and problems out. The store is asked only
where each job stands in the end; what was asked, begun, done and accepted the ledger says.

attempted       enqueues that were asked
acknowledged    enqueues that the store answered with ok
ok              acknowledged, and in the end that the workload expects, with its effect
lost            acknowledged, and absent, unfinished, or done without an effect
unexpected      stored without an enqueue, or in a final state that the workload excludes
duplicated      stored, ended or had its effect more often than it began
recovered       nobody knew whether it was stored, and it was, once
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.figures import JobTotals

HELD, BROKEN, UNKNOWN = 0, 1, 2
WORDS = {HELD: "held", BROKEN: "broken", UNKNOWN: "unknown"}
# After a disturbance is over, its victim still has to find out what it lost.
LAG_NS = 5 * 10**9
FOREVER = float("inf")
POISON = "chaos.poison"
LOST_MAX = 3  # losses in a row, the last one alone: the job counts as the cause

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """A job in the dump."""

    id: str
    n: int
    task: str
    state: str
    reason: str | None = None
    result: Any = None

    @property
    def is_final(self) -> bool:
        return self.state in {"done", "dead", "cancelled"}

    @property
    def is_dead_by_crash(self) -> bool:
        return (self.state, self.reason) == ("dead", "worker_lost")


@dataclass(frozen=True)
class Disturbance:
    """A disturbance that was recorded before it began."""

    fault: str
    pids: frozenset[int]
    begin_ns: int
    end_ns: float

    def explains(self, before: Line, again: Line) -> bool:
        """Whether it may have ended the attempt `before`, so that `again` followed."""
        touched = {before["pid"], before.get("parent")} & self.pids
        is_in_time = self.begin_ns <= again["mono_ns"]
        return bool(touched) and is_in_time and before["mono_ns"] <= self.end_ns


@dataclass(frozen=True)
class Wanted:
    """What a cell must contain to prove anything, and what it may do."""

    acknowledged_min: int = 30
    faults_min: int = 1
    prunes: bool = False  # final jobs are deleted, so only the ledger has their end
    recovery_seconds: float | None = None  # promised; three times as long is too late


@dataclass
class Verdict(JobTotals):
    """The seven figures, the re-runs, and every broken promise."""

    explained: int = 0
    unexplained: int = 0
    faults: int = 0
    recovery: list[float] = field(default_factory=list[float])
    problems: list[str] = field(default_factory=list[str])
    too_little: list[str] = field(default_factory=list[str])

    @property
    def code(self) -> int:
        if self.problems:
            return BROKEN
        return UNKNOWN if self.too_little else HELD

    @property
    def word(self) -> str:
        return WORDS[self.code]

    @property
    def recovery_p50(self) -> float | None:
        return statistics.median(self.recovery) if self.recovery else None

    @property
    def recovery_max(self) -> float | None:
        return max(self.recovery, default=None)

    def blame(self, what: str, things: Iterable[object]) -> int:
        """Record a broken promise, if there is one; return how often."""
        named = sorted(map(str, things))
        if named:
            self.problems.append(f"{len(named)} {what}: {', '.join(named[:3])}")
        return len(named)


class Evidence:
    """The ledger, sorted."""

    def __init__(self, lines: Sequence[Line]) -> None:
        ordered = sorted(lines, key=lambda line: line["mono_ns"])
        self.by_event: dict[str, list[Line]] = defaultdict(list)
        for line in ordered:
            self.by_event[line["ev"]].append(line)
        self.attempted = self.numbers("enq.invoke")
        self.acknowledged = {line["n"]: line["job"] for line in self.by_event["enq.ok"]}
        self.refused = self.numbers("enq.fail")
        self.starts = self.by_job("start")
        self.effects = self.by_job("effect")
        self.accepted = self.by_job("accepted")
        self.dead = self.by_job("dead")
        self.raised = {
            (x["job"], x["pid"], x["attempt"]) for x in self.by_event["raised"]
        }
        self.disturbances = list(self.read_disturbances())

    def numbers(self, ev: str) -> set[int]:
        return {line["n"] for line in self.by_event[ev]}

    def by_job(self, ev: str) -> dict[str, list[Line]]:
        found: dict[str, list[Line]] = defaultdict(list)
        for line in self.by_event[ev]:
            found[line["job"]].append(line)
        return found

    def read_disturbances(self) -> Iterable[Disturbance]:
        ends = {line["of"]: line["mono_ns"] for line in self.by_event["nemesis.end"]}
        for line in self.by_event["nemesis.begin"]:
            end = FOREVER if line.get("lasting") else ends.get(line["of"], FOREVER)
            pids = frozenset(line["pids"])
            yield Disturbance(line["fault"], pids, line["mono_ns"], end + LAG_NS)

    def reruns(self) -> Iterable[tuple[Line, Line]]:
        """Yield each start but the first of a job, with the one before; without retries."""
        for starts in self.starts.values():
            for before, again in pairwise(starts):
                if (before["job"], before["pid"], before["attempt"]) not in self.raised:
                    yield before, again

    def reason_of(self, before: Line, again: Line) -> Disturbance | None:
        """Return the last disturbance that explains the re-run."""
        found = [d for d in self.disturbances if d.explains(before, again)]
        return found[-1] if found else None

    def expects(self, row: Row) -> bool:
        """Whether the workload expects this end, given what happened."""
        if row.task == POISON:
            return row.is_dead_by_crash
        return row.state == "done" or (
            row.is_dead_by_crash and self.looked_responsible(row.id)
        )

    def looked_responsible(self, job: str) -> bool:
        """Whether a job that kills no worker lost three in a row, the last one alone.

        An attempt without a start was lost before the first line of the task.
        """
        ends = self.dead[job]
        attempts = [line["attempt"] for line in (*self.starts[job], *ends[:1])]
        lost = max(attempts, default=0)
        starts = [x for x in self.starts[job] if x["attempt"] > lost - LOST_MAX]
        kills = [self.kill_of(line) for line in starts]
        if lost < LOST_MAX or None in kills:
            return False
        if not starts or starts[-1]["attempt"] < lost:
            return True
        last, end_ns = starts[-1], kills[-1]
        if ends:  # no job of its process began after that
            end_ns = min(end_ns, ends[0]["mono_ns"])
        return not any(
            line["job"] != job
            and line["pid"] == last["pid"]
            and self.is_open(line, last)
            for line in self.by_event["start"]
            if line["mono_ns"] <= end_ns
        )

    def kill_of(self, start: Line) -> float | None:
        """Return until when the process of this attempt may have begun others, if it was
        hit.

        A kill is recorded before it happens, and the attempt may begin in between. A
        disturbance that was over before the attempt began has not hit it.
        """
        found = [
            FOREVER if d.end_ns == FOREVER else max(d.begin_ns, start["mono_ns"])
            for d in self.disturbances
            if start["pid"] in d.pids and start["mono_ns"] <= d.end_ns - LAG_NS
        ]
        return min(found, default=None)

    def is_open(self, line: Line, last: Line) -> bool:
        """Whether this attempt was still running when the last one of another job began."""
        return not any(
            x["pid"] == line["pid"] and x["mono_ns"] <= last["mono_ns"]
            for ev in ("effect", "raised")
            for x in self.by_event[ev]
            if x["job"] == line["job"]
        )

    def was_blinded(self, job: str) -> bool:
        """Whether a process that ran the job was disturbed, and may not have recorded its
        end.
        """
        pids = {line["pid"] for line in self.starts[job]}
        pids |= {line["parent"] for line in self.starts[job]}
        return any(d.pids & pids for d in self.disturbances)


def judge(lines: Sequence[Line], rows: Sequence[Row], wanted: Wanted) -> Verdict:
    """Compare the ledger with the dump."""
    seen = Evidence(lines)
    verdict = Verdict(
        attempted=len(seen.attempted),
        acknowledged=len(seen.acknowledged),
        faults=len(seen.disturbances),
    )
    by_n: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_n[row.n].append(row)
    judge_jobs(verdict, seen, by_n, wanted)
    judge_ends(verdict, seen, rows)
    judge_reruns(verdict, seen, wanted)
    if verdict.acknowledged < wanted.acknowledged_min:
        verdict.too_little.append(f"only {verdict.acknowledged} jobs acknowledged")
    if verdict.faults < wanted.faults_min:
        verdict.too_little.append(f"only {verdict.faults} faults")
    return verdict


def judge_jobs(
    verdict: Verdict,
    seen: Evidence,
    by_n: Mapping[int, Sequence[Row]],
    wanted: Wanted,
) -> None:
    """Compare the requested jobs with the stored ones."""
    lost: set[int] = set()
    wrong = set(by_n) - seen.attempted
    twice = {n for n, rows in by_n.items() if len(rows) > 1}
    for n, job in seen.acknowledged.items():
        row = by_n[n][0] if by_n.get(n) else None
        is_pruned = row is None and wanted.prunes and bool(seen.accepted[job])
        if is_pruned and seen.effects[job]:
            verdict.ok += n not in twice
        elif row is None or row.id != job or not is_ended(row, seen):
            lost.add(n)
        else:
            verdict.ok += seen.expects(row) and n not in twice
    wrong |= {
        row.n for rows in by_n.values() for row in rows if not row.is_final
    } - lost
    final = [row for rows in by_n.values() for row in rows if row.is_final]
    wrong |= {row.n for row in final if not seen.expects(row)}
    wrong |= seen.refused & set(by_n)
    unknown = seen.attempted - set(seen.acknowledged) - seen.refused
    verdict.recovered = len(unknown & set(by_n) - twice)
    verdict.lost = verdict.blame("lost", lost)
    verdict.unexpected = verdict.blame("unexpected", wrong)
    verdict.duplicated = verdict.blame("stored twice", twice)


def is_ended(row: Row, seen: Evidence) -> bool:
    """Whether it is final; done without an effect is no end."""
    return row.is_final and (row.state != "done" or bool(seen.effects[row.id]))


def judge_ends(verdict: Verdict, seen: Evidence, rows: Sequence[Row]) -> None:
    """Check that each job has one end, of its last attempt, with the result of that one."""
    ends = {job: seen.accepted[job] + seen.dead[job] for job in seen.starts}
    twice = {job for job, told in ends.items() if len(told) > 1}
    times = Counter((x["job"], x["pid"], x["attempt"]) for x in seen.by_event["effect"])
    starts = Counter((x["job"], x["pid"], x["attempt"]) for x in seen.by_event["start"])
    twice |= {key[0] for key, count in times.items() if count > starts[key]}
    twice |= {
        job
        for job, told in ends.items()
        if told and seen.starts[job][-1]["mono_ns"] > told[0]["mono_ns"]
    }
    verdict.duplicated += verdict.blame("ended or had an effect twice", twice)
    done = [row for row in rows if row.state == "done"]
    others = {row.id for row in done if not is_result_of_its_end(row, seen)}
    verdict.unexpected += verdict.blame("with another attempt's result", others)
    unseen = {row.id for row in rows if row.is_final and not ends.get(row.id)}
    blind = {job for job in unseen if not seen.was_blinded(job)}
    verdict.unexpected += verdict.blame("ended though nobody saw it", blind)


def is_result_of_its_end(row: Row, seen: Evidence) -> bool:
    """Whether the stored result is of an attempt that had its effect and was accepted."""
    result: Any = row.result or {}
    attempt = result.get("attempt")
    accepted = [line["attempt"] for line in seen.accepted[row.id]]
    effects = {line["attempt"] for line in seen.effects[row.id]}
    is_own = result.get("n") == row.n and attempt in effects
    return is_own and accepted in ([], [attempt])


def judge_reruns(verdict: Verdict, seen: Evidence, wanted: Wanted) -> None:
    """Check that every second start has a recorded reason, and came soon enough."""
    unexplained: list[str] = []
    for before, again in seen.reruns():
        reason = seen.reason_of(before, again)
        if reason is None:
            unexplained.append(f"{before['job']} of process {before['pid']}")
            continue
        verdict.explained += 1
        since = max(reason.begin_ns, before["mono_ns"])
        verdict.recovery.append((again["mono_ns"] - since) / 1e9)
    verdict.unexplained = verdict.blame("ran again for no reason", unexplained)
    if wanted.recovery_seconds is not None:
        late = [s for s in verdict.recovery if s > 3 * wanted.recovery_seconds]
        promise = f"{wanted.recovery_seconds:g} s"
        verdict.blame(f"re-runs later than three times {promise}", late)
