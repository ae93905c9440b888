"""The signatures of a task, and groups of them: `task.s(...)`, `task.map(items)`."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    TypeVarTuple,
    cast,
    overload,
)

from durio.client.handle import Job
from durio.client.plan import Immutable, ImmutablePlan, Partial, Signature, group
from durio.client.task_by_name import TaskTarget
from durio.model.argument_codec import ArgumentCodec
from durio.model.argument_errors import call_of
from durio.model.errors import InvalidArguments, InvalidPlan
from durio.model.options import CallOptions
from durio.model.plan import Source
from durio.model.plan_checks import MEMBERS_MAX, not_a_member
from durio.model.signature_arguments import signature_arguments
from durio.ports.handler import Handler

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")
A = TypeVar("A")
Ts = TypeVarTuple("Ts")
A_contra = TypeVar("A_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class TakesFirst(Protocol[A_contra, Q, R_co]):
    """A task that can be called with this first argument, and the rest Q."""

    def enqueue_sync(
        self, first: A_contra, /, *args: Q.args, **kwargs: Q.kwargs
    ) -> Job[R_co]: ...


class TakesOne(Protocol[A_contra, R_co]):
    """A task that can be called with one positional argument."""

    def enqueue_sync(self, only: A_contra, /) -> Job[R_co]: ...


class TakesPositionals(Protocol[*Ts, R_co]):
    """A task that can be called with these positional arguments."""

    def enqueue_sync(self, *args: *Ts) -> Job[R_co]: ...


class TaskSignatures(Generic[P, R]):
    """The part of a task that makes signatures and groups."""

    _handler: Handler | TaskTarget
    _options: CallOptions
    _source: Source

    def enqueue_sync(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Enqueue without an event loop, as `enqueue` does."""
        raise NotImplementedError

    if not TYPE_CHECKING:  # a checker must still see that a task is no signature

        def __or__(self, following: object) -> Any:
            raise not_a_member(self)

    @overload
    def s(self, /, *args: P.args, **kwargs: P.kwargs) -> Signature[P, R]: ...
    @overload
    def s(
        self: TakesFirst[A, Q, T], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> Partial[A, T]: ...
    def s(self, /, *args: Any, **kwargs: Any) -> Any:
        """Return the task with its arguments, as a row for `enqueue_many` or for a plan.

        Without the first argument it is for a plan: there it gets the result before it.
        Raises InvalidArguments.
        """
        codec = self._handler.codec
        if isinstance(codec, ArgumentCodec):
            args, kwargs = signature_arguments(codec, args, kwargs)
        return self._signature(args, kwargs)

    def si(self, /, *args: P.args, **kwargs: P.kwargs) -> Immutable[R]:
        """Return the task with all its arguments, for a plan: it ignores other results.

        Raises InvalidArguments.
        """
        return self._immutable(*self._handler.codec.bound(args, kwargs))

    def map(self: TakesOne[A, T], items: Iterable[A], /) -> ImmutablePlan[list[T]]:
        """Return a group with one job for each item: `resize.map(paths)`.

        Raises InvalidArguments.
        """
        task = cast("TaskSignatures[..., T]", self)
        return task._group(task.si(item) for item in items)  # noqa: SLF001

    def starmap(
        self: TakesPositionals[*Ts, T], rows: Iterable[tuple[*Ts]], /
    ) -> ImmutablePlan[list[T]]:
        """Return a group with one job for each tuple of arguments: `add.starmap(pairs)`.

        Raises InvalidArguments.
        """
        task = cast("TaskSignatures[..., T]", self)
        return task._group(task.si(*row) for row in task._rows(rows))  # noqa: SLF001

    def chunks(
        self: TakesPositionals[*Ts, T], rows: Iterable[tuple[*Ts]], /, size: int
    ) -> ImmutablePlan[list[list[T]]]:
        """Return a group of jobs that each make `size` calls, one after the other.

        A row is a tuple of arguments. The calls of a job are one attempt: a retry makes all
        of them again. The value is a list of lists. Raises InvalidArguments.
        """
        is_number = isinstance(size, int) and not isinstance(size, bool)
        if not is_number or not 1 <= size <= MEMBERS_MAX:
            raise InvalidPlan(
                f"chunks cannot have {size!r:.40} calls each",
                cure=f"Give a number from 1 to {MEMBERS_MAX:,}, such as "
                "task.chunks(rows, 100).",
            )
        task = cast("TaskSignatures[..., T]", self)
        task._refuse_batch()  # noqa: SLF001
        bound = task._handler.codec.bound  # noqa: SLF001
        calls = (bound(row, {})[0] for row in task._rows(rows))  # noqa: SLF001
        # The rows may have no end: the group bounds how many chunks are read.
        chunks = iter(lambda: tuple(islice(calls, size)), ())
        jobs = (task._immutable((), {}, rows=rows) for rows in chunks)  # noqa: SLF001
        return task._group(jobs)  # noqa: SLF001

    def _refuse_batch(self) -> None:
        handler = self._handler
        if isinstance(handler, Handler) and handler.batch is not None:
            raise InvalidPlan(
                f"task {handler.task} has batch=: its worker gathers jobs of one item",
                cure="Use task.map(items): each item is a job, and calls have many.",
            )

    def _group(self, members: Iterable[Any]) -> Any:
        """Return a group that belongs to the App of this task, also if it is empty."""
        return replace(group(members), source=self._source)

    def _immutable(self, args: Any, kwargs: Any, **fields: Any) -> Any:
        return self._signature(args, kwargs, is_immutable=True, **fields)

    def _signature(self, args: Any, kwargs: Any, **fields: Any) -> Any:
        signature: Any = Signature
        return signature(
            self._handler.task,
            args,
            kwargs,
            self._options,
            source=self._source,
            **fields,
        )

    def _rows(self, rows: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        for row in rows:
            if not isinstance(row, tuple):
                raise InvalidArguments(
                    f"a row of {call_of(self._handler.task)} is {row!r:.80}, not a tuple",
                    cure="Write rows as tuples of arguments: [(1, 2), (3, 4)].",
                    task=self._handler.task,
                )
            yield cast("tuple[Any, ...]", row)
