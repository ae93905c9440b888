"""The loop that renews a worker's lease."""

import asyncio
from typing import Any, cast

from durio.worker.heartbeat import Heartbeat


class Fenced:
    """The identity of a worker that lost its lease and has not registered again."""

    id = 0


def test_a_worker_without_a_lease_pauses_between_renewals() -> None:
    """After a renewal that timed out it once ran on without a pause until it was registered."""
    heartbeat = cast("Any", object.__new__(Heartbeat))
    heartbeat._identity = Fenced()
    heartbeat._measure = lambda: None
    heartbeat._has_timed_out = True
    asyncio.run(heartbeat.renew())
    assert heartbeat._has_timed_out is False
