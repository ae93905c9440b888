"""Plans: handle failures of their nodes, mark those that are done, delete old ones.

Failed nodes of all plans append to one log of the App, and so do last nodes that are done.
The leader reads both from a position that it keeps in a record. It moves the position in
the same commit as the last effect of an entry, and every step may be repeated: two leaders
at the same time do no harm.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from durio.maintenance.plan_deleted_nodes import deleted_node
from durio.maintenance.plan_deletion import handle_due_plans, release_kept
from durio.maintenance.plan_log_reader import PlanLogReader
from durio.maintenance.plan_resumed import FailedNode
from durio.model.effects import Append, Effects, NewEntry, Put
from durio.model.errors import InvalidPlan
from durio.model.failure import ShortFailure, short_failure
from durio.model.gate import GateSpec
from durio.model.ids import id_bytes, id_text
from durio.model.job import PRIORITY_MAX, NewJob, StoredJob
from durio.model.names import lane
from durio.model.plan import SignatureValue
from durio.model.plan_failure import (
    HandlerCall,
    dependents,
    fails_plan,
    handler_id,
    handler_options,
    handlers,
    has_failed,
    why_failed,
)
from durio.model.plan_names import ended_log, failed_log
from durio.model.plan_payload import failure_payload, plan_place_of
from durio.model.plan_record import (
    KEPT_SECONDS,
    FirstFailure,
    PlanRecord,
    PlanState,
    dump_record,
    handled_log,
    load_record,
    plan_kind,
)
from durio.ports.clock import Clock
from durio.ports.conflicts import EffectsRefused
from durio.ports.control import CancelJobs
from durio.ports.logs import Entry
from durio.ports.plan_reader import (
    SETTLED_MAX,
    Layouts,
    StoredPlan,
    find_plan,
    find_whole_plan,
    whole_log,
    with_changes,
)
from durio.ports.plan_sweep import cancel_plans, steps
from durio.ports.records import store_time
from durio.ports.store import Store
from durio.telemetry.emit import Emit

TRIES_MAX = 20  # of a failure whose plan is changed meanwhile
BUSY_SECONDS, IDLE_SECONDS = 0.0, 0.5  # pauses between two turns
DUE_SECONDS = 1.0  # between two looks for plans that are due

GatesOfHandler = Callable[[SignatureValue], Awaitable[tuple[GateSpec, ...]]]


@dataclass(slots=True)
class PlanKeeper:
    """Looks after the plans of one App."""

    store: Store
    clock: Clock
    emit: Emit
    namespace: str
    dead_seconds: float  # how long failed plans are kept
    deletes_at: float = 0.0  # by the monotonic clock
    pause_seconds: float = IDLE_SECONDS  # until the next turn
    layouts: Layouts = field(default_factory=Layouts)
    gates_of: GatesOfHandler | None = None  # None: jobs of handlers pass no gates
    logs: PlanLogReader = field(init=False)

    def __post_init__(self) -> None:
        self.logs = PlanLogReader(self.store, self.namespace)

    async def turn(self) -> float:
        """Handle what has ended, then delete; return the pause."""
        await self.handle_ends()
        if self.clock.monotonic() >= self.deletes_at:
            self.deletes_at = self.clock.monotonic() + DUE_SECONDS
            await self.logs.trim()
            if await handle_due_plans(self.store, self.namespace, self._fail_plans):
                self.deletes_at = 0.0
        return self.pause_seconds

    async def handle_ends(self) -> bool:
        """Settle what earlier calls have left, then read both logs; False: nothing left.

        A worker that runs until its queues are empty calls this, too.
        """
        settled = await self.store.settle(SETTLED_MAX)
        failures, ends = failed_log(self.namespace), ended_log(self.namespace)
        lengths = await self.store.log_lengths([failures, ends])
        has_read = False
        if failures in lengths:
            has_read |= await self.logs.read(failures, lengths[failures], self._failed)
        if ends in lengths:
            has_read |= await self.logs.read(ends, lengths[ends], self._ended)
        goes_on = has_read or bool(settled.count)
        due = BUSY_SECONDS if goes_on else settled.next_due_seconds
        self.pause_seconds = IDLE_SECONDS if due is None else min(due, IDLE_SECONDS)
        return has_read or settled.has_left

    # --- ends

    async def _ended(
        self, entries: Sequence[Entry], jobs: dict[bytes, StoredJob]
    ) -> list[Put]:
        """Mark plans whose last node is done."""
        now = await store_time(self.store, plan_kind(self.namespace))
        found = (jobs.get(entry.job or b"") for entry in entries)
        places = (plan_place_of(job.opts) for job in found if job is not None)
        names = {place.plan: -1 for place in places if place is not None}
        puts: dict[str, Put] = {}
        whole: list[bytes] = []  # a plan in a node's place: the plan around it goes on
        while names:
            around: dict[str, int] = {}
            for name, plan, version in await self._records(list(names)):
                is_last = names[name] in (-1, plan.nodes - 1)
                if plan.state.is_final or not is_last:
                    continue
                body = dump_record(replace(plan, state=PlanState.DONE, ended_at=now))
                due_at = plan.kept_until(now + KEPT_SECONDS)
                kind = plan_kind(self.namespace)
                puts[name] = Put(kind, name, body, version, due_at)
                replaces = plan.replaces
                if replaces is None or replaces.plan is None:
                    whole.append(id_bytes(name))
                else:
                    around[replaces.plan] = replaces.node
            names = {name: n for name, n in around.items() if name not in puts}
        await release_kept(self.store, self.namespace, whole)
        return list(puts.values())

    async def _records(self, names: Sequence[str]) -> list[tuple[str, PlanRecord, int]]:
        """Return the records of plans with their names and versions."""
        found: list[tuple[str, PlanRecord, int]] = []
        for record in await self.store.records(plan_kind(self.namespace), names):
            try:
                body = load_record(record.body)
            except InvalidPlan as error:
                self.emit("plan.unhandled", plan=record.name, error=str(error))
            else:
                found.append((record.name, body, record.version))
        return found

    # --- failures

    async def _failed(
        self, entries: Sequence[Entry], jobs: dict[bytes, StoredJob]
    ) -> list[Put] | None:
        """Cancel what depends on failed nodes, and enqueue the error handlers."""
        for entry in entries:
            job = jobs.get(entry.job or b"")
            if job is None:
                job = await deleted_node(self.store, self.namespace, entry)
            if job is None:
                continue  # its plan is gone
            for _ in range(TRIES_MAX):
                if await self._fail(job, entry):
                    break
            else:
                return None
        return []

    async def _fail(self, job: StoredJob, entry: Entry) -> bool:
        """Fail the plan of a job; False if it was changed meanwhile: look again."""
        plan, node = await self._plan_of(job), entry.tag
        if plan is None or not await self._has_failed(plan, job.id, node):
            return True
        failure = short_failure(entry.body)
        return await self._fail_plans(
            FailedNode(plan, node, job, failure), entry.offset
        )

    async def _fail_plans(self, failed: FailedNode, offset: int | None = None) -> bool:
        """Fail the plan of a node, and the plan whose job it has taken the place of.

        Return False if a plan was changed meanwhile: look again. Without an offset, a plan
        that was retried since the failure fails, too.
        """
        plan: StoredPlan | None
        plan, node, job, failure = failed
        inner: str | None = None  # the job, in the plan around its own
        while plan is not None:
            first = FirstFailure(node, *failure, inner, why_failed(job))
            plan = await with_changes(self.store, plan)
            is_failed = await self._fail_plan(plan, first, job, failure, offset)
            if not is_failed:
                return is_failed is not None
            replaces = plan.record.replaces
            node, inner = 0 if replaces is None else replaces.node, id_text(job.id)
            plan = await self._plan_around(plan)
        return True

    async def _has_failed(self, plan: StoredPlan, job_id: bytes, node: int) -> bool:
        """Whether a node is failed, and for itself.

        The job is read after the record of its plan: a retry before that is seen, and one
        after it is a conflict.
        """
        for job in await self.store.get([job_id]):
            # If not, it was retried.
            return has_failed(job) or is_failing_by(plan, node)
        return plan.record.state is not PlanState.DONE  # deleted

    async def _fail_plan(
        self,
        plan: StoredPlan,
        first: FirstFailure,
        job: StoredJob,
        failure: ShortFailure,
        offset: int | None,
    ) -> bool | None:
        """Handle the failure of a node; return whether the whole plan has failed.

        None: it was changed meanwhile, by another leader or by a person.
        """
        state, handled = plan.record.state, {"handled": plan.record.handled}
        if state in ENDED_BY_HAND:
            return False
        if offset is not None:
            if state is PlanState.RUNNING and offset < plan.record.handled:
                return False  # the plan was retried since
            handled = {"handled": offset + 1}
        node = first.node
        fails = fails_plan(plan.layout, node)
        if fails and state is PlanState.RUNNING:
            changed = await self._change(
                plan, state=PlanState.FAILING, failure=first, **handled
            )
            if changed is None:
                return None
            plan = changed
        swept = await self._cancel_dependents(plan, dependents(plan.layout, node))
        if swept is None:
            return None
        plan = swept
        calls = handlers(plan.layout, node)
        new = [await self._handler_job(plan, call, job, failure) for call in calls]
        new, appends = await self._not_handled(plan, new)
        puts = await self._failed_puts(plan, handled) if fails else []
        answer = await self.store.commit(Effects(new, puts, appends), enters=True)
        if answer.conflict is not None and answer.conflict.what != "record":
            # A closed queue, or a key that another job has: the plan ends without them.
            self.emit(
                "plan.unhandled", plan=id_text(plan.id), error=answer.conflict.name
            )
            answer = await self.store.commit(Effects(puts=puts))
        return fails if answer.conflict is None else None

    async def _failed_puts(
        self, plan: StoredPlan, handled: dict[str, int]
    ) -> list[Put]:
        """Return the write of a plan that has failed, or had failed before."""
        if plan.record.state is PlanState.FAILED:
            return [plan.put(**handled)._replace(due_at=plan.due_at)]
        if plan.record.state is not PlanState.FAILING:
            return []
        now = await store_time(self.store, plan_kind(self.namespace))
        put = plan.put(state=PlanState.FAILED, ended_at=now, **handled)
        due_at = plan.record.kept_until(now + self.dead_seconds)
        return [put._replace(due_at=due_at)]

    async def _not_handled(
        self, plan: StoredPlan, jobs: list[NewJob]
    ) -> tuple[list[NewJob], list[Append]]:
        """Return the handlers that were not enqueued yet, and the entries that say so.

        A later failure names the handlers of the plan again, and their jobs may have been
        deleted meanwhile.
        """
        if not jobs:
            return [], []
        log = handled_log(self.namespace, plan.id)
        known = {entry.uid for entry in await whole_log(self.store, log)}
        new = [job for job in jobs if id_text(job.id) not in known]
        entries = [NewEntry(None, uid=id_text(job.id)) for job in new]
        return new, [Append(log, entries)] if new else []

    async def _cancel_dependents(
        self, plan: StoredPlan, numbers: list[int]
    ) -> StoredPlan | None:
        """Cancel these nodes; None if the plan was changed meanwhile.

        A leader may be late, and the plan resumed: each step also writes the record.
        """
        action = CancelJobs("parent_dead", is_quiet=True, is_kept_as_dead=True)
        for some in steps(plan.ids(numbers)):
            same = Effects(puts=[plan.same()])
            try:
                await self.store.act(some, action, effects=same)
            except EffectsRefused:
                return None
            found = await find_whole_plan(
                self.store, self.namespace, plan.id, self.layouts
            )
            if found is None or found.record != plan.record:
                return None
            plan = found
        for number in plan.replacing.keys() & set(numbers):
            await cancel_plans(self.store, self.namespace, plan.replacing[number])
        return plan

    async def _change(self, plan: StoredPlan, **changes: Any) -> StoredPlan | None:
        """Write a changed record; None if another change came first."""
        put = plan.put(**changes)
        try:
            answer = await self.store.commit(Effects(puts=[put]))
        except EffectsRefused:
            return None
        if answer.conflict is not None:
            return None
        return await find_whole_plan(self.store, self.namespace, plan.id, self.layouts)

    async def _handler_job(
        self,
        plan: StoredPlan,
        call: HandlerCall,
        job: StoredJob,
        failure: ShortFailure,
    ) -> NewJob:
        signature, options = call.signature, call.signature.options
        opts, expires_at = handler_options(signature, self.clock.now())
        return NewJob(
            id=handler_id(plan.id, call, plan.record.resumed),
            lane=lane(self.namespace, options.queue),
            rank=PRIORITY_MAX - options.priority,
            task=signature.task,
            payload=failure_payload(signature, plan.id, job, failure),
            opts=opts,
            expires_at=expires_at,
            gates=await self.gates_of(signature) if self.gates_of else (),
        )

    # --- parts

    async def _plan_of(self, job: StoredJob | None) -> StoredPlan | None:
        """Return the plan of a node; None if its record is gone."""
        place = None if job is None else plan_place_of(job.opts)
        if place is None:
            return None
        try:
            return await find_plan(
                self.store, self.namespace, id_bytes(place.plan), self.layouts
            )
        except InvalidPlan as error:
            self.emit("plan.unhandled", plan=place.plan, error=str(error))
            return None

    async def _plan_around(self, plan: StoredPlan) -> StoredPlan | None:
        """Return the plan of the job whose place this plan has taken."""
        replaces = plan.record.replaces
        if replaces is None or replaces.plan is None:
            return None
        return await find_plan(self.store, self.namespace, id_bytes(replaces.plan))


def is_failing_by(plan: StoredPlan, node: int) -> bool:
    """Whether this failure was not handled to its end before its node was retried."""
    first, state = plan.record.failure, plan.record.state
    return state is PlanState.FAILING and first is not None and first.node == node


ENDED_BY_HAND = (PlanState.CANCELLING, PlanState.CANCELLED)
