"""The structure of the package: contents of each room, cost of imports, reading path."""

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import durio
from tests.tidy.house import MODULES, ROOT, SRC, imported_names, tree_of

# What `from durio import App` must not load: drivers, web frameworks, the terminal, a
# worker's machine, and slow modules of the standard library.
HEAVY = {"apsw", "sqlite3", "asyncpg", "psycopg", "redis", "sqlalchemy", "pydantic"}
HEAVY |= {"aio_pika", "confluent_kafka", "nats"}
HEAVY |= {"django", "fastapi", "flask", "starlette", "uvicorn", "click", "rich"}
HEAVY |= {"opentelemetry", "prometheus_client", "sentry_sdk", "textual", "pytest"}
HEAVY |= {"multiprocessing", "pathlib", "urllib", "zoneinfo"}
HEAVY |= {"durio.app.worker_builder", "durio.host.executors", "durio.worker.worker"}
# Its parts of Durio.
APP_ROOMS = {"app", "client", "host", "model", "ports", "telemetry", "worker"}

# What `import durio` and `durio --help` must not load either: only an App needs them.
FOR_AN_APP = {"asyncio", "concurrent", "dataclasses", "logging", "msgspec", "socket"}
FOR_AN_APP |= {"ssl", "subprocess"}
HELP = "sys.argv[1:] = ['--help']; from durio.cli.main import main; main()"

# Prints each module that is imported, and the modules that import it.
WATCH = """
import sys

class Watch:
    def find_spec(name, path=None, target=None):
        frame, importers = sys._getframe(), [name]
        while frame := frame.f_back:
            if frame.f_code.co_name == "<module>":
                importers.append(frame.f_globals["__name__"])
        print(*importers, sep=" <- ", file=sys.stderr)

sys.meta_path.insert(0, Watch)
"""

# Ports that are not a store's capability.
NOT_A_CAPABILITY = {"__init__", "broker", "clock", "executor", "fleet", "handler"}
NOT_A_CAPABILITY |= {
    "conflicts",
    "plan_maker",
    "worker_protocol",
    "plan_reader",
    "breaker_change",
    "plan_sweep",
    "plan_writes",
    "schedule_runs",
    "tick_maker",
}
NOT_A_CAPABILITY |= {"move", "store"}

# The head of a statement in a store's SQL; a part has another head and no name.
NAME_LINE = re.compile(r"^-- name: (\w+).*$", re.MULTILINE)
ONLY_HERE = re.compile(r"^-- only here: \w", re.MULTILINE)

# Steps of one job, helpers apart, on the store with the longer path. The aim is 27.
PATH_FILES_MAX = 35
READING_PATHS = [
    "docs/explanation/follow-a-job.md",
    "docs/explanation/follow-a-job-postgresql.md",
]
every_reading_path = pytest.mark.parametrize("name", READING_PATHS)


def test_package_files_only_export() -> None:
    for module in (m for m in MODULES if m.endswith("/__init__.py")):
        for node in tree_of(module).body:
            imported = isinstance(node, ast.Import | ast.ImportFrom)
            docstring = isinstance(node, ast.Expr) and isinstance(
                node.value, ast.Constant
            )
            assert imported or docstring, f"{module}: no logic here"


def test_public_names_load_on_first_use() -> None:
    """Type checkers and the interpreter find the same names in the same modules."""
    typed = {
        name: source.rpartition(".")[0]
        for name, source in imported_names(tree_of("__init__.py")).items()
        if source.startswith("durio.") and not name.startswith("_")
    }
    assert typed == durio._MODULE_OF
    assert set(durio.__all__) == typed.keys() <= set(dir(durio))
    for name, module in typed.items():
        assert getattr(durio, name) is getattr(importlib.import_module(module), name)
    with pytest.raises(
        AttributeError, match="'durio' has no attribute 'Jobb'"
    ) as raised:
        _ = durio.Jobb
    assert (raised.value.name, raised.value.obj) == ("Jobb", durio)


def test_every_folder_of_code_is_a_package() -> None:
    folders = {path.parent for path in SRC.rglob("*.py")}
    bare = [str(f) for f in folders if not (f / "__init__.py").exists()]
    assert not bare, f"without __init__.py: {sorted(bare)}"


def test_the_package_does_not_import_its_tests() -> None:
    for module in MODULES:
        imported = {n.split(".")[0] for n in imported_names(tree_of(module)).values()}
        assert "tests" not in imported, f"{module}: no installation has tests/"


def test_import_is_light() -> None:
    """`import durio` loads nothing that only an App needs, and no part of an App."""
    refuse(imports_of("import durio"), HEAVY | FOR_AN_APP, allowed={"model"})


def test_help_is_light() -> None:
    """`durio --help` reads a table: it loads no App and none of the commands."""
    imports = imports_of(HELP)
    refuse(imports, (HEAVY | FOR_AN_APP) - {"click"}, allowed={"cli", "model"})
    commands = [name for name in imports if name.startswith("durio.cli.")]
    assert commands == ["durio.cli.main"], f"--help loads {commands}"


@pytest.mark.parametrize("name", ["App", "errors", "keys", "plans", "queues"])
def test_a_declaration_is_light(name: str) -> None:
    """A module that declares tasks loads no store, terminal library or worker."""
    refuse(imports_of(f"from durio import {name}"), HEAVY, allowed=APP_ROOMS | {name})


def refuse(imports: dict[str, str], heavy: set[str], allowed: set[str]) -> None:
    """Fail if a heavy module was loaded, or a part of Durio outside these rooms."""
    found = [
        line
        for name, line in imports.items()
        if heavy & {name, name.partition(".")[0]}
        or (name.startswith("durio.") and name.split(".")[1] not in allowed)
    ]
    assert not found, "\n".join(["loaded too early:", *found])


def imports_of(program: str) -> dict[str, str]:
    """What a new interpreter imports for a program; for each module, who imports it."""
    answer = subprocess.run(
        [sys.executable, "-c", WATCH + program],
        env={**os.environ, "PYTHONPATH": str(SRC.parent)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert answer.returncode == 0, answer.stderr
    imports = {line.split()[0]: line for line in answer.stderr.splitlines()}
    assert "durio" in imports, answer.stderr
    return imports


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
