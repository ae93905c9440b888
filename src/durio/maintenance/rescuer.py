"""Rescue the jobs of lost workers: make them ready, or dead after too many lost workers.

A worker that dies cannot report it. Its lease ends, and the leader gives its jobs back. On
the same host a death can be detected directly, so every worker checks for that often. Two
rescuers at the same time do no harm: the store takes the jobs of a worker in one
transaction.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from durio.model.outcome import RescuedJob
from durio.ports.upkeep import (
    DeadOnThisHost,
    ExpiredLeases,
    Orphans,
    RescueScope,
    Upkeep,
)
from durio.telemetry.emit import Emit

ORPHAN_EVERY = 6  # turns
RETRY_SECONDS = 1.0


@dataclass(slots=True)
class Rescuer:
    """Gives jobs back when the worker that held them is gone."""

    store: Upkeep
    emit: Emit
    notify: Callable[[Sequence[RescuedJob]], None]
    namespace: str  # a job that dies by loss needs the hooks of its own App
    may_rescue: Callable[[], bool]  # whether an ended lease means a death
    interval_seconds: float = 5.0
    this_host_seconds: float = 2.0
    batch_max: int = 500
    turns: int = 0

    async def turn(self) -> float:
        """Rescue jobs of ended leases, and every sixth time orphans; for the leader."""
        if not self.may_rescue():
            return min(self.interval_seconds, RETRY_SECONDS)
        await self._rescue_all(ExpiredLeases(self.namespace))
        self.turns += 1
        if self.turns % ORPHAN_EVERY == 0:
            await self._rescue_all(Orphans())
        return self.interval_seconds

    async def turn_this_host(self) -> float:
        """Rescue jobs of workers that died on this host; for every worker."""
        await self._rescue_all(DeadOnThisHost(self.namespace))
        return self.this_host_seconds

    async def _rescue_all(self, scope: RescueScope) -> None:
        """Rescue batch by batch until no job is left; two leaders share the work."""
        jobs: Counter[int] = Counter()
        while True:
            # No time is passed: the store compares leases with its own clock.
            rescued = await self.store.rescue(self.batch_max, scope)
            jobs.update(left.worker for left in rescued.left)
            for worker in rescued.workers:
                self.emit("worker.rescued", worker=worker, jobs=jobs[worker])
            if rescued.left:
                self.notify(rescued.left)
            if not rescued.more:
                return
