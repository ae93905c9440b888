"""All exceptions of Durio: what happened, with which values, and what to do.

There are three families. *Usage*: the caller's mistake, raised at declaration or
enqueue. *Operating*: conditions at run time (store unavailable, lease lost), handled and
bounded. *InvariantBroken*: our own bug; stop rather than give a wrong result.
"""

from typing import Any, ClassVar


class DurioError(Exception):
    """The root of every error of Durio, with a stable `code` and a `cure`."""

    __module__ = "durio.errors"
    code: ClassVar[str] = "durio"

    def __init_subclass__(cls) -> None:
        """Show the public path of our own errors; users' subclasses keep theirs."""
        if cls.__module__ == __name__:
            cls.__module__ = "durio.errors"

    def __init__(self, what: str, *, cure: str = "", **values: Any) -> None:
        super().__init__(what)
        self.what = what
        self.cure = cure
        self.values = values

    def __str__(self) -> str:
        text = f"{self.what} [{self.code}]"
        return f"{text}\n  {self.cure}" if self.cure else text


class UsageError(DurioError):
    """The caller's mistake, found at declaration or enqueue."""

    code = "usage"


class OperatingError(DurioError):
    """A condition at run time, such as an unreachable store; not a bug in Durio."""

    code = "operating"


class InvariantBroken(DurioError):
    """An internal invariant does not hold; this is a bug of Durio, please report it."""

    code = "invariant_broken"


# --- usage


class DuplicateTask(UsageError):
    """Two functions have the same task name."""

    code = "duplicate_task"


class UnknownTask(UsageError):
    """No such task in a namespace whose tasks are known."""

    code = "unknown_task"


class UnknownQueue(UsageError):
    """No job was ever in this queue, and no task names it."""

    code = "unknown_queue"


class UnknownBreaker(UsageError):
    """No breaker of this name is declared: `App(breakers=[Breaker(...)])`."""

    code = "unknown_breaker"


class InvalidName(UsageError):
    """A name of an app, a queue, a task or a key that cannot be stored."""

    code = "invalid_name"


class InvalidOption(UsageError):
    """An unknown option, or a value that the option does not accept."""

    code = "invalid_option"


class InvalidQuery(UsageError):
    """A query for jobs that cannot be read; `values` has its `position`, from 0."""

    code = "invalid_query"


class InvalidCursor(UsageError):
    """A cursor that is not of this query, or that was changed."""

    code = "invalid_cursor"


class InvalidRoute(UsageError):
    """A router failed or returned no route, or a route names a queue that nobody declared."""

    code = "invalid_route"


class UnknownAttribute(UsageError, AttributeError):
    """A task has no such attribute; the cure says what to write instead."""

    code = "unknown_attribute"


class InvalidArguments(UsageError):
    """Arguments that do not fit the task's signature."""

    code = "invalid_arguments"


class InvalidPlan(UsageError):
    """A chain, group or chord that cannot be run as it is written."""

    code = "invalid_plan"


class InvalidSchedule(UsageError):
    """A schedule that cannot work as it is written: its rule, times or options."""

    code = "invalid_schedule"


class InvalidResult(UsageError):
    """A result that does not fit the annotation of its task, or is not JSON."""

    code = "invalid_result"


class NotSerializable(UsageError):
    """A value that cannot be encoded as JSON."""

    code = "not_serializable"


class PayloadTooLarge(UsageError):
    """Arguments or a result above the size limit."""

    code = "payload_too_large"


class KeyConflict(UsageError):
    """A job with other arguments holds the idempotency key."""

    code = "key_conflict"


class WrongTransaction(UsageError):
    """A transaction that a job cannot join: it has ended, or belongs to another database."""

    code = "wrong_transaction"


class WrongState(UsageError):
    """The job is not in a state that allows this."""

    code = "wrong_state"


class InvalidURL(UsageError):
    """A store URL that cannot be parsed."""

    code = "invalid_url"


# --- operating


class JobNotFound(OperatingError):
    """There is no such job: it never existed, or retention has deleted it."""

    code = "job_not_found"


class PlanNotFound(OperatingError):
    """There is no such plan: it never existed, or retention has deleted it."""

    code = "plan_not_found"


class ErrorGroupNotFound(OperatingError):
    """There is no such group of errors: it never existed, or is over for 30 days."""

    code = "error_group_not_found"


class BulkNotFound(OperatingError):
    """There is no such bulk action or preview, or it is over for 7 days."""

    code = "bulk_not_found"


class ScheduleNotFound(OperatingError):
    """There is no such schedule: it never existed, or was deleted."""

    code = "schedule_not_found"


class ScheduleConflict(OperatingError):
    """A schedule of this name exists already, or was changed meanwhile."""

    code = "schedule_conflict"


class JobDead(OperatingError):
    """The awaited job is dead; `reason` and `error` say why."""

    code = "job_dead"

    def __init__(
        self, what: str, *, reason: str, error: Any = None, job_id: str
    ) -> None:
        super().__init__(
            what,
            cure=f"See `durio jobs show {job_id}`; to run it again: "
            f"`durio jobs retry {job_id}`.",
        )
        self.reason = reason
        self.error = error
        self.job_id = job_id
        self.plan: str | None = None  # of a plan: its id, and that of the failed job
        self.node: str | None = None


class JobCancelled(OperatingError):
    """The awaited job was cancelled."""

    code = "job_cancelled"


class JobExpired(OperatingError):
    """The job expired before a worker could start it: see `expires=`."""

    code = "job_expired"


class ResultExpired(OperatingError):
    """The job is done, but its result is older than its time to live."""

    code = "result_expired"


class SpawnFull(OperatingError):
    """The limit of spawned calls on one event loop is reached."""

    code = "spawn_full"


class TooManySearches(OperatingError):
    """Other searches for jobs are running in this process."""

    code = "too_many_searches"


class WorkersTooOld(OperatingError):
    """Workers of an older version run, which would ignore plans or limits."""

    code = "workers_too_old"


class QueueFull(OperatingError):
    """The queue had no room for as long as the enqueue waited.

    `stored` jobs of the call were stored before; the others were not, and may be sent
    again.
    """

    code = "queue_full"

    def __init__(
        self,
        what: str,
        *,
        cure: str = "",
        queue: str,
        depth: int,
        limit: int,
        retry_after: float,
        stored: int = 0,
    ) -> None:
        super().__init__(what, cure=cure)
        self.queue = queue
        self.depth = depth
        self.limit = limit
        self.retry_after = retry_after
        self.stored = stored


class QueueClosed(OperatingError):
    """An operator closed the queue: it accepts no new jobs."""

    code = "queue_closed"

    def __init__(
        self, what: str, *, cure: str = "", queue: str, stored: int = 0
    ) -> None:
        super().__init__(what, cure=cure)
        self.queue = queue
        self.stored = stored


# The cure while a process keeps trying; a process that has ended shows another.
PASSES_BY_ITSELF = "Nothing to do: Durio continues when the server is back."


class StoreError(OperatingError):
    """The store could not complete the call; `unknown` means the write may have happened."""

    code = "store_error"

    def __init__(
        self, what: str, *, cure: str = "", unknown: bool = False, **values: Any
    ) -> None:
        super().__init__(what, cure=cure, **values)
        self.unknown = unknown


class StoreUnavailable(StoreError):
    """The store cannot be reached or opened."""

    code = "store_unavailable"


class StoreReplaced(StoreError):
    """The file was deleted or replaced while it was in use."""

    code = "store_replaced"


class StoreFull(StoreError):
    """No space left: nothing was written."""

    code = "store_full"


class StoreReadOnly(StoreError):
    """The store can be read but not written."""

    code = "store_read_only"


class StoreCorrupt(StoreError):
    """The store's file is damaged or is not a database."""

    code = "store_corrupt"


class StoreStalled(StoreError):
    """Another process holds the writer's lock and makes no progress."""

    code = "store_stalled"


class SchemaMismatch(StoreError):
    """The store's schema is newer or older than this code."""

    code = "schema_mismatch"


class StoreMoved(StoreError):
    """The store's jobs are moving, or have moved, to another store: nothing was written."""

    code = "store_moved"


class LeaseLost(OperatingError):
    """This worker no longer owns the job: it may not write anything more about it."""

    code = "lease_lost"


class LockTimeout(OperatingError):
    """Another holder kept the lock for as long as the call waited."""

    code = "lock_timeout"


class LockLost(OperatingError):
    """The lock was lost while its block ran: another holder may have taken it."""

    code = "lock_lost"


class HardTimeLimit(OperatingError):
    """The attempt ran past its hard time limit and was abandoned."""

    code = "hard_time_limit"


class ChildFailed(OperatingError):
    """A child process for tasks with `process=True` did not become ready, or soon died."""

    code = "child_failed"

    def __init__(self, what: str, *, cure: str = "", traceback_text: str = "") -> None:
        super().__init__(what, cure=cure)
        self.traceback_text = traceback_text


# --- raised by tasks to choose how the attempt ends; values from worker/attempt on


class Control(Exception):
    """Raised by a task to choose how its attempt ends."""

    __module__ = "durio.errors"

    def __init_subclass__(cls) -> None:
        """Show the public path."""
        if cls.__module__.startswith("durio.model"):
            cls.__module__ = "durio.errors"


class RetryAfter(Control):
    """Raise `Retry.after("30s", cause=exc)` to retry after a delay; it counts as a retry."""

    def __init__(self, delay_seconds: float, cause: BaseException | None) -> None:
        super().__init__(f"retry after {delay_seconds:g} s")
        self.delay_seconds = delay_seconds
        self.__cause__ = cause


class Permanent(Control):
    """Raise it to make the job dead at once, without retries."""


class DeadLetter(Control):
    """Raise it to make the job a dead letter, with this text as its error."""


class Cancel(Control):
    """Raise it to end the job as cancelled."""
