"""Get a lease: at the start, and again after it was lost.

While the store cannot be reached, registration is tried again without a limit. The same
holds for a store that is full or read-only: a server is read-only during a failover, or
while its disk is nearly full. Registration fails for good when the store's file was
replaced or its jobs moved to another store. It also fails when a store that answers has
refused for max(60 s, two leases), because a worker without a lease is useless.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from durio.model.effects import Effects, Put
from durio.model.errors import (
    StoreError,
    StoreFull,
    StoreMoved,
    StoreReadOnly,
    StoreReplaced,
    StoreUnavailable,
)
from durio.model.published_tasks import (
    SIGNATURE_TTL_SECONDS,
    signature_name,
    signatures_kind,
    tasks_kind,
)
from durio.model.settings import DAY
from durio.ports.clock import Clock
from durio.ports.commit import ROWS_MAX
from durio.ports.lease import TASKS_MAX, WorkerInfo
from durio.ports.records import RECORD_BYTES_MAX, can_name_record
from durio.ports.store import Store
from durio.telemetry.emit import Emit
from durio.worker.worker_config import WorkerConfig, WorkerIdentity

PAUSE_FIRST, PAUSE_LAST = 0.1, 5.0
PERMANENT_ERRORS = (StoreMoved, StoreReplaced)  # trying again cannot help
REFUSED_SECONDS = 60.0  # or two leases
# Checked when producers enqueue by name.
TYPE_KEYS = {"type", "format", "contentEncoding"}


def task_puts(
    namespace: str, tasks: Mapping[str, Mapping[str, Any]], *, day: int = 0
) -> list[list[Put]]:
    """Return the records that publish a worker's tasks, in batches that fit a transaction.

    They are sorted by name, so that workers that start together lock records in one order.
    The last batch may be empty. A signature holds the day on which it was last published,
    so that its time to live is renewed once a day. A task whose name is too long for a
    record is left out.
    """
    tasks = {
        task: described
        for task, described in tasks.items()
        if is_publishable(task, described)
    }
    puts = [
        Put(tasks_kind(namespace), task, task_body(described))
        for task, described in tasks.items()
    ]
    puts += [
        Put(
            signatures_kind(namespace),
            signature_name(task, described),
            str(day).encode(),
            ttl_seconds=SIGNATURE_TTL_SECONDS,
        )
        for task, described in tasks.items()
    ]
    puts.sort()
    return [
        puts[start : start + ROWS_MAX] for start in range(0, len(puts) or 1, ROWS_MAX)
    ]


def is_publishable(task: str, described: Mapping[str, Any]) -> bool:
    """Whether records can have the names of this task and of its signature."""
    return can_name_record(signature_name(task, described))


def task_body(described: Mapping[str, Any]) -> bytes:
    """Return a task's description; if it is too large for a record, with types only."""
    body = msgspec.json.encode(described)
    if len(body) <= RECORD_BYTES_MAX:
        return body
    parameters = [
        {**p, "schema": {k: v for k, v in p["schema"].items() if k in TYPE_KEYS}}
        for p in described["parameters"]
    ]
    return msgspec.json.encode({**described, "parameters": parameters})


class Registration:
    """Registers a worker and sets its `identity`."""

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
        """Register; return False if a stop came first.

        A stop does not wait for a stuck store.
        """
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
        """Start to register in place of the lost worker `old`.

        `on_gone` is called if this store will never give a lease again.
        """
        anew = self._register_again(old, on_registered, on_gone)
        self._again = asyncio.get_running_loop().create_task(anew)

    def end(self) -> None:
        if self._again is not None:
            self._again.cancel()

    async def _register(self) -> None:
        config, began = self._config, self._clock.monotonic()
        info = WorkerInfo(
            namespace=config.namespace,
            name=config.name,
            host=config.host,
            pid=config.pid,
            queues=config.serving.patterns,
            concurrency=config.settings.worker.concurrency,
            version=config.version,
            python=config.python,
            schedules=config.schedules,
            tasks=tuple(config.tasks) if len(config.tasks) <= TASKS_MAX else None,
            code_version=config.code_version,
            **config.serving.shown(),
        )
        lease_seconds = config.settings.worker.lease_seconds
        for task, described in config.tasks.items():
            if not is_publishable(task, described):
                self._emit("task.unpublished", task=task)
        day = int(self._clock.now() // DAY)
        batches = task_puts(config.namespace, config.tasks, day=day)
        *earlier, puts = [await self._changed(batch) for batch in batches]
        for some in earlier:
            if some:
                await self._store.commit(Effects(puts=some))
        self._identity.id = await self._store.register(info, lease_seconds, puts)
        self._identity.renewed_at = self._identity.resumed_at = began

    async def _changed(self, puts: Sequence[Put]) -> list[Put]:
        """Return the puts that differ from the stored records.

        Most workers publish nothing new.
        """
        stored: dict[tuple[str, str], bytes] = {}
        for kind in {put.kind for put in puts}:
            names = [put.name for put in puts if put.kind == kind]
            for record in await self._store.records(kind, names):
                stored[kind, record.name] = record.body
        return [put for put in puts if stored.get((put.kind, put.name)) != put.body]

    async def _register_again(
        self,
        old: int,
        on_registered: Callable[[], None],
        on_gone: Callable[[StoreError], None],
    ) -> None:
        pause, refused_since = PAUSE_FIRST, None
        while True:
            try:
                # Give back all jobs that the store still counts as the old worker's.
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
        """Whether the store works but refuses this worker.

        On a bad connection one call may succeed and the other fail, so an error with an
        unknown result is no refusal.
        """
        if error.unknown or isinstance(error, StoreFull | StoreReadOnly):
            return False
        try:
            await self._store.workers(self._config.namespace)
        except StoreError:
            return False
        return True


def lease_refused_error(error: StoreError, seconds: float) -> StoreError:
    """Return the error that ends a worker without a lease."""
    return StoreUnavailable(
        f"no lease was granted for {seconds:.0f} s, though the store answers: "
        f"{error.what}",
        cure=error.cure or "See the error of the store; a new process tries again.",
    )
