"""The loop that renews a worker's lease."""

import asyncio
from typing import Any

import pytest

from durio.worker.heartbeat import Heartbeat
from durio.worker.worker_config import WorkerIdentity


class SteppedClock:
    """Time passes only in `sleep`; after some sleeps the loop is cancelled."""

    def __init__(self, sleeps: int) -> None:
        self.now = 100.0
        self.left = sleeps

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.left -= 1
        if not self.left:
            raise asyncio.CancelledError


def unused(*_: Any) -> None: ...


def test_a_fenced_worker_pauses_after_a_renewal_that_timed_out() -> None:
    """While writes are blocked a renewal is repeated at once, but not without a lease."""
    clock: Any = SteppedClock(sleeps=4)
    store: Any = None
    heartbeat = Heartbeat(
        store=store,
        clock=clock,
        emit=unused,
        identity=WorkerIdentity(),  # the id is 0: fenced
        lease_seconds=30.0,
        interval_seconds=5.0,
        on_cancels=unused,
        on_lost=unused,
        on_paused=unused,
        on_commands=unused,
        measure=lambda: None,  # type: ignore[arg-type, return-value]
    )
    heartbeat._is_write_blocked = heartbeat._has_timed_out = True
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(heartbeat.run())
    assert clock.now == 100.0 + 3 * 5.0  # the first sleep is without a pause
