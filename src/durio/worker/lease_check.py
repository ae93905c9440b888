"""Whether attempts may start: not when another worker may have their jobs.

A process that was suspended knows by its clock that its lease may have ended. Its next
renewal, which may take seconds, renews the lease or reports the loss. Until then claims
that have not started are given back; the store refuses that if they are lost.
"""

import asyncio

from durio.ports.clock import Clock
from durio.worker.worker_config import WorkerIdentity


class LeaseCheck:
    """Knows until when the worker's lease lasts; asked before each start."""

    def __init__(
        self, identity: WorkerIdentity, clock: Clock, lease_seconds: float
    ) -> None:
        self._identity = identity
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._loop = asyncio.get_running_loop()
        self._lasts_until = float("-inf")  # or longer: by the loop's time

    @property
    def is_over(self) -> bool:
        """Whether the lease has ended, unless it was renewed and no reply has come."""
        now = self._loop.time()
        if now < self._lasts_until:
            return False
        age_seconds = self._clock.monotonic() - self._identity.renewed_at
        left_seconds = self._lease_seconds - age_seconds
        self._lasts_until = now + left_seconds
        return left_seconds <= 0
