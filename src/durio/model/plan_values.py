"""Decode the value of a plan by the result types of its tasks."""

from collections.abc import Callable
from typing import Any

import msgspec

from durio.model.codec import decode
from durio.model.plan import AnyLink, PlanValue, SignatureValue
from durio.model.plan_ends import Collected, Err, Ok
from durio.model.plan_layout import is_unrolled

Decoder = Callable[[bytes], Any]

_items = msgspec.json.Decoder(list[msgspec.Raw])
_ends = msgspec.json.Decoder(list[Ok[msgspec.Raw] | Err])


def plan_value(
    link: AnyLink, result: bytes, decoder_of: Callable[[str], Decoder | None]
) -> Any:
    """Return the value of a plan from the stored result of its last node."""
    if isinstance(link, SignatureValue):
        one = decoder_of(link.task) or decode
        if link.rows is None:
            return one(result)
        return [one(bytes(item)) for item in _items.decode(result)]
    if link.kind == "chain":
        return plan_value(link.members[-1], result, decoder_of)
    members = unrolled_members(link)
    if link.is_collected:
        ends = zip(members, _ends.decode(result), strict=True)
        return Collected(
            end
            if isinstance(end, Err)
            else Ok(plan_value(m, bytes(end.value), decoder_of))
            for m, end in ends
        )
    items = zip(members, _items.decode(result), strict=True)
    return [plan_value(m, bytes(item), decoder_of) for m, item in items]


def unrolled_members(group: PlanValue) -> list[AnyLink]:
    """Return the members of a group, those of groups that are unrolled into it included."""
    found: list[AnyLink] = []
    for member in group.members:
        if is_unrolled(member):
            found += unrolled_members(member)
        else:
            found.append(member)
    return found
