"""Texts of errors about arguments, which name the function and its parameters.

They are the same for a task whose code is loaded and for one that is known by name. A
message of msgspec names a path in the payload; it is rewritten to name the parameter.
"""

import re
from collections.abc import Collection, Mapping, Sequence

# "Expected `int`, got `str` - at `$[1].order_id`"; the path may be missing.
WITH_PATH = re.compile(r"(.*?)(?: - at `(\$[^`]*)`)?", re.DOTALL)
ARGUMENT = re.compile(r"\$(?:\[1\])?\.(\w+)(.*)", re.DOTALL)
WRONG_TYPE = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
MISSING = re.compile(r"Object missing required field `([^`]+)`")
UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
NEEDS = " needs the "
PYTHON_NAMES = {"array": "list", "object": "dict", "null": "None"}


def call_of(task: str) -> str:
    """Return the call of a task for messages: `send()` for `shop.send`."""
    return f"{task.partition('.')[2] or task}()"


def has_no_parameter(task: str, name: str) -> str:
    return f"{call_of(task)} has no parameter {name!r}"


def needs_arguments(task: str, names: Sequence[str]) -> str:
    word = "argument" if len(names) == 1 else "arguments"
    return f"{call_of(task)}{NEEDS}{word} {', '.join(map(repr, names))}"


def is_missing(why: str) -> bool:
    """Whether a call does not fit because it needs more arguments."""
    return NEEDS in why


def given_twice(task: str, name: str) -> str:
    return f"{call_of(task)} got the argument {name!r} twice"


def too_many_positionals(task: str, most: int, given: int) -> str:
    word = "argument" if most == 1 else "arguments"
    are = "was" if given == 1 else "were"
    return f"{call_of(task)} takes {most or 'no'} positional {word}, and {given} {are} given"


def unbound(  # noqa: PLR0913 - a call, and the parameters that it does not fit
    task: str,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    positional: Sequence[str],
    required: Sequence[str],
    known: Collection[str],
    has_rest: bool,
    is_open: bool,
) -> str | None:
    """Return why a call does not fit these parameters; None if it does."""
    if len(args) > len(positional) and not has_rest:
        return too_many_positionals(task, len(positional), len(args))
    bound = positional[: len(args)]
    for name in kwargs:
        if name in bound:
            return given_twice(task, name)
        if name not in known and not is_open:
            return has_no_parameter(task, name)
    missing = [n for n in required if n not in bound and n not in kwargs]
    return needs_arguments(task, missing) if missing else None


def misfit(task: str, text: str, rest: str = "args") -> str:
    """Return msgspec's message about a payload as one about an argument.

    `rest` is the name of the parameter for further positionals.
    """
    found = WITH_PATH.fullmatch(text)
    why, path = found.groups() if found else (text, None)
    argument = ARGUMENT.fullmatch((path or "").replace("$[0]", f"$.{rest}", 1))
    if argument is None:
        if missing := MISSING.fullmatch(why):
            return needs_arguments(task, [missing[1]])
        if unknown := UNKNOWN.fullmatch(why):
            return has_no_parameter(task, unknown[1])
        return f"{call_of(task)}: its arguments do not fit: {plain_words(why)}"
    name = f"{argument[1]}{argument[2]}"
    if wrong := WRONG_TYPE.fullmatch(why):
        wanted, given = map(python_names, wrong.groups())
        return f"{call_of(task)}: argument {name!r} must be {wanted}, not {given}"
    return f"{call_of(task)}: argument {name!r}: {plain_words(why)}"


def python_names(types: str) -> str:
    """Return JSON types with their Python names: `list | None` for `array | null`."""
    return " | ".join(PYTHON_NAMES.get(each, each) for each in types.split(" | "))


def plain_words(why: str) -> str:
    """Return a message of msgspec with the Python names of types."""
    found = WITH_PATH.fullmatch(why)
    why, path = found.groups() if found else (why, None)
    at = f" (at {path[1:].lstrip('.')})" if path and path != "$" else ""
    if missing := MISSING.fullmatch(why):
        return f"it needs the field {missing[1]!r}{at}"
    if unknown := UNKNOWN.fullmatch(why):
        return f"it has no field {unknown[1]!r}{at}"
    if wrong := WRONG_TYPE.fullmatch(why):
        wanted, given = map(python_names, wrong.groups())
        return f"it must be {wanted}, not {given}{at}"
    return f"{why}{at}"
