"""Wakeups are hints: a ring, or the safety poll, makes the worker look; nothing more."""

from collections.abc import Callable

from durio.model.errors import StoreError
from durio.ports.clock import Clock
from durio.ports.store import Store, Wake
from durio.worker.plan import Me

PAUSE_SECONDS = 1.0
ANEW_SECONDS = 0.05


class Wakeup:
    """Waits for rings and passes them on."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        me: Me,
        poll_seconds: float,
        on_wake: Callable[[Wake], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._me = me
        self._poll_seconds = poll_seconds
        self._on_wake = on_wake

    async def run(self) -> None:
        """Listen until cancelled."""
        while True:
            # Jitter keeps many idle workers from polling in step.
            seconds = self._poll_seconds * (0.75 + self._clock.random() / 2)
            if not self._me.id:  # fenced, and not registered anew yet
                await self._clock.sleep(ANEW_SECONDS)
                continue
            try:
                wake = await self._store.wait(self._me.id, seconds)
            except StoreError:
                await self._clock.sleep(PAUSE_SECONDS)
                wake = Wake(rung=False, lanes=frozenset(), control=False)
            self._on_wake(wake)
