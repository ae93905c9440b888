"""What a user installs: types, statements and migrations are in the wheel."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.tidy.house import (
    MODULES,
    ROOT,
    SRC,
    imported_names,
    pyproject,
    tree_of,
)


def test_wheel_holds_everything(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    built = subprocess.run(
        [*command, "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        f"durio/{path.relative_to(SRC).as_posix()}"
        for path in SRC.rglob("*")
        if path.is_file() and path.suffix in {".py", ".sql", ".typed"}
    }
    # The dashboard's page: whatever its build has made.
    wanted |= {
        f"durio/{path.relative_to(SRC).as_posix()}"
        for path in (SRC / "web/static").rglob("*")
        if path.is_file()
    }
    assert "durio/py.typed" in wanted, "src/durio/py.typed is missing"
    assert wanted <= held, f"the wheel lacks {sorted(wanted - held)}"
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in held)
    assert any(name.endswith(".dist-info/entry_points.txt") for name in held)
    foreign = {name.split("/")[0] for name in held} - {"durio"}
    assert len(foreign) == 1, f"beside the package: {sorted(foreign)}"


def test_no_dependency_without_code() -> None:
    """What a user must install, or may with an extra, is imported by the package."""
    project = pyproject()["project"]
    wanted = [*project["dependencies"]]
    wanted += [
        line for extra in project["optional-dependencies"].values() for line in extra
    ]
    named = {re.split(r"[\s\[<>=!~;]", line, maxsplit=1)[0] for line in wanted}
    imported = {
        path.split(".")[0]
        for module in MODULES
        for path in imported_names(tree_of(module)).values()
    }
    imported.add("tzdata")  # zoneinfo reads it where the machine has no zones
    assert named <= imported, f"no code imports {sorted(named - imported)}"


def test_the_demo_needs_no_tools() -> None:
    planned = subprocess.run(
        ["make", "--dry-run", "--always-make", "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert planned.returncode == 0, planned.stderr
    assert ".venv-demo/bin/durio demo" in planned.stdout
    assert "requirements-dev.txt" not in planned.stdout
    assert ".venv/" not in planned.stdout
