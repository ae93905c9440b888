"""Cures that can be pasted: they name the App or the store, and never a password."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from durio import App
from durio.app.connect import absolute_url
from durio.app.cures import with_flags

SERVER = "postgresql://ada:secret@db.example.com/shop"
CURE = "Run `durio migrate`, with a role that may create tables there."


def completed(flags: str) -> str:
    return CURE.replace("durio migrate", f"durio migrate{flags}")


def test_cure_names_the_app_that_a_command_loaded() -> None:
    app = App(SERVER, name="shop")
    app.origin = "shop.jobs:app"
    assert with_flags(CURE, app) == completed(" --app shop.jobs:app")
    again = with_flags(with_flags(CURE, app), app)
    assert again == completed(" --app shop.jobs:app")


def test_cure_names_the_module_of_an_app(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("shop_jobs")
    module.tasks = App(SERVER, name="shop")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_jobs", module)
    assert with_flags(CURE, module.tasks) == completed(" --app shop_jobs:tasks")


@pytest.mark.parametrize("is_here", [True, False])
def test_cure_of_a_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_here: bool
) -> None:
    """`python app.py` can be imported as `app` from its own folder only."""
    monkeypatch.chdir(tmp_path)
    main = ModuleType("__main__")
    folder = tmp_path if is_here else tmp_path / "other"
    main.__file__ = str(folder / "program.py")
    main.app = App(SERVER, name="shop")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", main)
    flags = " --app program:app`" if is_here else " --store 'postgresql://ada:***@"
    assert f"durio migrate{flags}" in with_flags(CURE, main.app)


def test_cure_names_the_url_that_was_typed_without_its_password() -> None:
    text = with_flags(CURE, App(SERVER, name="shop"))
    assert " --store 'postgresql://ada:***@db.example.com/shop'" in text
    assert text.endswith(" Put the password in place of ***.")
    assert "secret" not in text
    app = App(name="shop")
    app.origin, app.url = "shop:app", "postgresql://db.example.com/shop"
    flags = " --app shop:app --store postgresql://db.example.com/shop"
    assert with_flags(CURE, app) == completed(flags)


@pytest.mark.parametrize("place", ["variable", "file"])
def test_cure_names_nothing_that_a_command_finds_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if place == "file":
        (tmp_path / "durio.toml").write_text(f'url = "{SERVER}"\n')
    else:
        monkeypatch.setenv("DURIO_URL", SERVER)
    assert with_flags(CURE, App(name="shop")) == CURE


def test_other_cures_stay_as_they_are() -> None:
    assert with_flags("Free space.", App(SERVER, name="shop")) == "Free space."


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("sqlite:///a.db", "sqlite:////srv/my%25 app/a.db"),
        ("sqlite:///./a.db?life=off", "sqlite:////srv/my%25 app/a.db?life=off"),
        ("sqlite:////b/a.db", "sqlite:////b/a.db"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        (SERVER, SERVER),
    ],
)
def test_paths_in_messages_are_absolute(url: str, wanted: str) -> None:
    assert absolute_url(url, "/srv/my% app") == wanted
