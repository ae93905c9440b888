"""Breakers in a worker: which calls may be made, and what their results say.

An attempt of a task with `breaker=`, and a block `app.breaker(...)`, ask for a permit before
the call and report its result after it. A worker knows the state of a breaker for a second;
then it reads it again, if there are calls. It adds the results of its calls to the record at
most once a second; at once if they open it. The result of a probe is written at once, before
the outcome of its job: that gives the job's place to the next one.

A job that comes while the breaker is open is given back, uncharged, to wait before the gate
of the breaker. One that comes again has no such gate: it was enqueued by code without the
`breaker=` option. It waits for a time.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from durio.model.breaker import (
    CLOSED,
    HALF_OPEN,
    OPEN,
    BreakerRecord,
    after_probe,
    new_breaker,
    with_calls,
    with_probe,
    with_rule,
    without_probe,
)
from durio.model.breaker_rule import Breaker, Errors
from durio.model.errors import StoreError
from durio.model.job import utc_datetime
from durio.ports.breaker_change import Change, change_breaker, read_breakers
from durio.ports.clock import Clock
from durio.ports.store import Store
from durio.telemetry.breaker_events import BreakerEvent, report_change
from durio.telemetry.emit import Emit

FRESH_SECONDS = 1.0  # a state that was read is known for so long
MERGE_SECONDS = 1.0
LAST_MERGE_SECONDS = 3.0
READS_MAX = 3  # of a state, if the answers are slow
WRITES_MAX = 3  # of a result whose write has an unknown outcome
HELD_MAX = 10_000  # jobs that were given back, by id
HELD_SECONDS = 60.0  # longest wait of a job that no gate keeps back
PROBING_SECONDS = 5.0  # its wait while probes are under way


class Permit(NamedTuple):
    """The permission to make one call."""

    name: str
    job: str
    period: int
    is_probe: bool


class Calls:
    """Calls of one period that are not in the record yet."""

    __slots__ = ("error", "failures", "number", "period")

    def __init__(self, period: int) -> None:
        self.period = period
        self.number = 0
        self.failures = 0
        self.error = ""


class KnownState(NamedTuple):
    """What a worker knows of a breaker."""

    record: BreakerRecord
    read_at: float  # monotonic, before the read


class Breakers:
    """The breakers that a worker's code declares."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        emit: Emit,
        namespace: str,
        declared: Mapping[str, Breaker],
        notify: Callable[[BreakerEvent], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._namespace = namespace
        self.declared = declared
        self._notify = notify
        self._known: dict[str, KnownState] = {}
        self._locks = {name: asyncio.Lock() for name in declared}
        self._calls: dict[str, Calls] = {}
        self._has_calls = asyncio.Event()
        self._opens = asyncio.Event()  # as far as this worker knows
        self._merging: asyncio.Task[None] | None = None
        self._held: dict[str, tuple[int, set[str]]] = {}  # period, ids of jobs

    # --- before a call

    async def enter(self, name: str, job: str) -> Permit | None:
        """Return the permit for a call; None if the breaker does not let it be made.

        Without the store nobody knows: the call is not made.
        """
        try:
            record = await self._state(name)
            if record is None:
                return None
            if record.state == HALF_OPEN:
                return await self._enter_half_open(name, job)
        except StoreError as error:
            self._emit("store.failed", call="breaker", error=str(error))
            return None
        return permit(name, job, record)

    async def _state(self, name: str) -> BreakerRecord | None:
        """Return the state as it is, or was a short time ago; None if that is not known."""
        known = self._known.get(name)
        if known is not None and self._age(known) < FRESH_SECONDS:
            return known.record
        async with self._locks[name]:
            for _ in range(READS_MAX):
                known = self._known.get(name)
                if known is None or self._age(known) >= FRESH_SECONDS:
                    known = await self._read(name)
                # A slow answer may be from before the whole open time.
                if self._age(known) < known.record.rule.open_seconds:
                    return known.record
        return None

    def _age(self, known: KnownState) -> float:
        return self._clock.monotonic() - known.read_at

    async def _read(self, name: str) -> KnownState:
        read_at = self._clock.monotonic()
        found = await read_breakers(self._store, self._namespace, [name])
        record = found[name].record or self._new(name)
        return self._learn(name, record, read_at)

    def _learn(self, name: str, record: BreakerRecord, read_at: float) -> KnownState:
        """Keep what is newer: answers may come in another order than the reads were sent."""
        known, new = self._known.get(name), KnownState(record, read_at)
        if known is None or known.read_at <= read_at:
            self._known[name] = new
        return new

    def _new(self, name: str) -> BreakerRecord:
        return new_breaker(self.declared[name].rule, self._clock.now())

    async def _enter_half_open(self, name: str, job: str) -> Permit | None:
        """Become a probe, if there is room; the record tells probes from other calls."""

        def change(record: BreakerRecord | None) -> BreakerRecord | None:
            if record is None or record.state != HALF_OPEN:
                return None
            return with_probe(record, job, self._clock.now())

        record = await self._change(name, change)
        return None if record is None else permit(name, job, record)

    async def _change(self, name: str, change: Change) -> BreakerRecord | None:
        """Change the record and report a new state; return the record as it stands."""
        read_at = self._clock.monotonic()
        changed = await change_breaker(self._store, self._namespace, name, change)
        if changed is None or changed.after is None:
            return None
        self._learn(name, changed.after, read_at)
        if changed.has_new_state:
            report_change(self._emit, self._notify, name, changed.after)
        return changed.after

    # --- after a call

    async def leave(self, used: Permit, failed: bool | None, error: str = "") -> None:  # noqa: FBT001
        """Report the result of a call; None says nothing about the dependency."""
        if used.is_probe:
            await self._leave_half_open(used, failed, error)
        elif failed is not None:
            self._count(used, failed=failed, error=error)

    def _count(self, used: Permit, *, failed: bool, error: str) -> None:
        calls = self._calls.get(used.name)
        if calls is None or calls.period < used.period:
            calls = self._calls[used.name] = Calls(used.period)
        if calls.period > used.period:
            return  # the call began in an earlier period
        calls.number += 1
        if failed:
            calls.failures += 1
            calls.error = error
            known, now = self._known.get(used.name), self._clock.now()
            if known is not None and known.record.period == calls.period:
                after = with_calls(known.record, calls.number, calls.failures, "", now)
                if after.state == OPEN:
                    self._opens.set()
        self._has_calls.set()

    async def _leave_half_open(
        self,
        used: Permit,
        failed: bool | None,  # noqa: FBT001
        error: str,
    ) -> None:
        def change(record: BreakerRecord | None) -> BreakerRecord | None:
            if record is None or record.period != used.period:
                return None
            if failed is None:
                return without_probe(record, used.job)
            now = self._clock.now()
            return after_probe(record, used.job, error if failed else None, now)

        for left in reversed(range(WRITES_MAX)):
            try:
                await self._change(used.name, change)
            except StoreError as lost:
                if lost.unknown and left:
                    continue
                # The leader removes the probe when its job does not run any more.
                self._emit("store.failed", call="breaker", error=str(lost))
            return

    async def turn(self) -> float:
        """Wait for a result, and add the results to the records; then wait for a second.

        A call that opens a breaker ends the wait: others would fail in that second.
        """
        await self._has_calls.wait()
        self._has_calls.clear()
        self._opens.clear()
        try:
            await self._merge_all()
        except BaseException:
            self._has_calls.set()
            raise
        with suppress(TimeoutError):
            async with asyncio.timeout(MERGE_SECONDS):
                await self._opens.wait()
        return 0.0

    async def _merge_all(self) -> None:
        """Add the results, or wait until those that are on their way are added.

        The end of the worker cancels `turn`, but not its write: nobody would know whether
        these results are in the record.
        """
        if self._merging is None or self._merging.done():
            self._merging = asyncio.get_running_loop().create_task(self._merge_names())
        await asyncio.shield(self._merging)

    async def _merge_names(self) -> None:
        for name in list(self._calls):
            await self._merge(name)

    async def _merge(self, name: str) -> None:
        calls = self._calls.pop(name)

        def change(record: BreakerRecord | None) -> BreakerRecord | None:
            record = self._new(name) if record is None else record
            if record.period != calls.period or record.state != CLOSED:
                return None
            numbers = calls.number, calls.failures
            return with_calls(record, *numbers, calls.error, self._clock.now())

        try:
            await self._change(name, change)
        except StoreError as error:
            if not error.unknown:  # else they may be in the record
                self._calls.setdefault(name, calls)
            raise

    async def close(self) -> None:
        """Add the last results when the worker ends."""
        try:
            async with asyncio.timeout(LAST_MERGE_SECONDS):
                await self._merge_all()
                if self._calls:
                    await self._merge_all()
        except (StoreError, TimeoutError) as error:
            text = str(error) or "no answer in time"
            self._emit("store.failed", call="breaker", error=text)

    # --- without a permit

    def seconds_to_wait(self, name: str) -> float:
        """Return how long a call that has no gate should wait before it asks again."""
        known = self._known.get(name)
        wait = PROBING_SECONDS
        if known is not None and known.record.until is not None:
            wait = max(1.0, known.record.until - self._clock.now())
        elif known is not None and known.record.state == OPEN:
            forced = known.record.forced is not None
            wait = HELD_SECONDS if forced else known.record.rule.open_seconds
        # Not all at once.
        return min(wait, HELD_SECONDS) * (1 + self._clock.random() / 4)

    def release_delay(self, name: str, job: str) -> float:
        """Return the delay of a job that is given back; 0: the gate keeps it."""
        known = self._known.get(name)
        period = -1 if known is None else known.record.period
        before, jobs = self._held.get(name, (period, set[str]()))
        if before != period or len(jobs) >= HELD_MAX:
            jobs = set[str]()
        self._held[name] = period, jobs
        if job in jobs:
            return self.seconds_to_wait(name)
        jobs.add(job)
        return 0.0

    def until_text(self, name: str) -> str:
        """Return until when the breaker is open, for people."""
        known = self._known.get(name)
        until = None if known is None else utc_datetime(known.record.until)
        return "" if until is None else f" until {until:%Y-%m-%d %H:%M:%SZ}"

    # --- at the start

    async def declare(self) -> None:
        """Store the numbers of the breakers, as the code declares them."""
        for name, breaker in self.declared.items():

            def change(
                record: BreakerRecord | None, rule: Any = breaker.rule
            ) -> BreakerRecord:
                if record is None:
                    return new_breaker(rule, self._clock.now())
                return record if record.rule == rule else with_rule(record, rule)

            await self._change(name, change)

    def classes_of(self, name: str) -> Errors:
        """Return the exceptions that count as failures, beside those of the table."""
        return self.declared[name].on


def permit(name: str, job: str, record: BreakerRecord) -> Permit | None:
    """Return the permit that this record gives to a job."""
    if record.state == CLOSED:
        return Permit(name, job, record.period, is_probe=False)
    is_probe = record.state == HALF_OPEN and job in record.probes
    return Permit(name, job, record.period, is_probe=True) if is_probe else None
