"""Read a plan from its record, for the client and the leader."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from durio.model.effects import Put
from durio.model.ids import id_text
from durio.model.plan_layout import PlanLayout, node_id
from durio.model.plan_record import (
    PlanRecord,
    dump_record,
    load_record,
    plan_kind,
    shape_log,
)
from durio.ports.logs import Logs
from durio.ports.records import Records


class PlanStore(Records, Logs, Protocol):
    """The part of a store that keeps plans."""


class StoredPlan(NamedTuple):
    """A plan as it is stored."""

    id: bytes
    namespace: str
    record: PlanRecord
    version: int
    layout: PlanLayout
    shape: Any  # see model/plan_shape.py

    def ids(self, numbers: Sequence[int] | range) -> list[bytes]:
        return [node_id(self.id, number) for number in numbers]

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
        return [*sorted(found), shape_log(self.namespace, self.id)]

    def put(self, **changes: Any) -> Put:
        """Return the write of a changed record, if no other change came first."""
        body = dump_record(msgspec.structs.replace(self.record, **changes))
        kind = plan_kind(self.namespace)
        return Put(kind, id_text(self.id), body, if_version=self.version)


async def find_plan(
    store: PlanStore, namespace: str, plan_id: bytes
) -> StoredPlan | None:
    """Return a plan; None if there is none."""
    found = await store.records(plan_kind(namespace), [id_text(plan_id)])
    if not found:
        return None
    record = load_record(found[0].body)
    shape = record.shape
    if shape is None:
        parts = await store.read_log(shape_log(namespace, plan_id))
        shape = msgspec.json.decode(b"".join(part.body or b"" for part in parts))
    layout = record.layout(plan_id, namespace, shape)
    return StoredPlan(plan_id, namespace, record, found[0].version, layout, shape)
