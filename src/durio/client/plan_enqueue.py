"""Turn a plan into jobs and a record, and store them.

All arguments are encoded before anything is written. A plan of up to 900 jobs is one
commit. A larger one is written in several: its first nodes wait for a log that gets its
entry with the last commit, so nothing starts before all of it is stored. If the writer dies
in between, the leader cancels what is there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import is_
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace as replace_fields

from durio.client.backpressure import HINT_SECONDS, queue_closed, queue_full
from durio.client.bounds import Bounds
from durio.client.enqueue import JobBuilder, defaults_of
from durio.client.job_gates import check_following
from durio.client.manual_limits import ManualLimits
from durio.client.plan_commits import PlanCommits
from durio.client.plan_key import plan_key
from durio.client.reliable_write import TRIES_MAX
from durio.client.routing import Routes
from durio.client.task_by_name import TaskTarget, unknown_target
from durio.model.effects import Effects, Put
from durio.model.errors import (
    InvalidPlan,
    StoreError,
    StoreUnavailable,
)
from durio.model.ids import id_bytes, id_text
from durio.model.job import NewJob
from durio.model.options import NO_OPTIONS, UNSET, stored_options
from durio.model.plan import (
    AnyLink,
    PlanValue,
    SignatureValue,
    check_app_of_tasks,
    signatures_of,
)
from durio.model.plan_arguments import with_first_arguments
from durio.model.plan_layout import WRITTEN_AT_ONCE_MAX, PlanLayout, PlanNode, lay_out
from durio.model.plan_names import node_id
from durio.model.plan_payload import node_key_taken, same_key_twice
from durio.model.plan_place import PlanPlace
from durio.model.plan_record import (
    WRITTEN_SECONDS_MAX,
    PlanHolder,
    PlanRecord,
    load_record,
)
from durio.model.plan_shape import shape_of
from durio.model.settings import Settings
from durio.model.system_tasks import join_task
from durio.model.tx import Joinable
from durio.ports.clock import Clock
from durio.ports.conflicts import Conflict
from durio.ports.handler import Handler
from durio.ports.plan_writes import PlanWrites, store_clock
from durio.ports.store import Store
from durio.ports.worker_protocol import protocol_of_plan, require_workers

KEY_TRIES_MAX = 20
PAUSE_SECONDS = 0.05
FULL_LOOK_SECONDS = 0.1


class PlanClient(Protocol):
    """The part of an App that plans use."""

    bounds: Bounds

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def routes(self) -> Routes | None: ...

    @property
    def manual_limits(self) -> ManualLimits: ...

    async def refresh_limits(self) -> bool: ...

    async def store(self) -> Store: ...

    async def plan_commits(self) -> PlanCommits: ...

    async def find_task(self, task: str) -> Handler | TaskTarget: ...


async def store_plan(
    client: PlanClient,
    plan: AnyLink,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    tx: Joinable | None = None,
) -> "EnqueuedPlan":
    """Store a plan, unless another one has its key.

    Raises before anything is written if it is wrong.
    """
    options = plan.defaults if isinstance(plan, PlanValue) else NO_OPTIONS
    check_app_of_tasks(plan, client.name)
    plan = with_first_arguments(plan, args, kwargs)
    plan_id = client.clock.new_id()
    signatures = signatures_of(plan)
    tasks = {signature.task for signature in signatures}
    targets = {task: await client.find_task(task) for task in tasks}
    size = plan.size if isinstance(plan, PlanValue) else 1
    if len(signatures) > size:  # handlers are among them
        plan = with_handler_queues(plan, targets, client.routes)
    layout = lay_out(plan, plan_id, client.name)
    writer = PlanWriter(client, plan, plan_id, layout)
    jobs = writer.jobs(targets)
    if client.manual_limits.is_due and await client.refresh_limits():
        jobs = writer.jobs(targets)
    key = plan_key(client.name, options, plan_id, writer.shape, jobs, tx)
    store = await client.store()
    in_tx = tx is not None
    protocol = protocol_of_plan(jobs)
    await require_workers(store, client.name, client.clock, protocol, only_look=in_tx)
    for _ in range(KEY_TRIES_MAX if key else 1):
        taken = key and await key.holder(store)
        if isinstance(taken, PlanHolder):
            is_same = key is not None and taken.digest == key.digest
            return EnqueuedPlan(id_bytes(taken.plan), False, is_same)
        try:
            await writer.write(jobs, tx, taken)
        except KeyTaken:
            continue
        return EnqueuedPlan(plan_id, True, True)
    raise StoreUnavailable(
        f"the key {options.key!r} was taken by others again and again",
        cure="Enqueue the plan again.",
    )


class EnqueuedPlan(NamedTuple):
    """The answer to an enqueue."""

    id: bytes
    created: bool  # False: it is the plan that has the key
    same_args: bool  # whether that plan has the shape and arguments of this enqueue


def with_handler_queues(
    link: AnyLink, targets: Mapping[str, Handler | TaskTarget], routes: Routes | None
) -> AnyLink:
    """Return the plan with queue, priority and expiry in the options of its handlers.

    The leader, which enqueues them, may not have their code.
    """
    handlers = tuple(
        replace(h, options=h.options.with_changes(queue_options(h, targets, routes)))
        for h in link.error_handlers
    )
    if isinstance(link, SignatureValue):
        return replace(link, error_handlers=handlers) if handlers else link
    members = tuple(
        with_handler_queues(member, targets, routes) for member in link.members
    )
    if not handlers and all(map(is_, members, link.members)):
        return link
    return replace(link, members=members, error_handlers=handlers)


def queue_options(
    handler: SignatureValue,
    targets: Mapping[str, Handler | TaskTarget],
    routes: Routes | None,
) -> dict[str, Any]:
    options, target = handler.options, targets[handler.task]
    if routes is not None:
        is_following = not handler.is_immutable
        target = routes.of_signature(target, handler, is_following=is_following)
    found: dict[str, Any] = {
        "queue": target.queue if options.queue is UNSET else options.queue,
        "priority": target.priority if options.priority is UNSET else options.priority,
    }
    if not handler.is_immutable:
        check_following(target)
    if options.expires is UNSET and target.expires is not None:
        found["expires"] = target.expires
    return found


class KeyTaken(Exception):
    """Another plan has taken the key meanwhile."""


class PlanWriter:
    """Writes one plan."""

    def __init__(
        self, client: PlanClient, plan: AnyLink, plan_id: bytes, layout: PlanLayout
    ) -> None:
        self._client = client
        self._plan_id = plan_id
        self._layout = layout
        self._name = id_text(plan_id)
        self.shape = shape_of(plan)
        self._record = PlanRecord(
            shape=self.shape,
            nodes=len(layout.nodes),
            created_at=client.clock.now(),
        )

    # --- jobs

    def jobs(self, targets: Mapping[str, Handler | TaskTarget]) -> list[NewJob]:
        """Encode all nodes; raises for the first one that cannot be stored."""
        builders: dict[tuple[str, str, int, int], JobBuilder] = {}
        jobs: list[NewJob] = []
        keys: dict[bytes, NewJob] = {}
        target: Handler | TaskTarget = unknown_target(join_task(self._client.name))
        for node in self._layout.nodes:
            if node.signature is None:
                target = self._join(target)
            else:
                target = self._routed(targets[node.signature.task], node)
            key = (target.task, target.queue, target.priority, id(node.options))
            builder = builders.get(key)
            if builder is None:
                builder = builders[key] = self._builder(target, node)
            job = self._job(builder, target, node)
            if job.key is not None:
                other = keys.setdefault(job.key.key, job)
                if other is not job:
                    raise same_key_twice(other, job)
            jobs.append(job)
        return jobs

    def _routed(
        self, target: Handler | TaskTarget, node: PlanNode
    ) -> Handler | TaskTarget:
        routes = self._client.routes
        if routes is None or node.signature is None:
            return target
        is_following = node.input is not None
        return routes.of_signature(
            target, node.signature, node.options, is_following=is_following
        )

    def _join(self, member: Handler | TaskTarget) -> TaskTarget:
        """Return the task of a join, which runs where the members of its group run."""
        join = unknown_target(join_task(self._client.name))
        return join._replace(queue=member.queue, priority=member.priority)

    def _builder(self, target: Handler | TaskTarget, node: PlanNode) -> JobBuilder:
        return JobBuilder(
            defaults_of(target),
            node.options,
            namespace=self._client.name,
            clock=self._client.clock,
            bounds=self._client.settings.payload,
            limits=self._client.manual_limits,
        )

    def _job(
        self, builder: JobBuilder, target: Handler | TaskTarget, node: PlanNode
    ) -> NewJob:
        bounds = self._client.settings.payload
        place = PlanPlace(self._name, node.number, node.input)
        is_chunk = node.signature is not None and node.signature.rows is not None
        opts = stored_options(
            node.options,
            target.task,
            bounds.meta_bytes_max,
            place,
            is_chunk=is_chunk,
            expires_at=builder.expires_at,
        )
        gates = ()
        if builder.has_gates and node.signature is not None:
            gates = builder.gates_of_signature(
                target, node.signature, is_following=node.input is not None
            )
        return builder.job(
            payload_of(target, node),
            job_id=node_id(self._plan_id, node.number),
            opts=opts,
            wait=node.wait,
            on_end=node.on_end,
            gates=gates,
        )

    # --- writing

    async def write(
        self, jobs: Sequence[NewJob], tx: Joinable | None, key: Put | None = None
    ) -> None:
        """Store the plan, and the record of its key; raises KeyTaken."""
        client, keys = self._client, [] if key is None else [key]
        if key is not None:
            until = self._record.created_at + (key.ttl_seconds or 0.0)
            self._record = replace_fields(self._record, key=key.name, key_until=until)
        go = self._layout.go
        writes = PlanWrites(client.name, self._plan_id, self._record, jobs, go)
        if go is None:
            await self._commit(writes.at_once(keys), tx)
            return
        if tx is not None:
            raise too_large_for_tx(len(jobs))
        now = await store_clock(await client.store(), client.name, client.clock)
        version = await self._commit(writes.first(now(), keys))
        for some in writes.chunks():
            version = await self._commit(writes.chunk(some, now(), version))
        await self._commit(writes.last(version))

    async def _commit(self, effects: Effects, tx: Joinable | None = None) -> int:
        """Commit, and repeat a commit whose outcome is unknown; wait for a full queue.

        Return the version of the record, 0 without one.
        """
        clock = self._client.clock
        began, tries, is_unknown = clock.monotonic(), 0, False
        while True:
            try:
                if tx is None:
                    commits = await self._client.plan_commits()
                    answer = await commits.commit(effects)
                else:
                    store = await self._client.store()
                    answer = await store.commit(effects, all_new=True, tx=tx)
            except StoreError as error:
                tries += 1
                is_last = not error.unknown or tx is not None or tries == TRIES_MAX
                error.unknown = is_unknown = is_unknown or error.unknown
                if is_last:
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
        """Whether an earlier try of the same commit has been stored.

        The plan may have begun, and its record been changed, so bodies are not compared: a
        record with this id is ours. It is checked before the record of the key.
        """
        if conflict.record is None or conflict.name != self._name:
            return False
        put, stored = effects.puts[0], load_record(conflict.record.body)
        is_first = put.if_version == 0
        return is_first or stored.is_whole is load_record(put.body or b"").is_whole

    def _refuse(self, conflict: Conflict, waited: float) -> None:
        """Raise for a conflict, unless it is a full queue and there is time left."""
        full = conflict.full
        if conflict.what == "record" and conflict.name == self._record.key:
            raise KeyTaken
        if conflict.what == "record":
            raise StoreUnavailable(
                f"the plan was not stored within {WRITTEN_SECONDS_MAX:g} s, and the "
                "leader has deleted its jobs",
                cure="Try again when the store is less busy, or use smaller plans.",
            )
        if conflict.job is not None:
            cure = "Use another key, or wait until that job ends."
            raise node_key_taken(conflict.job, conflict.name, cure)
        assert full is not None  # noqa: S101 - what else a commit is refused for
        if full.is_closed:
            raise queue_closed(full)
        if waited >= self._client.bounds.wait_of(full.lane):
            raise queue_full(full, self._client.bounds, waited, HINT_SECONDS)


def too_large_for_tx(jobs: int) -> InvalidPlan:
    return InvalidPlan(
        f"a plan of {jobs} jobs cannot be stored in the transaction of tx",
        cure=f"There a plan has at most {WRITTEN_AT_ONCE_MAX} jobs: enqueue it after the "
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
