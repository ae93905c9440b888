"""Which App, which store and which namespace a command means, and what it says if none."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from durio import App
from durio.errors import InvalidOption, InvalidURL, UsageError
from tests.unit.cli.terminal import SHOP, Terminal

BANK = SHOP.replace('name="shop"', 'name="bank"')
STORE = ("--store", "sqlite:///jobs.db")
NEVER = "raise RuntimeError('imported')\n"


@pytest.fixture
def two_apps(shop: Terminal) -> Terminal:
    """A store with the Apps `shop` and `bank`, one job each."""
    shop.write("bank.py", BANK)
    shop.json("enqueue", "resize", '["a"]', "--app", "shop")
    shop.json("enqueue", "refuse", "--app", "bank")
    return shop


@pytest.fixture
def broken(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """DURIO_APP names a module that cannot be imported."""
    terminal.write("broken.py", NEVER)
    monkeypatch.setenv("DURIO_APP", "broken:app")
    return terminal


# --- which App


def test_typed_app_beats_the_variable_and_that_the_file(
    two_apps: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def name(*args: str) -> str:
        rows = two_apps.json("config", "show", *args)["settings"]
        return next(row["value"] for row in rows if row["name"] == "name")

    assert name() == "app"
    two_apps.write("durio.toml", 'app = "bank:app"\n')
    assert name() == "bank"
    monkeypatch.setenv("DURIO_APP", "shop:app")
    assert name() == "shop"
    assert name("--app", "bank") == "bank"
    assert name("bank") == "bank"
    assert name(*STORE) == "app"


@pytest.mark.parametrize("command", ["doctor", "migrate", "tail", "config show"])
def test_app_is_the_first_argument(shop: Terminal, command: str) -> None:
    shop.json("enqueue", "resize", '["a"]', "--app", "shop")
    end = ["--seconds", "0.01"] if command == "tail" else []
    result = shop.run(*command.split(), "shop:app", *end)
    assert result.exit_code == (8 if "error" in result.stdout else 0), result.output
    again = shop.error(*command.split(), "shop:app", "--app", "shop", *end, code=2)
    assert again["what"] == "the App is named twice"


def test_worker_takes_the_app_from_the_variable(
    shop: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = shop.error("worker", "--burst", code=2)
    assert error["what"] == "no App is named"
    assert "durio worker app:app" in error["cure"]
    monkeypatch.setenv("DURIO_APP", "shop:app")
    job = shop.json("enqueue", "resize", '["a"]', *STORE, "--name", "shop")["id"]
    shop.ok("worker", "--burst", "--log-level", "error", *STORE)
    assert shop.json("jobs", "show", job)["state"] == "done"


@pytest.mark.parametrize(
    "args",
    [
        ["jobs", "ls", *STORE],
        ["queues", "pause", "default", *STORE, "--name", "shop"],
        ["dead", "ls", *STORE],
        ["workers", "ls", *STORE],
        ["audit", "ls", *STORE],
        ["migrate", "--check", *STORE],
        ["config", "show", *STORE],
        ["enqueue", "resize", '["a"]', *STORE, "--name", "shop"],
        ["jobs", "ls", "--help"],
        ["worker", "--help"],
        ["completion", "bash"],
        ["--help"],
        ["--version"],
    ],
    ids=" ".join,
)
def test_code_is_not_imported(broken: Terminal, args: list[str]) -> None:
    broken.json("enqueue", "shop.work", *STORE)
    assert broken.run(*args).exit_code == 0


def test_doctor_of_a_store_imports_no_code(broken: Terminal) -> None:
    broken.json("enqueue", "shop.work", *STORE)
    shown = broken.json("doctor", *STORE, code=8)  # no worker serves its queue
    assert "app.import" not in [check["name"] for check in shown["checks"]]


@pytest.mark.parametrize("command", ["bench", "demo", "completion"])
def test_some_commands_take_no_app(terminal: Terminal, command: str) -> None:
    error = terminal.error(command, "--app", "shop:app", code=2)
    assert "No such option '--app'" in error["what"]


def test_shell_completion_imports_no_code(
    broken: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_DURIO_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "durio jobs ")
    monkeypatch.setenv("COMP_CWORD", "2")
    shown = broken.run()
    assert (shown.exit_code, "plain,ls" in shown.stdout) == (0, True)


def test_cure_of_a_failed_import_names_the_way_without_code(broken: Terminal) -> None:
    error = broken.error("queues", "pause", "default", code=4)
    assert error["what"].startswith("DURIO_APP: broken cannot be imported")
    assert error["cure"].endswith("add: --store URL --name NAME")
    broken.write("durio.toml", 'url = "sqlite:///jobs.db"\nname = "shop"\n')
    store = f"--store sqlite:///{broken.folder}/jobs.db --name shop"
    assert broken.error("jobs", "ls", code=4)["cure"].endswith(store)
    assert "--store" not in broken.error("worker", code=4)["cure"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("shpo:app", "there is no module 'shpo'"),
        ("shop:ap", "shop has no 'ap'"),
        ("shop:SHOP", "shop has no 'SHOP'"),
        ("shop:Retry.after", "shop:Retry.after returned no App"),
        ("shop.py:app", "'shop.py:app' names no App"),
        ("a b", "'a b' names no App"),
    ],
)
@pytest.mark.parametrize("place", ["DURIO_APP", "durio.toml"])
def test_bad_app_in_the_variable_and_in_the_file(
    shop: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    value: str,
    words: str,
) -> None:
    if place == "DURIO_APP":
        monkeypatch.setenv(place, value)
    else:
        shop.write(place, f'app = "{value}"\n')
        place = str(shop.folder / place)
    error = shop.error("jobs", "ls", code=4)
    assert error["what"].startswith(f"{place}: {words}")


@pytest.mark.parametrize("value", ["5", "['shop:app']", "true"])
def test_app_in_the_file_that_is_not_text(shop: Terminal, value: str) -> None:
    shop.write("durio.toml", f"app = {value}\n")
    error = shop.error("jobs", "ls", code=2)
    assert "durio.toml: app cannot be" in error["what"]
    assert error["cure"] == "Give text."


def test_app_and_name_are_not_both_typed(shop: Terminal) -> None:
    error = shop.error("jobs", "ls", "--app", "shop", "--name", "x", code=2)
    assert error["what"] == "--app and --name are both given"


def test_name_means_another_app_in_the_store_of_the_configured_one(
    two_apps: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURIO_APP", "shop:app")
    (job,) = two_apps.json("jobs", "ls", "--name", "bank")["jobs"]
    assert job["task"] == "bank.refuse"


# --- which store


QUESTIONS: list[list[str]] = [
    ["jobs", "ls"],
    ["dead", "ls"],
    ["queues", "ls"],
    ["workers", "ls"],
    ["audit", "ls"],
    ["dead", "totals"],
    ["queues", "pause", "default"],
    ["tail", "--seconds", "0.01"],
]


@pytest.mark.parametrize(
    "args", [*QUESTIONS, ["enqueue", "work"], ["migrate"]], ids=str
)
def test_default_store_is_created_by_no_command(
    terminal: Terminal, args: list[str]
) -> None:
    error = terminal.error(*args, code=3)
    path = terminal.folder / "durio.db"
    assert error["what"] == (
        f"there is no store at sqlite:///{path} (the default, because nothing names a "
        "store)"
    )
    assert "--app MODULE:APP, --store URL" in error["cure"]
    assert not list(terminal.folder.iterdir())


@pytest.mark.parametrize("args", QUESTIONS, ids=str)
def test_named_store_is_created_by_no_question(
    terminal: Terminal, args: list[str]
) -> None:
    error = terminal.error(*args, "--store", "sqlite:///new.db", code=3)
    assert f"{terminal.folder}/new.db (named by --store)" in error["what"]
    assert not list(terminal.folder.iterdir())


def test_missing_store_says_where_its_name_comes_from(
    shop: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> str:
        return shop.error("jobs", "ls", code=3)["what"]

    shop.write("durio.toml", 'url = "sqlite:///file.db"\n')
    assert told().endswith(f"file.db (named by {shop.folder}/durio.toml)")
    monkeypatch.setenv("DURIO_URL", "sqlite:///variable.db")
    assert told().endswith("variable.db (named by DURIO_URL)")
    monkeypatch.setenv("DURIO_APP", "shop")
    assert told().endswith("jobs.db (the store of the App shop)")


@pytest.mark.parametrize("way", ["flag", "variable", "file", "app"])
@pytest.mark.parametrize("command", [["enqueue", "resize", '["a"]'], ["migrate"]])
def test_enqueue_and_migrate_create_a_store_that_is_named(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, way: str, command: list[str]
) -> None:
    args = {"flag": ["--store", "sqlite:///made.db"], "app": ["--app", "shop"]}
    if way == "variable":
        monkeypatch.setenv("DURIO_URL", "sqlite:///made.db")
    elif way == "file":
        terminal.write("durio.toml", 'url = "sqlite:///made.db"\n')
    terminal.write("shop.py", SHOP.replace("jobs.db", "made.db"))
    answer = terminal.json(*command, *args.get(way, []))
    assert answer["store"] == f"sqlite:///{terminal.folder}/made.db"
    assert (terminal.folder / "made.db").exists()


def test_app_on_the_default_store_names_it(terminal: Terminal) -> None:
    terminal.write("shop.py", SHOP.replace('"sqlite:///jobs.db", ', ""))
    terminal.json("enqueue", "resize", '["a"]', "--app", "shop")
    assert (terminal.folder / "durio.db").exists()
    assert (
        len(terminal.json("jobs", "ls")["jobs"]) == 1
    )  # it exists: no need to name it


def test_worker_creates_the_store_that_it_uses(shop: Terminal) -> None:
    shop.ok("worker", "shop", "--burst", "--log-level", "error")
    assert (shop.folder / "jobs.db").exists()


def test_doctor_reports_a_missing_store_as_a_finding(terminal: Terminal) -> None:
    checks = terminal.json("doctor", "--json", code=0)["checks"]
    found = {check["name"]: check for check in checks}
    assert str(terminal.folder / "durio.db") in found["store.place"]["evidence"]
    assert not list(terminal.folder.iterdir())


def test_store_that_is_a_folder(terminal: Terminal) -> None:
    (terminal.folder / "data").mkdir()
    store = ("--store", "sqlite:///data")
    for args in (["jobs", "ls"], ["enqueue", "work"], ["migrate"]):
        error = terminal.error(*args, *store, code=3)
        assert f"{terminal.folder}/data is a folder" in error["what"]
        assert error["cure"] == "Name a file in it."


def test_store_in_a_folder_that_cannot_be_written(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    (terminal.folder / "frozen").mkdir()
    may: Callable[..., bool] = os.access  # permissions do not stop root

    def access(path: Path | str, mode: int) -> bool:
        return Path(path).name != "frozen" and may(path, mode)

    monkeypatch.setattr(os, "access", access)
    store = ("--store", "sqlite:///frozen/jobs.db")
    for args in (["enqueue", "work"], ["migrate"]):
        error = terminal.error(*args, *store, code=3)
        assert f"this user may not write in {terminal.folder}/frozen" in error["what"]


def test_enqueue_prints_the_store_and_the_full_name(shop: Terminal) -> None:
    where = f"sqlite:///{shop.folder}/jobs.db"
    shown = shop.run("enqueue", "resize", '["a"]', "--app", "shop")
    assert shown.stdout.endswith(f"  shop.resize  queue default  {where}\n")
    assert shown.stderr == ""  # the App is known: no warning
    waited = ("enqueue", "resize", '["a"]', "--app", "shop", "--wait", "--timeout", "0")
    assert f"shop.resize  queue default  {where}" in shop.run(*waited).stderr


def test_first_enqueue_without_code_says_what_was_not_checked(
    terminal: Terminal,
) -> None:
    shown = terminal.run("enqueue", "work", *STORE)
    assert shown.stderr == (
        "warning: no worker has registered this task yet, so its arguments were not "
        "checked (task=app.work) [namespace.unknown]\n"
    )


@pytest.mark.parametrize("name", ["durio.toml", "durio.db"])
def test_command_below_the_folder_of_the_project(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    terminal.write(name, "")
    (terminal.folder / "src/shop").mkdir(parents=True)
    monkeypatch.chdir(terminal.folder / "src/shop")
    cure = terminal.error("jobs", "ls", code=3)["cure"]
    hint = f"There is a {name} in {terminal.folder}: run this command there."
    assert cure.endswith(f"\n{hint}")
    named = terminal.error("jobs", "ls", "--store", "sqlite:///x.db", code=3)
    assert hint not in named["cure"]


def test_folder_above_that_cannot_be_read(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_file = Path.is_file

    def closed(path: Path) -> bool:
        if path == terminal.folder.parent / "durio.toml":
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", closed)
    assert terminal.error("jobs", "ls", code=3)["code"] == "store_unavailable"


# --- which namespace


def test_order_of_names(shop: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def task(*args: str) -> str:
        return shop.json("enqueue", "refuse", *STORE, *args)["task"]

    assert task() == "app.refuse"  # an empty file
    shop.write("durio.toml", 'name = "filed"\n')
    assert task() == "filed.refuse"
    monkeypatch.setenv("DURIO_NAME", "set")
    assert task() == "set.refuse"
    assert task("--app", "shop") == "shop.refuse"
    assert task("--name", "typed") == "typed.refuse"


def test_list_of_an_app_that_the_store_does_not_have(shop: Terminal) -> None:
    """A misspelt name would list nothing, which looks like good news."""
    shop.json("enqueue", "resize", '["a"]', "--app", "shop")
    warning = "warning: App shpo has not used this store; its Apps: shop\n"
    for command in ("jobs", "dead", "queues", "workers"):
        assert shop.run(command, "ls", *STORE, "--name", "shpo").stderr == warning
        assert shop.run(command, "ls", *STORE, "--name", "shop").stderr == ""
        assert shop.run(command, "ls", *STORE, "--all-apps").stderr == ""


def test_only_app_of_a_store_is_meant(shop: Terminal) -> None:
    shop.json("enqueue", "resize", '["a"]', "--app", "shop")
    shop.ok("worker", "shop", "--burst", "--log-level", "error")
    assert shop.json("enqueue", "resize", '["b"]', *STORE)["task"] == "shop.resize"
    assert shop.error("enqueue", "rezise", *STORE, code=2)["code"] == "unknown_task"
    assert len(shop.json("jobs", "ls", *STORE, "--task", "resize")["jobs"]) == 2
    (row,) = shop.json("queues", "pause", "mail", *STORE)["queues"]
    assert (row["namespace"], row["queue"]) == ("shop", "mail")


def test_queue_alone_does_not_make_an_app(shop: Terminal) -> None:
    """A pause with a wrong name must not hide the only App."""
    shop.json("enqueue", "resize", '["a"]', "--app", "shop")
    shop.json("queues", "pause", "default", *STORE, "--name", "wrong")
    assert shop.json("queues", "pause", "default", *STORE)["queues"][0][
        "namespace"
    ] == ("shop")


@pytest.mark.parametrize(
    "args",
    [
        ["jobs", "ls"],
        ["dead", "ls"],
        ["queues", "ls"],
        ["workers", "ls"],
        ["queues", "pause", "default"],
        ["dead", "retry", "--all"],
        ["dead", "export"],
        ["workers", "drain", "--all", "--yes"],
        ["enqueue", "resize"],
    ],
    ids=" ".join,
)
def test_several_apps_are_listed(two_apps: Terminal, args: list[str]) -> None:
    error = (
        two_apps.error(*args, *STORE, code=2)
        if args != ["dead", "export"]
        else (two_apps.error(*args, "-o", "x", *STORE, code=2))
    )
    assert error["code"] == "several_apps"
    assert error["what"].endswith("/jobs.db has several Apps: bank, shop")
    is_list = args[-1] == "ls"
    lines = ["Name one: --name bank", *(["Or see all: --all-apps"] if is_list else [])]
    assert error["cure"].splitlines() == lines


def test_all_apps(two_apps: Terminal) -> None:
    for group, key in (("jobs", "jobs"), ("queues", "queues")):
        rows = two_apps.json(group, "ls", *STORE, "--all-apps")[key]
        assert {row["namespace"] for row in rows} == {"bank", "shop"}
    assert two_apps.ok("queues", "ls", *STORE, "--all-apps").startswith("app ")
    assert two_apps.json("dead", "ls", *STORE, "--all-apps")["jobs"] == []
    assert two_apps.json("workers", "ls", *STORE, "--all-apps")["workers"] == []
    error = two_apps.error("jobs", "ls", "--all-apps", "--name", "shop", code=2)
    assert error["what"] == "--all-apps is given with --app or --name"


def test_task_and_queue_of_several_apps(two_apps: Terminal) -> None:
    def listed(*args: str) -> list[str]:
        rows = two_apps.json("jobs", "ls", *STORE, "--all-apps", *args)["jobs"]
        return [row["task"] for row in rows]

    assert listed("--task", "resize") == ["shop.resize"]
    assert listed("--task", "bank.refuse") == ["bank.refuse"]
    two_apps.json("enqueue", "resize", '["a"]', "--app", "bank")
    error = two_apps.error(
        "jobs", "ls", *STORE, "--all-apps", "--task", "resize", code=2
    )
    assert error["what"].endswith("'resize': bank.resize, shop.resize")
    assert error["cure"] == "Write one of them: --task bank.resize"
    error = two_apps.error(
        "jobs", "ls", *STORE, "--all-apps", "--queue", "default", code=2
    )
    assert error["cure"].endswith("--name bank")


def test_ids_need_no_app(two_apps: Terminal) -> None:
    for row in two_apps.json("jobs", "ls", *STORE, "--all-apps")["jobs"]:
        assert two_apps.json("jobs", "show", row["id"], *STORE)["id"] == row["id"]
        assert two_apps.json("jobs", "cancel", row["id"], *STORE)["jobs"][0]["ok"]


def test_an_act_on_an_empty_store_wants_a_name(terminal: Terminal) -> None:
    terminal.ok("migrate", *STORE)
    assert terminal.json("jobs", "ls", *STORE)["jobs"] == []
    error = terminal.error("queues", "pause", "default", *STORE, code=2)
    assert error["what"].endswith("jobs.db has no App yet")
    assert "--name NAME" in error["cure"]


@pytest.mark.parametrize("group", ["jobs", "dead"])
@pytest.mark.parametrize(
    ("filters", "code", "hint"),
    [
        (["--task", "resise"], "unknown_task", "Did you mean 'resize'?"),
        (["--task", "shop.resise"], "unknown_task", "Did you mean 'shop.resize'?"),
        (["--queue", "mial"], "unknown_queue", "Did you mean 'mail'?"),
    ],
)
def test_filter_that_names_nothing_known(
    shop: Terminal, group: str, filters: list[str], code: str, hint: str
) -> None:
    shop.json("enqueue", "resize", '["a"]', "--app", "shop")
    error = shop.error(group, "ls", "--app", "shop", *filters, code=2)
    assert (error["code"], error["cure"].endswith(hint)) == (code, True)
    known = [filters[0], {"--task": "refuse", "--queue": "mail"}[filters[0]]]
    assert shop.json(group, "ls", "--app", "shop", *known)["jobs"] == []


# --- the name of an App


def test_app_takes_its_name_as_its_url(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert App().name == "app"
    terminal.write("durio.toml", 'name = "filed"\n')
    assert App().name == "filed"
    monkeypatch.setenv("DURIO_NAME", "set")
    assert App().name == "set"
    assert App(name="coded").name == "coded"
    assert terminal.json("config", "show")["settings"][1]["from"] == "DURIO_NAME"


@pytest.mark.parametrize("name", ["Shop", "a b", "x" * 64])
def test_bad_name_in_the_variable_and_in_the_file(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    terminal.write("durio.toml", f'name = "{name}"\n')
    with pytest.raises(InvalidOption, match=r"durio.toml: an app cannot be named"):
        App()
    monkeypatch.setenv("DURIO_NAME", name)
    with pytest.raises(InvalidOption, match="DURIO_NAME: an app cannot be named"):
        App()
    assert App(name="coded").name == "coded"


SERVER = "postgresql://ada:secret@db.example.com/shop"


def test_app_on_a_server_needs_a_name(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="would run each other's jobs") as caught:
        App(SERVER)
    assert "secret" not in str(caught.value)
    assert 'App(name="shop")' in caught.value.cure
    monkeypatch.setenv("DURIO_URL", SERVER)
    with pytest.raises(UsageError, match="needs a name"):
        App()
    assert App(name="shop").name == "shop"
    terminal.write("durio.toml", 'name = "filed"\n')
    assert App().name == "filed"


def test_app_that_meets_a_server_later_needs_a_name(terminal: Terminal) -> None:
    """`durio worker --store` sets the URL after the App was made."""
    terminal.write("nameless.py", SHOP.replace(', name="shop"', ""))
    error = terminal.error("worker", "nameless", "--store", SERVER, code=2)
    assert "needs a name" in error["what"]


def test_url_that_is_not_text_is_refused_at_once() -> None:
    with pytest.raises(InvalidURL, match="cannot be the URL of a store"):
        App(5)  # type: ignore[arg-type]
