"""Which jobs hold the places of gates: for `admin/limits`.

A store does not list the holders of a gate; they are looked for among running and ready jobs.
"""

from collections.abc import Collection

from durio.client.explain_limits import candidates
from durio.model.ids import id_text
from durio.ports.store import Store

HOLDERS_MAX = 20  # of one gate


async def holders_of(
    store: Store, namespace: str, gates: Collection[str]
) -> dict[str, list[str]]:
    """Return the ids of jobs that hold places of these gates, as far as they are found."""
    found: dict[str, list[str]] = {gate: [] for gate in gates}
    jobs = await candidates(store, namespace, await store.queues(namespace))
    for job in await store.gated([job.id for job in jobs]):
        for name in job.holds:
            if name in found and len(found[name]) < HOLDERS_MAX:
                found[name].append(id_text(job.id))
    return found
