"""Tasks: a decorated function with `.enqueue(42)`.

Options come first, arguments last: `task.options(delay="5m").enqueue(42)`. So a task's
own parameters never collide with option names, and ParamSpec keeps all types.
"""

import inspect
import typing
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from functools import wraps
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

from durio.client.enqueue import JobBuilder, TaskDefaults, refuse_key
from durio.client.handle import Job, JobClient, find_job
from durio.model.errors import InvalidArguments, InvariantBroken, UsageError
from durio.model.job import NewJob
from durio.model.keys import KeyPolicy
from durio.model.options import NO_OPTIONS, UNSET, CallOptions, Retention
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
D = TypeVar("D")
Q = ParamSpec("Q")
T = TypeVar("T")


class TaskClient(JobClient, Protocol):
    """The part of an App that its tasks use."""

    @property
    def settings(self) -> Settings: ...

    @property
    def clock(self) -> Clock: ...

    async def send(
        self, jobs: list[NewJob], tx: Joinable | None = UNSET
    ) -> list[Enqueued]:
        """Store jobs through the batching of this loop, or in the caller's `tx`."""
        ...

    def run_with(self, tx: Joinable | None, coro: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine for a caller without a loop; with a `tx`, in this thread."""
        ...


class TaskCalls(Generic[P, R]):
    """The calls of a task, with or without options."""

    __module__ = "durio"

    def __init__(
        self, client: TaskClient, handler: Handler, options: CallOptions = NO_OPTIONS
    ) -> None:
        self._client = client
        self._handler = handler
        self._options = options

    @property
    def name(self) -> str:
        """The task's name in jobs: `<app>.<function>`."""
        return self._handler.task

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Store a job; return after a write that survives a power failure."""
        job = self._new_job(self._job_builder(), args, kwargs)
        answers = await self._client.send([job], self._options.tx)
        return self._handles([job], answers)[0]

    def enqueue_sync(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Enqueue without an event loop, as `enqueue` does."""
        return self._client.run_with(self._options.tx, self.enqueue(*args, **kwargs))

    async def enqueue_many(self, rows: Iterable[tuple[object, ...]]) -> list[Job[R]]:
        """Store one job per row: a tuple of positionals; a trailing dict is keywords.

        Up to 1,000 rows are one transaction, more rows are chunks of 1,000. All rows are
        checked before the first is written.
        """
        refuse_key(self._options)
        if not isinstance(rows, Iterable):
            raise InvalidArguments(
                f"enqueue_many takes rows, not a {type(rows).__name__}",
                cure="Give an iterable of tuples: [(1,), (2, {'to': 'b'})].",
            )
        builder = self._job_builder()
        jobs = [self._new_job(builder, *split_row(row)) for row in rows]
        return self._handles(jobs, await self._client.send(jobs, self._options.tx))

    def enqueue_many_sync(self, rows: Iterable[tuple[object, ...]]) -> list[Job[R]]:
        """Enqueue rows without an event loop, as `enqueue_many` does."""
        return self._client.run_with(self._options.tx, self.enqueue_many(rows))

    async def job(self, job_id: str) -> Job[R]:
        """Return a handle to an existing job of this task; raise JobNotFound if there is none."""
        return await find_job(self._client, job_id, self.name)

    def job_sync(self, job_id: str) -> Job[R]:
        """`job` for callers without an event loop."""
        return self._client.run_sync(self.job(job_id))

    def _job_builder(self) -> JobBuilder:
        handler, client = self._handler, self._client
        return JobBuilder(
            TaskDefaults(handler.task, handler.queue, handler.priority),
            self._options,
            namespace=handler.task.partition(".")[0],
            clock=client.clock,
            bounds=client.settings.payload,
        )

    def _new_job(self, builder: JobBuilder, args: Any, kwargs: Any) -> NewJob:
        codec = self._handler.codec
        payload = codec.encode(args, kwargs)
        if not builder.has_key:
            return builder.job(payload)
        return builder.job(payload, codec.canonical(args, kwargs, payload))

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


def takes_options(signature: Callable[Q, T]) -> Callable[Q, T]:
    """Replace the body of `options`, which exists for its typed signature.

    The keywords are passed to `CallOptions.with_changes` unchanged, so a misspelt one gets
    our error with a suggestion, not Python's TypeError.
    """

    @wraps(signature)
    def options(self: Any, **given: Any) -> Any:
        return self._with_changes(given)

    return cast("Callable[Q, T]", options)


class TaskWithOptions(TaskCalls[P, R]):
    """A task whose calls may be given options."""

    __module__ = "durio"

    @takes_options
    def options(  # noqa: PLR0913 - the options of a call, all keywords
        self,
        *,
        queue: str = UNSET,
        delay: Duration = UNSET,
        at: datetime = UNSET,
        key: str | None = UNSET,
        unique: KeyPolicy = UNSET,
        priority: int = UNSET,
        retry: Retry | int = UNSET,
        timeout: Timeout = UNSET,
        meta: Mapping[str, object] | None = UNSET,
        retention: Retention = UNSET,
        result_ttl: Duration = UNSET,
        tx: Joinable | None = UNSET,
    ) -> "TaskWithOptions[P, R]":
        """Return the same task with these options for its calls; the original is unchanged."""
        raise NotImplementedError

    def _with_changes(self, given: Mapping[str, Any]) -> "TaskWithOptions[P, R]":
        changes = {name: value for name, value in given.items() if value is not UNSET}
        changed = self._options.with_changes(changes)
        return TaskWithOptions(self._client, self._handler, changed)


class Task(TaskWithOptions[P, R]):
    """An async task; calling it runs it here, without a store."""

    __module__ = "durio"

    @overload
    def __call__(
        self, /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def __call__(
        self, ctx: Context[Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]
        """Run the function in this process, without a store."""
        return call_here(self._client, self._handler, args, kwargs)


class SyncTask(TaskWithOptions[P, R]):
    """A sync task: workers run it in a thread; calling it runs it here."""

    __module__ = "durio"

    @overload
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __call__(
        self, ctx: Context[Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]
        """Run the function in this process, without a store."""
        return call_here(self._client, self._handler, args, kwargs)


def call_here(client: TaskClient, handler: Handler, args: Any, kwargs: Any) -> Any:
    """Call the function, with the Context given as first argument or a local one."""
    has_context = bool(args) and isinstance(args[0], Context)
    if handler.takes_context:
        if not has_context:
            args = (local_context(handler.task, client.clock.new_id()), *args)
    elif has_context:
        args = args[1:]
    return handler.function(*args, **kwargs)


# --- the decorator

WithContext = Callable[Concatenate[Context[D], P], R]


class TaskDecorator(Protocol):
    """The decorator that `@app.task(...)` with options returns.

    It keeps the function's types.
    """

    # The sync overloads overlap the async ones (a coroutine is a value too); their
    # order decides.
    @overload
    def __call__(  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
        self, fn: WithContext[D, P, Coroutine[Any, Any, R]], /
    ) -> Task[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: WithContext[D, P, R], /) -> SyncTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncTask[P, R]: ...


def takes_context(function: Callable[..., Any]) -> bool:
    """Whether the first parameter is annotated Context or Context[Deps]."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        return False
    hint = parameters[0].annotation
    if isinstance(hint, str):
        try:
            hint = typing.get_type_hints(function).get(parameters[0].name)
        except (NameError, AttributeError, SyntaxError, TypeError):
            # The codec reports wrong annotations; here only the first parameter matters.
            return hint.split("[")[0].rpartition(".")[2] == "Context"
    return (typing.get_origin(hint) or hint) is Context


def function_name(function: Callable[..., Any]) -> str:
    """Return the function's name; refuse one that may change after a restart."""
    name = getattr(function, "__name__", "")
    qualified = getattr(function, "__qualname__", name)
    if not name or "<lambda>" in name or "<locals>" in qualified:
        raise UsageError(
            f"{qualified or function!r} has no name that survives a restart",
            cure="Give it one: @app.task(name='...').",
        )
    return name


def function_location(function: Callable[..., Any]) -> str:
    """Return `file:line`, for errors about two functions."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


NO_KEYWORDS: dict[str, Any] = {}


def split_row(row: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Split a row of enqueue_many into positionals and the keywords of a trailing dict."""
    if type(row) is tuple:
        positionals = cast("tuple[Any, ...]", row)
        if not (positionals and isinstance(positionals[-1], dict)):
            return positionals, NO_KEYWORDS
    if not isinstance(row, tuple | list):
        raise InvalidArguments(
            f"a row of enqueue_many must be a tuple, not {type(row).__name__}",
            cure="Write (42, {'to': 'a@b.c'}); one positional is (42,).",
        )
    values: list[Any] = list(cast("Iterable[Any]", row))
    if values and isinstance(values[-1], dict):
        keywords: dict[str, Any] = values.pop()
        return tuple(values), keywords
    return tuple(values), {}
