"""What workers publish about their tasks, as records.

`task:<namespace>` holds a record for each task: how to enqueue it. `signature:<namespace>`
holds a record for each set of parameters that a worker had for a task: these expire.
"""

from collections.abc import Mapping
from typing import Any

from durio.model.argument_codec import parameters_digest
from durio.model.settings import DAY

SIGNATURE_TTL_SECONDS = 30 * DAY  # after the start of the last worker that had it


def tasks_kind(namespace: str) -> str:
    """The kind of a namespace's published tasks; a record's name is the task's."""
    return f"task:{namespace}"


def signatures_kind(namespace: str) -> str:
    """The kind of a namespace's published signatures."""
    return f"signature:{namespace}"


def signature_prefix(task: str) -> str:
    """How the names of a task's signatures begin; the digest of its parameters follows."""
    return f"{task} "


def signature_name(task: str, described: Mapping[str, Any]) -> str:
    """The name of the signature that a task has in this code."""
    return signature_prefix(task) + parameters_digest(described.get("parameters"))
