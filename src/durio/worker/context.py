"""The optional parameter `ctx`, through which a task reads and controls its own attempt."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from durio.model.codec import encode
from durio.model.errors import UsageError
from durio.model.ids import id_text
from durio.model.job_states import StateChanges
from durio.model.plan import Complete
from durio.model.tick import Tick
from durio.telemetry.log import Logger, in_job, task_logger
from durio.worker.attempt_plan import AttemptPlan
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
    """The result of `progress`: an awaitable that is done already."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()


REPORTED = Reported()  # one for all calls


def check_progress(done: object, total: object) -> None:
    """Refuse values that are not finite numbers; a total may be None."""
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
    """The running attempt of a job: the optional first parameter of a task.

    Annotate it as `ctx: Context`, or as `ctx: Context[Deps]` with the type of `ctx.deps`.

        @app.task
        async def copy(ctx: Context, pages: int) -> None:
            for page in range(pages):
                ctx.log.info("page %s", page)
                await ctx.progress(page + 1, pages)
    """

    __module__ = "durio"
    __slots__ = (
        "_give_result",
        "_loop",
        "_make_plan",
        "_raw_id",
        "_report",
        "_spend",
        "_states",
        "_transact",
        "attempt",
        "cancelled",
        "deadline_at",
        "deps",
        "max_attempts",
        "meta",
        "queue",
        "task",
        "tick",
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
        make_plan: Callable[[], AttemptPlan] | None = None,
        spend: Callable[[object, str | None], None] | None = None,
        tick: Tick | None = None,
        states: StateChanges | None = None,
    ) -> None:
        self._raw_id = job_id
        self.task = task  # full name of the task
        self.queue = queue  # name of the queue, without the App's
        self.attempt = attempt  # number of this attempt, from 1
        self.max_attempts = max_attempts  # the first attempt and all retries
        self.deadline_at = deadline_at  # `deadline` as seconds since 1970, or None
        self.meta = meta  # the `meta` that the job was enqueued with
        self.tick = tick  # the tick of a schedule that made the job; None: none did
        self.deps = deps  # the value of the App's `deps=`; None without it
        self.cancelled = False  # True once the attempt must stop; for code in threads
        self._report = report
        self._loop = loop
        self._transact = transact
        self._give_result = give_result
        self._make_plan = make_plan
        self._spend = spend
        self._states = states

    @classmethod
    def current(cls) -> "Context[Any]":
        """Return the Context of the attempt that runs this code.

        It is for functions that a task calls. Outside a task it raises UsageError.
        """
        attempt = in_job.get()
        context = getattr(attempt, "context", None)
        if context is None:
            raise UsageError(
                "there is no job here",
                cure="Context.current() works in code that a task calls.",
            )
        return context()

    @property
    def jobs(self) -> "tuple[Context[D_co], ...]":
        """The Context of each job of a batch, in the order of the items.

        In a task without `batch=` it holds this Context alone.
        """
        return (self,)

    @property
    def job_id(self) -> str:
        """The id of the job."""
        return id_text(self._raw_id)

    @property
    def idempotency_key(self) -> str:
        """A key for other services, the same in every attempt of this job."""
        return f"durio-{self._raw_id.hex()}"

    @property
    def deadline(self) -> datetime | None:
        """When the hard time limit ends this attempt; None without a limit."""
        at = self.deadline_at
        return None if at is None else datetime.fromtimestamp(at, UTC)

    @property
    def log(self) -> Logger:
        """The logger `durio.task.<name>`; its records name the job."""
        return task_logger(self.task)

    def progress(
        self,
        done: float,  # units of work that are done
        total: float | None = None,  # units of work in all; None: unknown
        *,
        message: str | None = None,  # text for people
        state: str
        | None = None,  # a name of the phase; `states=` of the task declares them
    ) -> Awaitable[None]:
        """Report progress, for `status.progress`; it is stored within 200 ms.

        The call itself reports: an async task may `await` it, a sync task just calls it.
        Only the newest value is kept, at most 4,096 bytes, with the times at which `state`
        changed. Inside `transaction()` it is stored when the block ends.
        """
        check_progress(done, total)
        fields: dict[str, object] = {"done": done, "total": total}
        fields |= {"message": message, "state": state}
        if self._states is not None and (changes := self._states.enter(state)):
            fields["changes"] = changes
        encoded = encode(fields, "progress")
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
        """Return a block that has a connection to the store's database, in a transaction.

        When the block ends, one commit stores the rows that the task wrote, records the job
        as done with the value given to `result`, and adds jobs enqueued with
        `options(tx=...)`. If the block raises, nothing is stored and the attempt has
        failed. Raises UsageError in a task with `process=True`, and on a store in memory.
        """
        if self._transact is None:
            raise UsageError(
                "a plain call has no job, and so no transaction that could end it",
                cure="Enqueue the task and let a worker run it.",
            )
        return self._transact()

    def result(self, value: T) -> T:
        """Set the result of the job, to be committed by `transaction()`; return `value`.

        Inside the block write `return ctx.result(value)`.
        """
        if self._give_result is not None:
            self._give_result(value)
        return value

    def replace(self, plan: Complete[T], /) -> T:
        """Put a plan in the place of this job; return its value from the task.

        The job is then done, and its result is the value of the plan: `job.result()`, and
        what follows the job in its own plan, wait for it. The plan is stored with the end
        of the job, or not at all: `return ctx.replace(group(members) | collage.s())`.
        Raises InvalidPlan or InvalidArguments.
        """
        return self._attempt_plan().replace(plan)

    def add(self, *members: Complete[object]) -> None:
        """Add members to the group that this job is a member of.

        They are stored with the end of the job, if it succeeds. Their values come after
        those of the other members. They get only their own arguments:
        `ctx.add(fetch.s(link))`. Raises InvalidPlan or InvalidArguments.
        """
        self._attempt_plan().add(members)

    def spend(
        self,
        amount: float,  # spent now, beside what earlier calls have reported
        budget: str | None = None,  # name of the budget, if the task has several
    ) -> None:
        """Report what this attempt has spent of its `Budget`; the end settles the difference.

        Without a call the estimate of the job stays spent. Nothing is counted for a job that
        has no budget because its key is missing, or because it was enqueued before the task
        had one. Raises UsageError if the task declares no such budget.

            from durio.limits import Budget


            @app.task(limits=[Budget("tokens", 1_000_000, per="1d", estimate=2_000)])
            async def ask(ctx: Context, question: str) -> str:
                answer = await model.answer(question)
                ctx.spend(answer.tokens)
                return answer.text
        """
        if self._spend is not None:
            self._spend(amount, budget)

    def _attempt_plan(self) -> AttemptPlan:
        if self._make_plan is None:
            raise UsageError(
                "a plain call has no job, and so no plan that it could change",
                cure="Enqueue the task and let a worker run it.",
            )
        return self._make_plan()

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
