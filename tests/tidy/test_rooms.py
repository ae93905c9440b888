"""The structure of the package: contents of each room, cost of imports, reading path."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.house import MODULES, ROOT, SRC, imported_names, tree_of

# What `import durio` must not load: drivers, web frameworks, the terminal, a worker's
# machine, and slow modules of the standard library.
HEAVY = {"apsw", "sqlite3", "asyncpg", "psycopg", "redis", "sqlalchemy", "pydantic"}
HEAVY |= {"aio_pika", "confluent_kafka", "nats"}
HEAVY |= {"django", "fastapi", "flask", "starlette", "uvicorn", "click", "rich"}
HEAVY |= {"opentelemetry", "prometheus_client", "sentry_sdk", "textual", "pytest"}
HEAVY |= {"pathlib", "urllib", "zoneinfo"}

# Ports that are not a store's capability.
NOT_A_CAPABILITY = {"__init__", "broker", "clock", "executor", "fleet", "handler"}
NOT_A_CAPABILITY |= {"move", "store"}

# Files of cli/ that every command shares.
NOT_A_COMMAND = {"__init__", "main", "output"}

# The head of a statement in a store's SQL; a part has another head and no name.
NAME_LINE = re.compile(r"^-- name: (\w+).*$", re.MULTILINE)
ONLY_HERE = re.compile(r"^-- only here: \w", re.MULTILINE)

# Steps of one job, helpers apart, on the store with the longer path. The aim is 27.
PATH_FILES_MAX = 32
READING_PATHS = [
    "docs/explanation/follow-a-job.md",
    "docs/explanation/follow-a-job-postgresql.md",
]
every_reading_path = pytest.mark.parametrize("name", READING_PATHS)


def test_package_files_only_export() -> None:
    for module in (m for m in MODULES if m.endswith("__init__.py")):
        for node in tree_of(module).body:
            imported = isinstance(node, ast.Import | ast.ImportFrom)
            listed = isinstance(node, ast.Assign | ast.AnnAssign) and not any(
                isinstance(part, ast.Call) for part in ast.walk(node)
            )
            docstring = isinstance(node, ast.Expr) and isinstance(
                node.value, ast.Constant
            )
            assert imported or listed or docstring, f"{module}: no logic here"


def test_every_folder_of_code_is_a_package() -> None:
    folders = {path.parent for path in SRC.rglob("*.py")}
    bare = [str(f) for f in folders if not (f / "__init__.py").exists()]
    assert not bare, f"without __init__.py: {sorted(bare)}"


def test_the_package_does_not_import_its_tests() -> None:
    for module in MODULES:
        imported = {n.split(".")[0] for n in imported_names(tree_of(module)).values()}
        assert "tests" not in imported, f"{module}: no installation has tests/"


def test_import_is_light() -> None:
    """`import durio` loads no driver, web framework, terminal library or worker."""
    before = modules_after("asyncio, msgspec")
    for module in ("durio", "durio.errors", "durio.keys", "durio.queues"):
        after = modules_after(module) - before
        loaded = HEAVY & {name.split(".")[0] for name in after}
        loaded |= {name for name in after if name.startswith("durio.stores.")}
        assert not loaded, f"import {module} loads {sorted(loaded)}"


def test_help_loads_no_command() -> None:
    """`durio --help` reads a table: the command modules that it names stay unloaded."""
    commands = {f"durio.cli.{p.stem}" for p in (SRC / "cli").glob("*.py")}
    commands -= {f"durio.cli.{name}" for name in NOT_A_COMMAND}
    loaded = commands & modules_after("durio.cli.main")
    assert not loaded, f"durio.cli.main loads {sorted(loaded)}"


def modules_after(module: str) -> set[str]:
    """Every module that a new interpreter has loaded after importing this one."""
    asked = f"import sys, {module}; print(*sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", asked],
        env={**os.environ, "PYTHONPATH": str(SRC.parent)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert answer.returncode == 0, answer.stderr
    return set(answer.stdout.split())


def test_every_capability_has_three_faces() -> None:
    """ports/X.py, stores/*/X.py and a chapter of the conformance suite go together."""
    capabilities = {p.stem for p in (SRC / "ports").glob("*.py")} - NOT_A_CAPABILITY
    assert capabilities, "ports/ names no capability of a store"
    stores = [p for p in sorted((SRC / "stores").iterdir()) if any(p.glob("*.py"))]
    assert stores, "stores/ holds no store"
    for place in [*stores, ROOT / "tests/conformance"]:
        missing = capabilities - {p.stem for p in place.glob("*.py")}
        assert not missing, f"{place.relative_to(ROOT)} lacks {sorted(missing)}"


def test_every_statement_has_a_user() -> None:
    """The code of a store names each of its statements, and no other."""
    for folder in (SRC / "stores").glob("*/sql"):
        store = "".join(p.read_text("utf-8") for p in folder.parent.glob("*.py"))
        asked = set(re.findall(r"\bstatement\(\s*\"(\w+)\"", store))
        named = set(statement_comments(folder))
        place = folder.relative_to(SRC)
        assert named, f"{place}: no statement"
        assert not named - asked, f"{place}: not used: {sorted(named - asked)}"
        assert not asked - named, f"{place}: not there: {sorted(asked - named)}"


def test_a_statement_is_in_every_store_or_says_why_not() -> None:
    """`-- only here: why` marks a statement that no other store has."""
    stores = {
        str(folder.relative_to(SRC)): statement_comments(folder)
        for folder in (SRC / "stores").glob("*/sql")
    }
    assert len(stores) > 1, f"compared with nothing: {sorted(stores)}"
    for place, statements in stores.items():
        others = {name for other in stores if other != place for name in stores[other]}
        marked = {name for name, text in statements.items() if ONLY_HERE.search(text)}
        alone = set(statements) - others
        assert not alone - marked, f"{place}: say why: {sorted(alone - marked)}"
        assert not marked - alone, f"{place}: not alone: {sorted(marked - alone)}"


def statement_comments(folder: Path) -> dict[str, str]:
    """Statement name -> the text below its head, comments included."""
    found: dict[str, str] = {}
    for file in sorted(folder.glob("*.sql")):
        _, *parts = NAME_LINE.split(file.read_text(encoding="utf-8"))
        found.update(zip(parts[::2], parts[1::2], strict=True))
    return found


def test_migrations_are_numbered_without_a_gap() -> None:
    for folder in (SRC / "stores").glob("*/migrations"):
        names = sorted(p.name for p in folder.glob("*.sql"))
        wanted = [f"{number:04}" for number in range(1, len(names) + 1)]
        assert names, f"{folder.relative_to(SRC)}: no migration"
        assert [n.split("_")[0] for n in names] == wanted, names
        assert all(re.fullmatch(r"\d{4}_[a-z_]+\.sql", n) for n in names), names


@every_reading_path
def test_reading_path_is_true(name: str) -> None:
    """Each file is listed once, and exists; tests/docs/test_follow_a_job.py traces it."""
    page = (ROOT / name).read_text(encoding="utf-8")
    files = re.findall(r"^\d+\. `([\w/]+\.py)`", page, flags=re.MULTILINE)
    assert files, "the page lists no file: write lines such as '1. `app/tasks.py` ...'"
    numbers = [int(n) for n in re.findall(r"^(\d+)\. `[\w/]+\.py`", page, re.MULTILINE)]
    assert numbers == list(range(1, len(files) + 1)), "number the files in order"
    assert len(files) == len(set(files)), "a reader must never come back to a file"
    assert len(files) <= PATH_FILES_MAX, "too long a path for one job"
    missing = [file for file in files if file not in MODULES]
    assert not missing, f"moved or gone: {missing}"


@every_reading_path
def test_every_path_named_on_the_page_exists(name: str) -> None:
    """The side doors named beside the list are real too."""
    page = (ROOT / name).read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.py)`", page))
    gone = sorted(named - set(MODULES))
    assert not gone, f"the page names files that do not exist: {gone}"
