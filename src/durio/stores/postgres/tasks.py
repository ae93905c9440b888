"""What workers publish about their tasks: how to enqueue each, and its parameters."""

import msgspec

from durio.model.settings import DAY
from durio.model.signature import mark_of
from durio.ports.lease import WorkerInfo
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import Transaction

PUBLISH_DOCS = statement("doc_publish")
FORGET_SIGNATURES = statement("doc_forget")

SIGNATURE_DAYS = 30  # after the last worker that had it began


async def publish_tasks(tx: Transaction, info: WorkerInfo) -> None:
    """Each task as its code describes it, and on which day its parameters were said.

    In the order of names: workers that begin at once wait for each other in turn.
    """
    kind, day = signatures_kind(info.namespace), int(await tx.now() // DAY)
    await tx.rows(FORGET_SIGNATURES, kind, day - SIGNATURE_DAYS)
    docs: list[tuple[str, str, str]] = []
    for task, described in info.tasks.items():
        docs.append((tasks_kind(info.namespace), task, to_json(dict(described))))
        docs.append((kind, f"{task} {mark_of(described.get('parameters'))}", str(day)))
    if docs:
        kinds, names, bodies = zip(*sorted(docs), strict=True)
        await tx.rows(PUBLISH_DOCS, list(kinds), list(names), list(bodies))


def signatures_kind(namespace: str) -> str:
    """Under which kind of document the signatures of a namespace's tasks are."""
    return f"signature:{namespace}"


def tasks_kind(namespace: str) -> str:
    """Under which kind of document a namespace's tasks are published."""
    return f"task:{namespace}"


def to_json(value: object) -> str:
    """JSON as text."""
    return msgspec.json.encode(value).decode()
