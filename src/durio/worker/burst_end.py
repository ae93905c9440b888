"""The end of a burst: nothing is left in the served queues, nor of plans."""

from collections.abc import Callable, Coroutine
from typing import Any, Literal

from durio.model.errors import StoreError
from durio.model.job import READY, RUNNING
from durio.ports.clock import Clock
from durio.ports.store import Store

PAUSE_SECONDS = 0.005  # before the next look, while plans go on

HandlePlans = Callable[[], Coroutine[Any, Any, bool]]


class BurstEnd:
    """Looks whether a burst is over, and goes on with plans.

    A leader handles the ends of plans; during a burst there may be none.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        namespace: str,
        serves: Callable[[str], bool],
        handle_plans: HandlePlans,
    ) -> None:
        self._store = store
        self._clock = clock
        self._namespace = namespace
        self._serves = serves
        self._handle_plans = handle_plans

    async def look(self, *, skips_unknown: bool) -> Literal["nothing", "jobs", "plans"]:
        """Return what is left; if plans were left, they have gone on."""
        if await self._has_jobs(skips_unknown=skips_unknown):
            return "jobs"
        if await self._has_plans():
            return "plans"
        # Again: a leader may have enqueued jobs between the two.
        return (
            "jobs" if await self._has_jobs(skips_unknown=skips_unknown) else "nothing"
        )

    async def _has_jobs(self, *, skips_unknown: bool) -> bool:
        """Whether jobs are ready or running in the served queues, on any worker."""
        try:
            rows = await self._store.queues(self._namespace, counts=True)
        except StoreError:
            return True
        # Tasks unknown here are for other workers; paused queues wait.
        return any(
            row.jobs(RUNNING)
            or (row.jobs(READY) and not row.paused and not skips_unknown)
            for row in rows
            if self._serves(row.name)
        )

    async def _has_plans(self) -> bool:
        """Go on with plans, and return whether there was anything to do."""
        try:
            if not await self._handle_plans():
                return False
        except StoreError:
            pass
        await self._clock.sleep(PAUSE_SECONDS)
        return True
