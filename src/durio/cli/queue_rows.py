"""The current state of queues: jobs, switches, bounds, and the workers that serve them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from durio.app.app import App
from durio.client.queue_handle import QueueStatus, status_fields
from durio.client.task_by_name import published_tasks
from durio.model.errors import UnknownQueue
from durio.model.job import BLOCKED, READY, SCHEDULED
from durio.model.names import check_name, did_you_mean, queue_of
from durio.model.quantities import counted
from durio.model.queues import DEFAULT_QUEUE

WAITING_STATES = (SCHEDULED, BLOCKED, READY)
SHOWN_MAX = 8


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


async def load_queue_rows(app: App, namespace: str) -> list[QueueRow]:
    """Return every queue of an App that was ever used, sorted by name."""
    store = await app.store()
    lanes = await store.queues(namespace, counts=True, oldest=True)
    workers = await store.workers(namespace)
    return [
        QueueRow(
            **status_fields(row, workers),
            namespace=namespace,
            over=row.is_over,
            by_hand=row.is_manual,
        )
        for row in sorted(lanes, key=lambda row: row.name)
    ]


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
