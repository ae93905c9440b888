"""Handles to queues: pause, resume, and read the status."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from durio.client.job_query import NamespaceClient, check_queue
from durio.model.errors import InvalidOption
from durio.model.failure import storable
from durio.model.job import BLOCKED, DEAD, READY, RUNNING, SCHEDULED, utc_datetime
from durio.model.names import check_name, lane, queue_of
from durio.ports.browse import LaneRow, WorkerRow
from durio.ports.control import AuditNote, QueueChange
from durio.ports.store import Store

REASON_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The status of a queue, from one read of the store."""

    queue: str  # its name, without the App's
    paused: bool  # whether workers get no jobs of it
    closed: bool  # whether it takes no new jobs
    maxsize: int | None  # most jobs that may wait; None: no bound
    ready: int  # jobs that workers may take
    scheduled: int  # jobs that wait for their time
    blocked: int  # jobs that wait for something else; 0 in this release
    running: int  # jobs that workers run
    dead: int  # dead letters
    oldest_at: datetime | None  # when its oldest ready job became due
    workers: int  # live workers that serve it

    @property
    def depth(self) -> int:
        """The number of waiting jobs: ready, scheduled and blocked. `maxsize` limits it."""
        return self.ready + self.scheduled + self.blocked

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the depth as values for `json.dumps`."""
        return {
            **msgspec.json.decode(msgspec.json.encode(self)),
            "depth": self.depth,
        }


class QueueHandle:
    """A reference to one queue of an App.

    Its calls raise UnknownQueue if no job was ever in the queue and no task names it.
    """

    __module__ = "durio"
    __slots__ = ("_client", "name")

    def __init__(self, client: NamespaceClient, name: str) -> None:
        self._client = client
        self.name = check_name("queue", name)  # without the App's name

    def __repr__(self) -> str:
        return f"QueueHandle({self.name!r})"

    async def pause(self, reason: str | None = None) -> None:
        """Stop workers from taking jobs of the queue; running jobs go on.

        New jobs are still stored. The audit keeps the `reason`.
        """
        why = None if reason is None else check_reason_text(reason)
        await self._change(QueueChange(paused=True, reason=why))

    async def resume(self) -> None:
        """Let workers take jobs again, and let the queue take new jobs."""
        await self._change(QueueChange(paused=False, closed=False))

    async def depth(self) -> int:
        """Return the number of jobs that wait in the queue."""
        return (await self.status()).depth

    async def status(self) -> QueueStatus:
        """Return the numbers of jobs and workers, and whether the queue is paused."""
        store = await self._known()
        namespace = self._client.name
        rows = await store.queues(namespace, counts=True, oldest=True)
        stored = lane(namespace, self.name)
        row = next((row for row in rows if row.name == stored), LaneRow(stored, False))
        return QueueStatus(**status_fields(row, await store.workers(namespace)))

    async def _known(self) -> Store:
        store = await self._client.store()
        await check_queue(self._client, store, self.name)
        return store

    async def _change(self, change: QueueChange) -> None:
        store = await self._known()
        note = AuditNote(who=self._client.acting_user())
        await store.set_queue(lane(self._client.name, self.name), change, note)

    def pause_sync(self, reason: str | None = None) -> None:
        """Pause the queue without an event loop, as `pause` does."""
        self._client.run_sync(self.pause(reason))

    def resume_sync(self) -> None:
        """Resume the queue without an event loop, as `resume` does."""
        self._client.run_sync(self.resume())

    def depth_sync(self) -> int:
        """Count the waiting jobs without an event loop, as `depth` does."""
        return self._client.run_sync(self.depth())

    def status_sync(self) -> QueueStatus:
        """Read the status without an event loop, as `status` does."""
        return self._client.run_sync(self.status())


def status_fields(row: LaneRow, workers: Iterable[WorkerRow]) -> dict[str, Any]:
    """Return the fields of QueueStatus for a queue and the workers of its App."""
    queue = queue_of(row.name)
    return {
        "queue": queue,
        "paused": row.paused,
        "closed": row.closed,
        "maxsize": row.maxsize,
        "ready": row.jobs(READY),
        "scheduled": row.jobs(SCHEDULED),
        "blocked": row.jobs(BLOCKED),
        "running": row.jobs(RUNNING),
        "dead": row.jobs(DEAD),
        "oldest_at": utc_datetime(row.oldest_ready_at),
        "workers": sum(worker.serves(queue) for worker in workers),
    }


def check_reason_text(reason: object) -> str:
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidOption(
            f"reason cannot be {reason!r}",
            cure="Give a short text, or leave it out.",
        )
    return storable(reason, REASON_CHARS_MAX)
