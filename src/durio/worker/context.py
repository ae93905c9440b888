"""The optional parameter `ctx`, through which a task reads and controls its own attempt."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from durio.model.codec import encode
from durio.model.errors import UsageError
from durio.model.ids import id_text
from durio.model.job import Progress
from durio.telemetry.log import Logger, in_job, task_logger
from durio.worker.transaction import TaskTransaction

T = TypeVar("T")

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    # `Context` alone is Context[object]; every Context[Deps] is one too.
    D_co = TypeVarWithDefault("D_co", covariant=True, default=object)
else:  # Python 3.11 has no such defaults, and they matter to type checkers only
    D_co = TypeVar("D_co", covariant=True)

PROGRESS_BYTES_MAX = 4096


class Reported:
    """What `progress` returns: an awaitable that is done already."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()


REPORTED = Reported()  # one for all calls


def check_progress(done: object, total: object) -> None:
    """Refuse what is no number; a total may be unknown."""
    for name, value in (("done", done), ("total", total)):
        if value is None and name == "total":
            continue
        if not isinstance(value, int) and (
            not isinstance(value, float) or not math.isfinite(value)
        ):
            raise UsageError(
                f"progress: {name} cannot be {value!r}",
                cure="Write ctx.progress(3, 10), or ctx.progress(3) without a total.",
            )


class Context(Generic[D_co]):
    """The attempt that a task runs in."""

    __module__ = "durio"
    __slots__ = (
        "_give_result",
        "_loop",
        "_raw_id",
        "_report",
        "_transact",
        "attempt",
        "cancelled",
        "deadline_at",
        "deps",
        "max_attempts",
        "meta",
        "queue",
        "task",
    )

    def __init__(  # noqa: PLR0913 - the facts of an attempt, made in one place
        self,
        *,
        job_id: bytes,
        task: str,
        queue: str,
        attempt: int,
        max_attempts: int,
        deadline_at: float | None,
        meta: Mapping[str, Any],
        deps: D_co,
        report: Callable[[bytes], None] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        transact: Callable[[], TaskTransaction] | None = None,
        give_result: Callable[[object], None] | None = None,
    ) -> None:
        self._raw_id = job_id
        self.task = task
        self.queue = queue
        self.attempt = attempt
        self.max_attempts = max_attempts
        self.deadline_at = deadline_at
        self.meta = meta
        self.deps = deps
        self.cancelled = False  # for code in threads to check
        self._report = report
        self._loop = loop
        self._transact = transact
        self._give_result = give_result

    @classmethod
    def current(cls) -> "Context[Any]":
        """Return the context of the attempt that this code runs in."""
        attempt = in_job.get()
        context = getattr(attempt, "context", None)
        if context is None:
            raise UsageError(
                "there is no job here",
                cure="Context.current() works in code that a task calls.",
            )
        return context()

    @property
    def job_id(self) -> str:
        """The id of the job."""
        return id_text(self._raw_id)

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for all attempts of this job, for services that use one."""
        return f"durio-{self._raw_id.hex()}"

    @property
    def deadline(self) -> datetime | None:
        """When the hard time limit ends this attempt."""
        at = self.deadline_at
        return None if at is None else datetime.fromtimestamp(at, UTC)

    @property
    def log(self) -> Logger:
        """A logger for the task; each record carries the job."""
        return task_logger(self.task)

    def progress(
        self,
        done: float,
        total: float | None = None,
        *,
        message: str | None = None,
        state: str | None = None,
    ) -> Awaitable[None]:
        """Report progress; the newest value is stored within 200 ms.

        It is reported by the call: an async task may await what this returns, a sync
        task calls it plainly. Inside `transaction()` it is stored when that ends.
        """
        check_progress(done, total)
        encoded = encode(Progress(done, total, message, state), "progress")
        if len(encoded) > PROGRESS_BYTES_MAX:
            raise UsageError(
                f"progress is {len(encoded)} bytes, over {PROGRESS_BYTES_MAX}",
                cure="Keep its message short.",
            )
        if self._report is None or self._loop is None:
            return REPORTED
        if self._is_here():
            # Now: an attempt that fails next must not overtake it.
            self._report(encoded)
        else:
            self._loop.call_soon_threadsafe(self._report, encoded)
        return REPORTED

    def transaction(self) -> TaskTransaction:
        """Return a connection of the store's own driver, in a transaction of this attempt.

        When the block ends, one commit stores what the task wrote, records the job as done
        with the result given to `result`, and adds the jobs enqueued with
        `options(tx=...)`: all of it, or nothing.
        """
        if self._transact is None:
            raise UsageError(
                "a plain call has no job, and so no transaction that could end it",
                cure="Enqueue the task and let a worker run it.",
            )
        return self._transact()

    def result(self, value: T) -> T:
        """Set the result of the job before `transaction()` commits; return `value`.

        Inside the block write `return ctx.result(value)`.
        """
        if self._give_result is not None:
            self._give_result(value)
        return value

    def _is_here(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:  # a thread without a loop
            return False


def local_context(task: str, job_id: bytes, deps: Any = None) -> Context[Any]:
    """Return the context of a plain call, which has no store and reports nothing."""
    return Context(
        job_id=job_id,
        task=task,
        queue="",
        attempt=1,
        max_attempts=1,
        deadline_at=None,
        meta={},
        deps=deps,
    )
