"""Pause schedules of the code that the code of no live worker declares any more.

A deploy removes a schedule from the code, but its record stays. After five minutes the
leader pauses it, so that people can look at it and delete it. A worker that declares the
schedule again resumes it. A schedule that people changed goes on; it forgets what the code
declared, so that nobody gives it back to code that is gone.
"""

from dataclasses import dataclass, field

from msgspec.structs import replace

from durio.model.effects import Effects
from durio.model.errors import InvalidSchedule
from durio.model.schedule import (
    Pause,
    ScheduleRecord,
    load_schedule,
    schedule_put,
    schedules_kind,
)
from durio.ports.clock import Clock
from durio.ports.records import Record, store_time
from durio.ports.store import Store
from durio.telemetry.emit import Emit

LOOK_SECONDS = 60.0
UNDECLARED_SECONDS = 300.0
PAGE = 500
HAS_CODE = b'"code":'
REASON = "no live worker declares it"


@dataclass(slots=True)
class UndeclaredSchedules:
    """Looks after the schedules of one App."""

    store: Store
    clock: Clock
    emit: Emit
    namespace: str
    absent_since: dict[str, float] = field(default_factory=dict[str, float])

    async def turn(self) -> float:
        """Pause what was not declared for five minutes; return the pause."""
        now = self.clock.monotonic()
        declared = await self._declared()
        absent = {
            record.name: record
            for record in await self._known_to_code()
            if record.name not in declared
        }
        since = {name: self.absent_since.get(name, now) for name in absent}
        self.absent_since = since
        for name, record in absent.items():
            if now - since[name] >= UNDECLARED_SECONDS:
                await self._end_declaration(record)
        return LOOK_SECONDS

    async def _declared(self) -> set[str]:
        workers = await self.store.workers(self.namespace)
        live = [worker.info for worker in workers if worker.lease_seconds_left > 0]
        return {name for info in live for name in info.get("schedules", ())}

    async def _known_to_code(self) -> list[Record]:
        kind, after = schedules_kind(self.namespace), ""
        found: list[Record] = []
        while True:
            page = await self.store.list_records(kind, after=after, limit=PAGE)
            found += [record for record in page if HAS_CODE in record.body]
            if len(page) < PAGE:
                return found
            after = page[-1].name

    async def _end_declaration(self, record: Record) -> None:
        try:
            stored = load_schedule(record.body, record.name)
        except InvalidSchedule:
            return  # the ticker reports it
        if not stored.is_manual:
            await self._pause(record, stored)
        elif stored.code is not None:
            await self._write(record, replace(stored, code=None), record.due_at)

    async def _pause(self, record: Record, stored: ScheduleRecord) -> None:
        if stored.pause is not None or stored.is_over:
            return
        now = await store_time(self.store, schedules_kind(self.namespace))
        pause = Pause("durio", now, REASON, is_undeclared=True)
        if await self._write(record, replace(stored, pause=pause), None):
            self.emit("schedule.paused", schedule=record.name, why=REASON)

    async def _write(
        self, record: Record, changed: ScheduleRecord, due_at: float | None
    ) -> bool:
        """Write what was decided; return False if the schedule was changed meanwhile."""
        put = schedule_put(self.namespace, record.name, changed, record.version, due_at)
        return (await self.store.commit(Effects(puts=[put]))).conflict is None
