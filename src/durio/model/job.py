"""Jobs as values: states, and the shapes of a new, claimed, stored and shown job."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

import msgspec

from durio.model.gate import GateSpec
from durio.model.logs import OnEnd, Wait

PRIORITY_MAX = 9
PRIORITY_DEFAULT = 5


class State(StrEnum):
    """The state of a job; it equals its text: `status.state == "done"`."""

    __module__ = "durio"

    SCHEDULED = "scheduled"  # waits for its time: a delay, a retry or a snooze
    BLOCKED = "blocked"  # waits for other jobs of its plan, or for a limit
    READY = "ready"  # a worker may take it
    RUNNING = "running"  # a worker runs it
    DONE = "done"  # final: its result is stored
    DEAD = "dead"  # final: it has failed and is not retried
    CANCELLED = "cancelled"  # final: it was cancelled

    @property
    def is_final(self) -> bool:
        """Whether the job has ended: `done`, `dead` or `cancelled`."""
        return self in FINAL


FINAL = frozenset({State.DONE, State.DEAD, State.CANCELLED})

# Stores keep these numbers; `>= 4` is final.
STATE_BY_CODE: tuple[State, ...] = tuple(State)
CODE_BY_STATE: dict[State, int] = {state: n for n, state in enumerate(State)}
SCHEDULED, BLOCKED, READY, RUNNING, DONE, DEAD, CANCELLED = range(7)


class Priority(IntEnum):
    """Names for priorities; any number from 0 to 9 is allowed."""

    __module__ = "durio"

    BULK = 0  # least urgent
    LOW = 2  # less urgent than normal
    NORMAL = 5  # the default
    HIGH = 7  # more urgent than normal
    CRITICAL = 9  # most urgent


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
    *("reason", "bucket", "keep_count", "died_no", "ties"),
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
    wait: Wait | None = (
        None  # blocked until then; a delay counts from the end of the wait
    )
    on_end: tuple[OnEnd, ...] = ()
    gates: tuple[GateSpec, ...] = ()  # passed in this order, the order of their names
    # The store writes a record that is due then (model/expiry.py); also in `opts`.
    expires_at: float | None = None


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
    """The progress that a task has reported with `ctx.progress(...)`."""

    __module__ = "durio"

    done: float  # units of work that are done
    total: float | None = None  # units of work in all; None: unknown
    message: str | None = None  # text for people
    state: str | None = None  # a name of the phase, for programs
    # The newest 20 changes of `state` in this attempt, each with its time, oldest first.
    changes: tuple[tuple[str, datetime | None], ...] = ()


@dataclass(frozen=True, slots=True)
class LastError:
    """The newest failed attempt of a job, without its traceback."""

    type: str  # class of the exception
    message: str  # text of the exception
    attempt: int = 0  # number of the attempt, from 1
    at: datetime | None = None  # when the attempt failed
    decision: str = ""  # what happened to the job, and why: `dead at once: HTTP 404`


@dataclass(frozen=True, slots=True)
class JobError:
    """One failed attempt of a job, with its traceback and log lines."""

    type: str  # class of the exception
    message: str  # text of the exception
    traceback: str = ""  # of the exception, as Python prints it
    attempt: int = 0  # number of the attempt, from 1
    at: datetime | None = None  # when the attempt failed
    worker: str | None = None  # the worker that ran it
    logs: tuple[str, ...] = ()  # its last log lines
    decision: str = ""  # what happened to the job, and why: `dead at once: HTTP 404`


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The state of a job, from one read of the store; safe to return from a web route."""

    __module__ = "durio"

    id: str  # of the job, such as `0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55`
    task: str  # full name of the task
    queue: str  # name of the queue, without the App's
    priority: int  # 0 to 9; 9 is most urgent
    state: State  # where the job is in its life
    attempt: int  # number of the current or last attempt, from 1
    max_attempts: int | None  # None: the task's code is unknown here and to workers
    created_at: datetime  # this and the other times are in UTC
    run_at: datetime | None = None  # when a scheduled job becomes ready
    started_at: datetime | None = None  # when the last attempt began
    finished_at: datetime | None = None  # when the job ended
    progress: Progress | None = None  # the last progress that the task reported
    last_error: LastError | None = None  # None: no attempt has failed
    reason: str | None = None  # why the job is dead, such as `exhausted`

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as values for `json.dumps`: times as ISO 8601, enums as text."""
        return msgspec.json.decode(msgspec.json.encode(self))


@dataclass(frozen=True, slots=True)
class JobDetails(JobStatus):
    """All that the store knows about a job: a JobStatus with more fields.

    It is for operators and tests: arguments and errors may hold secrets.
    """

    __module__ = "durio"

    # Positional arguments, as JSON values; a task stores most arguments by name.
    args: list[Any] = field(default_factory=list[Any])
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])  # arguments by name
    # The `meta` that the job was enqueued with.
    meta: dict[str, Any] = field(default_factory=dict[str, Any])
    key: str | None = None  # the idempotency key
    result_until: datetime | None = None  # until when the result can be read
    worker: str | None = None  # id of the worker that runs it
    plan: str | None = None  # id of the plan that it is a job of
    # Options of the call that are stored with the job, without `meta` and `key`.
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    errors: tuple[JobError, ...] = ()  # failed attempts that are kept, oldest first


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
    # Since when workers have given it back: they lack its task, or cannot read its arguments.
    parked_at: float | None = None


def utc_datetime(seconds: float | None) -> datetime | None:
    """Convert stored seconds to an aware datetime; None if out of range."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None  # a damaged row must not hide the other jobs


def attempt_number(retried: int, losses: int) -> int:
    """Return the number of the current attempt; it never decreases."""
    return retried + losses + 1
