"""What needs attention, in sentences: from the checks of the doctor and the breakers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from durio.client.breakers import ShownBreaker
from durio.doctor import queues, workers
from durio.doctor.snapshot import StoreSnapshot
from durio.model.explanation import moment
from durio.model.finding import Finding
from durio.model.job import BLOCKED, READY, RUNNING, SCHEDULED
from durio.model.names import queue_of
from durio.model.quantities import counted
from durio.model.queues import serves

Level = Literal["ok", "warn", "bad"]
LEVELS: dict[str, Level] = {"ok": "ok", "warning": "warn", "error": "bad"}
ATTENTION_MAX = 3
HELD_BACK_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that needs attention: what, why we think so, and where to act."""

    level: Level
    text: str
    evidence: str
    cure: str
    label: str  # of the link
    href: str  # below the mount


# By check of the doctor: what it means, and where to act. The worst comes first.
MEANINGS: dict[str, tuple[str, str, str]] = {
    "queues.unserved": (
        "Jobs wait in queues that no worker serves",
        "Show workers",
        "workers",
    ),
    "queues.unknown_tasks": (
        "Jobs wait for tasks that no worker has",
        "Show tasks",
        "tasks",
    ),
    "schedules.missed": ("Schedules are late", "Show schedules", "schedules"),
    "schedules.records": (
        "Schedules cannot be read",
        "Show schedules",
        "schedules",
    ),
    "workers.leases": ("Workers are lost", "Show workers", "workers"),
    "breaker": ("", "Show breakers", "breakers"),
    "queues.dead_letters": ("Many jobs have died", "Show dead letters", "dead"),
    "queues.oldest": (
        "Jobs wait long",
        "Show waiting jobs",
        f"jobs?q={quote('state:ready')}",
    ),
    "queues.held_back": ("Queues are held back", "Show queues", "queues"),
    "schedules.unknown_tasks": (
        "Schedules run tasks that no worker has",
        "Show schedules",
        "schedules",
    ),
    "queues.unbounded": ("A deep queue has no bound", "Show queues", "queues"),
    "queues.clock": ("A clock is wrong", "Show settings", "settings"),
    "workers.versions": (
        "Workers run different releases",
        "Show workers",
        "workers",
    ),
    "workers.synchronous": (
        "A power cut may lose jobs",
        "Show workers",
        "workers",
    ),
}
RANK = {name: place for place, name in enumerate(MEANINGS)}
NO_WORKER = "No worker is alive"


def notices(
    snapshot: StoreSnapshot,
    others: Iterable[Finding] = (),
    breakers: Sequence[ShownBreaker] = (),
) -> list[Notice]:
    """Return what needs attention, the worst first."""
    checks = {**queues.CHECKS, **workers.CHECKS}
    del checks["queues.held_back"]
    found = [finding for check in checks.values() for finding in check(snapshot)]
    ranked = [
        (RANK[each.name], notice_of(each, snapshot))
        for each in [*found, *others]
        if each.severity != "ok" and each.name in RANK
    ]
    ranked += [
        (RANK["breaker"], breaker_notice(each))
        for each in breakers
        if each.record.state != "closed"
    ]
    ranked += [(RANK["queues.held_back"], each) for each in held_back(snapshot)]
    ranked.sort(key=lambda pair: (pair[1].level != "bad", pair[0]))
    return [notice for _, notice in ranked]


def notice_of(finding: Finding, snapshot: StoreSnapshot) -> Notice:
    text, label, href = MEANINGS[finding.name]
    if finding.name == "queues.unserved" and not snapshot.live_workers:
        text = f"{NO_WORKER}, and jobs wait"
    return Notice(
        LEVELS[finding.severity], text, finding.evidence, finding.fix, label, href
    )


def held_back(snapshot: StoreSnapshot) -> list[Notice]:
    """Return one notice for all queues that are paused with jobs, or closed."""
    found = [each for each in queues.held_back(snapshot) if each.severity != "ok"]
    if not found:
        return []
    text, label, href = MEANINGS["queues.held_back"]
    if len(found) == 1:
        text = "A queue is held back"
    shown = "; ".join(each.evidence for each in found[:HELD_BACK_SHOWN])
    more = len(found) - HELD_BACK_SHOWN
    evidence = f"{shown}; and {more} more" if more > 0 else shown
    return [Notice("warn", text, evidence, found[0].fix, label, href)]


def breaker_notice(shown: ShownBreaker) -> Notice:
    record = shown.record
    state = record.state.replace("_", " ")
    why = record.changes[-1].why if record.changes else record.rule.in_words()
    waits = f"; {counted(shown.waiting, 'job')} waiting" if shown.waiting else ""
    cure = f"To close it now: durio breakers reset {shown.name}"
    _, label, href = MEANINGS["breaker"]
    return Notice(
        "warn",
        f"Breaker {shown.name} is {state}",
        f"since {moment(record.since)}: {why}{waits}",
        cure,
        label,
        f"{href}/{quote(shown.name, safe='')}",
    )


def headline(found: Sequence[Notice], snapshot: StoreSnapshot) -> tuple[Level, str]:
    """Return the verdict in one sentence."""
    if found:
        more = len(found) - 1
        others = f", and {counted(more, 'more problem')}" if more else ""
        return found[0].level, f"{found[0].text}{others}."
    live = snapshot.live_workers
    if not live and not snapshot.lanes:
        return "ok", "Nothing has happened yet: there is no job and no worker."
    if not live:
        return "warn", f"{NO_WORKER}; no job waits."
    running = sum(each.jobs(RUNNING) for each in snapshot.lanes)
    waiting = sum(each.jobs(READY, SCHEDULED, BLOCKED) for each in snapshot.lanes)
    return "ok", (
        f"All is well: {counted(len(live), 'live worker')}, "
        f"{counted(running, 'running job')}, {counted(waiting, 'waiting job')}."
    )


def visible(snapshot: StoreSnapshot, names: tuple[str, ...] | None) -> StoreSnapshot:
    """Return the part of a snapshot about these queues."""
    if names is None:
        return snapshot

    def is_seen(lane: str) -> bool:
        return queue_of(lane) in names

    return snapshot._replace(
        lanes=[each for each in snapshot.lanes if is_seen(each.name)],
        newest=[each for each in snapshot.newest if is_seen(each.lane)],
        dead=[each for each in snapshot.dead if is_seen(each.lane)],
        workers=[
            row
            for row in snapshot.workers
            if any(serves(row.info["queues"], name) for name in names)
        ],
    )
