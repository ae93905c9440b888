"""How many jobs each queue of a store has, by state."""

from collections.abc import Mapping

from durio.ports.store import Store


async def count_jobs(store: Store, namespace: str) -> dict[str, Mapping[int, int]]:
    """Lane -> state -> jobs; lanes without jobs are missing."""
    rows = await store.queues(namespace, counts=True)
    return {row.name: row.counts for row in rows if row.counts}
