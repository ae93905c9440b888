"""The table of commands, --env-file, and an exit code and a shape for every error."""

import importlib
import os
from pathlib import Path

import click
import pytest

from durio.cli.env_file import env_lines, read_env_file
from durio.cli.main import (
    COMMANDS,
    AppImportFailed,
    error_fields,
    error_text,
    exit_code_of,
    first_error,
    report_error,
    wants_json,
)
from durio.errors import (
    DurioError,
    JobCancelled,
    JobDead,
    JobNotFound,
    SchemaMismatch,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreStalled,
    StoreUnavailable,
    UnknownTask,
    UsageError,
)
from durio.model.errors import PASSES_BY_ITSELF
from tests.unit.cli.terminal import Terminal


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_is_there(name: str) -> None:
    module, told = COMMANDS[name]
    command = importlib.import_module(module).command
    assert isinstance(command, click.Command)
    assert told.endswith(".")


def test_help_lists_every_command_with_its_line(terminal: Terminal) -> None:
    shown = terminal.ok("--help")
    for name, (_, told) in COMMANDS.items():
        assert f"  {name}" in shown
        assert told in shown
    assert "Exit codes:" in shown
    assert "\\b" not in shown


@pytest.mark.parametrize(
    "args", [["worker"], ["enqueue"], ["migrate"], ["jobs", "show"]]
)
def test_help_of_a_command_has_its_own_page(
    terminal: Terminal, args: list[str]
) -> None:
    shown = terminal.ok(*args, "--help")
    assert "--json" in shown
    assert "\\b" not in shown


def test_version(terminal: Terminal) -> None:
    assert terminal.ok("--version").startswith("durio ")


def test_no_command_shows_the_help(terminal: Terminal) -> None:
    assert "Commands:" in terminal.run().output


def test_unknown_command_has_a_suggestion(terminal: Terminal) -> None:
    error = terminal.error("wroker", code=2)
    assert error["code"] == "usage"
    assert "Did you mean 'worker'?" in error["what"]


def test_unknown_option_points_to_the_help_of_its_command(terminal: Terminal) -> None:
    error = terminal.error("jobs", "ls", "--stat", "dead", code=2)
    assert error["cure"] == "See: durio jobs ls --help"


# --- errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (UnknownTask("x"), 2),
        (click.UsageError("x"), 2),
        (StoreUnavailable("x"), 3),
        (StoreFull("x"), 3),
        (StoreReadOnly("x"), 3),
        (StoreCorrupt("x"), 3),
        (StoreStalled("x"), 3),
        (AppImportFailed("x"), 4),
        (SchemaMismatch("x"), 5),
        (JobDead("x", reason="permanent", job_id="7"), 6),
        (TimeoutError("x"), 7),
        (JobNotFound("x"), 1),
        (JobCancelled("x"), 1),
        (DurioError("x"), 1),
        (RuntimeError("x"), 1),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
    ],
)
def test_every_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert exit_code_of(error) == code
    assert {"code", "what", "cure"} <= error_fields(error).keys()


def test_error_says_what_code_and_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    fields = error_fields(UnknownTask("no task 'x'", cure="Known: a.\nOr b."))
    assert (
        error_text(fields) == "error: no task 'x' [unknown_task]\n  Known: a.\n  Or b."
    )


def test_expected_errors_show_no_traceback_and_unexpected_ones_do() -> None:
    assert "traceback" not in error_fields(StoreFull("x"))
    assert "ZeroDivisionError" in error_fields(ZeroDivisionError("x"))["traceback"]


def test_whoever_has_ended_does_not_go_on_by_itself() -> None:
    lost = StoreUnavailable("lost", cure=PASSES_BY_ITSELF)
    for error in (lost, StoreFull("x", cure="Free space; then Durio continues.")):
        cure = error_fields(error)["cure"]
        assert "continues" not in cure
        assert "start it again" in cure.lower()


def test_a_group_of_errors_is_told_by_its_first() -> None:
    inner = StoreFull("x")
    assert first_error(ExceptionGroup("g", [ExceptionGroup("h", [inner])])) is inner


def test_error_with_bytes_that_are_no_text_can_be_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert report_error(UsageError("bad \udcff"), as_json=False) == 2
    assert report_error(UsageError("bad \udcff"), as_json=True) == 2
    assert "bad \\udcff" in capsys.readouterr().err


def test_json_is_seen_on_a_line_that_cannot_be_parsed() -> None:
    assert wants_json(["worker", "--nonsense", "--json"])
    assert not wants_json(["enqueue", "x", "--", "--json"])


# --- the file of --env-file


def test_env_file_lines() -> None:
    text = """\ufeff# a comment
DURIO_URL=sqlite:///a.db
export DURIO_NAME = shop   # spoken
QUOTED="a # b" # c
SINGLE='x=y'
EMPTY=
no line
1BAD=x
NUL=a\0b
"""
    assert env_lines(text, ".env") == [
        ("DURIO_URL", "sqlite:///a.db"),
        ("DURIO_NAME", "shop"),
        ("QUOTED", "a # b"),
        ("SINGLE", "x=y"),
        ("EMPTY", ""),
    ]


def test_env_file_never_overrides(tmp_path: Path) -> None:
    environ = {"A": "set"}
    (tmp_path / ".env").write_text("A=file\nB=file\n")
    read_env_file(str(tmp_path / ".env"), environ)
    assert environ == {"A": "set", "B": "file"}


def test_env_file_that_cannot_be_read(terminal: Terminal) -> None:
    (terminal.folder / "folder").mkdir()
    (terminal.folder / "bytes").write_bytes(b"A=\xff\xfe\n")
    here = terminal.folder
    for name, words in {
        "none": f"--env-file: there is no file {here}/none",
        "folder": f"--env-file: {here}/folder is a folder",
        "bytes": f"--env-file: {here}/bytes is not UTF-8 text",
        "nul\0": "--env-file: 'nul\\x00' cannot be read: embedded null byte",
    }.items():
        error = terminal.error("--env-file", name, "jobs", "ls", code=2)
        assert (error["what"], bool(error["cure"])) == (words, True)
    assert terminal.run("--env-file", "none", "--help").exit_code == 0


@pytest.mark.parametrize("line", ["DURIO_NAME shop", "export DURIO_NAME: shop"])
def test_a_line_of_the_env_file_that_is_meant_for_us_and_says_nothing(
    terminal: Terminal, line: str
) -> None:
    terminal.write(".env", f"something else\n{line}\n")
    error = terminal.error("--env-file", ".env", "jobs", "ls", code=2)
    assert error["what"].startswith(f"{terminal.folder}/.env, line 2: ")


def test_command_line_reads_the_env_file_that_is_named(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    terminal.write(".env", "DURIO_URL=sqlite:///from-env.db\n")
    error = terminal.error("jobs", "ls", code=3)
    assert "durio.db" in error["what"]
    error = terminal.error("--env-file", ".env", "jobs", "ls", code=3)
    assert "from-env.db" in error["what"]
