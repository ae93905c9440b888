"""Enqueue by name, from what is published about a task whose code is elsewhere.

Workers publish their tasks when they register. A name that a known namespace does not have
is refused with a suggestion; a namespace without published tasks is accepted with a
warning.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from durio.model.argument_errors import call_of, unbound
from durio.model.codec import canonical, encode
from durio.model.errors import InvalidArguments, UnknownTask
from durio.model.expiry import Expires, expires_of_published
from durio.model.gate_rule import GateRule, rule_of_published
from durio.model.job import PRIORITY_DEFAULT
from durio.model.names import did_you_mean, known_as
from durio.model.published_tasks import tasks_kind
from durio.model.queues import DEFAULT_QUEUE
from durio.ports.records import Record
from durio.ports.store import Store
from durio.telemetry.emit import Emit

TASKS_PAGE = 1000
JSON_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "array": (list, tuple, set, frozenset),
    "null": (type(None),),
}
PYTHON_TYPES = {
    "integer": "int",
    "number": "float",
    "string": "str",
    "boolean": "bool",
    "array": "list",
    "null": "None",
}


async def published_tasks(
    store: Store, namespace: str
) -> dict[str, dict[str, Any]] | None:
    """Return the tasks that workers have published; None if there are none."""
    kind, found = tasks_kind(namespace), list[Record]()
    after: str | None = ""
    while after is not None:
        page = await store.list_records(kind, after=after, limit=TASKS_PAGE)
        found += page
        after = page[-1].name if len(page) == TASKS_PAGE else None
    return {record.name: msgspec.json.decode(record.body) for record in found} or None


class NamedArguments(NamedTuple):
    """Checks and encodes arguments by the parameters that workers published."""

    task: str
    published: Mapping[str, Any] | None  # None: nothing is known

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        return encode(self._checked(args, kwargs), f"{self.task}: arguments")

    def encode_following(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """Encode a call without its first argument, which the worker adds."""
        if self.published is not None:
            parameters = self.published["parameters"]
            takes_first = (p for p in parameters if p["kind"].startswith("positional"))
            first = next(takes_first, None)
            rest = [p for p in parameters if p is not first]
            named_arguments(self.task, args, kwargs, {"parameters": rest})
        return encode((list(args), dict(kwargs)), f"{self.task}: arguments")

    def canonical(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], payload: bytes
    ) -> bytes:
        """Return the same bytes for the same arguments, if the signature is known."""
        return canonical(self._checked(args, kwargs), payload)

    def bound(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return tuple(args), dict(kwargs)

    def by_name(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], *, is_following: bool
    ) -> dict[str, Any]:
        """Return the arguments by parameter; positionals without a parameter as `args`.

        With `is_following` the first positional is missing.
        """
        parameters: list[dict[str, Any]] = (self.published or {}).get("parameters", [])
        positional: list[str] = [
            p["name"] for p in parameters if p["kind"].startswith("positional")
        ]
        positional = positional[int(is_following) :]
        named = {**dict(zip(positional, args, strict=False)), **kwargs}
        rest = [p["name"] for p in parameters if p["kind"] == "var_positional"]
        if len(args) > len(positional):
            named[(*rest, "args")[0]] = tuple(args[len(positional) :])
        return named

    def _checked(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return named_arguments(self.task, args, kwargs, self.published)


class TaskTarget(NamedTuple):
    """The task of a call, for a task whose code is elsewhere."""

    task: str
    queue: str
    priority: int
    codec: NamedArguments
    expires: Expires = None
    gate_rule: GateRule | None = None


def unknown_target(task: str) -> TaskTarget:
    """Return a task of which only the name is known."""
    arguments = NamedArguments(task, None)
    return TaskTarget(task, DEFAULT_QUEUE, PRIORITY_DEFAULT, arguments)


def named_target(
    task: str, published: Mapping[str, Mapping[str, Any]] | None, emit: Emit
) -> TaskTarget:
    """Return queue, priority and arguments of a task that is known by name only."""
    if published is None:
        emit("namespace.unknown", task=task)
        return unknown_target(task)
    name = known_as(task, published)
    if name is None:
        hint = did_you_mean(task, published)
        raise UnknownTask(
            f"no worker knows a task {task!r}",
            cure=f"Known: {', '.join(sorted(published)[:8])}.{hint}",
            task=task,
        )
    known = published[name]
    task = known.get("task", task)  # the name that was asked for may be an alias
    arguments = NamedArguments(task, known)
    expires = expires_of_published(known.get("expires"))
    rule = rule_of_published(task, known.get("limits"))
    return TaskTarget(task, known["queue"], known["priority"], arguments, expires, rule)


def named_arguments(
    task: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    published: Mapping[str, Any] | None,
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments as (args, kwargs), checked against the published parameters."""
    if published is None:
        return list(args), dict(kwargs)
    rest, named = _bound(task, args, kwargs, published["parameters"])
    for parameter in published["parameters"]:
        name = parameter["name"]
        if name in named:
            _check_type(task, name, named[name], parameter["schema"])
    return list(rest), named


def _bound(
    task: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    parameters: Sequence[Mapping[str, Any]],
) -> tuple[Sequence[Any], dict[str, Any]]:
    positional = [p["name"] for p in parameters if p["kind"].startswith("positional")]
    has_rest = any(p["kind"] == "var_positional" for p in parameters)
    is_open = any(p["kind"] == "var_keyword" for p in parameters)
    known = {p["name"] for p in parameters}
    wrong = unbound(
        task,
        args,
        kwargs,
        positional=positional,
        required=[p["name"] for p in parameters if p["required"]],
        known=known,
        has_rest=has_rest,
        is_open=is_open,
    )
    if wrong is not None:
        unknown = [name for name in kwargs if name not in known and not is_open]
        hint = did_you_mean(unknown[0], known) if unknown else ""
        listed = ", ".join(p["name"] for p in parameters)
        raise InvalidArguments(wrong, cure=f"It takes ({listed}).{hint}", task=task)
    named = {**dict(zip(positional, args, strict=False)), **kwargs}
    # In the order of the function's parameters: equal arguments give a key equal bytes.
    order = [p["name"] for p in parameters] + sorted(named.keys() - known)
    return args[len(positional) :], {n: named[n] for n in order if n in named}


def _check_type(task: str, name: str, value: Any, schema: Mapping[str, Any]) -> None:
    wanted = schema.get("type")
    if not isinstance(wanted, str) or wanted not in JSON_TYPES:
        return
    if "format" in schema or "contentEncoding" in schema:
        return  # the JSON text stands for another type: datetime, bytes
    wrong_bool = isinstance(value, bool) and wanted != "boolean"
    if wrong_bool or not isinstance(value, JSON_TYPES[wanted]):
        raise InvalidArguments(
            f"{call_of(task)}: argument {name!r} must be {PYTHON_TYPES[wanted]}, "
            f"not {type(value).__name__}",
            cure="Workers published this signature.",
            task=task,
        )
