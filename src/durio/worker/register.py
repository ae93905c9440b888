"""Getting a lease: at the start, and anew when it was lost.

A store that is out of reach is asked again for as long as it takes. One that will never
take this worker again is not: its file was replaced, or its jobs went to another store. Nor is
one that answers, and has refused for a minute, or two leases: a worker without a lease is
alive but deaf. One that is full, or takes no writes, is waited for: servers are switched to
reading while a primary changes, or a disk is nearly full.
"""

import asyncio
from collections.abc import Callable

from durio.model.errors import (
    StoreError,
    StoreFull,
    StoreMoved,
    StoreReadOnly,
    StoreReplaced,
    StoreUnavailable,
)
from durio.ports.clock import Clock
from durio.ports.lease import WorkerInfo
from durio.ports.store import Store
from durio.telemetry.emit import Emit
from durio.worker.worker_config import WorkerConfig, WorkerIdentity

PAUSE_FIRST, PAUSE_LAST = 0.1, 5.0
PERMANENT_ERRORS = (StoreMoved, StoreReplaced)  # to ask again would be to ask for ever
REFUSED_SECONDS = 60.0  # or two leases


class Registration:
    """Makes a worker somebody: `me` is who it is from then on."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        emit: Emit,
        config: WorkerConfig,
        identity: WorkerIdentity,
    ) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._config = config
        self._identity = identity
        self._again: asyncio.Task[None] | None = None

    async def register_unless(self, stop: asyncio.Event) -> bool:
        """Register; False: a stop came first, which need not wait for a stuck store."""
        loop = asyncio.get_running_loop()
        register = loop.create_task(self._register())
        stopped = loop.create_task(stop.wait())
        await asyncio.wait((register, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not register.done():
            register.cancel()
            return False
        register.result()
        return True

    def register_again(
        self,
        old: int,
        on_registered: Callable[[], None],
        on_gone: Callable[[StoreError], None],
    ) -> None:
        """A new name in place of one that was lost; `gone`: there will never be one."""
        anew = self._register_again(old, on_registered, on_gone)
        self._again = asyncio.get_running_loop().create_task(anew)

    def end(self) -> None:
        """Try no more."""
        if self._again is not None:
            self._again.cancel()

    async def _register(self) -> None:
        plan, began = self._config, self._clock.monotonic()
        info = WorkerInfo(
            namespace=plan.namespace,
            name=plan.name,
            host=plan.host,
            pid=plan.pid,
            queues=plan.serving.patterns,
            concurrency=plan.settings.worker.concurrency,
            version=plan.version,
            tasks=plan.tasks,
            **plan.serving.shown(),
        )
        lease_seconds = plan.settings.worker.lease_seconds
        self._identity.id = await self._store.register(info, lease_seconds)
        self._identity.renewed_at = self._identity.resumed_at = began

    async def _register_again(
        self,
        old: int,
        on_registered: Callable[[], None],
        on_gone: Callable[[StoreError], None],
    ) -> None:
        pause, refused_since = PAUSE_FIRST, None
        while True:
            try:
                # What the old name still holds, here or in the store, is given back.
                await self._store.leave(old)
                await self._register()
                break
            except PERMANENT_ERRORS as error:
                on_gone(error)
                return
            except StoreError as error:
                self._emit("store.failed", call="register", error=str(error))
                now = self._clock.monotonic()
                if not await self._is_refused(error):
                    refused_since = None
                elif refused_since is None:
                    refused_since = now
                elif now - refused_since > self._refused_seconds:
                    on_gone(lease_refused_error(error, now - refused_since))
                    return
                await self._clock.sleep(pause * (0.5 + self._clock.random() / 2))
                pause = min(pause * 2, PAUSE_LAST)
        on_registered()

    @property
    def _refused_seconds(self) -> float:
        return max(REFUSED_SECONDS, 2 * self._config.settings.worker.lease_seconds)

    async def _is_refused(self, error: StoreError) -> bool:
        """Whether the store is well, and it is us whom it does not take.

        On a bad line one call may go through and the other not: then there is no answer.
        """
        if error.unknown or isinstance(error, StoreFull | StoreReadOnly):
            return False
        try:
            await self._store.workers(self._config.namespace)
        except StoreError:
            return False
        return True


def lease_refused_error(error: StoreError, seconds: float) -> StoreError:
    """What ends a worker that cannot have a lease."""
    return StoreUnavailable(
        f"no lease was to be had for {seconds:.0f} s, though the store answers: "
        f"{error.what}",
        cure=error.cure or "See what the store says; a new process tries again.",
    )
