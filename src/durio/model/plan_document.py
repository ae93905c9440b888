"""Signatures and plans as JSON values: `to_dict()` and `from_dict()`.

    {"task": "shop.resize", "args": ["a.png"], "kwargs": {}, "options": {"queue": "low"},
     "immutable": true, "rows": [["a"], ["b"]], "error_handlers": [...]}
    {"chain": [...]}
    {"group": [...], "collect": true, "cancel_rest": true, "error_handlers": [...]}

Parts that a signature or plan does not have are left out. An option is stored as it was given, so that a plan equals its copy. A value that JSON does
not have is a dict with one key, which names its type: `{"seconds": 90.0}`.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec

from durio.model.codec import decode, encode
from durio.model.errors import InvalidOption, InvalidPlan
from durio.model.keys import KeyPolicy
from durio.model.names import check_name
from durio.model.option_values import Keep
from durio.model.options import NO_OPTIONS, OPTIONS, UNSET, CallOptions
from durio.model.plan_checks import check_nesting
from durio.model.retry import Retry

RETRY_FIELDS = ("retries", "base", "factor", "max_delay", "jitter", "delays")
PLAIN = (str, int, float, type(None))  # a bool is an int

REQUIRED = ("task", "args", "kwargs", "chain", "group")
FLAGS = (("collect", "is_collected"), ("cancel_rest", "cancels_rest"))

FROM_PLAIN: dict[str, Callable[[Any], Any]] = {
    "seconds": lambda value: timedelta(seconds=value),
    "time": datetime.fromisoformat,
    "tuple": lambda values: tuple(map(_value, values)),
    "retry": lambda fields: Retry(**{k: _value(v) for k, v in fields.items()}),
    "policy": lambda fields: KeyPolicy(**fields),
    "keep": Keep,
}


def document_of(link: Any) -> dict[str, Any]:
    """Return a signature or plan as JSON values; raises NotSerializable."""
    if hasattr(link, "members"):
        document = {
            link.kind: [document_of(member) for member in link.members],
            "collect": link.is_collected,
            "cancel_rest": link.cancels_rest,
            "options": options_document(link.defaults),
        }
    else:
        args, kwargs = plain((link.args, link.kwargs), f"{link.task}: arguments")
        rows = None if link.rows is None else plain(link.rows, f"{link.task}: rows")
        document = {
            "task": link.task,
            "args": args,
            "kwargs": kwargs,
            "options": options_document(link.options),
            "immutable": link.is_immutable,
            "rows": rows,
        }
    document["error_handlers"] = [document_of(each) for each in link.error_handlers]
    return {k: v for k, v in document.items() if v or k in REQUIRED}


def link_from(
    document: Any, classes: tuple[Any, Any], source: Any = None, depth: int = 0
) -> Any:
    """Return the signature or plan of a document, as one of these classes.

    `source` is the App of its tasks, if it is known.
    """
    check_nesting(depth)
    if not isinstance(document, Mapping):
        raise damaged(f"{document!r:.80} is not a signature or a plan")
    given = dict(cast("Mapping[str, Any]", document))
    kind = next((kind for kind in ("chain", "group") if kind in given), "task")

    def links(name: str) -> list[Any]:
        found: list[Any] = []
        for part in given.pop(name, ()):
            found.append(link_from(part, classes, source, depth + 1))  # noqa: PERF401 - a frame less
        return found

    try:
        handlers = links("error_handlers")
        options = options_from(dict(given.pop("options", {})))
        if kind == "task":
            fields = _signature_fields(given)
            link = classes[0](**fields, options=options, source=source)
        else:
            flags = {ours: bool(given.pop(name, False)) for name, ours in FLAGS}
            members = _checked(kind, links(kind))
            link = classes[1](kind, members, defaults=options, source=source, **flags)
        if given:
            raise damaged(f"it has {', '.join(map(repr, given))}")
        for handler in handlers:
            link = link._with_handler(handler)  # noqa: SLF001
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(f"{type(error).__name__}: {error}") from None
    return link


def _checked(kind: str, members: list[Any]) -> tuple[Any, ...]:
    if kind == "chain" and not members:
        raise damaged("a chain has no members")
    return tuple(members)


def _signature_fields(given: dict[str, Any]) -> dict[str, Any]:
    rows: list[Any] | None = given.pop("rows", None)
    return {
        "task": check_name("task", given.pop("task")),
        "args": tuple(given.pop("args")),
        "kwargs": dict(given.pop("kwargs")),
        "is_immutable": bool(given.pop("immutable", False)),
        "rows": None if rows is None else tuple(tuple(row) for row in rows),
    }


def options_document(options: CallOptions) -> dict[str, Any]:
    """Return the options that were given, as JSON values; a transaction has no such form."""
    if options is NO_OPTIONS:
        return {}
    given = {name: getattr(options, name) for name in OPTIONS}
    given = {name: value for name, value in given.items() if value is not UNSET}
    if given.pop("tx", None) is not None:
        raise InvalidOption(
            "a transaction cannot be stored with a plan",
            cure="Leave tx out, and give it when the plan is enqueued.",
        )
    return {
        name: plain(value, "meta") if name == "meta" else _plain_option(value)
        for name, value in given.items()
    }


def options_from(document: Mapping[str, Any]) -> CallOptions:
    """Return the options of a document; refuse what `options_document` does not write."""
    changes = {
        name: value if name == "meta" else _value(value)
        for name, value in document.items()
    }
    return NO_OPTIONS.with_changes(changes)


def plain(value: Any, what: str) -> Any:
    """Return a value as it is after JSON; raises NotSerializable."""
    return decode(encode(value, what))


def damaged(why: str) -> InvalidPlan:
    return InvalidPlan(
        f"the document of a plan is damaged: {why}",
        cure="Give from_dict() what to_dict() returned.",
    )


def _plain_option(value: Any) -> Any:
    if isinstance(value, PLAIN):
        return value
    for kind, name, to_plain in TO_PLAIN:
        if isinstance(value, kind):
            return {name: to_plain(value)}
    return {"tuple": [_plain_option(each) for each in value]}


def _retry_fields(policy: Retry) -> dict[str, Any]:
    return {name: _plain_option(getattr(policy, name)) for name in RETRY_FIELDS}


TO_PLAIN: list[tuple[type[Any], str, Callable[[Any], Any]]] = [
    (timedelta, "seconds", timedelta.total_seconds),
    (datetime, "time", datetime.isoformat),
    (Retry, "retry", _retry_fields),
    (KeyPolicy, "policy", msgspec.structs.asdict),
    (Keep, "keep", lambda keep: keep.count),
]


def _value(document: Any) -> Any:
    if not isinstance(document, dict):
        return document
    fields = cast("dict[str, Any]", document)
    kind, value = next(iter(fields.items()), ("", None))
    if kind not in FROM_PLAIN:
        raise damaged(f"there is no kind of value {kind!r:.40}")
    try:
        return FROM_PLAIN[kind](value)
    except (TypeError, ValueError, AttributeError) as error:
        raise damaged(str(error)) from None
