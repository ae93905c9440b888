"""Stop requests of a worker: whether it must stop, how fast, and why.

A signal, a command, or a part of the worker that cannot continue sets the request, and the
worker reads it. It is an object of its own because those parts are built before the worker.
"""

import asyncio

from durio.model.errors import DurioError, OperatingError
from durio.telemetry.emit import Emit
from durio.worker.worker_config import WorkerIdentity


class StopControl:
    """The stop requests of one worker."""

    def __init__(self, emit: Emit, identity: WorkerIdentity) -> None:
        self._emit = emit
        self._identity = identity
        self.requested = asyncio.Event()
        self.immediate = asyncio.Event()  # without a grace for running jobs
        self.error: DurioError | None = None  # why the worker is broken
        self._has_request = False

    def request(self) -> None:
        """Drain; a second request gives running jobs back without their grace."""
        if self._has_request:
            self.immediate.set()
        self._has_request = True
        self.requested.set()

    def drain(self) -> None:
        """Drain for an operator; a later stop request still waits for the grace time."""
        self.requested.set()

    def fail(self, error: DurioError) -> None:
        """Drain, so that a new process can start: this worker cannot continue."""
        if self.error is None:
            self.error = error
            self._emit("worker.broken", worker=self._identity.id, error=error.what)
            self.request()

    def fail_abandoned(self, count: int) -> None:
        """Drain, because too many abandoned attempts still run code in this process."""
        self.fail(
            OperatingError(
                f"too many abandoned attempts: {count} still run",
                cure="See job.abandoned in the log; restart this process.",
            )
        )
