"""A limited snapshot of a store's content; all checks use the same one."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from durio.client.task_by_name import published_tasks
from durio.model.job import DEAD, StoredJob
from durio.model.names import queue_of
from durio.model.queues import serves
from durio.ports.browse import LaneRow, Query, WorkerRow
from durio.ports.clock import Clock
from durio.ports.store import Store

NEWEST_LIMIT = 50
DEAD_LIMIT = 200
TASKS_LIMIT = 10_000
NAMESPACES_MAX = 50


class StoreSnapshot(NamedTuple):
    namespace: str
    now: float
    # Tasks of the loaded code; None: no code is loaded.
    registered: frozenset[str] | None
    lanes: Sequence[LaneRow]
    workers: Sequence[WorkerRow]
    published: frozenset[str]  # tasks that any worker has published
    newest: Sequence[StoredJob]
    dead: Sequence[StoredJob]

    @property
    def live_workers(self) -> list[WorkerRow]:
        """The workers whose lease has not ended."""
        return [row for row in self.workers if row.lease_seconds_left > 0]

    def is_served(self, lane: str) -> bool:
        """Whether a live worker claims from this lane."""
        return any(serves(r.info["queues"], queue_of(lane)) for r in self.live_workers)

    def waiting_tasks(self) -> Counter[str]:
        """Return the number of jobs by task, among the oldest waiting ones."""
        found: Counter[str] = Counter()
        for lane in self.lanes:
            found.update(lane.head_tasks)
        return found


async def take_snapshot(
    store: Store,
    clock: Clock,
    namespace: str,
    registered: frozenset[str] | None,
    *,
    heads: int = TASKS_LIMIT,
    counted: Mapping[str, LaneRow] | None = None,
) -> StoreSnapshot:
    """Read the store; each read has a limited size.

    `heads`: of about so many waiting jobs the tasks are read. `counted`: lanes whose jobs
    were counted before, by their names; None: they are counted now.
    """
    newest = await store.find(Query(namespace), limit=NEWEST_LIMIT, cursor=None)
    dead = await store.find(
        Query(namespace, states=(DEAD,)), limit=DEAD_LIMIT, cursor=None
    )
    return StoreSnapshot(
        namespace=namespace,
        now=clock.now(),
        registered=registered,
        lanes=await read_lanes(store, namespace, heads, counted),
        workers=await store.workers(namespace),
        published=frozenset(await published_tasks(store, namespace) or {}),
        newest=newest.jobs,
        dead=dead.jobs,
    )


async def read_lanes(
    store: Store, namespace: str, heads: int, counted: Mapping[str, LaneRow] | None
) -> list[LaneRow]:
    if counted is None:
        return await store.queues(namespace, counts=True, oldest=True, heads=heads)
    rows = await store.queues(namespace, heads=heads)
    known = [(row, counted.get(row.name, row)) for row in rows]
    return [
        row._replace(counts=count.counts, oldest_ready_at=count.oldest_ready_at)
        for row, count in known
    ]
