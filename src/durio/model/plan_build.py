"""Make chains, groups and chords of what users give; the classes are given too."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from durio.model.errors import InvalidPlan
from durio.model.options import NO_OPTIONS
from durio.model.plan import (
    AnyLink,
    PlanValue,
    SignatureValue,
    check_member,
    common_source,
    first_signatures,
    why_takes_no_first,
)
from durio.model.plan_checks import (
    MEMBERS_MAX,
    not_a_member,
    takes_no_result,
    too_many,
)

TEXT_OR_MAPPING: tuple[type[Any], ...] = (str, bytes, Mapping)
PlanT = TypeVar("PlanT", bound=PlanValue)


def chain_of(given: Sequence[Any], plan: type[PlanT]) -> PlanT:
    """Return a chain; plain chains among its members become part of it."""
    links = members_of(given)
    if not links:
        raise InvalidPlan(
            "a chain has no members", cure="Give it at least one: chain(first.s(1))."
        )
    for link in links[1:]:
        check_takes_result(link)
    return plan("chain", tuple(flat("chain", links)))


def group_of(
    given: Sequence[Any], plan: type[PlanT], on_error: str | None, cancel_rest: object
) -> PlanT:
    """Return a group; plain groups among its members become part of it."""
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
    members = members_of(given)
    links = tuple(flat("group", members))
    # Groups without members, which are not among the links, may have an App.
    source = None if links else common_source(members)[1]
    return plan("group", links, bool(on_error), bool(cancel_rest), source=source)


def chord_of(header: Any, callback: Any, plan: type[PlanT]) -> PlanT:
    """Return the chain of a group and its callback."""
    if callback is None:
        raise InvalidPlan(
            "a chord has no callback",
            cure="Write chord(header, callback.s()); without a callback use group().",
        )
    if not isinstance(header, AnyLink):
        header = group_of([header], plan, None, False)
    if isinstance(header, SignatureValue) or header.kind != "group":
        raise InvalidPlan(
            f"the header of a chord is {header!r:.80}, which is not a group",
            cure="Give a group or a list; for one member write a | b.",
        )
    return chain_of([header, callback], plan)


def members_of(given: Sequence[Any]) -> list[AnyLink]:
    """Return the members given as arguments or as iterables, which are read once."""
    links: list[Any] = []
    for each in given:
        if isinstance(each, AnyLink):
            links.append(each)
        elif isinstance(each, Iterable) and not isinstance(each, TEXT_OR_MAPPING):
            add_all(links, cast("Iterable[Any]", each))
        else:
            raise not_a_member(cast("object", each))
    return links


def add_all(links: list[Any], more: Iterable[Any]) -> None:
    for link in more:
        check_member(link)
        links.append(link)
        if len(links) > MEMBERS_MAX:  # the iterable may have no end
            raise too_many(len(links))


def flat(kind: str, links: Iterable[AnyLink]) -> Iterator[AnyLink]:
    """Yield members; a plan of this kind with nothing of its own gives way to its members."""
    for link in links:
        if (
            isinstance(link, PlanValue)
            and link.kind == kind
            and not (link.error_handlers or link.is_collected or link.cancels_rest)
            and link.defaults == NO_OPTIONS
        ):
            yield from link.members
        else:
            yield link


def check_takes_result(link: AnyLink) -> None:
    """Refuse a plan behind another node if one of its first nodes cannot take a result."""
    for signature in first_signatures(link):
        why = why_takes_no_first(signature)
        if why is not None:
            raise takes_no_result(signature.task, repr(signature), why)
