"""Cures that can be pasted: they name the App or the store, and never a password."""

import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

from durio import App
from durio.app.connect import absolute_url
from durio.app.cures import quoted, with_flags
from durio.errors import StoreUnavailable

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


@pytest.mark.parametrize(
    "command",
    [
        "durio limits set send 6",
        "durio limits set 'email:*' 6 10/s",
        "durio limits set queue:mail 2 100/m --burst 20.5",
        "durio limits set send 1/0.25d",
        "durio limits set tokens 2000000/d --burst 1e+15",
    ],
)
def test_cure_keeps_the_values_of_a_command_together(command: str) -> None:
    app = App(SERVER, name="shop")
    app.origin = "jobs:app"
    for after in ("", ".", ", or wait"):
        found = with_flags(command + after, app)
        assert found.replace(" --app jobs:app", "") == command + after
        words = found.split()
        assert words[words.index("--app") - 1] in command.split()


def test_cure_names_the_module_of_an_app(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("shop_jobs")
    module.tasks = App(SERVER, name="shop")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_jobs", module)
    assert with_flags(CURE, module.tasks) == completed(" --app shop_jobs:tasks")


def test_cure_with_a_module_that_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "blocked", None)
    app = App(SERVER, name="shop")
    assert "--store 'postgresql://ada:***@db.example.com/shop'" in with_flags(CURE, app)


def test_cure_in_a_folder_that_was_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    main = ModuleType("__main__")
    main.__file__ = str(tmp_path / "program.py")
    main.app = App(SERVER, name="shop")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", main)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "--store 'postgresql://" in with_flags(CURE, main.app)


def test_cure_prefers_the_module_to_the_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A script that imports the App would do its work again when it is imported."""
    monkeypatch.chdir(tmp_path)
    main, module = ModuleType("__main__"), ModuleType("shop_jobs")
    main.__file__ = str(tmp_path / "script.py")
    main.app = module.app = App(SERVER, name="shop")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setitem(sys.modules, "shop_jobs", module)
    assert with_flags(CURE, main.app) == completed(" --app shop_jobs:app")


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
    assert text.endswith("\nPut the password in place of ***.")
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


JOB_ID = "0198c2f4-7a31-7c1e-8b8e-2f6d0c1b9a55"
SHOW = f"See `durio jobs show {JOB_ID}`; to run it again: `durio jobs retry {JOB_ID}`."


def test_commands_about_a_job_name_the_app() -> None:
    app = App(SERVER, name="shop")
    app.origin = "shop.jobs:app"
    text = with_flags(SHOW, app)
    assert f"`durio jobs show {JOB_ID} --app shop.jobs:app`" in text
    assert f"`durio jobs retry {JOB_ID} --app shop.jobs:app`" in text
    assert with_flags(text, app) == text


@pytest.mark.parametrize(
    ("fix", "wanted"),
    [
        ("See: durio jobs ls", "See: durio jobs ls --app shop:app"),
        ("When you are ready: durio queues resume mail", "resume mail --app shop:app"),
        ("See: durio dead ls\nthen", "durio dead ls --app shop:app\nthen"),
        ("then: durio dead retry --all", "durio dead retry --app shop:app --all"),
    ],
)
def test_commands_of_the_doctor_name_the_app(fix: str, wanted: str) -> None:
    app = App(SERVER, name="shop")
    app.origin = "shop:app"
    text = with_flags(fix, app)
    assert wanted in text
    assert with_flags(text, app) == text


def test_a_store_in_memory_has_no_commands() -> None:
    assert with_flags(SHOW, App("sqlite:///:memory:", name="shop")) == SHOW


@pytest.mark.parametrize("name", ["it's", "a b", "a;b", "$HOME", "ä", "plain"])
def test_a_path_in_a_cure_is_one_word_of_a_shell(name: str) -> None:
    text = with_flags("Run: durio migrate", App(f"sqlite:////tmp/{name}.db"))
    assert shlex.split(text)[-1] == f"sqlite:////tmp/{name}.db"
    assert quoted("/tmp/plain.db") == "/tmp/plain.db"  # noqa: S108


def test_the_folder_to_make_is_one_word_of_a_shell(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/it's new/jobs.db"
    with pytest.raises(StoreUnavailable) as caught:
        App(url, name="shop").job_sync(JOB_ID)
    assert shlex.split(caught.value.cure)[-1] == f"{tmp_path}/it's new"


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
