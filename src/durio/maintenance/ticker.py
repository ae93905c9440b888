"""Make the jobs of schedules that are due.

The record of a schedule is due at the time of its next tick. One commit writes the job of
the tick, and the record with the tick after it, on the condition that the record still has
the version that was read. So any number of schedulers make each tick once: after a crash or
a lost reply the record says whether the tick was made, and a schedule that was changed or
deleted meanwhile is a conflict.

Times are those of the store: `Due.now`.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from durio.model.effects import Effects, Put, joined
from durio.model.errors import DurioError, InvalidSchedule, StoreError, UsageError
from durio.model.schedule import (
    ScheduleRecord,
    Skipped,
    TickRun,
    load_schedule,
    schedule_put,
    schedules_kind,
)
from durio.model.schedule_tick import (
    Ended,
    SkippedTicks,
    TickDecision,
    decide,
    due_time,
    longest_delay,
    shown,
    unknown_outcomes,
    with_run,
    without_run,
)
from durio.model.tick import TickPlace, tick_id
from durio.ports.clock import Clock
from durio.ports.commit import ROWS_MAX
from durio.ports.conflicts import Conflict
from durio.ports.records import Record
from durio.ports.schedule_runs import cancel_runs, ended_runs
from durio.ports.store import Store
from durio.ports.tick_maker import TickMaker
from durio.telemetry.emit import Emit
from durio.telemetry.skipped_ticks import report_late, report_skipped

BATCH_MAX = 200  # schedules per turn
IDLE_SECONDS = 1.0  # longest pause: a changed schedule is seen then
BUSY_SECONDS = 0.02  # pause after a conflict
POSTPONED_SECONDS = 60.0  # pause of a record that cannot be read or written
REASON_BY_CONFLICT: dict[str, Skipped] = {"full": "queue_closed", "key": "key"}


class Fired(NamedTuple):
    """A schedule that is due, with what is to be written for it."""

    record: Record  # as it was read
    decision: TickDecision
    after: ScheduleRecord  # as it is after the commit
    made: tuple[tuple[float, TickRun], ...]
    effects: Effects  # without the record
    failed: tuple[SkippedTicks, ...] = ()  # ticks whose jobs could not be made


@dataclass(slots=True)
class Ticker:
    """Handles the schedules of one App."""

    store: Store
    clock: Clock
    emit: Emit
    namespace: str
    maker: TickMaker
    soonest_at: float = field(default=0.0, init=False)  # of what this turn has written

    async def turn(self) -> float:
        """Handle schedules that are due; return the pause."""
        kind = schedules_kind(self.namespace)
        due = await self.store.due_records(kind, limit=BATCH_MAX)
        if not due.records:
            return min(IDLE_SECONDS, due.next_due_seconds or IDLE_SECONDS)
        self.soonest_at = due.now + IDLE_SECONDS
        has_conflict = not await self._handle(due.records, due.now)
        if has_conflict:
            return BUSY_SECONDS
        after = due.next_due_seconds
        pause = self.soonest_at - due.now
        return max(0.0, pause if after is None else min(pause, after))

    # --- one turn

    async def _handle(self, records: Sequence[Record], now: float) -> bool:
        """Decide and write; return False if another scheduler was faster somewhere."""
        loaded: list[tuple[Record, ScheduleRecord]] = []
        for record in records:
            try:
                loaded.append((record, load_schedule(record.body, record.name)))
            except InvalidSchedule as error:
                await self._postpone(record, error, now)
        runs = {run for _, each in loaded for run in unknown_outcomes(each)}
        ended = await ended_runs(self.store, self.namespace, runs, now)
        fired: list[Fired] = []
        for record, schedule in loaded:
            fired.append(await self._fire(record, schedule, now, ended))
            await self.clock.sleep(0)  # after downtime a decision takes up to 40 ms
        has_conflict = False
        batch: list[Fired] = []
        rows = 0
        for one in fired:
            rows += 1 + rows_of(one.effects)
            if rows > ROWS_MAX:
                has_conflict |= not await self._write(batch, now)
                batch, rows = [], 1 + rows_of(one.effects)
            batch.append(one)
        return await self._write(batch, now) and not has_conflict

    async def _fire(
        self,
        record: Record,
        schedule: ScheduleRecord,
        now: float,
        ended: dict[str, Ended],
    ) -> Fired:
        """Decide about one schedule, and make the jobs of its ticks."""
        decision = decide(schedule, now, ended)
        after, definition = decision.record, schedule.definition
        parts: list[Effects] = []
        made: list[tuple[float, TickRun]] = []
        failed: list[SkippedTicks] = []
        milliseconds = int(self.clock.now() * 1000)
        rows, size = 1, 0
        for number, tick in enumerate(decision.fire):
            if rows + size > ROWS_MAX:  # the rest in another commit
                left = decision.fire[number:]
                after = replace(after, waiting=(*left, *after.waiting))
                break
            place = TickPlace(record.name, tick)
            run_id = tick_id(self.namespace, place, milliseconds + number)
            longest = longest_delay(definition, tick)
            delay = longest and longest * self.clock.random()
            try:
                run, effects = await self.maker.make(
                    definition.link, place, run_id, delay
                )
            except StoreError:
                raise
            except DurioError as error:
                self.emit("schedule.failed", schedule=record.name, error=str(error))
                failed.append(SkippedTicks("invalid", tick, tick, 1))
                after = without_run(after, tick, "invalid", now)
                continue
            size = rows_of(effects)  # each tick has as many
            rows += size
            made.append((tick, run))
            parts.append(effects)
            after = with_run(after, tick, run)
        effects = joined(*parts) if parts else Effects()
        return Fired(record, decision, after, tuple(made), effects, tuple(failed))

    async def _write(self, fired: Sequence[Fired], now: float) -> bool:
        """Commit; if that is refused, one by one. Return False if a record had changed."""
        if len(fired) == 1:
            return await self._write_one(fired[0], now)
        with suppress(UsageError):  # one of them cannot be written
            if not fired or await self._commit(fired, now) is None:
                return True
        written = [await self._write_one(one, now) for one in fired]
        return all(written)

    async def _write_one(self, one: Fired, now: float) -> bool:
        try:
            conflict = await self._commit([one], now)
        except UsageError as error:  # its record is too large
            await self._postpone(one.record, error, now)
            return True
        if conflict is None or conflict.what == "record":
            return conflict is None
        return await self._skip(one, conflict, now)

    async def _commit(self, fired: Sequence[Fired], now: float) -> Conflict | None:
        puts = [self._put(one, now) for one in fired]
        effects = joined(*(one.effects for one in fired), Effects(puts=puts))
        conflict = (await self.store.commit(effects, enters=True)).conflict
        if conflict is None:
            for one, put in zip(fired, puts, strict=True):
                if put.due_at is not None:
                    self.soonest_at = min(self.soonest_at, put.due_at)
                self._report(one, now)
            # Only now is it certain that the schedule still says so.
            cancels = [run for one in fired for run in one.decision.cancels]
            await cancel_runs(self.store, self.namespace, cancels)
        return conflict

    async def _skip(self, one: Fired, conflict: Conflict, now: float) -> bool:
        """Skip ticks whose queue is closed, or that need a key that another job has."""
        reason = REASON_BY_CONFLICT.get(conflict.what, "invalid")
        lost = [SkippedTicks(reason, tick, tick, 1) for tick, _ in one.made]
        failed = (*one.failed, *lost)
        after = replace(one.decision.record, waiting=one.after.waiting)
        for some in failed:
            after = without_run(after, some.first_at, some.reason, now)
        skipped = Fired(one.record, one.decision, after, (), Effects(), failed)
        return await self._write_one(skipped, now)

    def _put(self, one: Fired, now: float) -> Put:
        due_at, record = due_time(one.after, now), one.record
        return schedule_put(
            self.namespace, record.name, one.after, record.version, due_at
        )

    async def _postpone(self, record: Record, error: UsageError, now: float) -> None:
        """Report a record that cannot be read or written; look again in a minute.

        A scheduler of another version may be able to.
        """
        self.emit("schedule.failed", schedule=record.name, error=str(error))
        kind, name, body, _, version = record
        same = Put(kind, name, body, version, now + POSTPONED_SECONDS)
        await self.store.commit(Effects(puts=[same]))

    # --- reports

    def _report(self, one: Fired, now: float) -> None:
        name, decision = one.record.name, one.decision
        for tick, run in one.made:
            self.emit("schedule.ticked", schedule=name, due_at=shown(tick), run=run.id)
        for some in (*decision.skipped, *one.failed):
            report_skipped(self.emit, name, some)
        if decision.paused is not None and one.after.pause is not None:
            self.emit("schedule.paused", schedule=name, why=one.after.pause.reason)
        rule, late = one.after.definition.rule, decision.late_seconds
        report_late(self.emit, name, rule, now - late, late)


def rows_of(effects: Effects) -> int:
    entries = sum(len(append.entries) for append in effects.appends)
    return len(effects.jobs) + len(effects.puts) + entries
