"""Each import contract fails when it is broken on purpose, and no room is left out."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.tidy.house import ROOT, SRC, pyproject, rooms

pytestmark = pytest.mark.slow  # real processes, servers or seconds

CONTRACTS: dict[str, dict[str, Any]] = {
    contract["id"]: contract
    for contract in pyproject()["tool"]["importlinter"]["contracts"]
}


@dataclass(frozen=True)
class Crime:
    """A planted import, and the contract that must find it."""

    contract: str
    planted: dict[str, str] = field(default_factory=dict)


# path -> the line that is added at its end (a missing file is created).
CRIMES = {
    "a floor looks up": Crime("floors", {"model/job.py": "import durio.app"}),
    "a door between two rooms": Crime(
        "floors", {"client/enqueue.py": "import durio.worker.claim"}
    ),
    "a room on no floor": Crime(
        "floors", {"cellar/__init__.py": '"""A secret room."""'}
    ),
    "one store asks another": Crime(
        "stores",
        {"stores/postgres/store.py": "import durio.stores.sqlite.store"},
    ),
    "two files lean on each other": Crime(
        "cycles",
        {
            "model/quantities.py": "import durio.model.retry",
            "model/retry.py": "import durio.model.quantities",
        },
    ),
    "the model reads the clock": Crime("model", {"model/retry.py": "import time"}),
    "the worker opens a database": Crime("drivers", {"worker/claim.py": "import apsw"}),
    "a store paints the terminal": Crime(
        "terminal", {"stores/sqlite/store.py": "import rich"}
    ),
    "the worker starts a thread": Crime(
        "threads", {"worker/slots.py": "import threading"}
    ),
}

# Rooms that a list of source modules omits; pyproject.toml has the reasons.
LEFT_OUT = {
    "drivers": {"bench", "__main__", "stores", "brokers", "web", "integrations"},
    "terminal": {"cli", "__main__"},
    "threads": {"cli", "__main__", "host", "stores"},
}


def lint(source: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on a copy: PYTHONPATH puts it before the installed package."""
    program = "from importlinter.cli import lint_imports_command as main; main()"
    config = str(ROOT / "pyproject.toml")
    wide = {"NO_COLOR": "1", "COLUMNS": "200"}  # names must not be wrapped
    return subprocess.run(
        [sys.executable, "-c", program, "--no-cache", "--config", config],
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(source), **wide},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def broken(output: str) -> set[str]:
    """The ids of the contracts that import-linter reports as broken."""
    return {
        identity
        for identity, contract in CONTRACTS.items()
        if f"{contract['name']} BROKEN" in output
    }


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(
        SRC, tmp_path / "durio", ignore=shutil.ignore_patterns("__pycache__")
    )
    return tmp_path


def test_untouched_house_keeps_every_contract(copy: Path) -> None:
    """Otherwise a planted import would be found for the wrong reason."""
    found = lint(copy)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("name", CRIMES)
def test_contract_notices(name: str, copy: Path) -> None:
    crime = CRIMES[name]
    for path, line in crime.planted.items():
        file = copy / "durio" / path
        file.parent.mkdir(exist_ok=True)
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        file.write_text(f"{before}\n{line}\n", encoding="utf-8")
    found = lint(copy)
    assert found.returncode != 0, f"nobody noticed: {name}"
    assert crime.contract in broken(found.stdout), found.stdout + found.stderr


def test_no_store_is_forgotten() -> None:
    stores = {f"durio.stores.{p.parent.name}" for p in SRC.glob("stores/*/__init__.py")}
    assert set(CONTRACTS["stores"]["modules"]) == stores


def test_every_contract_has_a_crime() -> None:
    assert {crime.contract for crime in CRIMES.values()} == set(CONTRACTS)


def test_no_contract_has_exceptions() -> None:
    for contract in CONTRACTS.values():
        assert "ignore_imports" not in contract, f"{contract['name']}: no ignore list"


@pytest.mark.parametrize("identity", LEFT_OUT)
def test_no_room_is_forgotten(identity: str) -> None:
    sources = CONTRACTS[identity]["source_modules"]
    listed = {source.removeprefix("durio.") for source in sources}
    missing = rooms() - listed - LEFT_OUT[identity]
    assert not missing, f"{identity}: add {sorted(missing)} to its source_modules"


def test_optional_rooms_are_really_absent() -> None:
    """A layer in parentheses may be missing. Once it is built, it may not."""
    layers = " ".join(CONTRACTS["floors"]["layers"])
    built = [room for room in sorted(rooms()) if f"({room})" in layers]
    assert not built, f"take the parentheses off {built} in pyproject.toml"
