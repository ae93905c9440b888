"""The arguments of `plan.enqueue(...)`: they go to the first nodes of the plan."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from durio.model.argument_errors import given_twice
from durio.model.errors import InvalidArguments
from durio.model.plan import AnyLink, SignatureValue, first_signatures


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
    check_whole(
        link,
        "is the first node of the plan",
        cure="Give its arguments to .s(...), or to plan.enqueue(...).",
    )
    return link


def _given(
    link: AnyLink, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> AnyLink | None:
    """Return a copy with arguments; None if no first node takes any."""
    if isinstance(link, SignatureValue):
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
    signature: SignatureValue, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> SignatureValue:
    if twice := signature.kwargs.keys() & kwargs.keys():
        raise InvalidArguments(
            given_twice(signature.task, min(twice)),
            cure=f"The first node is {signature!r}: leave the argument out in one place.",
            task=signature.task,
        )
    named = {**signature.kwargs, **kwargs}
    return replace(signature, args=(*args, *signature.args), kwargs=named)


def check_whole(link: AnyLink, place: str, *, cure: str) -> None:
    """Refuse a plan whose first nodes need arguments that they do not have."""
    for signature in first_signatures(link):
        parameters = signature.source.parameters if signature.source else None
        if signature.is_immutable or parameters is None:
            continue
        why = parameters.why_unfit(signature.args, signature.kwargs)
        if why is not None:
            raise InvalidArguments(
                f"{why}: {signature!r} {place}",
                cure=cure,
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
