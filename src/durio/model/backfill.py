"""A backfill: the ticks of a schedule over a time in the past, made again.

It is a record of the kind `backfill:<namespace>`, named by its id, and due while ticks are
left.
"""

from typing import Any

import msgspec

from durio.model.schedule import TickRun, readable
from durio.model.schedule_rule import Rule

TICKS_MAX = 10_000
AT_A_TIME_MAX = 400  # jobs that may run at the same time; they fit in one commit
LOOK_SECONDS = 0.5  # how often a scheduler looks whether a run has ended
KEPT_SECONDS = 7 * 86400.0  # after its last tick


class BackfillRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The body of the record."""

    schedule: str
    link: dict[str, Any]  # document of the signature or plan
    rule: Rule
    next_at: float | None  # time of the next tick; None: all are made
    until: float  # ticks before this time
    at_a_time: int
    total: int
    by: str
    created_at: float
    made: int = 0
    failed: int = 0  # ticks whose job could not be made
    live: tuple[TickRun, ...] = ()


_decoder = msgspec.json.Decoder(BackfillRecord)


def backfills_kind(namespace: str) -> str:
    return f"backfill:{namespace}"


def load_backfill(body: bytes, name: str) -> BackfillRecord:
    with readable(f"backfill {name}", "Cancel the backfill, and start it again."):
        record = _decoder.decode(body)
        record.rule.check()
    return record


def ticks_of(rule: Rule, start: float, until: float, most: int) -> list[float]:
    """Return the ticks from `start` to before `until`, at most so many."""
    found: list[float] = []
    tick = rule.after(start - 0.001)
    while tick is not None and tick < until and len(found) < most:
        found.append(tick)
        tick = rule.after(tick)
    return found
