"""Tasks: a decorated function with `.enqueue(42)`.

Options come first, arguments last: `task.options(delay="5m").enqueue(42)`. So a task's
own parameters never collide with option names, and ParamSpec keeps all types.
"""

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from functools import update_wrapper
from typing import (
    TYPE_CHECKING,
    Any,
    ParamSpec,
    Protocol,
    TypeVar,
    TypeVarTuple,
    cast,
    overload,
)

from durio.app.state import AppState
from durio.app.task_signatures import TakesOne, TakesPositionals, TaskSignatures
from durio.client.enqueue import JobBuilder, defaults_of, refuse_key
from durio.client.handle import Job, JobClient, find_job
from durio.client.plan import Signature
from durio.client.routing import Routes
from durio.client.rows import explain_row, numbered, parse_row, row_options
from durio.client.task_by_name import TaskTarget
from durio.model.celery_names import line_for_method
from durio.model.errors import (
    DurioError,
    InvariantBroken,
    UnknownAttribute,
    UsageError,
)
from durio.model.expiry import ExpiresOption
from durio.model.job import NewJob
from durio.model.keys import KeyPolicy
from durio.model.option_table import takes_options
from durio.model.options import NO_OPTIONS, UNSET, CallOptions, Retention, UniqueName
from durio.model.plan import Source
from durio.model.quantities import Duration
from durio.model.retry import Retry
from durio.model.settings import Settings
from durio.model.timeout import Timeout
from durio.model.tx import Joinable
from durio.ports.clock import Clock
from durio.ports.enqueue import Enqueued
from durio.ports.handler import Handler
from durio.worker.context import Context, local_context

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
A = TypeVar("A")
Ts = TypeVarTuple("Ts")


class TaskClient(JobClient, Protocol):
    """The part of an App that its tasks use."""

    @property
    def settings(self) -> Settings: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def routes(self) -> Routes | None: ...

    @property
    def state(self) -> AppState: ...

    async def send(
        self, jobs: list[NewJob], tx: Joinable | None = UNSET
    ) -> list[Enqueued]:
        """Store jobs through the batching of this loop, or in the caller's `tx`."""
        ...

    def run_with(self, tx: Joinable | None, coro: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine for a caller without a loop; with a `tx`, in this thread."""
        ...

    async def find_task(self, task: str) -> Handler | TaskTarget:
        """Return a task's code or published description, by its full name."""
        ...

    async def job(self, job_id: str) -> Job[Any]:
        """Return a handle to an existing job."""
        ...


class TaskCalls(TaskSignatures[P, R]):
    """The calls of a task: enqueue jobs, look jobs up, make signatures."""

    __module__ = "durio"

    def __init__(
        self,
        client: TaskClient,
        handler: Handler | TaskTarget,
        options: CallOptions = NO_OPTIONS,
        *,
        alias: str | None = None,
    ) -> None:
        self._client = client
        self._handler = handler
        self._options = options
        self._alias = alias
        codec = handler.codec if isinstance(handler, Handler) else None
        self._source = Source(client, codec)

    @property
    def name(self) -> str:
        """The full name of the task: `<app>.<function>`."""
        return self._handler.task

    if not TYPE_CHECKING:  # a checker must still see that there is no such attribute

        def __getattr__(self, name: str) -> Any:
            # The handler is missing while a task is copied or unpickled.
            handler = self.__dict__.get("_handler")
            line = handler and line_for_method(name, handler.task)
            if not line:
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {name!r}",
                    name=name,
                    obj=self,
                )
            raise UnknownAttribute(f"a task has no {name}()", cure=line)

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Store a job and return its handle; the job then survives a power failure.

        Raises InvalidArguments, NotSerializable or PayloadTooLarge for wrong arguments,
        QueueFull if the queue had no room for `full_wait`, QueueClosed if an operator
        closed it, KeyConflict for a key in use with other arguments, and StoreError.

            job = send.enqueue_sync("ann@example.com")
            print(job.id)
        """
        job = self._new_job(self._job_builder(), args, kwargs)
        limits = self._client.state.manual_limits
        if limits.is_due and await limits.refresh(await self._client.store()):
            job = self._new_job(self._job_builder(), args, kwargs)
        answers = await self._client.send([job], self._options.tx)
        return self._handles([job], answers)[0]

    def enqueue_sync(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Enqueue without an event loop, as `enqueue` does."""
        return self._client.run_with(self._options.tx, self.enqueue(*args, **kwargs))

    @overload
    async def enqueue_many(
        self, rows: Iterable[Signature[P, R]], /
    ) -> list[Job[R]]: ...
    @overload
    async def enqueue_many(
        self: TakesOne[A, T], rows: Iterable[tuple[A]], /
    ) -> list[Job[T]]: ...
    @overload
    async def enqueue_many(
        self: TakesPositionals[*Ts, T], rows: Iterable[tuple[*Ts]], /
    ) -> list[Job[T]]: ...
    @overload
    async def enqueue_many(
        self, rows: Iterable[Mapping[str, object]], /
    ) -> list[Job[R]]: ...
    async def enqueue_many(self, rows: Iterable[Any], /) -> list[Job[Any]]:
        """Store one job per row and return the handles, in the order of the rows.

        A row is a signature `task.s(...)`, a tuple of positional arguments, or a mapping
        of keyword arguments. All rows are checked before the first is stored. Each 1,000
        rows are one transaction.

            send.enqueue_many_sync([("ann@example.com",), ("bob@example.com",)])
        """
        refuse_key(self._options)
        limits = self._client.state.manual_limits
        if is_due := limits.is_due:  # they may be needed twice
            rows = [row for _, row in numbered(rows)]
        jobs = self._jobs_of_rows(rows)
        if is_due and await limits.refresh(await self._client.store()):
            jobs = self._jobs_of_rows(rows)
        return self._handles(jobs, await self._client.send(jobs, self._options.tx))

    @overload
    def enqueue_many_sync(self, rows: Iterable[Signature[P, R]], /) -> list[Job[R]]: ...
    @overload
    def enqueue_many_sync(
        self: TakesOne[A, T], rows: Iterable[tuple[A]], /
    ) -> list[Job[T]]: ...
    @overload
    def enqueue_many_sync(
        self: TakesPositionals[*Ts, T], rows: Iterable[tuple[*Ts]], /
    ) -> list[Job[T]]: ...
    @overload
    def enqueue_many_sync(
        self, rows: Iterable[Mapping[str, object]], /
    ) -> list[Job[R]]: ...
    def enqueue_many_sync(self, rows: Iterable[Any], /) -> list[Job[Any]]:
        """Enqueue rows without an event loop, as `enqueue_many` does."""
        return self._client.run_with(self._options.tx, self.enqueue_many(rows))

    async def job(self, job_id: str) -> Job[R]:
        """Return a typed handle to a stored job of this task.

        Raises JobNotFound if there is no such job, UsageError if it is of another task.
        """
        return await find_job(self._client, job_id, self.name)

    def job_sync(self, job_id: str) -> Job[R]:
        """Look up a job of this task without an event loop, as `job` does."""
        return self._client.run_sync(self.job(job_id))

    def _job_builder(
        self,
        options: CallOptions | None = None,
        target: Handler | TaskTarget | None = None,
    ) -> JobBuilder:
        client, target = self._client, target or self._handler
        return JobBuilder(
            defaults_of(target),
            options or self._options,
            namespace=target.task.partition(".")[0],
            clock=client.clock,
            bounds=client.settings.payload,
            limits=client.state.manual_limits,
        )

    def _jobs_of_rows(self, rows: Iterable[Any]) -> list[NewJob]:
        jobs: list[NewJob] = []
        plain = builder = self._job_builder()
        options, name = NO_OPTIONS, self.name
        for number, given in numbered(rows):
            try:
                row = parse_row(given, name, self._alias)
                if row.options is not options:  # most rows have those of the row before
                    options = row.options
                    merged = row_options(self._options, options)
                    builder = (
                        plain if merged is self._options else self._job_builder(merged)
                    )
                jobs.append(self._new_job(builder, row.args, row.kwargs))
            except DurioError as error:
                explain_row(error, number, given)
                raise
        return jobs

    def _new_job(self, builder: JobBuilder, args: Any, kwargs: Any) -> NewJob:
        codec = self._handler.codec
        payload = codec.encode(args, kwargs)
        routes = self._client.routes
        if routes is not None:
            options = builder.options
            target = routes.target(self._handler, options, args, kwargs)
            if target is not self._handler:
                builder = self._job_builder(options, target)
        gates = builder.gates(self._handler, args, kwargs) if builder.has_gates else ()
        if not builder.has_key:
            return builder.job(payload, gates=gates)
        return builder.job(payload, codec.canonical(args, kwargs, payload), gates=gates)

    def _handles(self, jobs: list[NewJob], answers: list[Enqueued]) -> list[Job[R]]:
        if len(answers) != len(jobs):
            raise InvariantBroken(
                "broken invariant: a store answers for every job",
                cure="This is a bug in Durio: report it.",
            )
        return [handle_of(self._client, answer) for answer in answers]


def handle_of(client: TaskClient, answer: Enqueued) -> Job[Any]:
    return Job(
        client,
        answer.id,
        created=answer.created,
        same_args=answer.same_args,
        replaced=answer.replaced,
    )


class TaskWithOptions(TaskCalls[P, R]):
    """A task with options: it has the calls of a Task, but is no function itself."""

    __module__ = "durio"

    @takes_options
    def options(  # noqa: PLR0913 - the options of a call, all keywords
        self,
        *,
        queue: str = UNSET,
        delay: Duration = UNSET,
        at: datetime = UNSET,
        expires: ExpiresOption = UNSET,
        key: str | None = UNSET,
        unique: KeyPolicy | UniqueName = UNSET,
        priority: int = UNSET,
        retry: Retry | int = UNSET,
        timeout: Timeout = UNSET,
        meta: Mapping[str, object] | None = UNSET,
        retention: Retention = UNSET,
        result_ttl: Duration = UNSET,
        tx: Joinable | None = UNSET,
    ) -> "TaskWithOptions[P, R]":
        """Return the task with these options for its calls; the original is unchanged.

        The table of options says what each means. A second `options()` overrides the
        first; `meta` is merged by key. Raises InvalidOption for a wrong option.

            later = send.options(delay="5m", key="welcome-7")
            later.enqueue_sync("ann@example.com")
        """
        raise NotImplementedError

    def _with_changes(self, given: Mapping[str, Any]) -> "TaskWithOptions[P, R]":
        changes = {name: value for name, value in given.items() if value is not UNSET}
        changed = self._options.with_changes(changes)
        return TaskWithOptions(self._client, self._handler, changed)


class DeclaredTask(TaskWithOptions[P, R]):
    """A function that `@app.task` has made a task; it still looks like the function."""

    __module__ = "durio"
    __name__: str
    __wrapped__: Callable[..., Any]
    __signature__: inspect.Signature

    def __init__(self, client: TaskClient, handler: Handler) -> None:
        super().__init__(client, handler)
        self._declared = handler
        update_wrapper(cast("Any", self), handler.function, updated=())
        self.__signature__ = inspect.signature(handler.function)


class Task(DeclaredTask[P, R]):
    """An async function as a task; it keeps the function's name and types."""

    __module__ = "durio"

    @overload
    async def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def __call__(
        self, ctx: Context[Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    # `async def`, so that libraries which look for coroutine functions await it.
    async def __call__(self, /, *args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]
        """Call the function directly: no job is stored, and there are no retries.

        A Context may be given first; without one the function gets a Context of attempt 1.
        """
        return await call_here(self._client, self._declared, args, kwargs)


class SyncTask(DeclaredTask[P, R]):
    """A sync function as a task, with the calls of a Task; it runs in a thread."""

    __module__ = "durio"

    @overload
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __call__(
        self, ctx: Context[Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]
        """Call the function directly: no job is stored, and there are no retries."""
        return call_here(self._client, self._declared, args, kwargs)


def call_here(client: TaskClient, handler: Handler, args: Any, kwargs: Any) -> Any:
    """Call the function, with the Context given as first argument or a local one."""
    has_context = bool(args) and isinstance(args[0], Context)
    if handler.takes_context:
        if not has_context:
            args = (local_context(handler.task, client.clock.new_id()), *args)
    elif has_context:
        args = args[1:]
    return handler.function(*args, **kwargs)


def function_name(function: Callable[..., Any]) -> str:
    """Return the function's name; refuse one that may change after a restart."""
    name = getattr(function, "__name__", "")
    qualified = getattr(function, "__qualname__", name)
    if not name or "<lambda>" in name or "<locals>" in qualified:
        raise UsageError(
            f"{qualified or function!r} has no name that survives a restart",
            cure="Give it a name: @app.task(name='...').",
        )
    return name


def function_location(function: Callable[..., Any]) -> str:
    """Return `file:line`, for errors about two functions."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)
