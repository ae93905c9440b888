"""What a user installs: types, statements and migrations are in the wheel."""

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.tidy.house import ROOT, SRC, pyproject


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
    assert "durio/py.typed" in wanted, "src/durio/py.typed is missing"
    assert wanted <= held, f"the wheel lacks {sorted(wanted - held)}"
    foreign = {name.split("/")[0] for name in held} - {"durio"}
    assert len(foreign) == 1, f"beside the package: {sorted(foreign)}"


def test_extra_all_means_all() -> None:
    extras = pyproject()["project"]["optional-dependencies"]
    (line,) = extras["all"]
    named = set(line.removeprefix("durio[").removesuffix("]").split(","))
    assert named == set(extras) - {"all"}
