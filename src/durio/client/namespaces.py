"""Find the Apps of a store: those with a job, a live worker, published tasks or schedules.

A queue alone does not count, because a pause with a wrong name makes one.
"""

from durio.model.published_tasks import tasks_kind
from durio.model.schedule import schedules_kind
from durio.ports.browse import Query
from durio.ports.store import Store

KINDS = tasks_kind, schedules_kind


async def apps_in(store: Store) -> list[str]:
    """Return the names of the Apps, sorted."""
    workers = await store.workers(None)
    live = {row.info["namespace"] for row in workers if row.lease_seconds_left > 0}
    return [
        name
        for name in await store.namespaces(
            [kind("").removesuffix(":") for kind in KINDS]
        )
        if name in live or await has_records(store, name) or await has_jobs(store, name)
    ]


async def has_records(store: Store, namespace: str) -> bool:
    """Return whether the App has published tasks or schedules."""
    for kind in KINDS:
        if await store.list_records(kind(namespace), limit=1):
            return True
    return False


async def has_jobs(store: Store, namespace: str, task: str | None = None) -> bool:
    """Return whether there is a job, in any state.

    A page may be empty and not be the last.
    """
    cursor: str | None = None
    while True:
        query = Query(namespace=namespace, task=task)
        page = await store.find(query, limit=1, cursor=cursor)
        if page.jobs:
            return True
        if page.cursor is None:
            return False
        cursor = page.cursor
