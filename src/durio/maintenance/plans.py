"""Plans: handle failures of their nodes, mark those that are done, delete old ones.

Failed nodes of all plans append to one log of the App, and so do last nodes that are done.
The leader reads both from a position that it keeps in a record. It moves the position in
the same commit as the last effect of an entry, and every step may be repeated: two leaders
at the same time do no harm.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from durio.model.effects import Effects, Put
from durio.model.errors import InvalidPlan
from durio.model.failure import ShortFailure, short_failure
from durio.model.ids import id_bytes, id_text
from durio.model.job import CANCELLED, DEAD, PRIORITY_MAX, NewJob, StoredJob
from durio.model.names import lane
from durio.model.options import stored_options
from durio.model.plan_failure import (
    HandlerCall,
    dependents,
    fails_plan,
    handler_id,
    handlers,
)
from durio.model.plan_payload import failure_payload, plan_place_of
from durio.model.plan_record import KEPT_SECONDS, FirstFailure, PlanState, plan_kind
from durio.ports.clock import Clock
from durio.ports.conflicts import EffectsRefused
from durio.ports.control import CancelJobs
from durio.ports.logs import Entry
from durio.ports.plan_reader import StoredPlan, find_plan
from durio.ports.store import Store
from durio.telemetry.emit import Emit

BATCH_MAX = 200  # entries per turn
STEP_JOBS = 1000  # in one transaction
BUSY_SECONDS, IDLE_SECONDS = 0.0, 0.5
DELETE_SECONDS = 30.0  # between two looks for plans past their retention
META_BYTES_MAX = 16 * 1024


class Position(NamedTuple):
    """How far a log was read: the record that says so."""

    kind: str
    log: str
    offset: int
    version: int

    def moved_to(self, offset: int) -> Put:
        body = msgspec.json.encode(offset)
        return Put(self.kind, self.log, body, if_version=self.version)


Handle = Callable[
    [Sequence[Entry], dict[bytes, StoredJob]], Coroutine[Any, Any, list[Put]]
]


@dataclass(slots=True)
class PlanKeeper:
    """Looks after the plans of one App."""

    store: Store
    clock: Clock
    emit: Emit
    namespace: str
    dead_seconds: float  # how long failed plans are kept
    positions: dict[str, Position] = field(default_factory=dict[str, Position])
    deletes_at: float = 0.0  # by the monotonic clock

    async def turn(self) -> float:
        """Settle what earlier calls have left, then read both logs; return the pause."""
        settled = await self.store.settle(STEP_JOBS)
        failures, ends = f"pf:{self.namespace}", f"pe:{self.namespace}"
        lengths = await self.store.log_lengths([failures, ends])
        worked = False
        if failures in lengths:
            worked |= await self._read(failures, lengths[failures], self._failed)
        if ends in lengths:
            worked |= await self._read(ends, lengths[ends], self._ended)
        if self.clock.monotonic() >= self.deletes_at:
            self.deletes_at = self.clock.monotonic() + DELETE_SECONDS
            await self._delete_due()
        is_busy = worked or settled.next_due_seconds is not None
        return BUSY_SECONDS if is_busy else IDLE_SECONDS

    async def _read(self, log: str, length: int, handle: Handle) -> bool:
        """Handle new entries of a log; return whether there were any."""
        position = self.positions.get(log)
        if position is None or position.offset < length:
            position = self.positions[log] = await self._position(log)
        if position.offset >= length:
            return False
        entries = await self.store.read_log(log, position.offset, limit=BATCH_MAX)
        if not entries:
            return False
        ids = [entry.job for entry in entries if entry.job is not None]
        jobs = {job.id: job for job in await self.store.get(ids)}
        puts = await handle(entries, jobs)
        after = entries[-1].offset + 1
        effects = Effects(puts=[*puts, position.moved_to(after)])
        if (await self.store.commit(effects)).conflict is None:
            await self.store.trim_log(log, after)
        return True

    async def _position(self, log: str) -> Position:
        kind = f"position:{self.namespace}"
        found = await self.store.records(kind, [log])
        if not found:
            return Position(kind, log, 0, 0)
        offset = msgspec.json.decode(found[0].body, type=int)
        return Position(kind, log, offset, found[0].version)

    # --- ends

    async def _ended(
        self, entries: Sequence[Entry], jobs: dict[bytes, StoredJob]
    ) -> list[Put]:
        """Mark plans whose last node is done."""
        puts: dict[bytes, Put] = {}
        for entry in entries:
            plan = await self._plan_of(jobs.get(entry.job or b""))
            if plan is None or plan.record.state.is_final:
                continue
            now = self.clock.now()
            put = plan.put(state=PlanState.DONE, ended_at=now)
            puts[plan.id] = put._replace(due_at=now + KEPT_SECONDS)
        return list(puts.values())

    # --- failures

    async def _failed(
        self, entries: Sequence[Entry], jobs: dict[bytes, StoredJob]
    ) -> list[Put]:
        """Cancel what depends on failed nodes, and enqueue the error handlers."""
        for entry in entries:
            job = jobs.get(entry.job or b"")
            if job is None or job.state not in (DEAD, CANCELLED):
                continue  # deleted, or retried meanwhile
            await self._fail(job, entry.tag, short_failure(entry.body))
        return []

    async def _fail(self, job: StoredJob, node: int, failure: ShortFailure) -> None:
        plan = await self._plan_of(job)
        if plan is None or plan.record.state in ENDED_BY_HAND:
            return
        if job.state == CANCELLED and is_consequence(plan, node):
            return  # it ran when the rest of its group was cancelled
        fails = fails_plan(plan.layout, node)
        if fails and plan.record.state is PlanState.RUNNING:
            failed = FirstFailure(node, *failure)
            plan = await self._change(plan, state=PlanState.FAILING, failure=failed)
            if plan is None:
                return  # another leader is at work, or a person has cancelled the plan
        ids = plan.ids(dependents(plan.layout, node))
        action = CancelJobs("parent_dead", is_quiet=True)
        for at in range(0, len(ids), STEP_JOBS):
            await self.store.act(ids[at : at + STEP_JOBS], action)
        calls = handlers(plan.layout, node)
        new = [self._handler_job(plan, call, job, failure) for call in calls]
        puts: list[Put] = []
        if fails and plan.record.state is PlanState.FAILING:
            now = self.clock.now()
            put = plan.put(state=PlanState.FAILED, ended_at=now)
            puts.append(put._replace(due_at=now + self.dead_seconds))
        answer = await self.store.commit(Effects(new, puts), enters=True)
        if answer.conflict is not None and answer.conflict.what != "record":
            # A closed queue, or a key that another job has: the plan ends without them.
            self.emit(
                "plan.unhandled", plan=id_text(plan.id), error=answer.conflict.name
            )
            await self.store.commit(Effects(puts=puts))

    async def _change(
        self, plan: StoredPlan, *, state: PlanState, failure: FirstFailure
    ) -> StoredPlan | None:
        """Write a changed record; None if another change came first."""
        put = plan.put(state=state, failure=failure)
        try:
            answer = await self.store.commit(Effects(puts=[put]))
        except EffectsRefused:
            return None
        if answer.conflict is not None:
            return None
        return await find_plan(self.store, self.namespace, plan.id)

    def _handler_job(
        self,
        plan: StoredPlan,
        call: HandlerCall,
        job: StoredJob,
        failure: ShortFailure,
    ) -> NewJob:
        signature, options = call.signature, call.signature.options
        return NewJob(
            id=handler_id(plan.id, call, plan.record.resumed),
            lane=lane(self.namespace, options.queue),
            rank=PRIORITY_MAX - options.priority,
            task=signature.task,
            payload=failure_payload(signature, plan.id, job, failure),
            opts=stored_options(options, signature.task, META_BYTES_MAX),
        )

    # --- parts

    async def _plan_of(self, job: StoredJob | None) -> StoredPlan | None:
        """Return the plan of a node; None if its record is gone."""
        place = None if job is None else plan_place_of(job.opts)
        if place is None:
            return None
        try:
            return await find_plan(self.store, self.namespace, id_bytes(place.plan))
        except InvalidPlan as error:
            self.emit("plan.unhandled", plan=place.plan, error=str(error))
            return None

    async def _delete_due(self) -> None:
        """Delete plans past their retention, and cancel those that never became whole."""
        kind = plan_kind(self.namespace)
        for record in (await self.store.due_records(kind, limit=BATCH_MAX)).records:
            plan = await find_plan(self.store, self.namespace, id_bytes(record.name))
            if plan is None:
                continue
            if not plan.record.is_whole:
                ids = plan.ids(range(plan.record.nodes))
                action = CancelJobs("plan_not_whole", is_quiet=True)
                for at in range(0, len(ids), STEP_JOBS):
                    await self.store.act(ids[at : at + STEP_JOBS], action)
            await self.store.drop_logs(plan.logs())
            gone = Put(kind, record.name, None, if_version=record.version)
            await self.store.commit(Effects(puts=[gone]))


def is_consequence(plan: StoredPlan, node: int) -> bool:
    """Whether a node was cancelled because of the first failure of its plan."""
    first = plan.record.failure
    return first is not None and node in dependents(plan.layout, first.node)


ENDED_BY_HAND = (PlanState.CANCELLING, PlanState.CANCELLED, PlanState.DONE)
