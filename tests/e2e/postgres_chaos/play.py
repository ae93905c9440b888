"""One run: a load, a shuffled list of strikes, then heal, wait, dump and judge."""

import random
import re
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.chaos.field import dump_of, ledger_of, until
from tests.e2e.chaos.judge import Line, Verdict, Wanted, judge
from tests.e2e.chaos.kill_faults import SAME_HOST_SECONDS
from tests.e2e.postgres_chaos.field import RESUME_SECONDS, SETTINGS, PostgresField
from tests.e2e.postgres_chaos.strikes import CUTS, SERVER, STRIKES
from tests.servers.postgres import PostgresServer

DEADLOCK = "deadlock detected"
COMPLAINT = re.compile(r"\b(?:ERROR|FATAL|PANIC):  (.*)")
BETWEEN_SECONDS = (0.05, 0.3)

Tell = Callable[[int, str], None]


@dataclass(frozen=True)
class ChaosConfig:
    """How many jobs, workers and faults a run has."""

    strikes: Mapping[str, int]
    jobs: int  # acknowledged jobs, at least
    workers: int = 4
    producers: int = 8
    per_second: float = 40.0  # enqueues of one producer
    end_seconds: float = 120.0  # within which at least one more job ends

    def order(self, rng: random.Random) -> list[str]:
        """Return all strikes, shuffled."""
        names = [name for name, times in self.strikes.items() for _ in range(times)]
        rng.shuffle(names)
        return names


@dataclass
class Played:
    """The result of a run."""

    seed: int
    plan: ChaosConfig
    seconds: float
    verdict: Verdict
    struck: Counter[str]
    resumed: Mapping[str, list[float]]  # by fault: seconds until a worker worked again
    complaints: Counter[str] = field(default_factory=Counter[str])


def no_news(_done: int, _name: str) -> None:
    """Ignore progress."""


def play(plan: ChaosConfig, seed: int, folder: Path, tell: Tell = no_news) -> Played:
    """Play it in this folder; processes and server have ended when it returns."""
    began = time.monotonic()
    rng = random.Random(seed)  # noqa: S311 - replayed
    struck: Counter[str] = Counter()
    late = ""
    with PostgresServer(settings=SETTINGS) as server:
        ground = PostgresField(folder, rng, server)
        ground.size, ground.producer_size = plan.workers, plan.producers
        ground.per_second, ground.end_seconds = plan.per_second, plan.end_seconds
        with ground.at_workers, ground.at_producers:
            try:
                ground.begin()
                fight(ground, plan, struck, tell)
            except AssertionError as error:
                late = str(error)
            finally:
                ground.dump()
                ground.clear_away()
        said = server.said()
        (folder / "server.log").write_text(said)
    lines = ledger_of(folder)
    verdict = judge(lines, dump_of(folder), wanted(plan))
    played = Played(seed, plan, 0.0, verdict, struck, resumptions(lines))
    played.complaints = complaints(said)
    look(played, said, [*([late] if late else []), *ground.left])
    played.seconds = time.monotonic() - began
    return played


def fight(
    ground: PostgresField, plan: ChaosConfig, struck: Counter[str], tell: Tell
) -> None:
    """Carry out all strikes, wait for enough jobs, then end everything."""
    order = plan.order(ground.rng)
    for done, name in enumerate(order):
        tell(done, f"{name}, {ground.tail.acknowledged} jobs")
        ground.sleep(*BETWEEN_SECONDS)
        STRIKES[name](ground)
        struck[name] += 1
        ground.mend()
        ground.mend_producers()
        ground.tail.read()

    def are_enough() -> bool:
        ground.tail.read()
        tell(len(order), f"{ground.tail.acknowledged} of {plan.jobs} jobs")
        return ground.tail.acknowledged >= plan.jobs

    until(are_enough, 60 + 3 * plan.jobs / (plan.producers * plan.per_second), "jobs")
    ground.heal()
    ground.finish()


def wanted(plan: ChaosConfig) -> Wanted:
    return Wanted(
        acknowledged_min=plan.jobs,
        faults_min=sum(plan.strikes.values()),
        recovery_seconds=SAME_HOST_SECONDS,
    )


# --- checks of this run only


def look(played: Played, said: str, problems: Iterable[str]) -> None:
    """Add to the verdict what the judge cannot see."""
    verdict = played.verdict
    verdict.problems += problems
    if DEADLOCK in said:
        verdict.problems.append(f"{said.count(DEADLOCK)} times {DEADLOCK}")
    for fault, seconds in played.resumed.items():
        late = [each for each in seconds if each > RESUME_SECONDS]
        verdict.blame(f"workers later than {RESUME_SECONDS:g} s after {fault}", late)
    for name, times in played.plan.strikes.items():
        if played.struck[name] < times:
            verdict.too_little.append(f"only {played.struck[name]} times {name}")


def resumptions(lines: Sequence[Line]) -> dict[str, list[float]]:
    """Return the seconds from the end of each fault to the next start of each live worker."""
    starts: dict[int, list[int]] = defaultdict(list)
    for line in lines:
        if line["ev"] == "start":
            starts[line["pid"]].append(line["mono_ns"])
    for times in starts.values():
        times.sort()
    found: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        if line["ev"] == "back":
            for pid in line["pids"]:
                times = starts[pid]
                place = bisect_right(times, line["mono_ns"])
                if place < len(times):  # otherwise it was killed before
                    seconds = (times[place] - line["mono_ns"]) / 1e9
                    found[line["fault"]].append(seconds)
    return dict(found)


def complaints(said: str) -> Counter[str]:
    """Count the server's complaints, with numbers and names replaced."""
    found = COMPLAINT.findall(said)
    return Counter(re.sub(r'"[^"]*"|\d+', "N", text)[:100] for text in found)


def strikes(
    *, restarts: int, kills: int, cuts: int, commits: int, others: int
) -> dict[str, int]:
    """Return the number of strikes of each kind; `commits` are cuts at a COMMIT."""
    fast = (restarts + 1) // 2
    told = {"restart-fast": fast, "restart-immediate": restarts - fast}
    told["server-kill"] = kills
    told |= {name: others for name in SERVER if name not in told}
    return told | {name: commits if "commit" in name else cuts for name in CUTS}
