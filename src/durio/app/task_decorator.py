# mypy: disable-error-code="overload-overlap"
"""`@app.task` makes a function a task and keeps its types.

A type checker must answer two questions about a function: is its first parameter a
Context, which is no argument of a job? Does it return a coroutine? The overloads of
`TaskDecorator` ask in an order in which `Any` gives no wrong answer:

- A first parameter that takes any object, such as `object` or `Any`, is no Context.
- A return type of `Any` is no coroutine.

`Callable[Concatenate[Context[D], P], R]` would be shorter. But when an `Any` stands
anywhere in the function, mypy compares all overloads that fit, and gives up when they
differ. The protocols below describe the whole function (P) beside the function without
its first parameter (Q): to mypy these are the same type as the function's own.

mypy gives up where the first parameter, or the return type of a sync function, is exactly
`Any`: the task is `Any` then. `object` is exact in every checker.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import (
    Any,
    Never,
    ParamSpec,
    Protocol,
    Required,
    TypedDict,
    TypeVar,
    Unpack,
    final,
    overload,
)

from durio.app.batch_tasks import BatchDecorator
from durio.app.task_signatures import TaskSignatures
from durio.app.tasks import SyncTask, Task
from durio.model.batch import Batch
from durio.model.error_rules import ErrorKey, ErrorRule
from durio.model.expiry import ExpiresOption
from durio.model.limits import Limit, LimitKey
from durio.model.options import CallOptions, Retention
from durio.model.quantities import Duration
from durio.model.retry import Retry
from durio.model.timeout import Timeout
from durio.worker.context import Context

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@final
class OnlyAny:
    """Has no instances and no subclasses, so only `Any` is accepted as one."""


AnyR = TypeVar("AnyR", bound=OnlyAny)
AnyTask = TypeVar("AnyTask", bound=TaskSignatures[..., Any])


class AnyObjectFirst(Protocol[P, Q, R_co]):
    """A function whose first parameter takes any object; Q are the others."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, first: object, /, *args: Q.args, **kwargs: Q.kwargs) -> R_co: ...


class ContextFirst(Protocol[P, Q, R_co]):
    """A function whose first parameter is a Context, of any deps; Q are the others."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(
        self, ctx: Context[Never], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> R_co: ...


class TaskKeywords(TypedDict, total=False):
    """The options of a task; tests compare them with the table in model/options.py."""

    name: str
    aliases: tuple[str, ...]
    queue: str
    priority: int
    retry: Retry | int
    errors: Mapping[ErrorKey, ErrorRule]
    timeout: Timeout
    expires: ExpiresOption
    retention: Retention
    result_ttl: Duration
    limits: Sequence[Limit]
    fair_by: LimitKey
    breaker: str
    process: bool
    states: Sequence[str]


class BatchKeywords(TaskKeywords):
    """The options of a task whose function gets many items in one call."""

    batch: Required[Batch]


class TaskDecorator:
    """The decorator `@app.task`, with or without options."""

    __module__ = "durio"

    def __init__(
        self,
        declare: Callable[[Callable[..., Any], CallOptions], Any],
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._declare = declare
        self._options = options

    @overload
    def __call__(self, /, **options: Unpack[TaskKeywords]) -> "TaskDecorator": ...
    @overload
    def __call__(self, /, **options: Unpack[BatchKeywords]) -> BatchDecorator: ...
    # A task, which `@app.cron` schedules; `@app.task` refuses it.
    @overload
    def __call__(self, fn: AnyTask, /) -> AnyTask: ...
    # A sync function that returns Any.
    @overload
    def __call__(self, fn: AnyObjectFirst[P, Q, AnyR], /) -> SyncTask[P, AnyR]: ...
    @overload
    def __call__(self, fn: ContextFirst[P, Q, AnyR], /) -> SyncTask[Q, AnyR]: ...
    @overload
    def __call__(self, fn: Callable[P, AnyR], /) -> SyncTask[P, AnyR]: ...
    # An async function.
    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload]
        self, fn: AnyObjectFirst[P, Q, Coroutine[Any, Any, R]], /
    ) -> Task[P, R]: ...
    @overload
    def __call__(
        self, fn: ContextFirst[P, Q, Coroutine[Any, Any, R]], /
    ) -> Task[Q, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    # Any other sync function.
    @overload
    def __call__(self, fn: AnyObjectFirst[P, Q, R], /) -> SyncTask[P, R]: ...
    @overload
    def __call__(self, fn: ContextFirst[P, Q, R], /) -> SyncTask[Q, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncTask[P, R]: ...
    def __call__(self, fn: Any = None, /, **options: Any) -> Any:
        """Make a function a task, with the options in the table of options.

        An `async def` function becomes a Task, any other function a SyncTask. A first
        parameter that is annotated `Context` gets the attempt's Context; it is not an
        argument of the job. Raises DuplicateTask for a second task of the same name, and
        InvalidOption for a wrong option.

            @app.task(queue="mail", retry=3, timeout="30s")
            async def remind(ctx: Context, address: str) -> None:
                ctx.log.info("attempt %s for %s", ctx.attempt, address)
        """
        chosen = {**self._options, **options}
        checked = CallOptions.of_task(chosen)
        if fn is None:
            return TaskDecorator(self._declare, chosen)
        return self._declare(fn, checked)
