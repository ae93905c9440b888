"""The shape of a plan: what its record keeps, so that a leader can lay it out again.

A shape has the tasks and the handlers of a plan, and no arguments of nodes. Its JSON form:

    "shop.resize"                                  a signature
    {"task": "shop.resize", "immutable": true, "chunk": true, "on_error": [...]}
    {"chain": [...], "on_error": [...]}
    {"group": [...], "collect": true, "cancel_rest": true, "on_error": [...]}
    [5000, "shop.resize"]                          as a member: so often in a row

`on_error` has the documents of handlers (`Signature.to_dict`). A group of many like members
is one item with a count, so a shape is small however large its groups are.
"""

from itertools import groupby
from typing import Any, cast

from durio.model.plan import AnyLink, PlanValue, SignatureValue
from durio.model.plan_document import FLAGS, damaged
from durio.model.plan_layout import PlanLayout, lay_out

Shape = str | dict[str, Any]


def shape_of(link: AnyLink) -> Shape:
    """Return the shape of a plan, as JSON values."""
    common: dict[str, Any] = {}
    if link.error_handlers:
        common["on_error"] = [handler.to_dict() for handler in link.error_handlers]
    if isinstance(link, SignatureValue):
        flags = {"immutable": True} if link.is_immutable else {}
        flags |= {"chunk": True} if link.rows is not None else {}
        if not flags and not common:
            return link.task
        return {"task": link.task, **flags, **common}
    flags = {name: True for name, field in FLAGS if getattr(link, field)}
    return {link.kind: _members(link), **flags, **common}


def _members(plan: PlanValue) -> list[Any]:
    found: list[Any] = []
    for shape, like in groupby(shape_of(member) for member in plan.members):
        count = sum(1 for _ in like)
        found.append(shape if count == 1 else [count, shape])
    return found


def layout_from_shape(shape: Shape, plan_id: bytes, namespace: str) -> PlanLayout:
    """Lay out a plan by its shape; its nodes have no arguments and no options."""
    return lay_out(plan_of_shape(shape), plan_id, namespace)


def plan_of_shape(shape: Any) -> AnyLink:
    """Return a plan of this shape, whose signatures have no arguments."""
    if isinstance(shape, str):
        return SignatureValue(shape, (), {})
    if not isinstance(shape, dict):
        raise damaged(f"{shape!r:.80} is not a shape")
    given = cast("dict[str, Any]", shape)
    handlers = tuple(
        SignatureValue.from_dict(each) for each in given.get("on_error", ())
    )
    if "task" in given:
        is_immutable = "immutable" in given
        return SignatureValue(
            given["task"],
            (),
            {},
            is_immutable=is_immutable,
            rows=() if "chunk" in given else None,
            error_handlers=handlers,
        )
    kind: Any = "chain" if "chain" in given else "group"
    members: list[AnyLink] = []
    for item in given[kind]:
        count, part = cast("tuple[int, Any]", item if type(item) is list else (1, item))
        members += [plan_of_shape(part)] * count
    flags: dict[str, Any] = {field: name in given for name, field in FLAGS}
    return PlanValue(kind, tuple(members), error_handlers=handlers, **flags)
