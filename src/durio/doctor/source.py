"""Finds the calls in the source of a task, by their resolved names; lambdas are left out.

This is weak evidence: functions that the task calls are not read.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple


class SourceCall(NamedTuple):
    """A call in a function's own body."""

    name: str  # resolved: `time.sleep`, whatever name it was imported under
    arguments: int
    keywords: frozenset[str]
    line: int
    is_awaited: bool


def calls_of(function: Callable[..., Any]) -> list[SourceCall]:
    """Return the calls in the function's own body; none if its source cannot be read."""
    plain = inspect.unwrap(function)
    try:
        lines, first = inspect.getsourcelines(plain)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return []
    if not tree.body:
        return []
    known: dict[str, Any] = dict(getattr(plain, "__globals__", {}))
    known |= local_imports(tree)
    found = [
        source_call(call, known, first, is_awaited=is_awaited)
        for call, is_awaited in own_calls(tree.body[0])
    ]
    return sorted(found, key=lambda call: call.line)


def own_calls(root: ast.AST) -> Iterator[tuple[ast.Call, bool]]:
    """Yield calls outside inner functions, each with whether it is awaited."""
    inside = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    body: list[ast.AST] = list(getattr(root, "body", []))
    while body:
        node = body.pop()
        if isinstance(node, inside):
            continue
        if isinstance(node, ast.Await) and isinstance(node.value, ast.Call):
            yield node.value, True
            body += ast.iter_child_nodes(node.value)
            continue
        if isinstance(node, ast.Call):
            yield node, False
        body += ast.iter_child_nodes(node)


def local_imports(tree: ast.AST) -> dict[str, Any]:
    """Return the objects that the function itself imports, by their local names."""
    names: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def source_call(
    call: ast.Call, known: Mapping[str, Any], first: int, *, is_awaited: bool
) -> SourceCall:
    return SourceCall(
        name=resolved(call.func, known),
        arguments=len(call.args),
        keywords=frozenset(word.arg or "**" for word in call.keywords),
        line=first + call.lineno - 1,
        is_awaited=is_awaited,
    )


def resolved(node: ast.expr, known: Mapping[str, Any]) -> str:
    """Resolve `sleep` or `t.sleep` to `time.sleep`; empty if it is not a plain name."""
    if isinstance(node, ast.Attribute):
        owner = resolved(node.value, known)
        return f"{owner}.{node.attr}" if owner else ""
    if not isinstance(node, ast.Name):
        return ""
    found = known.get(node.id, node.id)
    if isinstance(found, str):
        return found
    if isinstance(found, ModuleType):
        return found.__name__
    module = getattr(found, "__module__", None)
    name = getattr(found, "__qualname__", None)
    return f"{module}.{name}" if module and name else node.id
