"""Code, worker and command line use the same store and App, or the command says why not.

Six ways in which they once did not, each with real processes.
"""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_cli import Shell
from tests.e2e.workers import START_SECONDS
from tests.servers.postgres import PostgresServer

APP = """
from durio import App, Permanent

app = App({arguments})

@app.task
async def send(to: str) -> str:
    return to

@app.task
async def send_receipt() -> None:
    raise Permanent("no such order")
"""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    try:
        yield shell
    finally:
        shell.clear_away()


def write_app(shell: Shell, arguments: str) -> None:
    (shell.folder / "app.py").write_text(APP.format(arguments=arguments))


def python(shell: Shell, code: str) -> str:
    """What a program of the user prints, in that folder."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=shell.folder,
        env={**shell.environ, "PYTHONSAFEPATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=START_SECONDS,
    )
    return (done.stdout + done.stderr).strip()


def burst(shell: Shell, *args: str) -> None:
    code, _, err = shell.run("worker", *args, "--burst", "--log-level", "error")
    assert code == 0, err


def files(shell: Shell) -> set[str]:
    return {path.name for path in shell.folder.iterdir() if path.suffix == ".db"}


@pytest.mark.proves("M10", "M11")
def test_a_store_in_code_is_not_missed_by_an_enqueue(shell: Shell) -> None:
    write_app(shell, '"sqlite:///jobs.db"')
    error = shell.json("enqueue", "send", '["a"]', code=3)["error"]
    default, named = shell.folder / "durio.db", shell.folder / "jobs.db"
    assert f"no store at sqlite:///{default} (the default" in error["what"]
    assert files(shell) == set()

    job = shell.json("enqueue", "send", '["a"]', "--app", "app:app")
    assert (job["store"], job["task"]) == (f"sqlite:///{named}", "app.send")
    shell.environ["DURIO_APP"] = "app:app"
    burst(shell)  # and every command that follows means the same store
    assert shell.states() == {job["id"]: "done"}
    assert files(shell) == {"jobs.db"}


def test_b_name_of_the_settings_file_is_the_name_of_the_app(shell: Shell) -> None:
    write_app(shell, "")
    (shell.folder / "durio.toml").write_text(
        'name = "shop"\nurl = "sqlite:///shop.db"\napp = "app:app"\n'
    )
    code = "import app; print(app.app.name, app.send.enqueue_sync('a').id)"
    name, job = python(shell, code).split()
    assert name == "shop"
    assert shell.json("enqueue", "send", '["b"]')["task"] == "shop.send"
    burst(shell)
    assert shell.states().keys() > {job}
    assert set(shell.states().values()) == {"done"}


def test_c_env_file_is_read_by_nothing_unless_it_is_named(shell: Shell) -> None:
    write_app(shell, "")
    (shell.folder / ".env").write_text("DURIO_URL=sqlite:///env.db\n")
    assert python(shell, "import app; print(app.app.url)") == "sqlite:///durio.db"
    error = shell.json("jobs", "ls", code=3)["error"]
    assert "durio.db (the default" in error["what"]
    job = shell.json("--env-file", ".env", "enqueue", "send", '["a"]')
    assert job["store"].endswith("/env.db")
    # The processes of a supervisor read the file again.
    supervised = (
        "worker",
        "app",
        "--processes",
        "1",
        "--burst",
        "--log-level",
        "error",
    )
    assert shell.run("--env-file", ".env", *supervised)[0] == 0
    shown = shell.json("--env-file", ".env", "jobs", "show", job["id"])
    assert shown["state"] == "done"
    assert files(shell) == {"env.db"}


def test_d_pause_reaches_the_only_app_of_the_store(shell: Shell) -> None:
    write_app(shell, '"sqlite:///jobs.db", name="feat"')
    job = shell.json("enqueue", "send", '["a"]', "--app", "app")["id"]
    store = ("--store", "sqlite:///jobs.db")
    (row,) = shell.json("queues", "pause", "default", *store)["queues"]
    assert (row["namespace"], row["paused"]) == ("feat", True)
    burst(shell, "app")
    assert shell.json("jobs", "show", job, *store)["state"] == "ready"


def test_e_task_is_found_with_its_app_and_without(shell: Shell) -> None:
    write_app(shell, 'name="shop"')
    shell.environ["DURIO_APP"] = "app:app"
    job = shell.json("enqueue", "send_receipt")["id"]
    burst(shell)
    del shell.environ["DURIO_APP"]  # what follows knows the store only
    for task in ("send_receipt", "shop.send_receipt"):
        (row,) = shell.json("dead", "ls", "--task", task)["jobs"]
        assert (row["id"], row["task"]) == (job, "shop.send_receipt")
    error = shell.json("dead", "ls", "--task", "send_reciept", code=2)["error"]
    assert error["code"] == "unknown_task"
    assert "Did you mean 'shop.send_receipt'?" in error["cure"]


def test_f_cure_of_a_missing_schema_names_the_app(
    shell: Shell, postgres: PostgresServer
) -> None:
    url = postgres.url(schema="front_door")
    write_app(shell, f'"{url}", name="shop"')
    shown = python(shell, "import app; app.send.enqueue_sync('a')")
    cure = shown.rpartition("Run `")[2].partition("`")[0]
    assert cure == "durio migrate --app app:app"
    code, out, err = shell.run(*shlex.split(cure)[1:])
    assert code == 0, err
    assert "applied 0001_jobs" in out
    error = shell.json("enqueue", "send", '["a"]', "--store", url, code=2)["error"]
    assert error["what"].endswith("schema=front_door has no App yet")
    job = shell.json("enqueue", "send", '["a"]', "--app", "app:app")
    assert job["store"].startswith("postgresql://postgres@")
    # Without an App there is nothing to guess from, and nothing is created.
    assert shell.run("migrate")[0] == 3
    assert files(shell) == set()
