"""The queues of an App, and the names that queues have."""

from collections.abc import Collection, Sequence

from durio.app.app import App
from durio.client.queue_rows import QueueRow, load_queue_rows
from durio.client.task_by_name import published_tasks
from durio.model.errors import UnknownQueue
from durio.model.job import BLOCKED, READY, SCHEDULED
from durio.model.names import check_name, did_you_mean, queue_of
from durio.model.queues import DEFAULT_QUEUE

WAITING_STATES = (SCHEDULED, BLOCKED, READY)
SHOWN_MAX = 8


async def load_rows(app: App, namespace: str) -> list[QueueRow]:
    """Return every queue of an App that was ever used, sorted by name."""
    return await load_queue_rows(await app.store(), namespace)


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
