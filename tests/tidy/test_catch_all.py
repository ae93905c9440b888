"""`except Exception` is allowed only where foreign code or many callers meet.

The list is in pyproject.toml: the files for which ruff's BLE001 is off, each with its
reason on the same line. A handler that raises again does not count.
"""

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch

from tests.tidy.house import MODULES, ROOT, every_module, tree_of

BROAD = {"Exception", "BaseException"}
ENTRY = re.compile(r'^"src/durio/(?P<path>[^"]+)" = \[(?P<rules>[^]]*)\](?P<why>.*)$')


def entries() -> dict[str, str]:
    """The listed paths with their reasons, as they are written in pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lines = (ENTRY.match(line) for line in text.splitlines())
    return {
        line["path"]: line["why"].strip().lstrip("#").strip()
        for line in lines
        if line and "BLE001" in line["rules"]
    }


def catch_alls(module: str) -> Iterator[int]:
    """Line numbers of handlers that swallow every exception."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ExceptHandler):
            swallows = is_broad(node.type) and not raises_again(node)
        elif isinstance(node, ast.Call) and is_suppress(node.func):
            swallows = any(is_broad(argument) for argument in node.args)
        else:
            continue
        if swallows:
            yield node.lineno


def is_broad(caught: ast.expr | None) -> bool:
    if isinstance(caught, ast.Tuple):
        return any(is_broad(each) for each in caught.elts)
    return caught is None or (isinstance(caught, ast.Name) and caught.id in BROAD)


def is_suppress(called: ast.expr) -> bool:
    return ast.unparse(called).split(".")[-1] == "suppress"


def raises_again(handler: ast.ExceptHandler) -> bool:
    """Whether the last statement of the handler raises."""
    return isinstance(handler.body[-1], ast.Raise)


@every_module
def test_catch_all_is_on_the_list(module: str) -> None:
    if any(fnmatch(module, path) for path in entries()):
        return
    lines = list(catch_alls(module))
    assert not lines, f"{module}: lines {lines} catch everything; name what you expect"


def test_list_has_reasons_and_is_still_needed() -> None:
    listed = entries()
    assert listed, "no list found in pyproject.toml"
    for path, why in listed.items():
        assert why, f"{path}: give a reason on its line in pyproject.toml"
        files = [module for module in MODULES if fnmatch(module, path)]
        assert files, f"{path}: gone; take it off the list"
        needed = any(line for module in files for line in catch_alls(module))
        assert needed, f"{path}: catches nothing broad any more; take BLE001 off"
