"""Turn a plan into jobs and a record, and store them.

All arguments are encoded before anything is written. A plan of up to 1,000 rows is one
commit. A larger one is written in several: its first nodes wait for a log that gets its
entry with the last commit, so nothing starts before all of it is stored. If the writer dies
in between, the leader cancels what is there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from durio.client.backpressure import HINT_SECONDS, queue_closed, queue_full
from durio.client.bounds import Bounds
from durio.client.enqueue import JobBuilder, TaskDefaults, has_key, too_large
from durio.client.task_by_name import TaskTarget, unknown_target
from durio.model.effects import Append, Effects, NewEntry, Put
from durio.model.errors import (
    InvalidOption,
    InvalidPlan,
    KeyConflict,
    StoreError,
    StoreUnavailable,
)
from durio.model.ids import id_text
from durio.model.job import NewJob
from durio.model.options import UNSET, stored_options
from durio.model.plan import AnyLink, PlanValue, SignatureValue
from durio.model.plan_arguments import with_first_arguments
from durio.model.plan_layout import PlanLayout, PlanNode, lay_out, node_id
from durio.model.plan_place import PlanPlace
from durio.model.plan_record import (
    PlanRecord,
    dump_record,
    plan_kind,
    shape_entries,
    shape_log,
)
from durio.model.plan_shape import shape_of
from durio.model.settings import Settings
from durio.model.system_tasks import join_task
from durio.model.tx import Joinable
from durio.ports.clock import Clock
from durio.ports.commit import ROWS_MAX
from durio.ports.conflicts import Conflict
from durio.ports.handler import Handler
from durio.ports.store import Store

WRITTEN_SECONDS_MAX = 300.0  # then the leader cancels a plan that is not whole
TRIES_MAX = 5
PAUSE_SECONDS = 0.05
FULL_LOOK_SECONDS = 0.1


class PlanClient(Protocol):
    """The part of an App that plans use."""

    name: str
    bounds: Bounds

    @property
    def settings(self) -> Settings: ...

    @property
    def clock(self) -> Clock: ...

    async def store(self) -> Store: ...

    async def find_task(self, task: str) -> Handler | TaskTarget: ...


async def store_plan(
    client: PlanClient,
    plan: AnyLink,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    tx: Joinable | None = None,
) -> bytes:
    """Store a plan and return its id; raises before anything is written if it is wrong."""
    if isinstance(plan, PlanValue) and has_key(plan.defaults):
        raise InvalidOption(
            "a plan cannot have a key yet",
            cure="Give a key to its first job: task.options(key=...).s(...).",
        )
    plan = with_first_arguments(plan, args, kwargs)
    plan_id = client.clock.new_id()
    targets = {task: await client.find_task(task) for task in tasks_of(plan)}
    plan = with_handler_queues(plan, targets)
    layout = lay_out(plan, plan_id, client.name)
    writer = PlanWriter(client, plan, plan_id, layout)
    await writer.write(writer.jobs(targets), tx)
    return plan_id


def tasks_of(link: AnyLink) -> set[str]:
    """Return the names of all tasks of a plan, its handlers included."""
    found: set[str] = set()
    waiting = [link]
    while waiting:
        link = waiting.pop()
        waiting += link.error_handlers
        if isinstance(link, SignatureValue):
            found.add(link.task)
        else:
            waiting += link.members
    return found


def with_handler_queues(
    link: AnyLink, targets: Mapping[str, Handler | TaskTarget]
) -> AnyLink:
    """Return the plan with queue and priority in the options of its handlers.

    The leader, which enqueues them, may not have their code.
    """
    handlers = tuple(
        replace(h, options=h.options.with_changes(queue_options(h, targets)))
        for h in link.error_handlers
    )
    if isinstance(link, SignatureValue):
        return replace(link, error_handlers=handlers) if handlers else link
    members = tuple(with_handler_queues(member, targets) for member in link.members)
    if not handlers and all(map(same, members, link.members)):
        return link
    return replace(link, members=members, error_handlers=handlers)


def same(new: AnyLink, old: AnyLink) -> bool:
    return new is old


def queue_options(
    handler: SignatureValue, targets: Mapping[str, Handler | TaskTarget]
) -> dict[str, Any]:
    options, target = handler.options, targets[handler.task]
    return {
        "queue": target.queue if options.queue is UNSET else options.queue,
        "priority": target.priority if options.priority is UNSET else options.priority,
    }


class PlanWriter:
    """Writes one plan."""

    def __init__(
        self, client: PlanClient, plan: AnyLink, plan_id: bytes, layout: PlanLayout
    ) -> None:
        self._client = client
        self._plan_id = plan_id
        self._layout = layout
        self._kind, self._name = plan_kind(client.name), id_text(plan_id)
        shape = shape_of(plan)
        self._shape_entries = shape_entries(shape)
        self._record = PlanRecord(
            shape=None if self._shape_entries else shape,
            nodes=len(layout.nodes),
            created_at=client.clock.now(),
        )

    # --- jobs

    def jobs(self, targets: Mapping[str, Handler | TaskTarget]) -> list[NewJob]:
        """Encode all nodes; raises for the first argument that cannot be stored."""
        builders: dict[tuple[str, int], JobBuilder] = {}
        jobs: list[NewJob] = []
        join = unknown_target(join_task(self._client.name))
        for node in self._layout.nodes:
            if node.signature is None:
                target = join
            else:
                target = targets[node.signature.task]
                # A join runs where the members of its group run.
                join = join._replace(queue=target.queue, priority=target.priority)
            key = (target.task, id(node.options))
            builder = builders.get(key)
            if builder is None:
                builder = builders[key] = self._builder(target, node)
            jobs.append(self._job(builder, target, node))
        return jobs

    def _builder(self, target: Handler | TaskTarget, node: PlanNode) -> JobBuilder:
        return JobBuilder(
            TaskDefaults(target.task, target.queue, target.priority),
            node.options,
            namespace=self._client.name,
            clock=self._client.clock,
            bounds=self._client.settings.payload,
        )

    def _job(
        self, builder: JobBuilder, target: Handler | TaskTarget, node: PlanNode
    ) -> NewJob:
        payload = payload_of(target, node)
        bounds = self._client.settings.payload
        if len(payload) > bounds.bytes_max:
            raise too_large(target.task, len(payload), bounds.bytes_max)
        place = PlanPlace(self._name, node.number, node.input)
        is_chunk = node.signature is not None and node.signature.rows is not None
        opts = stored_options(
            node.options, target.task, bounds.meta_bytes_max, place, is_chunk=is_chunk
        )
        return builder.job(payload)._replace(
            id=node_id(self._plan_id, node.number),
            opts=opts,
            wait=node.wait,
            on_end=node.on_end,
        )

    # --- writing

    async def write(self, jobs: Sequence[NewJob], tx: Joinable | None) -> None:
        appends = self._shape_appends()
        go = self._layout.go
        if go is None:
            await self._commit(Effects(jobs, [self._put(self._record)], appends), tx)
            return
        if tx is not None:
            raise too_large_for_tx(len(jobs))
        unfinished = msgspec.structs.replace(self._record, is_whole=False)
        due_at = self._client.clock.now() + WRITTEN_SECONDS_MAX
        first = Effects((), [self._put(unfinished, due_at)], appends)
        version = await self._commit(first)
        for at in range(0, len(jobs), ROWS_MAX):
            await self._commit(Effects(jobs[at : at + ROWS_MAX]))
        put = self._put(self._record)._replace(if_version=version)
        await self._commit(Effects((), [put], [Append(go, [NewEntry(b"")])]))

    def _put(self, record: PlanRecord, due_at: float | None = None) -> Put:
        body = dump_record(record)
        return Put(self._kind, self._name, body, if_version=0, due_at=due_at)

    def _shape_appends(self) -> list[Append]:
        if not self._shape_entries:
            return []
        log = shape_log(self._client.name, self._plan_id)
        return [Append(log, [NewEntry(part) for part in self._shape_entries])]

    async def _commit(self, effects: Effects, tx: Joinable | None = None) -> int:
        """Commit, and repeat a commit whose outcome is unknown; wait for a full queue.

        Return the version of the record, 0 without one.
        """
        clock = self._client.clock
        began, tries = clock.monotonic(), 0
        while True:
            try:
                store = await self._client.store()
                answer = await store.commit(effects, all_new=True, tx=tx)
            except StoreError as error:
                tries += 1
                if not error.unknown or tx is not None or tries == TRIES_MAX:
                    raise
                await clock.sleep(PAUSE_SECONDS * 2**tries)
                continue
            conflict = answer.conflict
            if conflict is None:
                return answer.versions[0] if answer.versions else 0
            if self._is_own(effects, conflict):
                return conflict.record.version if conflict.record is not None else 0
            waited = clock.monotonic() - began
            self._refuse(conflict, waited)
            await clock.sleep(FULL_LOOK_SECONDS)

    def _is_own(self, effects: Effects, conflict: Conflict) -> bool:
        """Whether an earlier try of the same commit has been stored."""
        bodies = [put.body for put in effects.puts]
        return conflict.record is not None and conflict.record.body in bodies

    def _refuse(self, conflict: Conflict, waited: float) -> None:
        """Raise for a conflict, unless it is a full queue and there is time left."""
        full = conflict.full
        if conflict.what == "record":
            raise StoreUnavailable(
                f"the plan was not stored within {WRITTEN_SECONDS_MAX:g} s, and the "
                "leader has cancelled its jobs",
                cure="Try again when the store is less busy, or use smaller plans.",
            )
        if full is None:
            raise KeyConflict(
                f"the plan was not stored: job {conflict.name} has the key of a node",
                cure="Use another key, or wait until that job ends.",
                id=conflict.name,
            )
        if full.is_closed:
            raise queue_closed(full)
        if waited >= self._client.bounds.wait_of(full.lane):
            raise queue_full(full, self._client.bounds, waited, HINT_SECONDS)


def too_large_for_tx(jobs: int) -> InvalidPlan:
    return InvalidPlan(
        f"a plan of {jobs} jobs cannot be stored in the transaction of tx",
        cure=f"There a plan has at most {ROWS_MAX - 1} jobs: enqueue it after the "
        "commit, or from a job of the transaction.",
    )


def payload_of(target: Handler | TaskTarget, node: PlanNode) -> bytes:
    """Encode the arguments of a node; its input is not among them."""
    signature = node.signature
    if signature is None:
        return b"[[],{}]"
    codec = target.codec
    if signature.rows is not None:
        return b"[" + b",".join(codec.encode(row, {}) for row in signature.rows) + b"]"
    if node.input is not None:
        return codec.encode_following(signature.args, signature.kwargs)
    return codec.encode(signature.args, signature.kwargs)
