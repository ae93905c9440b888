"""The public API: names and signatures of `durio` and its public modules.

The snapshot is read from the source, so it shows annotations as they are written and is
the same on every version of Python. After an intended change:

    UPDATE_SNAPSHOT=1 .venv/bin/python -m pytest tests/tidy/test_public_api.py

and read the difference as a user would: adding is fine; changing or removing a name
needs a dated deprecation and a line in the changelog.
"""

import ast
import importlib
import os
import re
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.house import MODULES, Function, dotted, tree_of

SNAPSHOT = Path(__file__).parent / "public_api.txt"
PUBLIC = {
    "durio": "__init__.py",
    "durio.errors": "errors.py",
    "durio.keys": "keys.py",
    "durio.limits": "limits.py",
    "durio.plans": "plans.py",
    "durio.queues": "queues.py",
    "durio.schedules": "schedules.py",
    "durio.testing": "testing/__init__.py",
    "durio.web": "web/__init__.py",
}
PUBLIC_NAMES_MAX = 30

# Dunder methods that users call through syntax; the others are internal.
SPOKEN = {"__init__", "__call__", "__await__", "__or__", "__iter__", "__getitem__"}
SPOKEN |= {"__enter__", "__exit__", "__aenter__", "__aexit__"}


def statements(module: str) -> Iterator[ast.stmt]:
    """The statements of a file as a type checker reads them."""
    for node in tree_of(module).body:
        if isinstance(node, ast.If) and dotted(node.test) == "_typing.TYPE_CHECKING":
            yield from node.body
        else:
            yield node


def exports(module: str) -> list[str]:
    """The public names of a file, in the order in which it lists them."""
    names: list[str] = []
    for node in statements(module):
        if isinstance(node, ast.ImportFrom):
            names += [alias.asname or alias.name for alias in node.names]
        else:
            names += defined(node)
    return list(dict.fromkeys(name for name in names if not name.startswith("_")))


def defined(node: ast.stmt) -> list[str]:
    if isinstance(node, Function | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def find(module: str, name: str) -> tuple[str, list[ast.stmt]]:
    """Where a name is defined, followed through every re-export."""
    here = [node for node in statements(module) if name in defined(node)]
    if here:
        return module, here
    for node in statements(module):
        if isinstance(node, ast.ImportFrom) and (source := file_of(node.module or "")):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return find(source, alias.name)
    return module, []


def file_of(dotted_name: str) -> str:
    """`durio.model.job` -> `model/job.py`; empty for modules of other packages."""
    top, _, rest = dotted_name.partition(".")
    if top != "durio":
        return ""
    path = rest.replace(".", "/")
    choices = (f"{path}.py", f"{path}/__init__.py".lstrip("/"))
    return next((choice for choice in choices if choice in MODULES), "")


def described(module: str, public: str, name: str) -> Iterator[str]:
    """The lines of the snapshot for one public name."""
    where, nodes = find(module, name)
    assert nodes, f"{public}.{name}: its definition was not found"
    for node in spoken(nodes):
        if isinstance(node, ast.ClassDef):
            yield from decorators(node, "")
            bases = ", ".join(ast.unparse(base) for base in [*node.bases])
            yield f"class {public}.{name}({bases})"
            yield from members(where, node, set())
        elif isinstance(node, Function):
            yield from decorators(node, "")
            yield f"{head(node, f'{public}.{name}')}"
            yield from spread(where, node)
        else:
            yield f"{public}.{name}: {ast.unparse(node)}"


def spoken(nodes: list[ast.stmt]) -> list[ast.stmt]:
    """The overloads, if there are any: callers never see the body below them."""
    loads = [n for n in nodes if isinstance(n, Function) and is_overload(n)]
    return loads or nodes


def is_overload(function: Function) -> bool:
    return any(dotted(each).endswith("overload") for each in function.decorator_list)


def members(module: str, owner: ast.ClassDef, seen: set[str]) -> Iterator[str]:
    """Public members, then the inherited ones of our own base classes."""
    own: dict[str, list[ast.stmt]] = {}
    for node in owner.body:
        for name in defined(node):
            own.setdefault(name, []).append(node)
    for name, nodes in own.items():
        if name not in seen and is_public(name, nodes[0]):
            for node in spoken(nodes):
                yield from member(module, name, node)
    seen = seen | own.keys()
    for base in owner.bases:
        plain = base.value if isinstance(base, ast.Subscript) else base
        where, found = find(module, dotted(plain))
        for node in found:
            if isinstance(node, ast.ClassDef) and node is not owner:
                yield from members(where, node, seen)


def is_public(name: str, node: ast.stmt) -> bool:
    keyword_only = name == "_" and isinstance(node, ast.AnnAssign)
    return name in SPOKEN or keyword_only or not name.startswith("_")


def member(module: str, name: str, node: ast.stmt) -> Iterator[str]:
    if isinstance(node, Function):
        yield from decorators(node, "    ")
        yield f"    {head(node, name)}"
        yield from spread(module, node)
        yield from calls_of_property(module, name, node)
    elif isinstance(node, ast.ClassDef):
        yield f"    class {name}"
    else:
        yield f"    {ast.unparse(node)}"


def calls_of_property(module: str, name: str, node: Function) -> Iterator[str]:
    """How the value of a property is called: `@app.task(...)`."""
    is_property = any(dotted(each) == "property" for each in node.decorator_list)
    if is_property and isinstance(node.returns, ast.Name):
        where, found = find(module, node.returns.id)
        for owner in found:
            if isinstance(owner, ast.ClassDef):
                calls = [call for call in owner.body if "__call__" in defined(call)]
                for call in spoken(calls):
                    yield from member(where, f"{name}.__call__", call)


def head(function: Function, name: str) -> str:
    word = "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"
    gives = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"{word} {name}({ast.unparse(function.args)}){gives}"


def decorators(node: Function | ast.ClassDef, indent: str) -> Iterator[str]:
    for each in node.decorator_list:
        yield f"{indent}@{ast.unparse(each)}"


def spread(module: str, function: Function) -> Iterator[str]:
    """The keywords behind `**options: Unpack[Options]`: they are part of the call."""
    kwarg = function.args.kwarg
    wanted = kwarg and kwarg.annotation and ast.unparse(kwarg.annotation)
    if found := re.fullmatch(r"(?:\w+\.)?Unpack\[(\w+)\]", wanted or ""):
        where, nodes = find(module, found[1])
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                fields = members(where, node, set())
                yield from (f"    {found[1]}.{line.strip()}" for line in fields)


def snapshot() -> str:
    lines = [
        line
        for public, module in PUBLIC.items()
        for name in sorted(exports(module))
        for line in [*described(module, public, name), ""]
    ]
    return "\n".join(lines)


def test_public_surface_is_small() -> None:
    assert len(exports("__init__.py")) <= PUBLIC_NAMES_MAX, "what would no one miss?"


def test_names_and_signatures_are_the_agreed_ones() -> None:
    now = snapshot()
    if os.environ.get("UPDATE_SNAPSHOT") == "1":
        SNAPSHOT.write_text(now, encoding="utf-8")
    agreed = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    changed = sorted(set(agreed) ^ set(now.splitlines()))
    assert now.splitlines() == agreed, (
        "the public API has changed; if that is meant, see the head of this file:\n"
        + "\n".join(f"  {'-' if line in agreed else '+'} {line}" for line in changed)
    )


@pytest.mark.parametrize("public", PUBLIC)
def test_nothing_else_can_be_seen(public: str) -> None:
    """What the source lists is what an importer finds: no helper is exposed."""
    module = importlib.import_module(public)
    seen = {
        name
        for name in dir(module)
        if not name.startswith("_")
        and not isinstance(getattr(module, name), types.ModuleType)
    }
    assert seen == set(exports(PUBLIC[public]))


@pytest.mark.parametrize("public", PUBLIC)
def test_public_classes_show_their_public_path(public: str) -> None:
    """A traceback says `durio.errors.JobNotFound`, not the defining module."""
    module = importlib.import_module(public)
    inner = {
        f"{value.__module__}.{name}"
        for name in exports(PUBLIC[public])
        if isinstance(value := getattr(module, name), type)
        and value.__module__ not in PUBLIC
    }
    assert not inner, f"set __module__ to the public path: {sorted(inner)}"
