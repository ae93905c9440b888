"""Queues as operators see them: jobs, switches, bounds, who paused them, who serves them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from durio.client.queue_handle import QueueStatus, status_fields
from durio.model.quantities import counted
from durio.ports.browse import LaneRow, WorkerRow
from durio.ports.store import Store

AUDIT_LINES_MAX = 1000  # newest lines, of all targets


@dataclass(frozen=True, slots=True)
class QueueRow(QueueStatus):
    """The status of a queue, with what only operators need."""

    namespace: str
    over: bool  # beyond the soft bound of queues without one
    by_hand: bool  # an operator set the bound

    @property
    def state(self) -> str:
        """The switches as text."""
        named = ("paused", "closed", "over")
        return ", ".join(name for name in named if getattr(self, name)) or "open"


class QueueStop(NamedTuple):
    """Who paused or closed a queue, when and why."""

    by: str
    at: float
    reason: str | None


async def load_queue_rows(store: Store, namespace: str) -> list[QueueRow]:
    """Return every queue of an App that was ever used, sorted by name."""
    lanes = await store.queues(namespace, counts=True, oldest=True)
    workers = await store.workers(namespace)
    return [
        queue_row(row, workers, namespace)
        for row in sorted(lanes, key=lambda row: row.name)
    ]


def queue_row(row: LaneRow, workers: Iterable[WorkerRow], namespace: str) -> QueueRow:
    return QueueRow(
        **status_fields(row, workers),
        namespace=namespace,
        over=row.is_over,
        by_hand=row.is_manual,
    )


class QueueStops(NamedTuple):
    """Who paused and who closed queues, by lane."""

    paused: Mapping[str, QueueStop]
    closed: Mapping[str, QueueStop]


async def read_stops(
    store: Store, namespace: str, lanes: Iterable[LaneRow]
) -> QueueStops:
    """Return who paused and closed these lanes; without lines that the audit has lost."""
    stopped = [row for row in lanes if row.paused or row.closed]
    wanted = {("pause", row.name) for row in stopped if row.paused}
    wanted |= {("close", row.name) for row in stopped if row.closed}
    found: dict[tuple[str, str], QueueStop] = {}
    lines = await store.audit(namespace, limit=AUDIT_LINES_MAX) if wanted else []
    for line in lines:
        lane, _, reason = line.target.partition(" (")
        place = line.verb, lane
        if place in wanted and place not in found:
            why = reason.removesuffix(")") or None
            found[place] = QueueStop(line.who, line.at, why)
        if len(found) == len(wanted):
            break
    return QueueStops(
        paused={lane: stop for (verb, lane), stop in found.items() if verb == "pause"},
        closed={lane: stop for (verb, lane), stop in found.items() if verb == "close"},
    )


def waiting_jobs_text(jobs: int) -> str:
    return counted(jobs, "waiting job")
