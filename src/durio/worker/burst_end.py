"""The end of a burst: nothing is left in the served queues, before gates, nor of plans."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal

from durio.model.errors import StoreError
from durio.model.job import READY, RUNNING
from durio.model.names import queue_of
from durio.ports.clock import Clock
from durio.ports.store import Store
from durio.telemetry.emit import Emit

PAUSE_SECONDS = 0.005  # before the next look, while plans go on

HandlePlans = Callable[[], Coroutine[Any, Any, bool]]
Left = Literal["nothing", "jobs", "plans", "gates"]


@dataclass(frozen=True, slots=True)
class BurstRules:
    """How a burst ends."""

    handle_plans: HandlePlans  # goes on with plans; returns whether it did anything
    # Whether it waits for gates to open. With a clock that stands still none ever does.
    waits_for_gates: bool = True


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
        rules: BurstRules,
        emit: Emit,
    ) -> None:
        self._store = store
        self._clock = clock
        self._namespace = namespace
        self._serves = serves
        self._rules = rules
        self._emit = emit
        self._has_reported = False

    async def look(self, *, skips_unknown: bool) -> Left:
        """Return what is left; if plans were left, they have gone on."""
        if await self._has_jobs(skips_unknown=skips_unknown):
            return "jobs"
        if await self._has_plans():
            return "plans"
        # Before the jobs: a job that passes its gate meanwhile is one of these.
        waits = self._rules.waits_for_gates and await self._has_jobs_before_gates()
        # Again: a leader may have enqueued jobs between the two.
        if await self._has_jobs(skips_unknown=skips_unknown):
            return "jobs"
        return "gates" if waits else "nothing"

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

    async def _has_jobs_before_gates(self) -> bool:
        """Whether jobs of served queues stand before gates; a paused queue waits."""
        try:
            rows = await self._store.queues(self._namespace, gates=True)
        except StoreError:
            return True
        found = {
            queue_of(row.name): row.before_gates
            for row in rows
            if row.before_gates and not row.paused and self._serves(row.name)
        }
        if found and not self._has_reported:
            self._has_reported = True
            queues = ", ".join(sorted(found))
            self._emit("worker.waiting", jobs=sum(found.values()), queues=queues)
        return bool(found)

    async def _has_plans(self) -> bool:
        """Go on with plans, and return whether there was anything to do."""
        try:
            if not await self._rules.handle_plans():
                return False
        except StoreError:
            pass
        await self._clock.sleep(PAUSE_SECONDS)
        return True
