"""What a job is: its states, how it is asked for, claimed and shown."""

from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

import msgspec

PRIORITY_MAX = 9
PRIORITY_DEFAULT = 5


class State(StrEnum):
    """Where a job is in its life; `done`, `dead` and `cancelled` are final."""

    __module__ = "durio"

    SCHEDULED = "scheduled"
    BLOCKED = "blocked"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """True when nothing more happens to the job by itself."""
        return self in FINAL


FINAL = frozenset({State.DONE, State.DEAD, State.CANCELLED})

# Stores keep these numbers; `>= 4` is final.
STATE_BY_CODE: tuple[State, ...] = tuple(State)
CODE_BY_STATE: dict[State, int] = {state: n for n, state in enumerate(State)}
SCHEDULED, BLOCKED, READY, RUNNING, DONE, DEAD, CANCELLED = range(7)


class Priority(IntEnum):
    """Named priorities; any number from 0 to 9 will do."""

    __module__ = "durio"

    BULK = 0
    LOW = 2
    NORMAL = 5
    HIGH = 7
    CRITICAL = 9


class KeyClaim(NamedTuple):
    """A job's claim on an idempotency key, as stores see it (see model/keys.py)."""

    key: bytes  # hashed with namespace and task
    mode: int
    ttl_seconds: float  # window: how long; debounce: max_wait
    delay_seconds: float  # debounce: how long to wait for the last one
    digest: bytes  # of the payload: same arguments, same digest


class NewJob(NamedTuple):
    """A job before it is stored: all that a job is."""

    id: bytes
    lane: str
    rank: int  # 9 - priority, so that every index ascends
    task: str
    payload: bytes  # [args, kwargs] as JSON
    run_at: float | None = None  # absolute seconds, by the store's clock
    delay_seconds: float = 0.0  # relative to the store's clock; 0 is now
    opts: bytes | None = None  # overrides and meta as JSON, see model/options.py
    key: KeyClaim | None = None


class Claim(NamedTuple):
    """A job in a worker's hands, with the fence of every write about it."""

    id: bytes
    claim_no: int
    lane: str
    rank: int
    task: str
    payload: bytes
    retried: int  # retries used
    losses: int  # attempts that died with their worker, in all
    lost: int  # ... and in a row
    snoozed: int
    opts: bytes | None
    parked_at: float | None  # since when nobody knew its task


class Progress(msgspec.Struct, frozen=True):
    """How far a running attempt says it is."""

    __module__ = "durio"

    done: float
    total: float | None = None
    message: str | None = None
    state: str | None = None


class JobError(msgspec.Struct, frozen=True):
    """One failed attempt, as data."""

    __module__ = "durio"

    type: str
    message: str
    traceback: str = ""
    attempt: int = 0
    at: datetime | None = None
    worker: str | None = None
    logs: tuple[str, ...] = ()


class JobStatus(msgspec.Struct, frozen=True):
    """What one read of the store says about a job."""

    __module__ = "durio"

    id: str
    task: str
    queue: str
    priority: int
    state: State
    attempt: int
    max_attempts: int
    created_at: datetime
    run_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    progress: Progress | None = None
    error: JobError | None = None
    reason: str | None = None
    worker: str | None = None


class StoredJob(NamedTuple):
    """A stored job, whole, as browsing reads it."""

    id: bytes
    lane: str
    rank: int
    state: int
    task: str
    payload: bytes
    retried: int
    losses: int
    lost: int
    snoozed: int
    claim_no: int
    worker: int | None
    opts: bytes | None
    errors: bytes | None  # JSON list, oldest first
    progress: bytes | None
    cancel_asked: bool
    created_at: float
    run_at: float | None
    started_at: float | None
    finished_at: float | None
    result: bytes | None
    result_until: float | None  # the result may be read until then
    reason: str | None
    key: bytes | None


def utc_datetime(seconds: float | None) -> datetime | None:
    """Stored seconds as an aware datetime."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None  # a damaged row must not hide the others


def attempt_number(retried: int, losses: int) -> int:
    """The number of the attempt at hand: it never goes back."""
    return retried + losses + 1


Meta = dict[str, Any]
