"""The current state of queues: jobs, switches, bounds, and the workers that serve them."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from durio.app.app import App
from durio.client.task_by_name import published_tasks
from durio.model.errors import UnknownQueue
from durio.model.job import BLOCKED, DEAD, READY, RUNNING, SCHEDULED
from durio.model.names import check_name, did_you_mean, queue_of
from durio.model.quantities import counted
from durio.model.queues import DEFAULT_QUEUE
from durio.ports.browse import LaneRow

WAITING_STATES = (SCHEDULED, BLOCKED, READY)
SHOWN_MAX = 8


class QueueRow(NamedTuple):
    """One queue: name, switches, jobs by state, bound, number of workers."""

    queue: str
    namespace: str
    paused: bool
    closed: bool
    over: bool
    ready: int
    scheduled: int
    blocked: int
    running: int
    dead: int
    oldest_at: float | None  # when its oldest ready job became due
    maxsize: int | None
    by_hand: bool
    workers: int

    @property
    def depth(self) -> int:
        """The number of waiting jobs, which a bound limits."""
        return self.ready + self.scheduled + self.blocked

    @property
    def state(self) -> str:
        """The switches as text."""
        named = ("paused", "closed", "over")
        return ", ".join(name for name in named if getattr(self, name)) or "open"


async def load_queue_rows(app: App, namespace: str) -> list[QueueRow]:
    """Return every queue of an App that was ever used, sorted by name."""
    store = await app.store()
    lanes = await store.queues(namespace, counts=True, oldest=True)
    workers = await store.workers(namespace)
    lines: list[QueueRow] = []
    for row in sorted(lanes, key=lambda row: row.name):
        queue = queue_of(row.name)
        serving = sum(worker.serves(queue) for worker in workers)
        lines.append(make_queue_row(namespace, row, serving))
    return lines


def make_queue_row(namespace: str, row: LaneRow, workers: int) -> QueueRow:
    return QueueRow(
        queue=queue_of(row.name),
        namespace=namespace,
        paused=row.paused,
        closed=row.closed,
        over=row.is_over,
        ready=row.jobs(READY),
        scheduled=row.jobs(SCHEDULED),
        blocked=row.jobs(BLOCKED),
        running=row.jobs(RUNNING),
        dead=row.jobs(DEAD),
        oldest_at=row.oldest_ready_at,
        maxsize=row.maxsize,
        by_hand=row.is_manual,
        workers=workers,
    )


# --- names


async def known_queues(app: App, namespace: str) -> set[str]:
    """Return queues that were ever used, and those that tasks name."""
    store = await app.store()
    known = {DEFAULT_QUEUE}
    known |= {queue_of(row.name) for row in await store.queues(namespace)}
    if namespace == app.name:
        known |= app.registry.queue_names()
    tasks = await published_tasks(store, namespace) or {}
    return known | {task["queue"] for task in tasks.values()}


def check_known(
    queues: Sequence[str], known: Collection[str], name: str | None
) -> None:
    """Raise UnknownQueue for a name that is probably a typo."""
    for queue in queues:
        if check_name("queue", queue) not in known:
            shown = ", ".join(sorted(known)[:SHOWN_MAX])
            hint = did_you_mean(queue, known) or " Of another App: --name or --app."
            raise UnknownQueue(
                f"there is no queue {queue!r} in {f'App {name}' if name else 'any App'}",
                cure=f"Known: {shown}.{hint}",
                queue=queue,
            )


def waiting_jobs_text(jobs: int) -> str:
    return counted(jobs, "waiting job")
