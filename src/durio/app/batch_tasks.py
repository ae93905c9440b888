# mypy: disable-error-code="overload-overlap,overload-cannot-match"
"""Tasks with `batch=`: one item to enqueue, a list of items to call.

A is the type of an item, R that of the result of a job, V what the function returns. The
protocols below describe one function twice, to find both R and V: `list[int | Err]` is V,
and R is `int`. `OnlyEnds` is a protocol of its own because mypy finds no R in `list[Ok[int]
| Err]` where a plain R would fit, too.
"""

from collections.abc import Coroutine, Sequence
from typing import Any, Generic, Never, Protocol, TypeVar, overload

from durio.app.tasks import DeclaredTask, call_here
from durio.model.batch import BatchErr, BatchOk
from durio.worker.context import Context

A = TypeVar("A")
R = TypeVar("R")
V = TypeVar("V")
A_contra = TypeVar("A_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)


class BatchTask(DeclaredTask[[A], R], Generic[A, R, V]):
    """An async function that is called with a list of items, as a task for one item."""

    __module__ = "durio"

    @overload
    async def __call__(self, items: list[A], /) -> V: ...
    @overload
    async def __call__(self, ctx: Context[Any], items: list[A], /) -> V: ...
    async def __call__(self, /, *args: Any) -> Any:
        """Call the function directly with a list of items: no job is stored."""
        return await call_here(self._client, self._declared, args, {})


class SyncBatchTask(DeclaredTask[[A], R], Generic[A, R, V]):
    """A sync function that is called with a list of items, as a task for one item."""

    __module__ = "durio"

    @overload
    def __call__(self, items: list[A], /) -> V: ...
    @overload
    def __call__(self, ctx: Context[Any], items: list[A], /) -> V: ...
    def __call__(self, /, *args: Any) -> Any:
        """Call the function directly with a list of items: no job is stored."""
        return call_here(self._client, self._declared, args, {})


Ends = Sequence[BatchOk[R_co] | BatchErr | BaseException]
AnyEnds = Sequence[R_co | BatchOk[R_co] | BatchErr | BaseException]
Later = Coroutine[Any, Any, V_co]


class OnlyEnds(Protocol[A_contra, R_co, V_co]):
    """An async function that returns an Ok, an Err or an error for each item."""

    @overload
    def __call__(self, items: list[Any], /) -> Later[V_co]: ...
    @overload
    def __call__(self, items: A_contra, /) -> Later[Ends[R_co]]: ...


class Values(Protocol[A_contra, R_co, V_co]):
    """An async function that may return plain values, too."""

    @overload
    def __call__(self, items: list[Any], /) -> Later[V_co]: ...
    @overload
    def __call__(self, items: A_contra, /) -> Later[AnyEnds[R_co]]: ...


class OnlyEndsWithContext(Protocol[A_contra, R_co, V_co]):
    @overload
    def __call__(self, ctx: Context[Never], items: list[Any], /) -> Later[V_co]: ...
    @overload
    def __call__(
        self, ctx: Context[Never], items: A_contra, /
    ) -> Later[Ends[R_co]]: ...


class ValuesWithContext(Protocol[A_contra, R_co, V_co]):
    @overload
    def __call__(self, ctx: Context[Never], items: list[Any], /) -> Later[V_co]: ...
    @overload
    def __call__(
        self, ctx: Context[Never], items: A_contra, /
    ) -> Later[AnyEnds[R_co]]: ...


class OnlyEndsNow(Protocol[A_contra, R_co, V_co]):
    """A sync function that returns an Ok, an Err or an error for each item."""

    @overload
    def __call__(self, items: list[Any], /) -> V_co: ...
    @overload
    def __call__(self, items: A_contra, /) -> Ends[R_co]: ...


class ValuesNow(Protocol[A_contra, R_co, V_co]):
    """A sync function that may return plain values, too."""

    @overload
    def __call__(self, items: list[Any], /) -> V_co: ...
    @overload
    def __call__(self, items: A_contra, /) -> AnyEnds[R_co]: ...


class OnlyEndsNowWithContext(Protocol[A_contra, R_co, V_co]):
    @overload
    def __call__(self, ctx: Context[Never], items: list[Any], /) -> V_co: ...
    @overload
    def __call__(self, ctx: Context[Never], items: A_contra, /) -> Ends[R_co]: ...


class ValuesNowWithContext(Protocol[A_contra, R_co, V_co]):
    @overload
    def __call__(self, ctx: Context[Never], items: list[Any], /) -> V_co: ...
    @overload
    def __call__(self, ctx: Context[Never], items: A_contra, /) -> AnyEnds[R_co]: ...


class BatchDecorator(Protocol):
    """`@app.task(batch=Batch(64))`."""

    @overload
    def __call__(self, fn: Values[list[A], R, V], /) -> BatchTask[A, R, V]: ...
    @overload
    def __call__(self, fn: OnlyEnds[list[A], R, V], /) -> BatchTask[A, R, V]: ...
    @overload
    def __call__(
        self, fn: ValuesWithContext[list[A], R, V], /
    ) -> BatchTask[A, R, V]: ...
    @overload
    def __call__(
        self, fn: OnlyEndsWithContext[list[A], R, V], /
    ) -> BatchTask[A, R, V]: ...
    @overload
    def __call__(self, fn: ValuesNow[list[A], R, V], /) -> SyncBatchTask[A, R, V]: ...
    @overload
    def __call__(self, fn: OnlyEndsNow[list[A], R, V], /) -> SyncBatchTask[A, R, V]: ...
    @overload
    def __call__(
        self, fn: ValuesNowWithContext[list[A], R, V], /
    ) -> SyncBatchTask[A, R, V]: ...
    @overload
    def __call__(
        self, fn: OnlyEndsNowWithContext[list[A], R, V], /
    ) -> SyncBatchTask[A, R, V]: ...
