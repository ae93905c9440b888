"""Records that workers publish about their tasks.

`task:<namespace>` holds a record for each task: how to enqueue it. `signature:<namespace>`
holds a record for each set of parameters that a worker had for a task; these expire.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from durio.model.names import is_prefix
from durio.model.settings import DAY

OF_MANY = "* "
# A signature expires this long after the start of the last worker that had it.
SIGNATURE_TTL_SECONDS = 30 * DAY


def tasks_kind(namespace: str) -> str:
    """Return the kind of a namespace's published tasks; each record has its task's name."""
    return f"task:{namespace}"


def signatures_kind(namespace: str) -> str:
    """Return the kind of a namespace's published signatures."""
    return f"signature:{namespace}"


def signature_prefix(task: str) -> str:
    """Return the prefix of a task's signature names, before the digest of its parameters.

    Handlers of many names have `* ` before, so that one query finds all of them.
    """
    return f"{OF_MANY if is_prefix(task) else ''}{task} "


def signature_name(task: str, described: Mapping[str, Any]) -> str:
    """Return the name of the signature that a task has in this code."""
    return signature_prefix(task) + parameters_digest(described.get("parameters"))


def parameters_digest(parameters: object) -> str:
    """Return a short digest of published parameters."""
    return sha256(msgspec.json.encode(parameters, order="sorted")).hexdigest()[:16]
