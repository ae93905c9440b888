"""Decode the value of a plan by the result types of its tasks."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from durio.model.codec import decode
from durio.model.plan import AnyLink, PlanValue, SignatureValue
from durio.model.plan_ends import Collected, Err, Ok
from durio.model.plan_layout import is_unrolled

Decoder = Callable[[bytes], Any]
Item = TypeVar("Item")

_items = msgspec.json.Decoder(list[msgspec.Raw])
_ends = msgspec.json.Decoder(list[Ok[msgspec.Raw] | Err])


def plan_value(
    link: AnyLink,
    result: bytes,
    decoder_of: Callable[[str], Decoder | None],
    added: Sequence[str] = (),
) -> Any:
    """Return the value of a plan from the stored result of its last node.

    `added` are the tasks of members that were added to its last group.
    """
    if isinstance(link, SignatureValue):
        one = decoder_of(link.task) or decode
        if link.rows is None:
            return one(result)
        return [one(bytes(item)) for item in _items.decode(result)]
    if link.kind == "chain":
        return plan_value(link.members[-1], result, decoder_of, added)
    members = unrolled_members(link)
    members += [SignatureValue(task, (), {}) for task in added]
    if link.is_collected:
        ends = with_members(members, _ends.decode(result))
        return Collected(
            end
            if isinstance(end, Err)
            else Ok(plan_value(m, bytes(end.value), decoder_of))
            for m, end in ends
        )
    items = with_members(members, _items.decode(result))
    return [plan_value(m, bytes(item), decoder_of) for m, item in items]


def with_members(
    members: Sequence[AnyLink], items: Sequence[Item]
) -> list[tuple[AnyLink, Item]]:
    """Return each item with its member; items of added members come last.

    The tasks of members that were added to a group inside the group are not known here.
    """
    unknown = [SignatureValue("", (), {})] * (len(items) - len(members))
    return list(zip([*members, *unknown], items, strict=True))


def unrolled_members(group: PlanValue) -> list[AnyLink]:
    """Return the members of a group, those of groups that are unrolled into it included."""
    found: list[AnyLink] = []
    for member in group.members:
        if is_unrolled(member):
            found += unrolled_members(member)
        else:
            found.append(member)
    return found
