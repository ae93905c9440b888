"""The leader's part for breakers: the end of the open time, and probes without a result.

The record of an open breaker is due when its open time is over, and every half hour, so that
its gate stays in use; that of a half-open one every 5 s. Then probes are removed whose job does not run any more, so that others follow. And
if the places of the gate are held by jobs that no worker claims, in a paused queue or one
that no worker serves, the gate gets more places: the record says how many calls are made.

Times are those of the store: `Due.now`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from durio.model.breaker import (
    HALF_OPEN,
    OPEN,
    BreakerRecord,
    after_look,
    breaker_gate,
    breakers_kind,
    due_after_look,
    gate_of,
)
from durio.model.effects import Effects, Put
from durio.model.gate import GateChange
from durio.model.ids import id_bytes, id_text
from durio.model.job import RUNNING
from durio.ports.breaker_change import effects_of, stored_breaker
from durio.ports.records import Record
from durio.ports.store import Store
from durio.telemetry.breaker_events import BreakerEvent, report_change
from durio.telemetry.emit import Emit

BATCH_MAX = 100
IDLE_SECONDS = 1.0  # longest pause: a new record is seen then
UNREADABLE_SECONDS = 60.0  # until the next look at a record of another release


@dataclass(slots=True)
class BreakerKeeper:
    """Looks at the breakers of one App that are due."""

    store: Store
    emit: Emit
    namespace: str
    notify: Callable[[BreakerEvent], None]

    async def turn(self) -> float:
        """Look at the breakers that are due; return the pause."""
        due = await self.store.due_records(
            breakers_kind(self.namespace), limit=BATCH_MAX
        )
        for record in due.records:
            await self._look(record, due.now)
        if due.next_due_seconds is None:
            return IDLE_SECONDS
        return min(IDLE_SECONDS, due.next_due_seconds)

    async def _look(self, record: Record, now: float) -> None:
        found = stored_breaker(record)
        if found.record is None:
            kind, name, body, _, version = record
            later = Put(kind, name, body, version, now + UNREADABLE_SECONDS)
            await self.store.commit(Effects(puts=[later]))
            return
        before, running = found.record, await self._running(found.record)
        after = after_look(before, running, now)
        due_at = due_after_look(after, now)
        effects = effects_of(self.namespace, record.name, found, after, due_at)
        if after.state == OPEN:
            gates = (gate_of(self.namespace, record.name, after),)
            effects = effects._replace(gates=gates)
        elif not effects.gates and after.state == HALF_OPEN and not after.probes:
            effects = effects._replace(gates=await self._more_places(record, after))
        # A conflict: a worker or a person was faster, and the record is due again.
        is_written = (await self.store.commit(effects)).conflict is None
        if is_written and after.period != before.period:
            report_change(self.emit, self.notify, record.name, after)

    async def _running(self, record: BreakerRecord) -> set[str]:
        """Return the jobs of its probes that run."""
        if not record.probes:
            return set()
        states = await self.store.states([id_bytes(job) for job in record.probes])
        return {id_text(job) for job, state in states.items() if state == RUNNING}

    async def _more_places(
        self, record: Record, after: BreakerRecord
    ) -> tuple[GateChange, ...]:
        """Return a change of the gate if jobs hold all places and none of them runs."""
        name = breaker_gate(self.namespace, record.name)
        for row in await self.store.gates(name, limit=1):
            is_full = row.cap is not None and row.used >= row.cap
            if row.name == name and row.waiting and is_full:
                return (GateChange(name, cap=row.used + after.rule.probes),)
        return ()
