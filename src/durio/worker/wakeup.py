"""Wait for wakeups from the store, or for the safety poll.

A wakeup is only a hint that makes the worker read the store.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from durio.model.errors import StoreError
from durio.ports.clock import Clock
from durio.ports.store import Store, Wake
from durio.worker.worker_config import WorkerIdentity

PAUSE_SECONDS = 1.0
UNREGISTERED_SECONDS = 0.05


class WakeupLoop:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        identity: WorkerIdentity,
        poll_seconds: float,
        renew: Callable[[], Coroutine[Any, Any, None]],
        on_wake: Callable[[Wake], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._identity = identity
        self._poll_seconds = poll_seconds
        self._renew = renew
        self._on_wake = on_wake
        self._renewing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        while True:
            # Jitter keeps many idle workers from polling at the same time.
            seconds = self._poll_seconds * (0.75 + self._clock.random() / 2)
            if not self._identity.id:  # fenced, and not registered again yet
                await self._clock.sleep(UNREGISTERED_SECONDS)
                continue
            try:
                wake = await self._store.wait(self._identity.id, seconds)
            except StoreError:
                await self._clock.sleep(PAUSE_SECONDS)
                wake = Wake(woken=False, lanes=frozenset(), control=False)
            if wake.control and self._renewing is None:
                # A job here was cancelled, for example: renew now to receive it.
                self._renewing = asyncio.get_running_loop().create_task(self._renew())
                self._renewing.add_done_callback(self._renewed)
            self._on_wake(wake)

    def _renewed(self, _task: "asyncio.Task[None]") -> None:
        self._renewing = None
