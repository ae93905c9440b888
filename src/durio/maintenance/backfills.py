"""Make the jobs of backfills: a few ticks at a time, each once.

Like a tick of a schedule, a step writes its jobs and the record of the backfill in one
commit, on the condition that the record was not changed.
"""

from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from durio.maintenance.ticker import rows_of
from durio.model.backfill import (
    KEPT_SECONDS,
    LOOK_SECONDS,
    BackfillRecord,
    backfills_kind,
    load_backfill,
    ticks_of,
)
from durio.model.effects import Effects, Put, joined
from durio.model.errors import DurioError, InvalidSchedule, StoreError
from durio.model.tick import TickPlace, tick_id
from durio.ports.clock import Clock
from durio.ports.commit import ROWS_MAX
from durio.ports.records import Record
from durio.ports.schedule_runs import ended_runs
from durio.ports.store import Store
from durio.ports.tick_maker import TickMaker
from durio.telemetry.emit import Emit

BATCH_MAX = 20  # backfills per turn
IDLE_SECONDS = 1.0
POSTPONED_SECONDS = 10.0  # pause of a backfill whose queue is closed


@dataclass(slots=True)
class BackfillKeeper:
    """Handles the backfills of one App."""

    store: Store
    clock: Clock
    emit: Emit
    namespace: str
    maker: TickMaker

    async def turn(self) -> float:
        """Take a step with each backfill that is due; return the pause."""
        kind = backfills_kind(self.namespace)
        due = await self.store.due_records(kind, limit=BATCH_MAX)
        for record in due.records:
            try:
                backfill = load_backfill(record.body, record.name)
            except InvalidSchedule as error:
                await self._postpone(record, record.name, str(error), due.now)
                continue
            effects = await self._step(record, backfill, due.now)
            conflict = (await self.store.commit(effects, enters=True)).conflict
            if conflict is not None and conflict.what != "record":
                # A closed queue, or a key of a node.
                why = f"backfill {record.name}: {conflict.what} {conflict.name}"
                await self._postpone(record, backfill.schedule, why, due.now)
        if due.records:
            return LOOK_SECONDS
        return min(IDLE_SECONDS, due.next_due_seconds or IDLE_SECONDS)

    async def _step(
        self, record: Record, backfill: BackfillRecord, now: float
    ) -> Effects:
        ended = await ended_runs(self.store, self.namespace, backfill.live, now)
        live = [run for run in backfill.live if run.id not in ended]
        room = backfill.at_a_time - len(live)
        ticks: list[float] = []
        if backfill.next_at is not None and room > 0:
            ticks = ticks_of(backfill.rule, backfill.next_at, backfill.until, room)
        parts: list[Effects] = []
        rows, size, failed, last = 1, 0, backfill.failed, None
        milliseconds = int(self.clock.now() * 1000)
        for number, tick in enumerate(ticks):
            if rows + size > ROWS_MAX:
                break
            place = TickPlace(backfill.schedule, tick, record.name)
            run_id = tick_id(self.namespace, place, milliseconds + number)
            try:
                run, effects = await self.maker.make(backfill.link, place, run_id, 0.0)
            except StoreError:
                raise
            except DurioError as error:
                name = backfill.schedule
                self.emit("schedule.failed", schedule=name, error=str(error))
                failed, last = failed + 1, tick
                continue
            size = rows_of(effects)  # each tick has as many
            rows += size
            last = tick
            parts.append(effects)
            live.append(run)
        after = replace(
            backfill,
            live=tuple(live),
            failed=failed,
            made=backfill.made + len(parts),
            next_at=self._next(backfill, last),
        )
        effects = joined(*parts) if parts else Effects()
        put = self._put(record, after, now)
        return effects._replace(puts=[*effects.puts, put])

    async def _postpone(
        self, record: Record, schedule: str, why: str, now: float
    ) -> None:
        """Report a backfill that cannot go on, and try again later."""
        self.emit("schedule.failed", schedule=schedule, error=why)
        kind, name, body, _, version = record
        same = Put(kind, name, body, version, now + POSTPONED_SECONDS)
        await self.store.commit(Effects(puts=[same]))

    def _next(self, backfill: BackfillRecord, last: float | None) -> float | None:
        if last is None:
            return backfill.next_at
        following = backfill.rule.after(last)
        is_over = following is None or following >= backfill.until
        return None if is_over else following

    def _put(self, record: Record, backfill: BackfillRecord, now: float) -> Put:
        put = Put(*record[:2], msgspec.json.encode(backfill), record.version)
        if backfill.next_at is None:
            return put._replace(ttl_seconds=KEPT_SECONDS)
        return put._replace(due_at=now + LOOK_SECONDS)
