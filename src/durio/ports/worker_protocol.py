"""What workers must know: while older ones are alive, some jobs are not stored.

A worker registers with the protocol of its code. A job that an older worker would run
wrongly is stored only after no such worker is left, and none can come back.
"""

from collections.abc import Sequence

from durio.model.errors import WorkersTooOld
from durio.model.job import NewJob
from durio.ports.clock import Clock
from durio.ports.lease import Lease

TIES_PROTOCOL = 1  # jobs that wait for logs and append to them
GATES_PROTOCOL = 2  # jobs that pass gates
NEEDED_BY = {TIES_PROTOCOL: "plan", GATES_PROTOCOL: "job with limits"}
WAIT_SECONDS, LOOK_SECONDS = 5.0, 0.5
NAMES_MAX = 5


def protocol_of_plan(jobs: Sequence[NewJob]) -> int:
    """Return what workers must know to run the jobs of a plan."""
    return GATES_PROTOCOL if any(job.gates for job in jobs) else TIES_PROTOCOL


async def require_workers(
    store: Lease,
    namespace: str,
    clock: Clock,
    protocol: int,
    *,
    only_look: bool = False,
) -> None:
    """Wait up to 5 s until no older worker is alive; raises WorkersTooOld.

    `only_look`: write nothing, because a transaction of the caller may hold the store.
    """
    deadline = clock.monotonic() + WAIT_SECONDS
    while True:
        old = await store.require_protocol(namespace, protocol, only_look=only_look)
        if not old:
            return
        if clock.monotonic() >= deadline:
            raise too_old(old, protocol)
        await clock.sleep(LOOK_SECONDS)


def too_old(names: list[str], protocol: int) -> WorkersTooOld:
    shown = ", ".join(names[:NAMES_MAX])
    if len(names) > NAMES_MAX:
        shown += f" and {len(names) - NAMES_MAX} more"
    what = NEEDED_BY.get(protocol, "such job")
    return WorkersTooOld(
        f"no {what} can be stored: workers of an older version of Durio run: {shown}",
        cure="Restart them with this version; other jobs go on meanwhile.",
    )
