"""Jobs as values: states, and the shapes of a new, claimed, stored and shown job."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

import msgspec

PRIORITY_MAX = 9
PRIORITY_DEFAULT = 5


class State(StrEnum):
    """The state of a job; `done`, `dead` and `cancelled` are final."""

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
        """Whether the job stays in this state unless an operator acts on it."""
        return self in FINAL


FINAL = frozenset({State.DONE, State.DEAD, State.CANCELLED})

# Stores keep these numbers; `>= 4` is final.
STATE_BY_CODE: tuple[State, ...] = tuple(State)
CODE_BY_STATE: dict[State, int] = {state: n for n, state in enumerate(State)}
SCHEDULED, BLOCKED, READY, RUNNING, DONE, DEAD, CANCELLED = range(7)


class Priority(IntEnum):
    """Named priorities; any number from 0 to 9 is allowed."""

    __module__ = "durio"

    BULK = 0
    LOW = 2
    NORMAL = 5
    HIGH = 7
    CRITICAL = 9


# The columns of a job that is not running; a store writes its lists of columns from them.
# NewJob, Claim, StoredJob and JobRow are views of a job: tests/unit/stores/test_columns.py
# compares them, and the tables of both stores, with this list.
COMMON_COLUMNS = (  # in every table that holds whole jobs
    *("id", "lane", "rank", "state", "task", "payload"),
    *("retried", "losses", "lost", "snoozed", "claim_no"),
)
JOB_COLUMNS = (
    *COMMON_COLUMNS,
    *("run_at", "parked_at", "started_at", "ukey", "umode", "opts", "errors"),
    *("progress", "created_at", "finished_at", "gone_at", "result", "result_until"),
    *("reason", "bucket", "keep_count", "died_no"),
)


class KeyClaim(NamedTuple):
    """A job's claim on an idempotency key, as stores see it (see model/keys.py)."""

    key: bytes  # hashed with namespace and task
    mode: int
    ttl_seconds: float  # window: its length; debounce: the longest wait
    delay_seconds: float  # debounce: wait after the last submission
    digest: bytes  # digest of the payload: the same arguments have the same digest


class NewJob(NamedTuple):
    """A job before it is stored."""

    id: bytes
    lane: str
    rank: int  # 9 - priority, so that every index ascends
    task: str
    payload: bytes  # [args, kwargs] as JSON
    run_at: float | None = None  # seconds since 1970, by the store's clock
    delay_seconds: float = 0.0  # from now, by the store's clock; 0: at once
    opts: bytes | None = None  # overrides and meta as JSON, see model/options.py
    key: KeyClaim | None = None


class Claim(NamedTuple):
    """A job that a worker has claimed; (id, claim_no) fences every write about it."""

    id: bytes
    claim_no: int
    lane: str
    rank: int
    task: str
    payload: bytes
    retried: int  # retries used
    losses: int  # attempts that were lost with their worker, in total
    lost: int  # ... and since the last attempt that was not lost
    snoozed: int
    opts: bytes | None
    parked_at: float | None  # since when no worker here has known its task


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress that a running attempt has reported."""

    __module__ = "durio"

    done: float
    total: float | None = None
    message: str | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True)
class LastError:
    """The newest failed attempt of a job, without what only operators may see."""

    __module__ = "durio"

    type: str
    message: str
    attempt: int = 0
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobError:
    """One failed attempt, with its traceback and log lines."""

    __module__ = "durio"

    type: str
    message: str
    traceback: str = ""
    attempt: int = 0
    at: datetime | None = None
    worker: str | None = None
    logs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The state of a job, from one read of the store; safe to return from a web route."""

    __module__ = "durio"

    id: str
    task: str
    queue: str
    priority: int
    state: State
    attempt: int
    max_attempts: int | None  # None: neither this process nor a worker has said it
    created_at: datetime
    run_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    progress: Progress | None = None
    last_error: LastError | None = None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values: times in ISO 8601 (UTC), enums as text."""
        return msgspec.json.decode(msgspec.json.encode(self))


@dataclass(frozen=True, slots=True)
class JobDetails(JobStatus):
    """Everything about a job, for operators and tests: arguments and errors may hold secrets."""

    __module__ = "durio"

    args: list[Any] = field(default_factory=list[Any])
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    meta: dict[str, Any] = field(default_factory=dict[str, Any])
    key: str | None = None
    result_until: datetime | None = None
    worker: str | None = None
    options: dict[str, Any] = field(default_factory=dict[str, Any])  # of the call
    errors: tuple[JobError, ...] = ()  # every failed attempt that is kept, oldest first


class StoredJob(NamedTuple):
    """A stored job with all its fields, for browsing."""

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
    result_until: float | None  # until when the result can be read
    reason: str | None
    key: bytes | None


def utc_datetime(seconds: float | None) -> datetime | None:
    """Convert stored seconds to an aware datetime; None if out of range."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None  # a damaged row must not hide the other jobs


def attempt_number(retried: int, losses: int) -> int:
    """Return the number of the current attempt; it never decreases."""
    return retried + losses + 1
