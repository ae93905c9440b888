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
    """How a leaf behaves: it fails so often, then it gives a value or ends otherwise."""

    end: str = "value"  # or "dead", "cancelled" (by hand)
    failures: int = 0  # attempts that are retried before the end


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
    if isinstance(value, Err) or (isinstance(value, dict) and value["end"] == "err"):
        return ["err"]
    if isinstance(value, Ok):
        return ["ok", comparable(value.value)]
    if isinstance(value, dict):
        return ["ok", comparable(value["value"])]
    if isinstance(value, list | tuple):
        return [comparable(each) for each in value]
    return value


def name_of(signature: Signature[..., Any]) -> str:
    return signature.args[-1]


# --- results


class Result(NamedTuple):
    """A signature or plan that was run, with those inside it that were run."""

    link: AnyLink
    is_done: bool
    value: Any
    parts: tuple["Result", ...] = ()


def evaluate(link: AnyLink, before: tuple[Any, ...], behaviours: Behaviours) -> Result:
    """Run a link with the result before it, as if nothing were ever cancelled."""
    if isinstance(link, Signature):
        is_done = behaviours[name_of(link)].end == "value"
        given = () if link.is_immutable else before
        return Result(
            link, is_done, leaf_value(*given, *link.args) if is_done else None
        )
    if link.kind == "chain":
        return evaluate_chain(link, before, behaviours)
    parts = tuple(evaluate(member, before, behaviours) for member in link.members)
    items = [item for part in parts for item in items_of(part)]
    if link.is_collected:
        ends = [Ok(item.value) if item.is_done else Err("", "", "") for item in items]
        return Result(link, True, ends, parts)
    is_done = all(item.is_done for item in items)
    return Result(link, is_done, [item.value for item in items], parts)


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
    link = part.link
    if (
        isinstance(link, Plan)
        and link.kind == "group"
        and not (link.is_collected or link.cancels_rest)
    ):
        for inner in part.parts:
            yield from items_of(inner)
    else:
        yield part


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
            leaves = () if has_collect(part.link) else leaves_of(part.link)
            inside = replace(inside, needs=frozenset(leaves))


def record_leaf(result: Result, place: Place) -> None:
    expected, name = place.expected, name_of(result.link)
    (expected.must_run if place.is_sure else expected.may_run).add(name)
    expected.needs[name] = set(place.needs)
    if result.is_done:
        return
    own = [name_of(handler) for handler in result.link.error_handlers]
    (expected.must_handle if place.is_sure else expected.may_handle).update(own)
    expected.handlers[name] = [*own, *place.handlers]
    if not place.is_absorbed:
        expected.first_errors.add(name)


def leaves_of(link: AnyLink) -> Iterator[str]:
    if isinstance(link, Signature):
        yield name_of(link)
    else:
        for member in link.members:
            yield from leaves_of(member)


def has_collect(link: AnyLink) -> bool:
    return isinstance(link, Plan) and (
        link.is_collected or any(has_collect(member) for member in link.members)
    )
