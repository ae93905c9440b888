"""What the tidy tests know about the repository: files, syntax trees, settings."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src/durio"

MODULES = sorted(path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py"))
every_module = pytest.mark.parametrize("module", MODULES)

# The conformance suite, the simulator and the faulty stores are programs of their own:
# the rules for types, sizes and names hold for them too, except for their tests.
TEST_ROOMS = ("conformance", "simulation", "faults")
TEST_MODULES = sorted(
    path.relative_to(ROOT).as_posix()
    for room in TEST_ROOMS
    for path in (ROOT / "tests" / room).rglob("*.py")
    if not path.name.startswith("test_") and path.name != "conftest.py"
)
every_program = pytest.mark.parametrize("module", [*MODULES, *TEST_MODULES])

Function = ast.FunctionDef | ast.AsyncFunctionDef

# Only for a checkout without git: generated files.
MADE = {
    ".git",
    ".venv",
    ".venv-demo",
    "__pycache__",
    "build",
    "dist",
    "htmlcov",
    ".hypothesis",
}
MADE |= {".mypy_cache", ".pytest_cache", ".ruff_cache", ".import_linter_cache"}


@cache
def text_of(module: str) -> str:
    """Of a module in src/durio, or in tests: `worker/claim.py`, `tests/faults/x.py`."""
    folder = ROOT if module.startswith("tests/") else SRC
    return (folder / module).read_text(encoding="utf-8")


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(text_of(module), filename=module)


def functions(module: str) -> Iterator[Function]:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, Function):
            yield node


def room_of(module: str) -> str:
    """`worker/claim.py` -> `worker`; a file beside the folders is its own room."""
    return module.partition("/")[0].removesuffix(".py")


def rooms() -> set[str]:
    return {room_of(module) for module in MODULES} - {"__init__"}


@cache
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@cache
def tracked_files() -> tuple[Path, ...]:
    """Every file a reader of the repository sees, also those not yet committed."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    if listed.returncode == 0:
        names = (ROOT / name for name in listed.stdout.split("\0") if name)
    else:
        names = (p for p in ROOT.rglob("*") if not MADE & {*p.relative_to(ROOT).parts})
    return tuple(sorted(path for path in names if path.is_file()))


def text_or_none(path: Path) -> str | None:
    """The text of a file, or None for images and other binary files."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def words(identifier: str) -> set[str]:
    """`JobNotFound`, `job_not_found` and `JOB_NOT_FOUND` -> job, not, found."""
    return set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", identifier).lower().split("_"))


def dotted(node: ast.AST) -> str:
    """`a.b.c` as text; empty when it is not a plain path of names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def imported_names(tree: ast.AST) -> dict[str, str]:
    """What each name made by an import stands for: `{"dt": "datetime.datetime"}`."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.split(".")[0]
                names[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names
