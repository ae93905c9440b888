"""The result of many worlds: figures, a verdict per invariant, the failing seeds."""

import inspect
import os
import platform
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from tests.checkout import commit
from tests.figures import percentile
from tests.simulation import (
    breaker_checks,
    checks,
    control_checks,
    limit_checks,
    liveness_checks,
    plan_checks,
    schedule_checks,
)
from tests.simulation.account import BROKEN_WORLD, Account

HELD, BROKEN, UNKNOWN = "held", "broken", "not exercised"
EXIT_OF = {HELD: 0, BROKEN: 1, UNKNOWN: 2}
HOUR_SECONDS = 3600.0
NAMED_MAX = 20
TOTALS = "jobs", "attempts", "reruns"


@cache
def invariants() -> dict[str, str]:
    """Return every invariant that is checked; its meaning is the name of its first check."""
    named: dict[str, str] = {}
    for check in (
        *checks.CHECKS,
        *liveness_checks.CHECKS,
        *control_checks.CHECKS,
        *plan_checks.CHECKS,
        *schedule_checks.CHECKS,
        *limit_checks.CHECKS,
        *breaker_checks.CHECKS,
    ):
        meaning = check.__name__.replace("_", " ")
        source = inspect.getsource(check)
        for invariant in re.findall(r'Violation\(\s*"(\w+)"', source):
            named.setdefault(invariant, meaning)
    return named | {BROKEN_WORLD: "every world can be played to its end"}


class Summary:
    """Adds up worlds."""

    def __init__(self) -> None:
        self.worlds = 0
        self.seeds: list[int] = []  # the first and the last
        self.totals: Counter[str] = Counter(dict.fromkeys(TOTALS, 0))
        self.faults: Counter[str] = Counter()
        self.exercised: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()
        self.seconds = self.job_seconds = 0.0
        self.recoveries: list[float] = []
        self.wall_seconds = self.cpu_seconds = 0.0
        self.twins = 0
        self.different: list[int] = []
        self.late: list[int] = []  # they ended in time only at the second try
        self.is_cut_short = False
        self.planned: int | None = None  # number of worlds; None for a time box
        self.failing: list[Account] = []
        self.programs: set[str] = set()
        self.shown: dict[int, set[str]] = {}  # invariants that each world exercised

    def add(self, account: Account) -> None:
        self.worlds += 1
        self.seeds = [self.seeds[0] if self.seeds else account.seed, account.seed]
        for name in TOTALS:
            self.totals[name] += getattr(account, name)
        self.faults.update(account.faults)
        self.programs.add(account.program)
        self.exercised.update(account.exercised)
        self.shown[account.seed] = {*account.exercised, *account.faults}
        if account.digest:
            self.exercised[BROKEN_WORLD] += 1
        self.broken.update(account.broken)
        self.seconds += account.seconds
        self.job_seconds += account.job_seconds
        self.recoveries += account.recoveries
        self.wall_seconds += account.wall_seconds
        self.cpu_seconds += account.cpu_seconds
        self.twins += account.twin_digest is not None
        if account.is_different:
            self.different.append(account.seed)
        if account.is_second_try:
            self.late.append(account.seed)
        if account.has_failed:
            self.failing.append(account)

    def pick(self, number: int) -> list[int]:
        """Return this many seeds that together exercise most invariants."""
        left, seen, picked = dict(self.shown), set[str](), list[int]()
        while left and len(picked) < number:
            best = max(left, key=lambda seed: (len(left[seed] - seen), -seed))
            if not left[best] - seen:
                seen = set[str]()  # all are exercised once: start again
            seen |= left.pop(best)
            picked.append(best)
        return sorted(picked)

    def verdicts(self) -> dict[str, str]:
        """Return the verdict of every invariant; one that no world exercised has not held."""
        names = [*invariants(), *sorted(self.broken.keys() - invariants().keys())]
        return {name: self.verdict_on(name) for name in names}

    def verdict_on(self, invariant: str) -> str:
        if self.broken[invariant]:
            return BROKEN
        return HELD if self.exercised[invariant] else UNKNOWN

    @property
    def verdict(self) -> str:
        """Return the verdict of the run.

        Worlds without jobs or without faults prove nothing.
        """
        if self.failing:
            return BROKEN
        is_tried = self.totals["attempts"] and self.faults.total()
        return HELD if is_tried else UNKNOWN

    @property
    def exit_code(self) -> int:
        """Return 0 if all held, 1 if one broke, 2 if nothing was exercised."""
        return EXIT_OF[self.verdict]

    def as_json(self, real_seconds: float) -> dict[str, Any]:
        """Return the whole report, with the full account of each failing world."""
        return {
            "verdict": self.verdict,
            "cut_short": self.is_cut_short,
            "commit": commit(),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "programs": len(self.programs),
            "worlds": self.worlds,
            "worlds_planned": self.planned,
            "seeds": self.seeds,
            **self.totals,
            "simulated_hours": round(self.seconds / HOUR_SECONDS, 3),
            "job_hours": round(self.job_seconds / HOUR_SECONDS, 3),
            "faults": dict(self.faults.most_common()),
            "recovery": {
                "restarts": len(self.recoveries),
                "p50_seconds": percentile(self.recoveries, 0.50),
                "p99_seconds": percentile(self.recoveries, 0.99),
            },
            "real_seconds": round(real_seconds, 1),
            "seconds_per_seed": round(self.wall_seconds / max(self.worlds, 1), 3),
            "cpu_seconds_per_seed": round(self.cpu_seconds / max(self.worlds, 1), 3),
            "played_twice": self.twins,
            "different": self.different,
            "late": self.late,
            "invariants": {
                name: {
                    "verdict": verdict,
                    "exercised": self.exercised[name],
                    "broken": self.broken[name],
                }
                for name, verdict in self.verdicts().items()
            },
            "failing": [
                {
                    **asdict(one),
                    "violations": [each._asdict() for each in one.violations],
                }
                for one in self.failing
            ],
        }

    def lines(self, real_seconds: float) -> Iterator[str]:
        told = self.as_json(real_seconds)
        seeds = "none" if not self.seeds else "{} to {}".format(*self.seeds)
        faults = ", ".join(f"{n} {kind}" for kind, n in self.faults.most_common())
        yield f"worlds          {self.worlds:,} (seeds {seeds}), commit {told['commit']}"
        yield (
            f"jobs            {told['jobs']:,}, begun {told['attempts']:,} times, "
            f"{told['reruns']:,} re-runs after a loss"
        )
        yield (
            f"simulated       {told['simulated_hours']:,.1f} hours, "
            f"{told['job_hours']:,.1f} job-hours in the hands of workers"
        )
        yield f"faults          {self.faults.total():,}: {faults or 'none'}"
        if self.recoveries:
            yield (
                "recovery        {p50_seconds:.1f} s (p50), {p99_seconds:.1f} s (p99), "
                "simulated, from a worker's end to {restarts:,} restarts of its jobs"
            ).format(**told["recovery"])
        yield (
            f"time            {real_seconds:,.0f} s, "
            f"{told['seconds_per_seed']:.2f} s per seed, "
            f"{told['cpu_seconds_per_seed']:.2f} s of them at work"
        )
        yield (
            f"determinism     {self.twins} seeds played twice, "
            f"{len(self.different)} with two histories"
        )
        if len(self.programs) > 1:
            yield "note            the code was edited meanwhile: these are several programs"
        if self.late:
            yield f"note            over in time only at the second try: {self.late}"
        yield from self.invariant_lines()
        if self.failing:
            yield f"failing seeds   {self.named_failing()}"
        of = f" of {self.planned:,}" if self.planned else ""
        short = f" so far: cut short, worlds played: {self.worlds:,}{of}"
        yield f"verdict         {self.verdict}{short if self.is_cut_short else ''}"

    def invariant_lines(self) -> Iterator[str]:
        for name, verdict in self.verdicts().items():
            meaning = invariants().get(name, "")
            tried = f"in {self.exercised[name]:,} worlds"
            if self.broken[name]:
                tried = f"in {self.broken[name]:,} of {self.worlds:,} worlds"
            where = "" if verdict == UNKNOWN else tried
            yield f"  {name:<8}{meaning:<38} {verdict:<14}{where}".rstrip()

    def named_failing(self) -> str:
        """Return the first failing seeds, with the invariants that they broke."""
        named = [
            f"{account.seed} ({', '.join(account.broken) or 'two histories'})"
            for account in self.failing[:NAMED_MAX]
        ]
        more = len(self.failing) - len(named)
        return ", ".join(named) + (f" and {more} more" if more else "")


def failure(account: Account, here: str, path: Path | None = None) -> str:
    """Return all that a reader needs to examine a failing seed, or a world from a file."""
    world = f"SEED={account.seed}"
    if path is not None:
        world = f'SIM_ARGS="--world {os.path.relpath(path)}"'
    knobs = " ".join(f"{name}={value}" for name, value in account.knobs.items())
    lines = [
        f"seed {account.seed} FAILED, commit {here}",
        f"knobs   {knobs or 'unknown'}",
        *(f"broken  {one}" for one in account.violations[:NAMED_MAX]),
    ]
    if (more := len(account.violations) - NAMED_MAX) > 0:
        lines.append(f"        and {more} more")
    if account.is_different:
        lines.append(f"broken  two histories: {account.digest}, {account.twin_digest}")
    lines += account.stories
    lines.append(f"replay  make sim {world}")
    return "\n".join(lines)
