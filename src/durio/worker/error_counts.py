"""Count the errors of a worker's attempts by group, and add the counts to the records.

Once a second at most, and at its end, a worker reads the records of the groups that have
new errors and writes them with the new counts. The write has the version that was read, so
two workers never lose each other's counts. A worker that is killed loses those of its last
second. Without errors the worker does nothing.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from durio.model.effects import Effects, Put
from durio.model.error_groups import (
    GROUPS_MAX,
    OTHERS,
    UNKNOWN_VERSION,
    ErrorOccurrence,
    errors_kind,
    fingerprint_of,
    group_put,
    load_group,
    new_group,
)
from durio.model.errors import StoreError
from durio.model.failure import SHORT_CHARS_MAX, storable
from durio.model.gate import GateChange
from durio.model.ids import id_text
from durio.ports.clock import Clock
from durio.ports.records import Record
from durio.ports.store import Store
from durio.telemetry.emit import Emit, JobEvent
from durio.telemetry.names import JOB_DEAD, JOB_FALTERED, JOB_RETRIED

WRITE_SECONDS = 1.0
GROUPS_AT_ONCE = 50  # in one transaction
UNWRITTEN_MAX = 2_000  # errors; further ones are not counted until these are written
LAST_WRITE_SECONDS = 3.0
FAILED = frozenset({JOB_RETRIED, JOB_DEAD, JOB_FALTERED})


class ErrorCounter:
    """An `Emit` that also counts the errors in the events that pass."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        emit: Emit,
        namespace: str,
        version: str | None,
        settle: Callable[[Sequence[GateChange]], None] = lambda _changes: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._namespace = namespace
        self._version = version or UNKNOWN_VERSION
        self._settle = settle  # the budgets of attempts, see spending.py
        self._unwritten: defaultdict[str, list[ErrorOccurrence]] = defaultdict(list)
        self._count = 0
        self._has_new = asyncio.Event()
        self._writing: asyncio.Task[bool] | None = None

    # --- as an Emit

    def __call__(self, name: str, **fields: Any) -> None:
        self._emit(name, **fields)

    def jobs(self, events: Sequence[JobEvent]) -> None:
        self._emit.jobs(events)
        for event in events:
            if event.error_type and event.name in FAILED:
                self._add(event)
            if event.settles:
                self._settle(event.settles)

    def wants(self, name: str) -> bool:
        return self._emit.wants(name)

    def _add(self, event: JobEvent) -> None:
        if self._count >= UNWRITTEN_MAX:
            return
        fingerprint, frames = fingerprint_of(
            event.error_type, event.error, event.traceback, event.task
        )
        occurrence = ErrorOccurrence(
            fingerprint=fingerprint,
            frames=frames,
            type=event.error_type,
            message=storable(event.error, SHORT_CHARS_MAX),
            at=self._clock.now(),
            task=event.task,
            version=self._version,
            host=event.worker.partition("/")[0],
            job=id_text(event.id),
            is_dead=event.name == JOB_DEAD,
        )
        self._unwritten[fingerprint].append(occurrence)
        self._count += 1
        self._has_new.set()

    # --- writing

    async def turn(self) -> float:
        """Wait for an error and write the counts; return the pause before the next turn."""
        await self._has_new.wait()
        self._has_new.clear()
        try:
            while self._unwritten and await self._write_some():
                pass
        except BaseException:
            self._has_new.set()
            raise
        return WRITE_SECONDS

    async def close(self) -> None:
        """Write the last counts when the worker ends."""
        try:
            async with asyncio.timeout(LAST_WRITE_SECONDS):
                while self._unwritten:
                    await self._write_some()
        except (StoreError, TimeoutError) as error:
            text = str(error) or "no answer in time"
            self._emit("store.failed", call="errors", error=text)

    async def _write_some(self) -> bool:
        """Write some counts, or wait for a write that was begun.

        The end of the worker cancels `turn`, but not its write: the counts would be written
        twice.
        """
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write())
            self._writing.add_done_callback(retrieve_error)
        return await asyncio.shield(self._writing)

    async def _write(self) -> bool:
        """Write the counts of some groups; return False, for later, if another was faster."""
        kind = errors_kind(self._namespace)
        names = list(self._unwritten)[:GROUPS_AT_ONCE]
        found = {r.name: r for r in await self._store.records(kind, names)}
        if len(found) < len(names) and await self._is_full():
            for name in [name for name in names if name not in found]:
                self._unwritten[OTHERS] += self._unwritten.pop(name)
            names = [*found, OTHERS]
            found |= {r.name: r for r in await self._store.records(kind, [OTHERS])}
        taken = {name: list(self._unwritten[name]) for name in names}
        puts = [self._put(name, new, found.get(name)) for name, new in taken.items()]
        if (await self._store.commit(Effects(puts=puts))).conflict is not None:
            self._has_new.set()
            return False
        for name, new in taken.items():
            self._count -= len(new)
            del self._unwritten[name][: len(new)]
            if not self._unwritten[name]:
                del self._unwritten[name]
        return True

    async def _is_full(self) -> bool:
        kind = errors_kind(self._namespace)
        listed = await self._store.list_records(kind, limit=GROUPS_MAX)
        return len(listed) >= GROUPS_MAX

    def _put(
        self, name: str, new: Sequence[ErrorOccurrence], record: Record | None
    ) -> Put:
        if record is None:
            return group_put(self._namespace, name, new_group(new, name), 0)
        try:
            group = load_group(record.body).with_occurrences(new)
        except msgspec.MsgspecError:  # of another release: begin again
            group = new_group(new, name)
        return group_put(self._namespace, name, group, record.version)


def retrieve_error(writing: "asyncio.Task[bool]") -> None:
    """Do not let asyncio log the error of a write that the end of the worker left alone.

    The counts of such a write are kept, and `close` writes them again.
    """
    if not writing.cancelled():
        writing.exception()
