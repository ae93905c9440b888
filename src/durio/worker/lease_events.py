"""Handle what a renewal of the lease reports: cancels, paused lanes, the loss of the lease.

The heartbeat calls `on_cancels`, `on_paused` and `on_lost` from its own loop. Each passes
the report to the worker's loop, where attempts and outcomes may be changed.
"""

import asyncio

from durio.telemetry.emit import Emit
from durio.worker.claim import ClaimLoop
from durio.worker.outcome_buffer import OutcomeBuffer
from durio.worker.register import Registration
from durio.worker.slots import Slots
from durio.worker.worker_config import WorkerIdentity


class LeaseEvents:
    """Applies the reports of the heartbeat to the parts of the worker."""

    def __init__(
        self,
        emit: Emit,
        identity: WorkerIdentity,
        registration: Registration,
        slots: Slots,
        outcomes: OutcomeBuffer,
        claims: ClaimLoop,
    ) -> None:
        self._emit = emit
        self._identity = identity
        self._registration = registration
        self._slots = slots
        self._outcomes = outcomes
        self._claims = claims
        self._loop = asyncio.get_running_loop()

    def on_cancels(self, cancels: list[tuple[bytes, int]]) -> None:
        """Cancel attempts by job id and claim number; called on the heartbeat's loop."""
        self._loop.call_soon_threadsafe(self._cancel, cancels)

    def _cancel(self, cancels: list[tuple[bytes, int]]) -> None:
        for job_id, claim_no in cancels:
            self._slots.cancel(job_id, claim_no)

    def on_paused(self, lanes: frozenset[str]) -> None:
        """Pause these lanes; called on the heartbeat's loop."""
        self._loop.call_soon_threadsafe(self._claims.pause, lanes)

    def on_lost(self, worker: int) -> None:
        """Handle the loss of the lease; called on the heartbeat's loop."""
        self._loop.call_soon_threadsafe(self._lost, worker)

    def _lost(self, worker: int) -> None:
        """Drop everything of the old lease without writing, and register again."""
        if worker != self._identity.id or not worker:
            return
        self._emit("worker.fenced", worker=worker, running=len(self._slots.running))
        self._slots.drop_all()
        self._outcomes.drop()
        self._identity.id = 0
        claims = self._claims
        self._registration.register_again(worker, claims.forget, claims.give_up)
