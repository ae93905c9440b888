"""Pause schedules of the code that the code of no live worker declares any more.

A deploy removes a schedule from the code, but its record stays. After five minutes the
leader pauses it, so that people can look at it and delete it. A worker that declares the
schedule again resumes it.
"""

from dataclasses import dataclass, field

from msgspec.structs import replace

from durio.model.effects import Effects
from durio.model.errors import InvalidSchedule
from durio.model.schedule import Pause, load_schedule, schedule_put, schedules_kind
from durio.ports.clock import Clock
from durio.ports.records import Record
from durio.ports.store import Store
from durio.telemetry.emit import Emit

LOOK_SECONDS = 60.0
UNDECLARED_SECONDS = 300.0
PAGE = 500
OF_CODE = b'"is_manual":false'
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
            for record in await self._of_code()
            if record.name not in declared and record.due_at is not None
        }
        since = {name: self.absent_since.get(name, now) for name in absent}
        self.absent_since = since
        for name, record in absent.items():
            if now - since[name] >= UNDECLARED_SECONDS:
                await self._pause(record)
        return LOOK_SECONDS

    async def _declared(self) -> set[str]:
        workers = await self.store.workers(self.namespace)
        live = [worker.info for worker in workers if worker.lease_seconds_left > 0]
        return {name for info in live for name in info.get("schedules", ())}

    async def _of_code(self) -> list[Record]:
        kind, after = schedules_kind(self.namespace), ""
        found: list[Record] = []
        while True:
            page = await self.store.list_records(kind, after=after, limit=PAGE)
            found += [record for record in page if OF_CODE in record.body]
            if len(page) < PAGE:
                return found
            after = page[-1].name

    async def _pause(self, record: Record) -> None:
        try:
            stored = load_schedule(record.body, record.name)
        except InvalidSchedule:
            return  # the ticker reports it
        if stored.is_manual or stored.pause is not None:
            return
        pause = Pause("durio", self.clock.now(), REASON, is_undeclared=True)
        paused = replace(stored, pause=pause)
        put = schedule_put(self.namespace, record.name, paused, record.version, None)
        if (await self.store.commit(Effects(puts=[put]))).conflict is None:
            self.emit("schedule.paused", schedule=record.name, why=REASON)
