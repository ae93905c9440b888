"""`durio completion`: scripts for three shells, and what they complete."""

import os
import subprocess  # noqa: TID251 - bash runs the script
import sys
from pathlib import Path

import click
import pytest

from durio.cli import main
from durio.cli.main import COMMANDS, commands
from tests.unit.cli.terminal import Terminal


@pytest.mark.parametrize(
    ("shell", "part"),
    [
        ("bash", "complete -o nosort -F _durio_completion durio"),
        ("zsh", "#compdef durio"),
        ("fish", "complete --no-files --command durio"),
    ],
)
def test_script_of_each_shell(terminal: Terminal, shell: str, part: str) -> None:
    script = terminal.ok("completion", shell)
    assert part in script
    assert f"_DURIO_COMPLETE={shell}_complete" in script
    told = terminal.json("completion", shell)
    assert told == {"shell": shell, "script": script.removesuffix("\n")}
    assert not list(terminal.folder.iterdir())


@pytest.mark.parametrize("args", [[], ["powershell"], ["bash", "zsh"]])
def test_other_shells_are_refused(terminal: Terminal, args: list[str]) -> None:
    assert terminal.run("completion", *args).exit_code == 2


def test_commands_are_completed_without_loading_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(main.importlib, "import_module", None)
    ctx = click.Context(commands, info_name="durio", resilient_parsing=True)
    found = {item.value: item.help for item in commands.shell_complete(ctx, "")}
    assert found == {name: text for name, (_, text) in COMMANDS.items()}
    assert [item.value for item in commands.shell_complete(ctx, "qu")] == ["queues"]
    assert "--version" in {i.value for i in commands.shell_complete(ctx, "--")}


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("durio jo", "jobs"),
        ("durio dead re", "retry"),
        ("durio jobs ls --sta", "--state"),
        ("durio nothing --x", ""),
    ],
)
def test_bash_completes(
    terminal: Terminal, tmp_path: Path, words: str, wanted: str
) -> None:
    """A folder whose App cannot be imported: completing does not try."""
    terminal.write("app.py", "raise SystemExit('imported')")
    (tmp_path / "script").write_text(terminal.ok("completion", "bash"))
    program = tmp_path / "durio"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m durio "$@"\n')
    program.chmod(0o755)
    last = len(words.split()) - 1
    asked = (
        f"source ./script 2>/dev/null; COMP_WORDS=({words}); COMP_CWORD={last}; "
        '_durio_completion durio; echo "${COMPREPLY[*]}"'
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", asked],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "DURIO_APP": "app:app"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout.strip(), done.stderr) == (wanted, "")
    assert not list(tmp_path.glob("*.db"))
