"""mypy, pyright and basedpyright accept the good calls and refuse each planted mistake.

Users have any of the three, so each must find the same lines in its strict mode. Each runs
once, over both files.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = [HERE / "good.py", HERE / "bad.py"]
MISTAKES_MIN = 60
# In a file of mistakes a checker also complains that values are unused, or unknown.
NOISE = re.compile("reportUnused|reportUnknown")

Lines = dict[tuple[str, int], str]


class Report(NamedTuple):
    """What a checker says, by file and line."""

    errors: Lines
    types: Lines


def marked(mark: str, checker: str) -> Lines:
    """The lines with this mark for this checker, and what stands behind the mark."""
    found: Lines = {}
    pattern = re.compile(rf"  # {mark}(?: (pyright))?:? (?P<text>\S.*)$")
    for path in FILES:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            match = pattern.search(line)
            if match and (match[1] or "") in checker:
                found[path.name, number] = match["text"]
    return found


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
    # The checkers leave with 1 when they find errors; more is their own trouble.
    assert ran.returncode in {0, 1}, ran.stdout + ran.stderr
    return ran.stdout


def in_short(revealed: str) -> str:
    """A printed type without modules and default values, in one form for all checkers."""
    text = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", revealed)
    text = re.sub(r"^(\w+)\[\[(.*)\], ", r"\1[(\2), ", text)
    return re.sub(r"= ?[^,)\]]+(?=[,)])", "=", text)


def mypy(_folder: Path) -> Report:
    options = ["--strict", "--no-error-summary", "--hide-error-context", "--no-pretty"]
    options += ["--explicit-package-bases"]  # good.py is a file, not tests.typing.good
    options += ["--python-version=3.11", "--follow-imports=silent", "--config-file="]
    options += [f"--cache-dir={ROOT / '.mypy_cache'}"]
    said = run("mypy", *options, *(p.name for p in FILES), MYPYPATH=str(ROOT / "src"))
    report = Report({}, {})
    pattern = re.compile(r"^([\w./]+):(\d+): (error|note): (.*)$", re.MULTILINE)
    for file, line, kind, text in pattern.findall(said):
        place = (Path(file).name, int(line))
        if kind == "error":
            report.errors.setdefault(place, text)
        elif match := re.match(r'Revealed type is "(.*)"', text):
            report.types[place] = in_short(match[1])
    return report


def pyright(folder: Path, *, checker: str = "pyright") -> Report:
    for path in FILES:
        shutil.copy(path, folder)
    settings = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT / "src")],
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    options = [f"--project={folder}", f"--pythonpath={sys.executable}", "--outputjson"]
    quiet = {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # it would ask for newer versions
    said = run(checker, *options, **quiet)
    report = Report({}, {})
    for each in json.loads(said)["generalDiagnostics"]:
        place = (Path(each["file"]).name, each["range"]["start"]["line"] + 1)
        is_noise = place[0] == "bad.py" and NOISE.match(each.get("rule", ""))
        if each["severity"] == "error" and not is_noise:
            report.errors.setdefault(place, each["message"])
        elif match := re.match(r'Type of ".*" is "(.*)"$', each["message"]):
            report.types[place] = in_short(match[1])
    return report


def basedpyright(folder: Path) -> Report:
    return pyright(folder, checker="basedpyright")


@pytest.mark.proves("M13", "M19")
@pytest.mark.parametrize("check", [mypy, pyright, basedpyright])
def test_checker_finds_the_planted_mistakes_and_no_others(
    check: Callable[[Path], Report], tmp_path: Path
) -> None:
    mistakes, types = marked("E", check.__name__), marked("T", check.__name__)
    assert len(mistakes) >= MISTAKES_MIN, "the marks have gone"
    found = check(tmp_path)
    lines = [f"{n}:{m}: not refused" for n, m in mistakes.keys() - found.errors.keys()]
    lines += [
        f"{n}:{m}: refused: {found.errors[n, m]}"
        for n, m in found.errors.keys() - mistakes.keys()
    ]
    lines += [
        f"{n}:{m}: is {found.types.get((n, m))}, not {wanted}"
        for (n, m), wanted in types.items()
        if found.types.get((n, m)) != wanted
    ]
    assert not lines, "\n".join(["", *sorted(lines)])
