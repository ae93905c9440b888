"""Read a plan from its record, for the client and the leader."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import msgspec

from durio.model.effects import Put
from durio.model.ids import id_text
from durio.model.plan import SignatureValue
from durio.model.plan_change import change_kind, load_change
from durio.model.plan_kept import kept_log
from durio.model.plan_layout import PlanLayout
from durio.model.plan_names import failed_log, node_id
from durio.model.plan_record import (
    PlanRecord,
    PlanState,
    dump_record,
    handled_log,
    load_record,
    load_shape,
    plan_kind,
    shape_log,
)
from durio.model.plan_shape import plan_of_shape
from durio.ports.logs import Entry, Logs
from durio.ports.records import Record, Records
from durio.ports.upkeep import Upkeep

ENTRIES_MAX, RECORDS_MAX = 1000, 1000  # per read
LAYOUTS_MAX, LAID_OUT_NODES_MAX = 8, 200_000  # of one `Layouts`
SETTLED_MAX = 1000  # jobs let go by one call


class PlanStore(Records, Logs, Protocol):
    """The part of a store that keeps plans."""


class SettlingStore(PlanStore, Upkeep, Protocol):
    """A store that can also go on with what earlier calls have left."""


class Position(NamedTuple):
    """How far the leader has read a log, and the version of the record that says so."""

    log: str
    offset: int
    version: int

    def moved_to(self, namespace: str, offset: int) -> Put:
        body = msgspec.json.encode(offset)
        return Put(position_kind(namespace), self.log, body, if_version=self.version)


def position_kind(namespace: str) -> str:
    return f"position:{namespace}"


async def read_position(store: Records, namespace: str, log: str) -> Position:
    found = await store.records(position_kind(namespace), [log])
    if not found:
        return Position(log, 0, 0)
    offset = msgspec.json.decode(found[0].body, type=int)
    return Position(log, offset, found[0].version)


async def has_plan_work(store: SettlingStore, namespace: str) -> bool:
    """Whether plans go on without a job: settle, and look for failures to handle."""
    settled = await store.settle(SETTLED_MAX)
    if settled.has_left:
        return True
    log = failed_log(namespace)
    length = (await store.log_lengths([log])).get(log, 0)
    return length > 0 and length > (await read_position(store, namespace, log)).offset


class StoredPlan(NamedTuple):
    """A plan as it is stored."""

    id: bytes
    namespace: str
    record: PlanRecord
    version: int
    layout: PlanLayout
    shape: Any  # see model/plan_shape.py
    due_at: float | None  # of the record
    # Empty unless the plan was read by `find_whole_plan`.
    added: dict[int, bytes]  # ids of added nodes by number
    replacing: dict[int, bytes]  # ids of plans by the number whose place they have

    @property
    def numbers(self) -> list[int]:
        """The numbers of all nodes, those that were added last."""
        return [*range(len(self.layout.nodes)), *self.added]

    def ids(self, numbers: Iterable[int]) -> list[bytes]:
        added = self.added
        return [added.get(number) or node_id(self.id, number) for number in numbers]

    @property
    def last_id(self) -> bytes:
        return node_id(self.id, len(self.layout.nodes) - 1)

    def logs(self) -> list[str]:
        """Return the names of the plan's own logs."""
        prefix = f"j:{self.namespace}/{self.id.hex()}/"
        found = {
            end.log
            for node in self.layout.nodes
            for end in node.on_end
            if end.log.startswith(prefix)
        }
        found |= {node.wait.log for node in self.layout.nodes if node.wait is not None}
        own = (
            log(self.namespace, self.id) for log in (shape_log, kept_log, handled_log)
        )
        return [*sorted(found), *own]

    def in_state(self, state: PlanState) -> "StoredPlan":
        record = msgspec.structs.replace(self.record, state=state)
        return self._replace(record=record)

    def put(self, **changes: Any) -> Put:
        """Return the write of a changed record, if no other change came first."""
        body = dump_record(msgspec.structs.replace(self.record, **changes))
        kind = plan_kind(self.namespace)
        return Put(kind, id_text(self.id), body, if_version=self.version)

    def same(self) -> Put:
        """Return the write of the same record: a condition that no other change came first."""
        return self.put()._replace(due_at=self.due_at)


class Layouts:
    """The layouts of plans that were read last.

    Many jobs of one plan may fail, or change it, and a layout takes as long as it is large.
    """

    def __init__(self) -> None:
        self._found: dict[bytes, PlanLayout] = {}

    def layout(
        self, plan: bytes, namespace: str, record: PlanRecord, shape: Any
    ) -> Any:
        """Return the layout of a plan; its shape never changes."""
        layout = self._found.pop(plan, None) or record.layout(plan, namespace, shape)
        self._found[plan] = layout
        while len(self._found) > 1 and self._is_full:
            del self._found[next(iter(self._found))]
        return layout

    @property
    def _is_full(self) -> bool:
        nodes = sum(len(layout.nodes) for layout in self._found.values())
        return len(self._found) > LAYOUTS_MAX or nodes > LAID_OUT_NODES_MAX


async def find_plan(
    store: PlanStore,
    namespace: str,
    plan_id: bytes,
    layouts: Layouts | None = None,
) -> StoredPlan | None:
    """Return a plan; None if there is none."""
    found = await store.records(plan_kind(namespace), [id_text(plan_id)])
    if not found:
        return None
    record = load_record(found[0].body)
    shape = record.shape
    if shape is None:
        parts = await whole_log(store, shape_log(namespace, plan_id))
        shape = load_shape(b"".join(part.body or b"" for part in parts))
    layout = (layouts or Layouts()).layout(plan_id, namespace, record, shape)
    version, due_at = found[0].version, found[0].due_at
    return StoredPlan(
        plan_id, namespace, record, version, layout, shape, due_at, {}, {}
    )


async def find_whole_plan(
    store: PlanStore,
    namespace: str,
    plan_id: bytes,
    layouts: Layouts | None = None,
) -> StoredPlan | None:
    """Return a plan with what its tasks have changed; None if there is none."""
    plan = await find_plan(store, namespace, plan_id, layouts)
    return plan and await with_changes(store, plan)


async def with_changes(store: PlanStore, plan: StoredPlan) -> StoredPlan:
    """Return the plan with the nodes that were added, and plans in places of nodes."""
    added: dict[int, bytes] = {}
    replacing: dict[int, bytes] = {}
    layout = plan.layout.without_added()
    for record in await change_records(store, plan.namespace, plan.id):
        change = load_change(record.body)
        if change.plan is not None:
            replacing[change.node] = bytes.fromhex(change.plan)
        for node in change.added:
            link = plan_of_shape(msgspec.json.decode(node.shape))
            assert isinstance(link, SignatureValue)  # noqa: S101 - `ctx.add` takes no plan
            layout.add(node.number, node.group, link)
            added[node.number] = bytes.fromhex(node.job)
    return plan._replace(layout=layout, added=added, replacing=replacing)


async def change_records(
    store: Records, namespace: str, plan_id: bytes
) -> list[Record]:
    """Return the records of what jobs have done to their plan."""
    return await all_records(store, change_kind(namespace), plan_id.hex())


async def all_records(store: Records, kind: str, prefix: str = "") -> list[Record]:
    """Return all records of a kind whose names begin so."""
    found: list[Record] = []
    after = ""
    while True:
        some = await store.list_records(
            kind, prefix=prefix, after=after, limit=RECORDS_MAX
        )
        found += some
        if len(some) < RECORDS_MAX:
            return found
        after = some[-1].name


async def whole_log(store: Logs, log: str) -> list[Entry]:
    """Return all entries of a log."""
    found: list[Entry] = []
    while True:
        start = found[-1].offset + 1 if found else 0
        some = await store.read_log(log, start, limit=ENTRIES_MAX)
        found += some
        if len(some) < ENTRIES_MAX:
            return found
