"""Which jobs hold the places of gates: for `admin/limits`.

A store does not say so; the gates of running and ready jobs are computed again from their
arguments, as for `durio why`.
"""

from collections.abc import Collection

from durio.client.explain_limits import GateNames, LimitsClient, candidates
from durio.client.task_by_name import published_tasks
from durio.model.ids import id_text
from durio.ports.store import Store

HOLDERS_MAX = 20  # of one gate


async def holders_of(
    client: LimitsClient, store: Store, namespace: str, gates: Collection[str]
) -> dict[str, list[str]]:
    """Return the ids of jobs that hold places of these gates, as far as they are found."""
    names = GateNames(client, await published_tasks(store, namespace) or {})
    found: dict[str, list[str]] = {gate: [] for gate in gates}
    for job in await candidates(store, namespace):
        for name in names.of(job):
            if name in found and len(found[name]) < HOLDERS_MAX:
                found[name].append(id_text(job.id))
    return found
