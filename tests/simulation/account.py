"""The result of one world, as plain data that can be sent between processes."""

import math
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import msgspec

from durio.testing.clock import STARTED_SECONDS
from tests.simulation.checks import Violation
from tests.simulation.ledger import ALL_NODES, Ledger, LedgerLine
from tests.simulation.nemesis import Fault
from tests.simulation.scenario import Played, play
from tests.simulation.story import describe
from tests.simulation.workload import Wish

BROKEN_WORLD = "world"  # the "invariant" of a world that could not be played to its end
STORIES_MAX = 3
KILLS = {"kill", "massacre"}  # they end a process immediately


class Account(msgspec.Struct, kw_only=True):
    seed: int
    digest: str = ""
    knobs: dict[str, Any] = {}
    seconds: float = 0.0  # simulated
    job_seconds: float = 0.0  # simulated: jobs held by workers
    jobs: int = 0
    attempts: int = 0
    reruns: int = 0
    recoveries: list[float] = []  # simulated: from the end of a worker to a restart
    faults: dict[str, int] = {}
    exercised: list[str] = []
    violations: list[Violation] = []
    stories: list[str] = []
    wall_seconds: float = 0.0  # real
    cpu_seconds: float = 0.0  # real
    twin_digest: str | None = None  # of the same seed in another process
    is_second_try: bool = False  # the first try ran out of time
    program: str = ""  # hash of the code that played it: files may change during a run

    @property
    def is_different(self) -> bool:
        """Whether the same seed gave two histories."""
        return self.twin_digest is not None and self.twin_digest != self.digest

    @property
    def has_failed(self) -> bool:
        return bool(self.violations) or self.is_different

    @property
    def broken(self) -> list[str]:
        """Return the broken invariants without duplicates, in the order of the checks."""
        return list(dict.fromkeys(one.invariant for one in self.violations))


def examine(
    seed: int,
    *,
    faults: Sequence[Fault] | None = None,
    wishes: Sequence[Wish] | None = None,
    knobs: Mapping[str, Any] | None = None,
) -> Account:
    """Play one world and return its result; an exception in it becomes a violation."""
    began = time.process_time()
    try:
        account = account_of(play(seed, faults=faults, wishes=wishes, knobs=knobs))
    except Exception as error:  # noqa: BLE001 - a broken world is a finding
        what = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        broken = Violation(BROKEN_WORLD, None, what)
        stories = [traceback.format_exc()]
        account = Account(seed=seed, violations=[broken], stories=stories)
    account.cpu_seconds = time.process_time() - began
    return account


def account_of(played: Played) -> Account:
    """Return the figures of a world, and a story for each of up to 3 broken invariants."""
    first = {one.invariant: one for one in reversed(played.violations)}
    stored = played.ledger.of("stored")
    return Account(
        seed=played.seed,
        digest=played.digest,
        knobs=asdict(played.knobs),
        seconds=played.seconds - STARTED_SECONDS,
        job_seconds=held_seconds(played.ledger),
        jobs=sum(entry.fields["fate"] == "new" for entry in stored),
        attempts=played.attempts,
        reruns=reruns(played.ledger),
        recoveries=recoveries(played.ledger),
        faults=dict(played.faults_by_kind),
        exercised=sorted(played.exercised),
        violations=played.violations,
        stories=[describe(played, one) for one in list(first.values())[-STORIES_MAX:]],
    )


def by_job(ledger: Ledger, *whats: str) -> dict[int, list[LedgerLine]]:
    jobs: dict[int, list[LedgerLine]] = {}
    for entry in ledger.entries:
        if entry.n is not None and entry.what in whats:
            jobs.setdefault(entry.n, []).append(entry)
    return jobs


def held_seconds(ledger: Ledger) -> float:
    """Return how long workers held jobs, summed over all jobs."""
    total = 0.0
    for entries in by_job(ledger, "claim", "end", "rescued").values():
        since: float | None = None
        for entry in entries:
            if since is not None:
                total += entry.at - since
            since = entry.at if entry.what == "claim" else None
    return total


def reruns(ledger: Ledger) -> int:
    """Count claims that a later claim replaced before their worker reported an outcome."""
    number = 0
    for entries in by_job(ledger, "claim", "end").values():
        ended = {
            entry.fields["claim_no"]
            for entry in entries
            if entry.what == "end" and entry.fields["kind"] != "alone"
        }
        claims = Counter(e.fields["claim_no"] for e in entries if e.what == "claim")
        number += len(claims.keys() - ended - {max(claims, default=0)})
    return number


def recoveries(ledger: Ledger) -> list[float]:
    """Return seconds from a fault that ended a worker to the next start of each job it ran."""
    faults = ledger.of("fault")
    found: list[float] = []
    for entries in by_job(ledger, "start", "end").values():
        for before, again in pairwise(entries):
            if before.what == again.what == "start":
                ends = (ended_at(fault, before.node) for fault in faults)
                known = [at for at in ends if before.at <= at <= again.at]
                found += [round(again.at - min(known), 3)] if known else []
    return found


def ended_at(fault: LedgerLine, node: str) -> float:
    """Return when this fault ended a process of that name; infinity if it ends none."""
    kind: str = fault.fields["kind"]
    if fault.node in (node, ALL_NODES):
        if kind in KILLS or kind.startswith("exit "):
            return fault.at
        if kind == "terminate_kill":
            return fault.at + fault.fields["seconds"]
    return math.inf
