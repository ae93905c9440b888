"""Find the plan of a failed node whose job was deleted before the leader has read of it.

A person may discard a dead job at once, and a job with `Keep(0)` that is cancelled while it
waits leaves nothing behind. Its entry in the log of failures names the job and its number.
"""

from typing import Any

from durio.model.ids import id_bytes, id_text
from durio.model.job import DEAD, StoredJob
from durio.model.plan_change import ADDED_FROM, change_kind
from durio.model.plan_names import node_id
from durio.model.plan_payload import placed_options
from durio.model.plan_place import PlanPlace
from durio.model.plan_record import plan_kind
from durio.model.system_tasks import join_task
from durio.ports.logs import Entry
from durio.ports.plan_reader import all_records, find_whole_plan
from durio.ports.records import Records
from durio.ports.store import Store

TIME_CHARACTERS = 13  # of the text of an id: its 48 bits of time, and a hyphen


async def deleted_node(store: Store, namespace: str, entry: Entry) -> StoredJob | None:
    """Return what is known of a failed job that is deleted; None if its plan is gone."""
    if entry.job is None:
        return None
    plan_id = await plan_id_of(store, namespace, entry.job, entry.tag)
    plan = plan_id and await find_whole_plan(store, namespace, plan_id)
    if not plan:
        return None
    signature = plan.layout.node(entry.tag).signature
    fields: dict[str, Any] = dict.fromkeys(StoredJob._fields)
    fields |= {
        "id": entry.job,
        "state": DEAD,
        "task": join_task(namespace) if signature is None else signature.task,
        "payload": b"",  # its arguments are lost
        "opts": placed_options(None, PlanPlace(id_text(plan.id), entry.tag)),
    }
    return StoredJob(**fields)


async def plan_id_of(
    store: Records, namespace: str, job_id: bytes, number: int
) -> bytes | None:
    """Return the plan that has a node with this id and number."""
    if number >= ADDED_FROM:
        text = job_id.hex().encode()
        for record in await all_records(store, change_kind(namespace)):
            if text in record.body:
                return bytes.fromhex(record.name.partition("/")[0])
        return None
    # The ids of nodes begin with the time of their plan.
    begins = id_text(job_id)[:TIME_CHARACTERS]
    for record in await all_records(store, plan_kind(namespace), begins):
        if node_id(id_bytes(record.name), number) == job_id:
            return id_bytes(record.name)
    return None
