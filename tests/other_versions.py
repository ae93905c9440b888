"""Run a fast part of the suite on every other Python that Durio claims and this machine has.

    .venv/bin/python -m tests.other_versions            # what `make test` runs
    .venv/bin/python -m tests.other_versions --install  # only their environments
    .venv/bin/python -m tests.other_versions --list     # which interpreters are found

Searches PATH and pyenv for interpreters of the versions in pyproject.toml's classifiers,
without the one that runs this program. Each gets an environment of its own, `.venv-3.12`
and so on, and runs the quick unit tests, the conformance suite on SQLite, the typing tests
and a test that kills workers. A machine with one interpreter has nothing to do here.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = (
    "tests/unit",
    "tests/faults",
    "tests/conformance/test_sqlite.py",
    "tests/typing",
    "tests/e2e/test_kill.py::test_killed_at_full_speed",
)
PIP = ("-m", "pip", "install", "--quiet", "--no-compile", "--prefer-binary")


def claimed_versions() -> list[str]:
    """Return the versions of the classifiers, such as "3.12"."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = (re.fullmatch(r".*:: (3\.\d+)", one) for one in project["classifiers"])
    return [match[1] for match in found if match is not None]


def interpreter_of(version: str) -> Path | None:
    """Return an interpreter of this version: of pyenv, which has no shim for it, or PATH."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    installed = sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))
    if installed:
        return installed[-1]
    on_path = shutil.which(f"python{version}")
    return Path(on_path) if on_path and runs(on_path, version) else None


def runs(program: str, version: str) -> bool:
    """Whether it is this version and no shim of one that is not installed."""
    code = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    said = subprocess.run(
        [program, "-c", code], capture_output=True, text=True, check=False
    )
    return said.stdout.strip() == version


def make_environment(interpreter: Path, folder: Path) -> Path:
    """Return the Python of the environment; install it unless its stamp is newer."""
    python, stamp = folder / "bin" / "python", folder / ".ready"
    inputs = [ROOT / "pyproject.toml", ROOT / "requirements-dev.txt"]
    inputs.append(ROOT / "constraints.txt")
    newest = max(path.stat().st_mtime for path in inputs)
    if stamp.exists() and stamp.stat().st_mtime > newest:
        return python
    run(interpreter, "-m", "venv", "--clear", str(folder))
    run(python, *PIP, "-c", "constraints.txt", "-r", "requirements-dev.txt")
    run(python, *PIP, "-c", "constraints.txt", "--no-build-isolation", "-e", ".")
    stamp.touch()
    return python


def run(python: Path, *arguments: str) -> None:
    code = subprocess.run([python, *arguments], cwd=ROOT, check=False).returncode
    if code != 0:
        sys.exit(f"{python} {' '.join(arguments)}: exit code {code}")


def main(options: argparse.Namespace) -> None:
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    for version in claimed_versions():
        if version == own:
            continue
        interpreter = interpreter_of(version)
        if interpreter is None:
            print(f"Python {version}: not on this machine")
            continue
        print(f"Python {version}: {interpreter}", flush=True)
        if options.list:
            continue
        began = time.monotonic()
        python = make_environment(interpreter, ROOT / f".venv-{version}")
        if options.install:
            continue
        flags = ["-q", "-m", "not slow", "-n", options.processes, "--dist", "loadfile"]
        run(python, "-m", "pytest", *flags, "-p", "no:cacheprovider", *TESTS)
        print(f"Python {version}: passed, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="only show interpreters")
    parser.add_argument("--install", action="store_true", help="run no tests yet")
    parser.add_argument("--processes", default="2", help="tests side by side")
    main(parser.parse_args())
