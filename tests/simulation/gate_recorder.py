"""Looks at the gates of a simulated store, beside the engine: see limit_checks.py."""

from collections.abc import Sequence
from typing import Any

from tests.conformance.conftest import PLACES

# Calls after which the gates are looked at, and how many of them are looked at.
WRITES = frozenset(
    {"enqueue", "exchange", "rescue", "commit", "act", "settle", "leave"}
)
LOOK_EVERY = 5
TOKEN_ERROR = (
    1e-3  # clocks of stores are exact to a microsecond; a rate is 1 per second
)
GATES = "select name, cap, used, rate, tokens from gate"


def wrong_gates(store: Any) -> list[str]:
    """Return what is wrong with the gates of a store in memory."""
    db = store.context.writer._session.connection()
    rows: Sequence[tuple[Any, ...]] = [*db.execute(GATES)]
    if not rows:
        return []
    held = dict(db.execute(PLACES))
    found: list[str] = []
    for name, cap, used, rate, tokens in rows:
        if cap is not None and used != held.get(name, 0):
            found.append(f"{name}: {used} places are taken, {held.get(name, 0)} held")
        # A breaker that opens takes the places away that its probes hold.
        if cap is not None and used > cap and not name.startswith("0b:"):
            found.append(f"{name}: {used} places of {cap}")
        if rate is not None and tokens < -TOKEN_ERROR:
            found.append(f"{name}: {tokens} tokens")
    return found


def taken_places(store: Any) -> list[str]:
    """Return the gates that have places taken."""
    db = store.context.writer._session.connection()
    return [f"{name}: {used}" for name, _, used, *_ in db.execute(GATES) if used]
