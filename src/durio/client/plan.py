"""Signatures and plans as users see them: with types, and made by chain, group and chord.

At run time every signature is a `Signature` and every plan is a `Plan`. `Partial`,
`PartialPlan`, `Immutable`, `ImmutablePlan` and `NamedSignature` are never instantiated: they
are the types that checkers know for signatures and plans, and say what may follow what.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Generic, Literal, ParamSpec, Self, TypeVar, overload

from durio.client.handle import Job
from durio.client.plan_enqueue import store_plan
from durio.client.plan_job import PlanJob
from durio.model.errors import UsageError
from durio.model.keys import KeyPolicy
from durio.model.option_table import takes_options
from durio.model.options import UNSET, UniqueName
from durio.model.plan import Complete, Following, Link, PlanValue, SignatureValue
from durio.model.plan_arguments import with_first_arguments
from durio.model.plan_build import chain_of, chord_of, group_of
from durio.model.plan_ends import Collected, PlanFailure
from durio.model.tx import Joinable

P = ParamSpec("P")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
R = TypeVar("R")
S = TypeVar("S")
A_contra = TypeVar("A_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class Handled(Link):
    """The part of signatures and plans that takes error handlers."""

    def on_error(self, handler: Following[PlanFailure, object], /) -> Self:
        """Return a copy whose failure enqueues this handler; several are allowed.

        The handler gets a PlanFailure as its first argument: `alert.s()`. With
        `alert.si(...)` it gets only its own arguments. Raises InvalidPlan or
        InvalidArguments if it cannot be a handler.
        """
        return self._with_handler(handler)

    @classmethod
    def _classes(cls) -> tuple[type[SignatureValue], type[PlanValue]]:
        return Signature, Plan


class Signature(Handled, SignatureValue, Complete[R_co], Generic[P, R_co]):
    """A task with its arguments and options, as a value: `task.s(42)`.

    Signatures of equal calls are equal: `send.s("a") == send.s(address="a")`.
    """

    __module__ = "durio"

    def __or__(self, following: Following[R_co, S]) -> "Plan[S]":
        return chain_of([self, [following]], ANY_PLAN)

    async def enqueue(self, /, *args: Any, **kwargs: Any) -> Job[R_co]:
        """Store a job and return its handle, as `task.enqueue` does.

        Arguments come before those that the signature has.
        """
        check_no_handlers(self)
        signature: Any = with_first_arguments(self, args, kwargs)
        client = client_of(self)
        call = (signature.task, signature.args, signature.kwargs, signature.options)
        return await client.enqueue_named(*call)

    def enqueue_sync(self, /, *args: Any, **kwargs: Any) -> Job[R_co]:
        """Enqueue without an event loop, as `enqueue` does."""
        call = self.enqueue(*args, **kwargs)
        return client_of(self).run_with(self.options.tx, call)


def check_no_handlers(signature: SignatureValue) -> None:
    """Refuse to enqueue a signature alone that has handlers: only plans call them."""
    if signature.error_handlers:
        raise UsageError(
            f"{signature!r} is enqueued as a job, and only jobs of plans have on_error "
            "handlers",
            cure="Make a plan of it: chain(signature).enqueue().",
        )


class NamedSignature(Signature[..., Any], Following[object, Any]):
    """A signature of a task that is known by name only: it may stand anywhere."""

    __module__ = "durio.plans"

    def __or__(self, following: Following[Any, S]) -> "ImmutablePlan[S]":
        raise NotImplementedError


class Immutable(Handled, Complete[R_co], Following[object, R_co]):
    """A signature that ignores the result before it: `task.si(42)`."""

    __module__ = "durio.plans"

    async def enqueue(self) -> Job[R_co]:
        """Store a job and return its handle, as `task.enqueue` does."""
        raise NotImplementedError

    def enqueue_sync(self) -> Job[R_co]:
        """Enqueue without an event loop, as `enqueue` does."""
        raise NotImplementedError

    def __or__(self, following: Following[R_co, S]) -> "ImmutablePlan[S]":
        raise NotImplementedError


class Partial(Handled, Following[A_contra, R_co]):
    """A signature without its first argument: it gets the result before it."""

    __module__ = "durio.plans"

    async def enqueue(self, first: A_contra, /) -> Job[R_co]:
        """Store a job with its first argument and return its handle."""
        raise NotImplementedError

    def enqueue_sync(self, first: A_contra, /) -> Job[R_co]:
        """Enqueue without an event loop, as `enqueue` does."""
        raise NotImplementedError

    def __or__(self, following: Following[R_co, S]) -> "PartialPlan[A_contra, S]":
        raise NotImplementedError


class WithPlanOptions(Handled):
    """The part of plans that takes options."""

    @takes_options
    def options(
        self,
        *,
        key: str | None = UNSET,
        unique: KeyPolicy | UniqueName = UNSET,
        queue: str = UNSET,
        priority: int = UNSET,
        tx: Joinable | None = UNSET,
        meta: Mapping[str, object] | None = UNSET,
    ) -> Self:
        """Return a copy with these options; the original is unchanged.

        `queue`, `priority` and `meta` are defaults for nodes that do not have their own.
        `key`, `unique` and `tx` are for the plan as a whole. With a key, `unique` is
        `window()` (the default, 24 hours) or `while_active`: a second enqueue returns the
        handle of the first plan. Raises InvalidOption.
        """
        raise NotImplementedError


class Plan(WithPlanOptions, PlanValue, Complete[R_co]):
    """A chain or a group of signatures and plans, as a value; a chord is a chain."""

    __module__ = "durio.plans"

    def __or__(self, following: Following[R_co, S]) -> "Plan[S]":
        return chain_of([self, [following]], ANY_PLAN)

    async def enqueue(self, /, *args: Any, **kwargs: Any) -> PlanJob[R_co]:
        """Store the plan and return its handle; it then survives a power failure.

        Arguments go to its first job, or to each member of a first group, before those
        that it has. All of the plan is stored, or nothing. Raises InvalidPlan or
        InvalidArguments if the plan is wrong, and what `task.enqueue` raises.
        """
        client = client_of(self)
        tx = None if self.defaults.tx is UNSET else self.defaults.tx
        plan_id, created, same_args = await store_plan(client, self, args, kwargs, tx)
        return PlanJob(client, plan_id, created=created, same_args=same_args)

    def enqueue_sync(self, /, *args: Any, **kwargs: Any) -> PlanJob[R_co]:
        """Enqueue without an event loop, as `enqueue` does."""
        client, tx = client_of(self), self.defaults.tx
        return client.run_with(tx, self.enqueue(*args, **kwargs))


ANY_PLAN: type[Plan[Any]] = Plan


def client_of(link: Link) -> Any:
    """Return the App of the tasks of a signature or plan."""
    if link.source is None and isinstance(link, PlanValue) and link.size == 0:
        raise UsageError(
            f"{link!r} has no members, so it belongs to no App",
            cure="Write task.map(items), which knows its App, also for no items; or give "
            "the App: Plan.from_dict(group([]).to_dict(), app).",
        )
    if link.source is None:
        raise UsageError(
            f"{link!r} belongs to no App: it was made from a document",
            cure="Make it of tasks, task.s(...), app.s('shop.send', ...) or task.map(items), "
            "or give the App: from_dict(document, app).",
        )
    return link.source.client


class ImmutablePlan(Plan[R_co], Following[object, R_co]):
    """A plan whose first nodes ignore the result before it."""

    __module__ = "durio.plans"

    def __or__(self, following: Following[R_co, S]) -> "ImmutablePlan[S]":
        raise NotImplementedError


class PartialPlan(WithPlanOptions, Following[A_contra, R_co]):
    """A plan without its first argument: its first nodes get the result before it."""

    __module__ = "durio.plans"

    async def enqueue(self, first: A_contra, /) -> PlanJob[R_co]:
        """Store the plan with its first argument and return its handle."""
        raise NotImplementedError

    def enqueue_sync(self, first: A_contra, /) -> PlanJob[R_co]:
        """Enqueue without an event loop, as `enqueue` does."""
        raise NotImplementedError

    def __or__(self, following: Following[R_co, S]) -> "PartialPlan[A_contra, S]":
        raise NotImplementedError


# Of an immutable first member, of one that has all its arguments, and of a partial one; in
# each part one to four members of different types, then more of one type, then an iterable.
@overload
def chain(  # pyright: ignore[reportOverlappingOverload]
    first: Immutable[A] | ImmutablePlan[A], /
) -> ImmutablePlan[A]: ...
@overload
def chain(  # pyright: ignore[reportOverlappingOverload]
    first: Immutable[A] | ImmutablePlan[A], b: Following[A, B], /
) -> ImmutablePlan[B]: ...
@overload
def chain(  # pyright: ignore[reportOverlappingOverload]
    first: Immutable[A] | ImmutablePlan[A], b: Following[A, B], c: Following[B, C], /
) -> ImmutablePlan[C]: ...
@overload
def chain(  # pyright: ignore[reportOverlappingOverload]
    first: Immutable[A] | ImmutablePlan[A],
    b: Following[A, B],
    c: Following[B, C],
    d: Following[C, D],
    /,
) -> ImmutablePlan[D]: ...
@overload
def chain(  # pyright: ignore[reportOverlappingOverload]
    first: Immutable[A] | ImmutablePlan[A], /, *links: Following[A, A]
) -> ImmutablePlan[A]: ...
@overload
def chain(first: Complete[A], /) -> Plan[A]: ...
@overload
def chain(first: Complete[A], b: Following[A, B], /) -> Plan[B]: ...
@overload
def chain(first: Complete[A], b: Following[A, B], c: Following[B, C], /) -> Plan[C]: ...
@overload
def chain(
    first: Complete[A], b: Following[A, B], c: Following[B, C], d: Following[C, D], /
) -> Plan[D]: ...
@overload
def chain(first: Complete[A], /, *links: Following[A, A]) -> Plan[A]: ...
@overload
def chain(first: Following[A, B], /) -> PartialPlan[A, B]: ...
@overload
def chain(first: Following[A, B], b: Following[B, C], /) -> PartialPlan[A, C]: ...
@overload
def chain(
    first: Following[A, B], b: Following[B, C], c: Following[C, D], /
) -> PartialPlan[A, D]: ...
@overload
def chain(
    first: Following[A, B],
    b: Following[B, C],
    c: Following[C, D],
    d: Following[D, E],
    /,
) -> PartialPlan[A, E]: ...
@overload
def chain(first: Following[A, A], /, *links: Following[A, A]) -> PartialPlan[A, A]: ...
@overload
def chain(  # pyright: ignore[reportOverlappingOverload]
    links: Iterable[Immutable[A] | ImmutablePlan[A]], /
) -> ImmutablePlan[A]: ...
@overload
def chain(  # pyright: ignore[reportOverlappingOverload]
    links: Iterable[Following[A, A]], /
) -> PartialPlan[A, A]: ...
@overload
def chain(links: Iterable[Link], /) -> Plan[Any]: ...
def chain(*links: Any) -> Any:
    """Return a plan that runs its members one after the other: `a | b | c`.

    Each member gets the result before it as its first argument, except `task.si(...)`. The
    value of a chain is that of its last member. Members are signatures or plans, or one
    iterable of them. Type checkers know up to four members of different types, more members
    of one type, and of an iterable of different members nothing; `|` has no such limits.
    Raises InvalidPlan or InvalidArguments.

        plan = chain(resize.s("a.png"), publish.s())
    """
    return chain_of(links, ANY_PLAN)


@overload
def group(  # pyright: ignore[reportOverlappingOverload]
    *members: Immutable[R] | ImmutablePlan[R] | Iterable[Immutable[R]],
    cancel_rest: bool = False,
) -> ImmutablePlan[list[R]]: ...
@overload
def group(  # pyright: ignore[reportOverlappingOverload]
    *members: Immutable[R] | ImmutablePlan[R] | Iterable[Immutable[R]],
    on_error: Literal["collect"],
) -> ImmutablePlan[Collected[R]]: ...
@overload
def group(
    *members: Complete[R] | Iterable[Complete[R]], cancel_rest: bool = False
) -> Plan[list[R]]: ...
@overload
def group(
    *members: Complete[R] | Iterable[Complete[R]], on_error: Literal["collect"]
) -> Plan[Collected[R]]: ...
@overload
def group(
    *members: Following[A, R] | Iterable[Following[A, R]], cancel_rest: bool = False
) -> PartialPlan[A, list[R]]: ...
@overload
def group(
    *members: Following[A, R] | Iterable[Following[A, R]],
    on_error: Literal["collect"],
) -> PartialPlan[A, Collected[R]]: ...
def group(*members: Any, on_error: str | None = None, cancel_rest: bool = False) -> Any:
    """Return a plan that runs its members side by side; its value is the list of theirs.

    Members are signatures or plans, or one iterable of them. A group inside is unrolled.
    If a member fails, the plan fails and the other members go on; `cancel_rest=True`
    cancels them. With `on_error="collect"` the group never fails, and its value is a
    Collected: an `Ok` or an `Err` for each member. What follows a group gets its value:
    that is a chord. Raises InvalidPlan.

        plan = group(resize.s(path) for path in paths) | collage.s()
    """
    return group_of(members, ANY_PLAN, on_error, cancel_rest)


@overload
def chord(  # pyright: ignore[reportOverlappingOverload]
    header: Immutable[A] | ImmutablePlan[A], callback: Following[A, S], /
) -> ImmutablePlan[S]: ...
@overload
def chord(  # pyright: ignore[reportOverlappingOverload]
    header: Iterable[Immutable[R] | ImmutablePlan[R]],
    callback: Following[list[R], S],
    /,
) -> ImmutablePlan[S]: ...
@overload
def chord(header: Complete[A], callback: Following[A, S], /) -> Plan[S]: ...
@overload
def chord(
    header: Iterable[Complete[R]], callback: Following[list[R], S], /
) -> Plan[S]: ...
@overload
def chord(
    header: Following[A, B], callback: Following[B, S], /
) -> PartialPlan[A, S]: ...
@overload
def chord(
    header: Iterable[Following[A, R]], callback: Following[list[R], S], /
) -> PartialPlan[A, S]: ...
def chord(header: Any, callback: Any = None, /) -> Any:
    """Return a plan that runs a callback with the list of results of a group.

    The header is a group, or an iterable of its members. The callback runs once, after all
    members have succeeded. Raises InvalidPlan.

        plan = chord([resize.si(path) for path in paths], collage.s())
    """
    return chord_of(header, callback, ANY_PLAN)
