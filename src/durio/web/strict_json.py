"""JSON as the API takes it: no duplicate names, no NaN, a bounded depth."""

import json
import re
from typing import Any

from durio.web.problems import Refusal

DEPTH_MAX = 64
OPENING = b"[{"
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
# It also matches a string without an end: it must not be tried again from inside.
STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)


def check_json(body: bytes) -> None:
    """Refuse a body that is not JSON, or that different readers would read differently."""
    parse_json(body, "the body")


def parse_json(text: bytes | str, what: str) -> Any:
    """Parse JSON from a caller; `what` names it in a refusal."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if depth_of(raw) > DEPTH_MAX:
        raise invalid(f"{what} is nested deeper than {DEPTH_MAX} levels")
    try:
        return json.loads(
            raw.decode(),
            object_pairs_hook=without_duplicates,
            parse_constant=refuse_constant,
        )
    except DuplicateName as error:
        raise invalid(f"{what} has the name {error} twice in one object") from None
    except (ValueError, RecursionError) as error:
        raise invalid(f"{what} is not JSON: {error}") from None


def depth_of(raw: bytes) -> int:
    """Return how deep brackets are nested, outside of strings."""
    depth = deepest = 0
    for byte in STRING.sub(b"", raw).translate(None, NO_BRACKETS):
        depth += 1 if byte in OPENING else -1
        deepest = max(deepest, depth)
    return deepest


class DuplicateName(ValueError):
    """An object has a name twice."""


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise DuplicateName(repr(name[:60]))
        found[name] = value
    return found


def refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def invalid(detail: str) -> Refusal:
    return Refusal(400, "invalid_json", detail, "Send JSON as in RFC 8259.")
