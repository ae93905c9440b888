"""Turn what a task asked of its plan into effects, which its outcome takes to the store.

The plan of the job is read first: a plan in the job's place appends what the job would have
appended, and new members of a group append to the log of that group. A plan of more than
900 jobs is written before the outcome, in steps; it starts only with the outcome. If that
is refused, the leader cancels what was written.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from durio.model.effects import Effects, Extend, Put, joined
from durio.model.errors import (
    DurioError,
    InvalidPlan,
    KeyConflict,
    OperatingError,
    StoreError,
    UsageError,
)
from durio.model.ids import id_bytes, id_text
from durio.model.job import Claim, NewJob
from durio.model.names import namespace_of
from durio.model.outcome import Outcome
from durio.model.plan_change import (
    NO_ENDS,
    REPLACED_IN_A_ROW_MAX,
    AddedNode,
    InheritedEnds,
    PlanChange,
    PreparedPlan,
    StoredAdd,
    StoredChange,
    change_kind,
    inherited_ends,
)
from durio.model.plan_layout import WRITTEN_AT_ONCE_MAX, PlanLayout
from durio.model.plan_names import ended_log, failed_log
from durio.model.plan_payload import node_key_taken, placed_options, plan_place_of
from durio.model.plan_place import PlanPlace
from durio.model.plan_record import (
    WRITTEN_SECONDS_MAX,
    PlanRecord,
    Replaced,
)
from durio.ports.clock import Clock
from durio.ports.conflicts import Conflict
from durio.ports.plan_reader import Layouts, StoredPlan, find_plan
from durio.ports.plan_writes import PlanWrites, store_clock
from durio.ports.store import Store
from durio.ports.worker_protocol import protocol_of_plan, require_workers
from durio.telemetry.emit import JobEvent

T = TypeVar("T")

ADDED_PER_RECORD = 200
SHAPES_BYTES_MAX = 24 * 1024  # of the nodes that one record names
FOLLOWERS_MAX = 400  # that wait for a group to which members are added
RETRY_SECONDS = 0.5


class ChangedAttempt(Protocol):
    """The attempt that changes its plan."""

    claim: Claim
    is_over: bool


class PlanChanges:
    """Makes effects of the changes that jobs of one worker ask for."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._layouts = Layouts()
        self._changing: set[asyncio.Task[None]] = set()

    def start(
        self,
        attempt: ChangedAttempt,
        outcome: Outcome,
        refused: Callable[[Any, Exception], tuple[Outcome, JobEvent | None]],
        record_end: Callable[[Any, Outcome, JobEvent | None], None],
    ) -> None:
        """Record the end of an attempt with what it asked of its plan."""

        async def change() -> None:
            end: tuple[Outcome, JobEvent | None]
            try:
                end = await self._resolved(attempt, outcome), None
            except Exception as error:
                end = refused(attempt, error)
            if not attempt.is_over:
                record_end(attempt, *end)

        changing = asyncio.get_running_loop().create_task(change())
        self._changing.add(changing)
        changing.add_done_callback(self._changing.discard)

    async def resolved_in_block(
        self, attempt: ChangedAttempt, outcome: Outcome
    ) -> Outcome:
        """Return the outcome with effects, for the commit of `ctx.transaction()`.

        A large plan is refused: on SQLite nothing else can be written meanwhile. Raises
        InvalidPlan and StoreError.
        """
        return await self._resolved(attempt, outcome, in_block=True)

    async def _resolved(
        self, attempt: ChangedAttempt, outcome: Outcome, *, in_block: bool = False
    ) -> Outcome:
        """Return the outcome with effects instead of a change; raises InvalidPlan.

        Outside a block, reads and writes are repeated while the store does not answer,
        until the attempt is over.
        """
        change = outcome.change or PlanChange()
        job = ChangingJob.of(attempt.claim)
        is_over = None if in_block else (lambda: attempt.is_over)
        if change.replacement is not None and not in_block:
            protocol = protocol_of_plan(change.replacement.jobs)

            async def require() -> None:
                await require_workers(self._store, job.namespace, self._clock, protocol)

            await self._repeated(require, is_over)
        if job.place is not None:
            plan_id = id_bytes(job.place.plan)

            async def read() -> StoredPlan | None:
                return await find_plan(
                    self._store, job.namespace, plan_id, self._layouts
                )

            job = job._replace(plan=await self._repeated(read, is_over))
        effects = added_effects(job, change.added) if change.added else Effects()
        if change.replacement is not None:
            more = await self._replaced(job, change.replacement, is_over)
            effects = joined(effects, more)
        if outcome.effects is not None:
            effects = joined(outcome.effects, effects)
        return outcome._replace(change=None, effects=effects)

    async def _replaced(
        self,
        job: "ChangingJob",
        prepared: PreparedPlan,
        is_over: Callable[[], bool] | None,
    ) -> Effects:
        """Return the effects that start a plan; all of a large one is written before."""
        writes = replacing_writes(job, prepared)
        changes: list[Put] = []
        if job.plan is not None:
            changes = [job.record(StoredChange(job.node, plan=prepared.id.hex()))]
        if prepared.go is None:
            return writes.at_once(changes)
        if is_over is None:
            raise too_large_for_block(len(prepared.jobs))

        async def read() -> Callable[[], float]:
            return await store_clock(self._store, job.namespace, self._clock)

        now = await self._repeated(read, is_over)
        first = self._committer(writes.first(now()))
        version = await self._repeated(first, is_over)
        for some in writes.chunks():
            chunk = self._committer(writes.chunk(some, now(), version))
            version = await self._repeated(chunk, is_over)
        return writes.last(version, changes)

    def _committer(self, effects: Effects) -> Callable[[], Awaitable[int]]:
        async def commit() -> int:
            answer = await self._store.commit(effects, all_new=True, enters=True)
            conflict = answer.conflict
            if conflict is None:
                return answer.versions[0] if answer.versions else 0
            bodies = [put.body for put in effects.puts]
            if conflict.record is not None and conflict.record.body in bodies:
                return conflict.record.version  # an earlier try was stored
            raise refusal_error(conflict)

        return commit

    async def _repeated(
        self,
        call: Callable[[], Awaitable[T]],
        is_over: Callable[[], bool] | None,
    ) -> T:
        """Call until the store answers."""
        while True:
            try:
                return await call()
            except StoreError:
                if is_over is None or is_over():
                    raise
                await self._clock.sleep(RETRY_SECONDS)


class ChangingJob(NamedTuple):
    """The job that changes its plan."""

    id: bytes
    namespace: str
    place: PlanPlace | None
    plan: StoredPlan | None = None  # None: it is in none, or its plan is deleted

    @classmethod
    def of(cls, claim: Claim) -> "ChangingJob":
        return cls(claim.id, namespace_of(claim.lane), plan_place_of(claim.opts))

    @property
    def node(self) -> int:
        """Its number in the plan."""
        return 0 if self.place is None else self.place.node

    @property
    def group(self) -> int | None:
        """The number of its group."""
        if self.plan is None or self.place is None:
            return None
        if self.place.group is not None:
            return self.place.group
        return self.plan.layout.nodes[self.node].group

    @property
    def ends(self) -> InheritedEnds:
        """What a plan in its place appends for it."""
        if self.plan is None or self.place is None:
            return NO_ENDS
        layout, group = self.plan.layout, self.place.group
        if group is None:
            ends = layout.nodes[self.node].on_end
        else:
            ends = layout.ends_of_added(group, self.node)
        logs = failed_log(self.namespace), ended_log(self.namespace)
        return inherited_ends(ends, *logs)

    def record(self, change: StoredChange, part: int = 0) -> Put:
        """Return the record of a change, by which the plan is read."""
        assert self.plan is not None  # noqa: S101 - the caller has checked it
        name = f"{self.plan.id.hex()}/{self.id.hex()}/{part}"
        body = msgspec.json.encode(change)
        return Put(change_kind(self.namespace), name, body, if_version=0)


def replacing_writes(job: ChangingJob, prepared: PreparedPlan) -> PlanWrites:
    """Return the writes of a plan that takes the place of a job."""
    shape = msgspec.json.decode(prepared.shape)
    record = PlanRecord(
        shape=shape,
        nodes=len(prepared.jobs),
        created_at=prepared.created_at,
        replaces=replaced_place(job),
        inherited=job.ends,
    )
    jobs = prepared.jobs
    if record.inherited != NO_ENDS:
        # They append what the replaced job would have appended.
        layout = record.layout(prepared.id, job.namespace, shape)
        pairs = zip(jobs, layout.nodes, strict=True)
        jobs = [new._replace(on_end=node.on_end) for new, node in pairs]
    return PlanWrites(job.namespace, prepared.id, record, jobs, prepared.go)


def replaced_place(job: ChangingJob) -> Replaced:
    if job.plan is None:
        return Replaced(id_text(job.id))
    before = job.plan.record.replaces
    depth = 1 if before is None else before.depth + 1
    if depth > REPLACED_IN_A_ROW_MAX:
        raise InvalidPlan(
            f"{depth} plans in a row have taken the place of a job, over the bound of "
            f"{REPLACED_IN_A_ROW_MAX}",
            cure="Does the task replace itself for ever? Let it return a value at last.",
        )
    return Replaced(id_text(job.id), id_text(job.plan.id), job.node, depth)


def added_effects(job: ChangingJob, added: tuple[AddedNode, ...]) -> Effects:
    """Return the effects of `ctx.add`: the group's followers wait for more members."""
    plan, group = job.plan, job.group
    if plan is None or group is None:
        raise InvalidPlan(
            "ctx.add() adds members to the group of this job, but the job is in no group",
            cure="Return ctx.replace(group(...)) instead.",
        )
    waiters = plan.layout.waiters.get(plan.layout.groups[group].log, [])
    if len(waiters) > FOLLOWERS_MAX:
        raise InvalidPlan(
            f"{len(waiters)} jobs follow the group: no members can be added to it",
            cure="Put one job between the two groups.",
        )
    jobs = [in_group(node, id_text(plan.id), plan.layout, group) for node in added]
    # Part 0 is the record of a plan in the place of the job.
    puts = [
        job.record(StoredChange(job.node, added=stored_adds(some, group)), part)
        for part, some in enumerate(in_records(added), 1)
    ]
    extends = [Extend(job_id, len(added)) for job_id in plan.ids(waiters)]
    return Effects(jobs, puts, (), extends)


def in_group(node: AddedNode, plan: str, layout: PlanLayout, group: int) -> NewJob:
    place = PlanPlace(plan, node.number, group=group)
    return node.job._replace(
        opts=placed_options(node.job.opts, place),
        on_end=layout.ends_of_added(group, node.number),
    )


def stored_adds(added: Sequence[AddedNode], group: int) -> list[StoredAdd]:
    return [
        StoredAdd(node.number, node.job.id.hex(), group, msgspec.Raw(node.shape))
        for node in added
    ]


def in_records(added: tuple[AddedNode, ...]) -> list[list[AddedNode]]:
    """Divide the nodes, so that each part fits into a record."""
    parts: list[list[AddedNode]] = [[]]
    size = 0
    for node in added:
        size += len(node.shape)
        if size > SHAPES_BYTES_MAX or len(parts[-1]) == ADDED_PER_RECORD:
            parts.append([])
            size = len(node.shape)
        parts[-1].append(node)
    return parts


def refusal_error(conflict: Conflict) -> DurioError:
    """Return the error of a job whose changes to its plan the store has refused."""
    if conflict.job is not None:
        cure = "Use another key, or let that job end before the last retry of this one."
        return node_key_taken(conflict.job, conflict.name, cure)
    if conflict.what == "job_ended":
        return InvalidPlan(
            "ctx.add() came too late: what follows the group has started",
            cure="This job was retried after its group had ended. Enqueue the work as "
            "jobs of their own.",
        )
    return OperatingError(
        f"the plan was not stored within {WRITTEN_SECONDS_MAX:g} s, and the leader has "
        "cancelled its jobs",
        cure="Is the store busy? Use smaller plans.",
    )


def is_plan_wrong(error: BaseException) -> bool:
    """Whether a refused change would be refused again.

    If not, the job is retried as often as its policy says: a key may be free later.
    """
    return isinstance(error, UsageError) and not isinstance(error, KeyConflict)


def too_large_for_block(jobs: int) -> InvalidPlan:
    return InvalidPlan(
        f"a plan of {jobs} jobs cannot be stored in ctx.transaction()",
        cure=f"There a plan has at most {WRITTEN_AT_ONCE_MAX} jobs: return ctx.replace(plan) "
        "after the block, or enqueue it.",
    )
