"""Which App the fixture `durio_box` is for; the fixture itself runs in tests/e2e."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from durio import App
from durio.errors import UsageError
from durio.testing.pytest_plugin import app_of_project

SHOP = """
from durio import App
from durio.model.settings import Settings

app = App("sqlite:///own.db", name="NAME", imports=["MODULE_tasks"], settings=Settings())

@app.task
async def send() -> None: ...

def none():
    return []
"""


@dataclass
class FakeConfig:
    """What the plugin asks of pytest's configuration."""

    rootpath: Path
    ini: str = ""

    def getini(self, name: str) -> str:
        assert name == "durio_app"
        return self.ini


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Three modules, each with an App that has its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DURIO_APP", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("one", "two", "three"):
        text = SHOP.replace("NAME", name).replace("MODULE", f"named_{name}")
        (tmp_path / f"named_{name}.py").write_text(text)
        (tmp_path / f"named_{name}_tasks.py").write_text(f"""
from named_{name} import app

@app.task
def add(a: int) -> int:
    return a
""")
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("named_")]:
        del sys.modules[name]


def named(project: Path, ini: str = "") -> App:
    return app_of_project(cast("Any", FakeConfig(project, ini)))


def test_the_ini_file_goes_before_the_variable_and_the_settings_file(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "durio.toml").write_text('app = "named_three:app"')
    assert named(project).name == "three"
    monkeypatch.setenv("DURIO_APP", "named_two")
    assert named(project).name == "two"
    assert named(project, "named_one:app").name == "one"


def test_tasks_in_other_modules_are_known(project: Path) -> None:
    assert list(named(project, "named_one:app").registry.handlers) == [
        "one.send",
        "one.add",
    ]


def test_without_a_name_it_says_where_to_write_one(project: Path) -> None:
    with pytest.raises(UsageError, match="durio_box does not know the App") as caught:
        named(project)
    for place in ("durio_app = ", "DURIO_APP", "durio.toml"):
        assert place in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("named_four:app", "DURIO_APP says 'named_four:app', .* No module named"),
        ("named_one:ap", "DURIO_APP says 'named_one:ap', .* has no attribute 'ap'"),
        ("named_one:none", "named_one:none is or gave a list, not an App"),
        ("named_one:__name__", "named_one:__name__ is or gave a str, not an App"),
        (":app", "':app' names no App"),
        ("named_one:send", "named_one:send is or gave a Task, not an App"),
    ],
)
def test_an_app_that_cannot_be_loaded(
    project: Path, monkeypatch: pytest.MonkeyPatch, given: str, message: str
) -> None:
    monkeypatch.setitem(os.environ, "DURIO_APP", given)
    with pytest.raises(UsageError, match=message):
        named(project)


def test_an_app_that_is_not_text(project: Path) -> None:
    (project / "durio.toml").write_text("app = 5")
    with pytest.raises(
        UsageError, match=r"durio\.toml says '5', which cannot be loaded"
    ):
        named(project)
