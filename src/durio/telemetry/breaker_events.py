"""The event of a breaker that has a new state: workers and the leader report it alike."""

from collections.abc import Callable
from datetime import datetime

import msgspec

from durio.model.breaker import CLOSED, OPEN, BreakerRecord, BreakerState
from durio.model.job import utc_datetime
from durio.telemetry.emit import Emit


class BreakerEvent(msgspec.Struct, frozen=True):
    """The argument of a hook for breakers: the new state of a breaker."""

    __module__ = "durio.limits"

    breaker: str  # name of the breaker
    state: BreakerState  # `closed`, `open` or `half_open`
    before: BreakerState  # the state before
    why: str  # what changed it, such as `5 of 8 calls failed within 60 s`
    at: datetime | None  # when it changed


def report_change(
    emit: Emit,
    notify: Callable[[BreakerEvent], None],
    name: str,
    record: BreakerRecord,
) -> None:
    """Report a new state that the store has accepted: to the log, and to hooks."""
    change = record.changes[-1]
    if record.state == OPEN:
        emit("breaker.opened", breaker=name, why=change.why)
    elif record.state == CLOSED:
        emit("breaker.closed", breaker=name, why=change.why)
    else:
        emit("breaker.half_open", breaker=name, why=change.why)
    notify(
        BreakerEvent(
            name,
            record.state,
            change.before,
            change.why,
            utc_datetime(change.at),
        )
    )
