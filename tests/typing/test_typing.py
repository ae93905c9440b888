"""mypy and pyright accept the good calls and refuse each planted mistake.

Two checkers, because users have either: the same lines must be found by both.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = [HERE / "good.py", HERE / "bad.py"]

Errors = dict[tuple[str, int], str]


def planted() -> set[tuple[str, int]]:
    """The lines marked `# E`, with at least a word on what is wrong."""
    return {
        (path.name, number)
        for path in FILES
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.search(r"  # E \w", line)
    }


def run(*command: str, **env: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=HERE,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    # Both checkers leave with 1 when they find errors; more is their own trouble.
    assert ran.returncode in {0, 1}, ran.stdout + ran.stderr
    return ran.stdout


def mypy() -> Errors:
    options = ["--strict", "--no-error-summary", "--hide-error-context", "--no-pretty"]
    options += ["--explicit-package-bases"]  # good.py is a file, not tests.typing.good
    cache = f"--cache-dir={ROOT / '.mypy_cache'}"
    told = run("mypy", *options, cache, "--config-file=", *(p.name for p in FILES))
    pattern = re.compile(r"^([\w./]+):(\d+): error: (.*)$", re.MULTILINE)
    return {(Path(f[1]).name, int(f[2])): f[3] for f in pattern.finditer(told)}


def pyright() -> Errors:
    python = f"--pythonpath={sys.executable}"
    quiet = {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # it would ask for newer versions
    told = run("pyright", python, "--outputjson", *(p.name for p in FILES), **quiet)
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1): each["message"]
        for each in json.loads(told)["generalDiagnostics"]
        if each["severity"] == "error"
    }


@pytest.mark.parametrize("check", [mypy, pyright], ids=["mypy", "pyright"])
def test_checker_finds_the_planted_mistakes_and_no_others(
    check: Callable[[], Errors],
) -> None:
    wanted, found = planted(), check()
    assert len(wanted) > 30, "the marks have gone"
    wrong = [f"{name}:{line}: not refused" for name, line in wanted - found.keys()]
    wrong += [f"{n}:{m}: refused: {found[n, m]}" for n, m in found.keys() - wanted]
    assert not wrong, "\n".join(["", *sorted(wrong)])
