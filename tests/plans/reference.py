"""A small interpreter of plans: what a plan must give, whatever the order of its jobs.

It knows the rules of plans and nothing of jobs, logs or waits. Leaves are calls of one task,
`shop.leaf`, whose last argument is the name of the leaf; handlers are calls of
`shop.handler` in the same way. A test with a real store declares these two tasks with
`leaf_value`, and gives each leaf its behaviour by its name.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from durio.plans import Err, Ok, Plan, Signature

LEAF, HANDLER = "shop.leaf", "shop.handler"
AnyLink = Signature[..., Any] | Plan[Any]


@dataclass(frozen=True)
class Behaviour:
    """How a leaf behaves: it fails so often, then it gives a value or ends otherwise.

    With its value it may change its plan. Of the added leaves of one group, at most one
    adds others: else their order would be chance.
    """

    end: str = "value"  # or "dead", "cancelled" (by hand)
    failures: int = 0  # attempts that are retried before the end
    replaced_by: AnyLink | None = None  # its value is the value of this plan
    added: tuple[Signature[..., Any], ...] = ()  # to its group


Behaviours = Mapping[str, Behaviour]


@dataclass
class Expected:
    """What may be seen of a plan that has ended."""

    is_done: bool
    value: Any
    first_errors: set[str] = field(default_factory=set)  # one of these fails the plan
    must_run: set[str] = field(default_factory=set)
    may_run: set[str] = field(default_factory=set)  # beside those that must
    must_handle: set[str] = field(default_factory=set)
    may_handle: set[str] = field(default_factory=set)
    # For each leaf that fails: its handlers, then those of the plans that fail with it.
    handlers: dict[str, list[str]] = field(default_factory=dict)
    # For each leaf: those that have ended before it starts.
    needs: dict[str, set[str]] = field(default_factory=dict)


def interpret(plan: AnyLink, behaviours: Behaviours) -> Expected:
    """Return what this plan must give."""
    result = evaluate(plan, (), behaviours)
    expected = Expected(result.is_done, result.value)
    record(result, Place(expected))
    return expected


def leaf_value(*values: Any) -> str:
    """Return the result of a leaf: its name, and a digest of all that it was given."""
    text = json.dumps([comparable(value) for value in values])
    return f"{values[-1]}:{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def comparable(value: Any) -> Any:
    """Which of several failures is reported first is chance: an Err has no content here."""
    if isinstance(value, list | tuple):
        return [comparable(each) for each in value]
    if isinstance(value, Ok):
        return ["ok", comparable(value.value)]
    if isinstance(value, Err):
        return ["err"]
    match value:
        case {"end": "ok", "value": inside}:
            return ["ok", comparable(inside)]
        case {"end": "err"}:
            return ["err"]
        case _:
            return value


def name_of(signature: Signature[..., Any]) -> str:
    return signature.args[-1]


# --- results


class Result(NamedTuple):
    """A signature or plan that was run, with those inside it that were run."""

    link: AnyLink
    is_done: bool
    value: Any
    parts: tuple["Result", ...] = ()  # of a leaf: the plan in its place
    added: tuple[tuple[str, "Result"], ...] = ()  # of a group: who added it, and what


def evaluate(
    link: AnyLink,
    before: tuple[Any, ...],
    behaviours: Behaviours,
    *,
    is_member: bool = False,
) -> Result:
    """Run a link with the result before it, as if nothing were ever cancelled."""
    if isinstance(link, Signature):
        return evaluate_leaf(link, before, behaviours)
    if link.kind == "chain":
        return evaluate_chain(link, before, behaviours)
    parts = tuple(
        evaluate(member, before, behaviours, is_member=True) for member in link.members
    )
    items = [item for part in parts for item in items_of(part)]
    added: list[tuple[str, Result]] = []
    if not (is_member and is_unrolled(link)):
        added = evaluate_added(parts, behaviours)
        items += [result for _, result in added]
    if link.is_collected:
        ends = [Ok(item.value) if item.is_done else Err("", "", "") for item in items]
        return Result(link, True, ends, parts, tuple(added))
    is_done = all(item.is_done for item in items)
    values = [item.value for item in items]
    return Result(link, is_done, values, parts, tuple(added))


def evaluate_leaf(
    leaf: Signature[..., Any], before: tuple[Any, ...], behaviours: Behaviours
) -> Result:
    behaviour = behaviours[name_of(leaf)]
    if behaviour.end != "value":
        return Result(leaf, False, None)
    if behaviour.replaced_by is not None:
        inside = evaluate(behaviour.replaced_by, (), behaviours)
        return Result(leaf, inside.is_done, inside.value, (inside,))
    given = () if leaf.is_immutable else before
    return Result(leaf, True, leaf_value(*given, *leaf.args))


def evaluate_added(
    parts: tuple[Result, ...], behaviours: Behaviours
) -> list[tuple[str, Result]]:
    """Run what the members of a group add to it: written members first, in their order."""
    adders = [name for part in parts for name in adders_in(part, is_member=True)]
    found: list[tuple[str, Result]] = []
    for name in adders:
        if behaviours[name].end == "value":
            for leaf in behaviours[name].added:
                found.append((name, evaluate(leaf, (), behaviours)))
                adders.append(name_of(leaf))
    return found


def adders_in(part: Result, *, is_member: bool) -> Iterator[str]:
    """Yield the leaves of this part whose innermost group is the one around the part."""
    if isinstance(part.link, Signature):
        yield name_of(part.link)
    elif part.link.kind == "chain" or (is_member and is_unrolled(part.link)):
        for inner in part.parts:
            yield from adders_in(inner, is_member=part.link.kind == "group")


def evaluate_chain(
    chain: Plan[Any], before: tuple[Any, ...], behaviours: Behaviours
) -> Result:
    parts: list[Result] = []
    for member in chain.members:
        parts.append(evaluate(member, before, behaviours))
        if not parts[-1].is_done:
            return Result(chain, False, None, tuple(parts))
        before = (parts[-1].value,)
    return Result(chain, True, before[0], tuple(parts))


def items_of(part: Result) -> Iterator[Result]:
    """A group in a group is unrolled, unless it has a rule of its own for failures."""
    if is_unrolled(part.link):
        for inner in part.parts:
            yield from items_of(inner)
    else:
        yield part


def is_unrolled(link: AnyLink) -> bool:
    is_group = isinstance(link, Plan) and link.kind == "group"
    return is_group and not (link.is_collected or link.cancels_rest)


# --- what is seen


@dataclass(frozen=True)
class Place:
    """Where a result stands."""

    expected: Expected
    is_sure: bool = True  # no `cancel_rest` around it may have cancelled it
    handlers: tuple[str, ...] = ()  # of plans that fail with it, innermost first
    is_absorbed: bool = False  # a group around it collects
    needs: frozenset[str] = frozenset()


def record(result: Result, place: Place) -> None:
    """Write down which leaves run and which handlers."""
    if isinstance(result.link, Signature):
        record_leaf(result, place)
        return
    link, expected = result.link, place.expected
    own = tuple(name_of(handler) for handler in link.error_handlers)
    if not result.is_done:
        (expected.must_handle if place.is_sure else expected.may_handle).update(own)
    is_sure = place.is_sure and (result.is_done or not link.cancels_rest)
    inside = Place(
        expected,
        is_sure,
        () if link.is_collected else own + place.handlers,
        place.is_absorbed or link.is_collected,
        place.needs,
    )
    for part in result.parts:
        record(part, inside)
        if link.kind == "chain":
            # What follows a collect may start before all leaves in it have ended.
            leaves = () if has_collect(part) else leaves_run(part)
            inside = replace(inside, needs=frozenset(leaves))
    for adder, part in result.added:
        record(part, replace(inside, needs=frozenset({adder})))


def record_leaf(result: Result, place: Place) -> None:
    expected, name = place.expected, name_of(result.link)
    (expected.must_run if place.is_sure else expected.may_run).add(name)
    expected.needs[name] = set(place.needs)
    own = tuple(name_of(handler) for handler in result.link.error_handlers)
    if not result.is_done:
        (expected.must_handle if place.is_sure else expected.may_handle).update(own)
    for part in result.parts:  # a plan in its place: it fails, and not the leaf
        handlers = own + place.handlers
        record(part, replace(place, handlers=handlers, needs=frozenset({name})))
    if result.is_done or result.parts:
        return
    expected.handlers[name] = [*own, *place.handlers]
    if not place.is_absorbed:
        expected.first_errors.add(name)


def leaves_of(link: AnyLink) -> Iterator[str]:
    if isinstance(link, Signature):
        yield name_of(link)
    else:
        for member in link.members:
            yield from leaves_of(member)


def leaves_run(result: Result) -> Iterator[str]:
    """Yield all leaves that were run, also in plans in the places of leaves."""
    if isinstance(result.link, Signature):
        yield name_of(result.link)
    for part in (*result.parts, *(part for _, part in result.added)):
        yield from leaves_run(part)


def has_collect(result: Result) -> bool:
    link = result.link
    parts = (*result.parts, *(part for _, part in result.added))
    is_collected = isinstance(link, Plan) and link.is_collected
    return is_collected or any(has_collect(part) for part in parts)
