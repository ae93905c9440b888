"""Make plans: `chain`, `group` and `chord`, and the arguments of their first nodes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar, cast, overload

from durio.model.argument_errors import given_twice
from durio.model.errors import InvalidArguments, InvalidPlan
from durio.model.plan import (
    AnyLink,
    AnySignature,
    Complete,
    Following,
    Immutable,
    ImmutablePlan,
    Partial,
    Plan,
    Signature,
    chain_of,
    check_member,
    first_signatures,
    flat,
)
from durio.model.plan_checks import MEMBERS_MAX, not_a_member, too_many
from durio.model.plan_ends import Collected

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
R = TypeVar("R")
S = TypeVar("S")
TEXT_OR_MAPPING: tuple[type[Any], ...] = (str, bytes, Mapping)


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
def chain(first: Following[A, B], b: Following[B, C], /) -> Partial[A, C]: ...
@overload
def chain(
    first: Following[A, B], b: Following[B, C], c: Following[C, D], /
) -> Partial[A, D]: ...
@overload
def chain(first: Following[A, A], /, *links: Following[A, A]) -> Partial[A, A]: ...
@overload
def chain(links: Iterable[Complete[A] | Following[A, A]], /) -> Plan[A]: ...
def chain(*links: Any) -> Any:
    """Return a plan that runs its members one after the other: `a | b | c`.

    Each member gets the result before it as its first argument, except `task.si(...)`. The
    value of a chain is that of its last member. Members are signatures or plans, or one
    iterable of them. Type checkers know up to four members of different types; `|` has no
    such limit. Raises InvalidPlan or InvalidArguments.

        plan = chain(extract.s("a.csv"), transform.s(), load.s("table"))
    """
    return chain_of(members_of(links))


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
) -> Partial[A, list[R]]: ...
@overload
def group(
    *members: Following[A, R] | Iterable[Following[A, R]],
    on_error: Literal["collect"],
) -> Partial[A, Collected[R]]: ...
def group(*members: Any, on_error: str | None = None, cancel_rest: bool = False) -> Any:
    """Return a plan that runs its members side by side; its value is the list of theirs.

    Members are signatures or plans, or one iterable of them. A group inside is unrolled.
    If a member fails, the plan fails and the other members go on; `cancel_rest=True`
    cancels them. With `on_error="collect"` the group never fails, and its value is a
    Collected: an `Ok` or an `Err` for each member. What follows a group gets its value:
    that is a chord. Raises InvalidPlan.

        plan = group(resize.s(path) for path in paths) | collage.s()
    """
    if on_error not in (None, "collect"):
        raise InvalidPlan(
            f"a group cannot have on_error={on_error!r:.40}",
            cure='Write on_error="collect", or call group(...).on_error(alert.s()).',
        )
    if on_error and cancel_rest:
        raise InvalidPlan(
            'a group has both cancel_rest and on_error="collect"',
            cure="Choose one: a group that collects runs all its members.",
        )
    links = tuple(flat("group", members_of(members)))
    return Plan[Any]("group", links, bool(on_error), bool(cancel_rest))


@overload
def chord(header: Complete[A], callback: Following[A, S], /) -> Plan[S]: ...
@overload
def chord(
    header: Iterable[Complete[R]], callback: Following[list[R], S], /
) -> Plan[S]: ...
@overload
def chord(header: Following[A, B], callback: Following[B, S], /) -> Partial[A, S]: ...
@overload
def chord(
    header: Iterable[Following[A, R]], callback: Following[list[R], S], /
) -> Partial[A, S]: ...
def chord(header: Any, callback: Any = None, /) -> Any:
    """Return a plan that runs a callback with the list of results of a group.

    The header is a group, or an iterable of its members. The callback runs once, after all
    members have succeeded. Raises InvalidPlan.

        plan = chord([resize.si(path) for path in paths], collage.s())
    """
    if callback is None:
        raise InvalidPlan(
            "a chord has no callback",
            cure="Write chord(header, callback.s()); without a callback use group().",
        )
    is_link = isinstance(header, Signature | Plan)
    links = cast("Any", header if is_link else group(header))
    if getattr(links, "kind", "") != "group":
        raise InvalidPlan(
            f"the header of a chord is {links!r:.80}, which is not a group",
            cure="Give a group or a list; for one member write a | b.",
        )
    return chain_of(members_of([links, callback]))


def members_of(given: Sequence[Any]) -> list[AnyLink]:
    """Return the members given as arguments or as iterables, which are read once."""
    links: list[Any] = []
    for each in given:
        if isinstance(each, Signature | Plan):
            links.append(each)
        elif isinstance(each, Iterable) and not isinstance(each, TEXT_OR_MAPPING):
            add_all(links, cast("Iterable[Any]", each))
        else:
            raise not_a_member(cast("object", each))
    for link in links:
        check_member(link)
    return links


def add_all(links: list[Any], more: Iterable[Any]) -> None:
    for link in more:
        links.append(link)
        if len(links) > MEMBERS_MAX:  # the iterable may have no end
            raise too_many(len(links))


# --- the arguments of `plan.enqueue(...)`


def with_first_arguments(
    link: AnyLink, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> AnyLink:
    """Return a plan whose first node, or each member of a first group, has these arguments.

    They come before the arguments that the node has. Without arguments the plan is
    returned as it is. Raises InvalidArguments if the first nodes do not take them, or need
    arguments that are not given.
    """
    if args or kwargs:
        given = _given(link, args, kwargs)
        if given is None:
            raise _takes_no_arguments(link)
        link = given
    _check_whole(link)
    return link


def _given(
    link: AnyLink, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> AnyLink | None:
    """Return a copy with arguments; None if no first node takes any."""
    if isinstance(link, Signature):
        return None if link.is_immutable else _signature_given(link, args, kwargs)
    if link.kind == "chain":
        first = _given(link.members[0], args, kwargs)
        return first and replace(link, members=(first, *link.members[1:]))
    members = [_given(member, args, kwargs) for member in link.members]
    if not any(members):
        return None
    both = zip(members, link.members, strict=True)
    return replace(link, members=tuple(given or member for given, member in both))


def _signature_given(
    signature: AnySignature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> AnySignature:
    if twice := signature.kwargs.keys() & kwargs.keys():
        raise InvalidArguments(
            given_twice(signature.task, min(twice)),
            cure=f"The first node is {signature!r}: leave the argument out in one place.",
            task=signature.task,
        )
    named = {**signature.kwargs, **kwargs}
    return replace(signature, args=(*args, *signature.args), kwargs=named)


def _check_whole(link: AnyLink) -> None:
    for signature in first_signatures(link):
        parameters = signature.source.parameters if signature.source else None
        if signature.is_immutable or parameters is None:
            continue
        why = parameters.why_unfit(signature.args, signature.kwargs)
        if why is not None:
            raise InvalidArguments(
                f"{why}: {signature!r} is the first node of the plan",
                cure="Give its arguments to .s(...), or to plan.enqueue(...).",
                task=signature.task,
            )


def _takes_no_arguments(link: AnyLink) -> InvalidArguments:
    first = next(first_signatures(link), None)
    if first is None:
        what = "the plan begins with an empty group: no node takes the arguments"
    else:
        what = f"the first node is {first!r}, which takes no further arguments"
    return InvalidArguments(
        what,
        cure="Write .s(...) instead of .si(...), or enqueue the plan without arguments.",
    )
