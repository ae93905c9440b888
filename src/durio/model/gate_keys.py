"""Names of gates, and the keys that end them."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, cast
from uuid import UUID

from durio.model.errors import InvalidArguments

# The classes of gates, from narrow to wide: see gate_rule.py.
BREAKER, KEYED_CAP, KEYED_RATE, FAIR, CAP, RATE = "0b", "1k", "2r", "3f", "4w", "5r"
PART_BYTES_MAX = 60  # of the App with the limit, and of the key; longer ends in a hash
DIGEST_BYTES = 6


def gate_prefix(kind: str, namespace: str, limit: str) -> str:
    """Return the beginning of the names of all gates of a limit."""
    return f"{kind}:{shortened(f'{namespace}/{limit}')}/"


def shortened(text: str) -> str:
    """Return text of at most 60 bytes; longer, or not printable, text ends in a hash."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= PART_BYTES_MAX and text.isprintable():
        return text
    digest = hashlib.blake2b(raw, digest_size=DIGEST_BYTES).hexdigest()
    shown = "".join(char if char.isprintable() else "?" for char in text)
    head = shown.encode("utf-8", "replace")[: PART_BYTES_MAX - len(digest) - 1]
    return f"{head.decode('utf-8', 'ignore')}~{digest}"


def value_at(values: Mapping[str, Any], path: str) -> object:
    """Return the value at a dotted path; None if it is missing."""
    first, *rest = path.split(".")
    value: Any = values.get(first)
    for name in rest:
        if isinstance(value, Mapping):
            value = cast("Mapping[str, Any]", value).get(name)
        else:
            value = getattr(value, name, None)
    return value


def key_text(parts: Sequence[object], task: str, limit: str) -> str | None:
    """Return the key as it ends the name of a gate; None if a part is missing."""
    texts: list[str] = []
    for part in parts:
        value = part.value if isinstance(part, Enum) else part
        if value is None:
            return None
        if isinstance(value, bool):
            texts.append("true" if value else "false")
        elif isinstance(value, str | int | UUID):
            texts.append(str(value))
        else:
            raise InvalidArguments(
                f"{task}: the key of limit {limit!r} is {value!r:.80}, a "
                f"{type(value).__name__}, which cannot be a key",
                cure="Nothing was stored. A key is text, a whole number, a UUID, an enum "
                "of these, or a tuple of them; None means no limit.",
                task=task,
            )
    if len(texts) == 1:
        return shortened(texts[0])
    return shortened(json.dumps(texts, ensure_ascii=False)) if texts else None
