"""Settings by flag, code, variable, env file and file, and `durio config show` about them."""

import os
from pathlib import Path
from typing import Any

import pytest

from durio import App, Settings
from durio.app.connect import masked
from durio.errors import InvalidOption
from tests.unit.cli.terminal import Terminal

SETTING = "worker.concurrency"
VARIABLE = "DURIO_WORKER__CONCURRENCY"
SHOP = """
from durio import App
app = App({url}name="shop", settings={settings})
"""


ENV_FILE = ("--env-file", ".env")


def row(
    terminal: Terminal, name: str, *args: str, before: tuple[str, ...] = ()
) -> tuple[Any, str, str | None]:
    shown = terminal.json(*before, "config", "show", *args)["settings"]
    found = {setting["name"]: setting for setting in shown}[name]
    return found["value"], found["origin"], found["from"]


@pytest.mark.proves("M15", "M16")
def test_the_strongest_wins(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step adds a stronger place; the older ones keep saying something else."""
    monkeypatch.setenv(VARIABLE, "0")  # so that it is taken away again at the end
    monkeypatch.delenv(VARIABLE)
    file = str(terminal.folder / "durio.toml")
    pyproject = str(terminal.folder / "pyproject.toml")
    assert row(terminal, SETTING) == (10, "default", None)

    terminal.write("pyproject.toml", "[tool.durio.worker]\nconcurrency = 1\n")
    assert row(terminal, SETTING) == (1, "file", pyproject)
    terminal.write("durio.toml", "[worker]\nconcurrency = 2\n")
    assert row(terminal, SETTING) == (2, "file", file)

    terminal.write(".env", f"{VARIABLE}=3\n")
    assert row(terminal, SETTING) == (2, "file", file)  # nothing reads it by itself
    found = row(terminal, SETTING, before=ENV_FILE)
    assert found == (3, "env file", VARIABLE)
    monkeypatch.delenv(VARIABLE)  # a process that ends takes its variables along
    monkeypatch.setenv(VARIABLE, "4")
    assert row(terminal, SETTING) == (4, "environment", VARIABLE)

    terminal.write("shop.py", SHOP.format(url="", settings='{"worker": {}}'))
    assert row(terminal, SETTING, "shop:app") == (4, "environment", VARIABLE)
    code = '{"worker": {"concurrency": 5}}'
    terminal.write("store.py", SHOP.format(url="", settings=code))
    assert row(terminal, SETTING, "store:app") == (5, "code", "settings=")
    # The worker's flag is the strongest: the same value that `greet` shows.
    assert App(settings={"worker": {"concurrency": 5}}).settings.worker.concurrency == 5


@pytest.mark.proves("M15")
def test_the_store_by_flag_code_variable_and_file(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert row(terminal, "url") == ("sqlite:///durio.db", "default", None)
    terminal.write("durio.toml", 'url = "sqlite:///file.db"\nname = "filed"\n')
    file = str(terminal.folder / "durio.toml")
    assert row(terminal, "url") == ("sqlite:///file.db", "file", file)
    assert row(terminal, "name") == ("filed", "file", file)
    assert App().url == "sqlite:///file.db"
    monkeypatch.setenv("DURIO_URL", "sqlite:///variable.db")
    assert row(terminal, "url")[:2] == ("sqlite:///variable.db", "environment")
    code = 'url="sqlite:///code.db", '
    terminal.write("shop.py", SHOP.format(url=code, settings="None"))
    assert row(terminal, "url", "shop") == ("sqlite:///code.db", "code", "App(url)")
    assert row(terminal, "name", "shop") == ("shop", "code", "App(name=)")
    flag = ("--store", "sqlite:///flag.db")
    assert row(terminal, "url", "shop", *flag) == (
        "sqlite:///flag.db",
        "flag",
        "--store",
    )
    assert row(terminal, "name", "--name", "x") == ("x", "flag", "--name")


def test_commands_take_store_and_name_from_the_file(terminal: Terminal) -> None:
    terminal.write("durio.toml", 'url = "sqlite:///file.db"\nname = "shop"\n')
    job = terminal.json("enqueue", "anything", "{}")
    assert (terminal.folder / "file.db").exists()
    assert terminal.json("jobs", "ls")["jobs"][0]["task"] == "shop.anything"
    assert terminal.json("jobs", "ls", "--name", "other")["jobs"] == []
    assert job["id"]


def test_folders_above_are_not_searched(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.write("durio.toml", "[worker]\nconcurrency = 2\n")
    below = terminal.folder / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    assert App().settings.worker.concurrency == 10


def test_a_named_file_takes_the_place_of_the_found_one(terminal: Terminal) -> None:
    terminal.write("durio.toml", "[worker]\nconcurrency = 2\nprefetch = 7\n")
    terminal.write("other.toml", "[worker]\nconcurrency = 3\n")
    worker = App(settings="other.toml").settings.worker
    assert (worker.concurrency, worker.prefetch) == (3, 1024)


def test_settings_in_code_read_no_file(terminal: Terminal) -> None:
    terminal.write("durio.toml", "[worker")
    assert App(settings=Settings()).settings == Settings()
    terminal.write("shop.py", SHOP.format(url="", settings="Settings()"))
    terminal.write(
        "whole.py",
        "from durio import Settings, App as A\n" + "app = A(settings=Settings())\n",
    )
    assert row(terminal, SETTING, "whole") == (10, "code", "settings=")


def test_other_tools_pyproject_is_not_parsed(terminal: Terminal) -> None:
    terminal.write("pyproject.toml", "[tool.other\nbroken")
    assert row(terminal, SETTING) == (10, "default", None)


# --- bad input


@pytest.mark.proves("M16")
@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "durio.toml",
            "[worker]\nconcurency = 2",
            ["worker.concurency", "'concurrency'"],
        ),
        ("durio.toml", "[wroker]\nx = 2", ["wroker", "Did you mean 'worker'?"]),
        ("durio.toml", "ulr = 'x'", ["ulr", "Did you mean 'url'?"]),
        ("durio.toml", "url = 5", ["url cannot be 5"]),
        ("durio.toml", "worker = 5", ["setting worker", "[worker]"]),
        ("durio.toml", "[worker]\nconcurrency = 'many'", [SETTING]),
        ("durio.toml", "[worker]\nconcurrency = 0", [SETTING, "1 to 10000"]),
        ("durio.toml", "[worker]\nheartbeat_seconds = 20", ["heartbeat", "a third"]),
        ("durio.toml", "a = 1\n[worker\n", ["line 2"]),
        ("durio.toml", "\udcff", ["cannot be read"]),
        ("pyproject.toml", "tool.durio = 5", ["not a table"]),
        ("pyproject.toml", "[tool.durio]\nspeed = 5", ["there is no setting speed"]),
    ],
)
def test_a_bad_file_is_named(
    terminal: Terminal, name: str, text: str, words: list[str]
) -> None:
    """For every command, also for those that load an App which reads the file itself."""
    (terminal.folder / name).write_bytes(text.encode(errors="surrogateescape"))
    terminal.write("shop.py", SHOP.format(url="", settings="None"))
    for args in (["config", "show"], ["config", "show", "shop"], ["worker", "shop"]):
        error = terminal.error(*args, code=2)
        assert error["code"] == "invalid_option"
        told = f"{error['what']} {error['cure']}"
        assert str(terminal.folder / name) in told
        for word in words:
            assert word in told


def test_a_bad_variable_is_named(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "many")
    terminal.write("shop.py", SHOP.format(url="", settings="None"))
    for args in (["config", "show"], ["worker", "shop"]):
        assert VARIABLE in terminal.error(*args, code=2)["what"]


def test_a_bad_value_names_the_env_file(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    terminal.write(".env", f"{VARIABLE}=many\n")
    error = terminal.error(*ENV_FILE, "config", "show", code=2)
    assert error["what"].startswith(f"{VARIABLE} in {terminal.folder}/.env: ")


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("DURIO_URLL", "Did you mean 'DURIO_URL'?"),
        ("DURIO_WORKER", "DURIO_WORKER__"),
        ("DURIO_WROKER__CONCURRENCY", "DURIO_WROKER__CONCURRENCY: "),
        ("DURIO_LOG__LEVEL", "DEBUG or INFO or WARNING or ERROR"),
    ],
)
def test_variables_that_are_nearly_ours(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, variable: str, words: str
) -> None:
    monkeypatch.setenv(variable, "3")
    terminal.write("shop.py", SHOP.format(url="", settings="None"))
    for args in (["config", "show"], ["worker", "shop"]):
        error = terminal.error(*args, code=2)
        assert words in f"{error['what']} {error['cure']}"


def test_a_file_may_begin_with_a_mark_of_its_encoding(terminal: Terminal) -> None:
    terminal.write("durio.toml", "\ufeffname = 'shop'\n[log]\nlevel = 'debug'\n")
    shown = {row["name"]: row for row in terminal.json("config", "show")["settings"]}
    assert shown["name"]["value"] == "shop"
    assert shown["log.level"]["value"] == "DEBUG", "in any case, as by --log-level"


def test_bad_settings_in_code_are_the_codes_fault(terminal: Terminal) -> None:
    terminal.write("shop.py", SHOP.format(url="", settings="{'wroker': {}}"))
    error = terminal.error("worker", "shop", code=4)
    assert "shop.py" in error["traceback"]


def test_an_app_named_twice(terminal: Terminal) -> None:
    assert terminal.error("config", "show", "a", "--app", "b", code=2)["cure"]


# --- secrets


@pytest.mark.proves("M15")
def test_a_variable_may_name_a_file_that_holds_its_value(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.write("secret", "sqlite:///secret.db\n")
    monkeypatch.setenv("DURIO_URL_FILE", "secret")
    assert row(terminal, "url") == (
        "sqlite:///secret.db",
        "environment",
        "DURIO_URL_FILE",
    )
    terminal.write("number", "8")
    monkeypatch.setenv(f"{VARIABLE}_FILE", "number")
    assert row(terminal, SETTING) == (8, "environment", f"{VARIABLE}_FILE")
    monkeypatch.setenv("DURIO_URL", "sqlite:///x.db")
    with pytest.raises(InvalidOption, match="are both set"):
        App()
    monkeypatch.delenv("DURIO_URL")
    Path("secret").unlink()
    with pytest.raises(InvalidOption, match="DURIO_URL_FILE"):
        App()


def test_a_set_variable_beats_the_file_that_env_names(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURIO_URL", "sqlite:///x.db")
    terminal.write(".env", "DURIO_URL_FILE=nowhere\n")
    assert row(terminal, "url", before=ENV_FILE)[0] == "sqlite:///x.db"
    assert "DURIO_URL_FILE" not in os.environ


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cret@host/db",
        "postgresql://me:s3:c@ret@host/db",
        "postgresql://me:s3/cret@host/db",
        "postgresql://me:s3#cret?cret@host/db",
        "postgresql://me:s3@x/cret@host/db",
        "postgresql://host/db?password=s3cret&x=1",
        "redis://host/0?sslpassword=s3cret",
    ],
)
def test_passwords_are_not_shown(terminal: Terminal, url: str) -> None:
    assert "cret" not in masked(url)
    assert "cret" not in terminal.ok("config", "show", "--origin", "--store", url)
    assert "host" in masked(url)


def test_people_see_the_origin_on_demand(terminal: Terminal) -> None:
    terminal.write("durio.toml", "[worker]\nconcurrency = 2\n")
    plain = terminal.ok("config", "show")
    assert "durio.toml" not in plain
    told = terminal.ok("config", "show", "--origin")
    line = next(line for line in told.splitlines() if line.startswith(SETTING))
    assert line.split() == [SETTING, "2", str(terminal.folder / "durio.toml")]
    assert "default" in told


def test_routes_of_the_file_are_shown(terminal: Terminal) -> None:
    route = '[[routes]]\ntasks = "pay*"\nqueue = "high"\npriority = 9\n'
    terminal.write("durio.toml", route)
    file = str(terminal.folder / "durio.toml")
    assert row(terminal, "routes.pay*") == ("high 9", "file", file)
