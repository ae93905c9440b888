"""The loop that renews a worker's lease."""

import asyncio
from typing import Any

import pytest

from durio.model.errors import StoreFull
from durio.ports.store import Health
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


def unused(*_: Any, **_named: Any) -> None: ...


class FullStore:
    """No process can write; it says so at once."""

    async def renew(self, *_: object) -> None:
        raise StoreFull("the disk is full", cure="")

    async def health(self, _worker: int) -> Health:
        return Health(stalled_by=None, behind_seconds=0.0)


def heartbeat_of(clock: Any, store: Any, worker: int) -> Heartbeat:
    identity = WorkerIdentity()
    identity.id, identity.renewed_at = worker, clock.now
    return Heartbeat(
        store=store,
        clock=clock,
        emit=unused,
        identity=identity,
        lease_seconds=30.0,
        interval_seconds=5.0,
        on_cancels=unused,
        on_lost=unused,
        on_paused=unused,
        on_commands=unused,
        measure=lambda: None,  # type: ignore[arg-type, return-value]
    )


def test_a_renewal_is_repeated_soon_while_no_process_can_write() -> None:
    """Others that renew first may take the jobs of a lease that has expired."""
    clock: Any = SteppedClock(sleeps=4)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(heartbeat_of(clock, FullStore(), 7).run())
    assert clock.now == 100.0 + 5.0 + 3 * 1.25


def test_a_fenced_worker_pauses_after_a_renewal_that_timed_out() -> None:
    """While writes are blocked a renewal is repeated at once, but not without a lease."""
    clock: Any = SteppedClock(sleeps=4)
    heartbeat = heartbeat_of(clock, None, 0)
    heartbeat._is_write_blocked = heartbeat._has_timed_out = True
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(heartbeat.run())
    assert clock.now == 100.0 + 3 * 5.0  # the first sleep is without a pause
