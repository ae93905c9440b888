"""Find the parameter `ctx: Context` of a task, and refuse it in a wrong place.

A worker gives the Context to a first parameter with the annotation `Context` or
`Context[Deps]`. Anywhere else it would be an argument of the job, which no caller can
give. So it is an error at declaration.
"""

import inspect
import typing
from collections.abc import Callable
from inspect import Parameter
from typing import Any

from durio.model.errors import UsageError
from durio.worker.context import Context

POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
CURE = "Write `ctx: Context` as the first parameter (from durio import Context)."


def takes_context(function: Callable[..., Any], task: str) -> bool:
    """Return whether the first parameter is a Context; refuse one in another place."""
    parameters = list(inspect.signature(function).parameters.values())
    hints = _hints(function, parameters)
    first = parameters[0] if parameters else None
    if first and first.name in ("self", "cls") and _is_bare(first):
        raise UsageError(
            f"task {task}: its first parameter is {first.name}, and a task cannot be a "
            "method",
            cure="Decorate a function outside of the class, and pass what it needs as "
            "arguments.",
        )
    for position, parameter in enumerate(parameters):
        hint = hints.get(parameter.name)
        if hint is None and parameter.name == "ctx" and _is_bare(parameter):
            raise UsageError(
                f"task {task}: its parameter ctx has no annotation",
                cure=f"{CURE} If it is an argument, annotate it.",
            )
        if position == 0 and _is_context(hint) and parameter.kind in POSITIONAL:
            continue
        if _has_context(hint):
            raise _misplaced(task, parameter, hint, is_first=position == 0)
    return first is not None and _is_context(hints.get(first.name))


def _hints(function: Callable[..., Any], parameters: list[Parameter]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, AttributeError, SyntaxError, TypeError):
        # The codec reports the annotation that cannot be resolved. Here a name is enough.
        return {
            p.name: Context if _names_context(p.annotation) else p.annotation
            for p in parameters
            if p.annotation is not Parameter.empty
        }


def _names_context(annotation: object) -> bool:
    return isinstance(annotation, str) and (
        annotation.split("[")[0].rpartition(".")[2] == "Context"
    )


def _is_bare(parameter: Parameter) -> bool:
    return parameter.annotation is Parameter.empty


def _is_context(hint: object) -> bool:
    return (typing.get_origin(hint) or hint) is Context


def _has_context(hint: Any) -> bool:
    """Return whether Context, or a subclass, is anywhere in the annotation."""
    kind: Any = typing.get_origin(hint) or hint
    is_context = inspect.isclass(kind) and issubclass(kind, Context)
    return is_context or any(map(_has_context, typing.get_args(hint)))


def _misplaced(
    task: str, parameter: Parameter, hint: object, *, is_first: bool
) -> UsageError:
    shown = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}
    name = f"{shown.get(parameter.kind, '')}{parameter.name}"
    if parameter.kind in POSITIONAL and not _is_context(hint):
        return UsageError(
            f"task {task}: the annotation of {name} contains Context among other types",
            cure=f"{CURE} It is never None: a plain call gets one too."
            if is_first
            else CURE,
        )
    return UsageError(
        f"task {task}: {name} is a Context, but not the first parameter", cure=CURE
    )
