"""A reader can run the examples as they stand.

Every App has a name, so that it can move to a server store with one change of its URL.

An `await` inside `async def` belongs to a program. A block with `await` at its top level is
for `python -m asyncio`. For such a block a page must

- name `python -m asyncio` above the block, so that the reader knows where it runs;
- import or define each name that the block uses, in this block or an earlier one of the
  same kind: what a file such as `# app.py` defines is not there before it is imported;
- keep the block in a form that can be pasted line by line: no blank line inside a
  statement, and one after each statement that has a body;
- call nothing with `_sync` at the top of a block: `python -m asyncio` has a running event
  loop, in which such a call is refused.
"""

import ast
import builtins
import codeop
import warnings
from collections.abc import Iterator

import pytest

from tests.docs.test_code_blocks import FILE_NAME, PAGES, ROOT, Block, blocks

SHELL = "python -m asyncio"
KNOWN = {*dir(builtins), "__name__", "__file__"}
AWAITS = (ast.Await, ast.AsyncFor, ast.AsyncWith)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def parsed(text: str) -> ast.Module:
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(text, "block", "exec", flags)
    assert isinstance(tree, ast.Module)
    return tree


def outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those inside functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, FUNCTIONS):
            yield child
            yield from outside_functions(child)


def awaits_at_top(text: str) -> bool:
    return any(
        isinstance(node, AWAITS) or getattr(node, "is_async", 0)
        for node in outside_functions(parsed(text))
    )


def bound_names(tree: ast.AST) -> set[str]:
    """Every name that the block gives a meaning, wherever it stands."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.add(name)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.ExceptHandler(name=str(name)):
                names.add(name)
            case ast.Import() | ast.ImportFrom():
                names |= {(a.asname or a.name).partition(".")[0] for a in node.names}
            case _:
                pass
    return names


def used_names(tree: ast.AST) -> set[str]:
    return {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def refused_line(text: str) -> int | None:
    """Return the number of the line at which a line-by-line console gives up, from 1."""
    compiler = codeop.CommandCompiler()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    waiting: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        waiting.append(line)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                code = compiler("\n".join(waiting), "<console>", "single")
        except (SyntaxError, OverflowError, ValueError):
            return number
        if code is not None:
            waiting = []
    return None


def blocks_to_type(page: str) -> list[Block]:
    """Return the Python blocks that are not a file."""
    return [
        block
        for block in blocks(page)
        if block.language == "python"
        and not FILE_NAME.match(block.text.partition("\n")[0])
    ]


def sync_calls(text: str) -> list[str]:
    """Return the names of `_sync` calls that run when the block is typed in."""
    return [
        node.attr
        for node in outside_functions(parsed(text))
        if isinstance(node, ast.Attribute) and node.attr.endswith("_sync")
    ]


def shell_blocks(page: str) -> Iterator[tuple[Block, set[str]]]:
    """The blocks that await at their top level, with the names that are there before."""
    known = set(KNOWN)
    for block in blocks_to_type(page):
        if awaits_at_top(block.text):
            yield block, known
        known = known | bound_names(parsed(block.text))


def complaints(page: str) -> list[str]:
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    found: list[str] = []
    for block, known in shell_blocks(page):
        above = "\n".join(lines[: block.line - 1])
        if SHELL not in above:
            found.append(f"{block.where}: say above that it runs in `{SHELL}`")
        tree = parsed(block.text)
        if missing := sorted(used_names(tree) - bound_names(tree) - known):
            found.append(f"{block.where}: import {', '.join(missing)}")
        if refused := refused_line(block.text):
            at = block.line + refused - 1
            found.append(f"{page}:{at}: this line cannot be pasted into `{SHELL}`")
    if list(shell_blocks(page)):
        found += [
            f"{block.where}: `{SHELL}` refuses {call}()"
            for block in blocks_to_type(page)
            for call in sync_calls(block.text)
        ]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_a_reader_can_run_every_await(page: str) -> None:
    assert not complaints(page)


def apps_without_name(text: str) -> list[int]:
    """Return the lines of `App(...)` calls that give no name."""
    return [
        node.lineno
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "App"
        and not any(keyword.arg == "name" for keyword in node.keywords)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_app_has_a_name(page: str) -> None:
    nameless = [
        f"{page}:{block.line + line - 1}"
        for block in blocks(page)
        if block.language == "python"
        for line in apps_without_name(block.text)
    ]
    assert not nameless


def test_an_app_without_a_name_is_found() -> None:
    text = "App('sqlite:///a.db', name='shop')\nApp(\n    settings={},\n)\n"
    assert apps_without_name(text) == [2]


@pytest.mark.parametrize(
    "text",
    [
        "job = await send.enqueue(1)",
        "async with app:\n    pass",
        "async for job in app.jobs():\n    print(job)",
        "found = [job async for job in app.jobs()]",
    ],
)
def test_an_await_at_the_top_is_found(text: str) -> None:
    assert awaits_at_top(text)


def test_an_await_in_a_function_is_not_at_the_top() -> None:
    assert not awaits_at_top("async def main():\n    await job\n")


def test_names_that_are_not_imported_are_found() -> None:
    tree = parsed("from app import send\nprint(await send.enqueue(order))")
    assert used_names(tree) - bound_names(tree) - KNOWN == {"order"}


def test_sync_calls_are_found() -> None:
    text = "def f():\n    a.status_sync()\n\nb = send.enqueue_sync(1)"
    assert sync_calls(text) == ["enqueue_sync"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("async with app:\n    pass\n\nprint(1)", None),
        ("async with app:\n    pass\nprint(1)", 3),
        ("def f():\n    a = 1\n\n    return a", 4),
    ],
)
def test_what_cannot_be_pasted_is_found(text: str, line: int | None) -> None:
    assert refused_line(text) == line
