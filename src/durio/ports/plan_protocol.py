"""Plans need workers that know them: while older ones are alive, no plan is stored."""

from durio.model.errors import WorkersTooOld
from durio.ports.clock import Clock
from durio.ports.lease import Lease

TIES_PROTOCOL = 1  # jobs that wait for logs and append to them
WAIT_SECONDS, LOOK_SECONDS = 5.0, 0.5
NAMES_MAX = 5


async def require_plan_workers(
    store: Lease, namespace: str, clock: Clock, *, only_look: bool = False
) -> None:
    """Wait up to 5 s until no older worker is alive; raises WorkersTooOld.

    `only_look`: write nothing, because a transaction of the caller may hold the store.
    """
    deadline = clock.monotonic() + WAIT_SECONDS
    while True:
        old = await store.require_protocol(
            namespace, TIES_PROTOCOL, only_look=only_look
        )
        if not old:
            return
        if clock.monotonic() >= deadline:
            raise too_old(old)
        await clock.sleep(LOOK_SECONDS)


def too_old(names: list[str]) -> WorkersTooOld:
    shown = ", ".join(names[:NAMES_MAX])
    if len(names) > NAMES_MAX:
        shown += f" and {len(names) - NAMES_MAX} more"
    return WorkersTooOld(
        f"no plan can be stored: workers of an older version of Durio run: {shown}",
        cure="Restart them with this version; other jobs go on meanwhile.",
    )
