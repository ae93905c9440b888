"""The command line as real processes: signals, waiting, pipes and every exit code."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest

from tests.e2e.workers import START_SECONDS, wait_until

APP = """
import asyncio
from pathlib import Path
from durio import App, Context, Permanent

app = App()

@app.task
async def resize(ctx: Context, path: str) -> str:
    await ctx.progress(1, 2)
    return f"{path}.webp"

@app.task
async def refuse() -> None:
    raise Permanent("no such order")

@app.task
async def until_told() -> None:
    while not Path("told").exists():
        await asyncio.sleep(0.01)

@app.task
async def hang() -> None:
    await asyncio.sleep(3600)
"""


class Shell:
    """A folder with `app.py` in it, and `durio` run there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "app.py").write_text(APP)
        self.environ = {k: v for k, v in os.environ.items() if k[:6] != "DURIO_"}
        self.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))
        self.started: list[subprocess.Popen[str]] = []

    def begin(self, *args: str | bytes) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "durio", *args],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, *args: str | bytes) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        process = self.begin(*args)
        out, err = process.communicate(timeout=START_SECONDS)
        return process.returncode, out, err

    def json(self, *args: str | bytes, code: int = 0) -> dict[str, Any]:
        found, out, err = self.run(*args, "--json")
        assert found == code, out + err
        return json.loads(out)

    def states(self) -> dict[str, str]:
        return {job["id"]: job["state"] for job in self.json("jobs", "ls")["jobs"]}

    def clear_away(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def shell(tmp_path: Path):
    shell = Shell(tmp_path)
    try:
        yield shell
    finally:
        shell.clear_away()


def stopped(process: "subprocess.Popen[str]", *signals: signal.Signals) -> int:
    for each in signals:
        process.send_signal(each)
    process.communicate(timeout=START_SECONDS)
    return process.returncode


def read_until(process: "subprocess.Popen[str]", text: str) -> None:
    """Read the log until it says so; it ends if the process does."""
    assert process.stderr is not None
    assert any(text in line for line in process.stderr), f"no {text!r} in the log"


def test_help_tells_what_it_costs(shell: Shell) -> None:
    """The aim is 150 ms; a figure for the log, for it depends on the machine."""
    costs: list[float] = []
    for _ in range(3):
        began = time.perf_counter()
        code, out, _ = shell.run("--help")
        costs.append(time.perf_counter() - began)
        assert code == 0
        assert "worker" in out
    print(f"durio --help: {min(costs) * 1000:.0f} ms, best of {len(costs)}")


def test_enqueue_waits_for_a_worker(shell: Shell) -> None:
    worker = shell.begin("worker", "app:app")
    read_until(worker, "worker.started")

    code, out, _ = shell.run("enqueue", "resize", '{"path": "cat.png"}', "--wait")
    assert code == 0
    assert out.startswith('done  "cat.png.webp"   1 attempt, ')
    assert out.endswith(" s\n")

    answer = shell.json(
        "enqueue", "resize", '["dog.png"]', "--wait", "--timeout", "30s"
    )
    assert (answer["state"], answer["result"]) == ("done", "dog.png.webp")

    code, out, err = shell.run("enqueue", "refuse", "--wait")
    assert (code, out) == (6, "")
    assert "(permanent): Permanent: no such order [job_dead]" in err
    dead = shell.json("enqueue", "refuse", "--wait", code=6)
    assert (dead["state"], dead["reason"]) == ("dead", "permanent")
    assert dead["error"]["code"] == "job_dead"

    # The worker has published its tasks: names and arguments are checked without code.
    error = shell.json("enqueue", "resise", code=2)["error"]
    assert "Did you mean 'app.resize'?" in error["cure"]
    error = shell.json("enqueue", "resize", '{"path": 3}', code=2)["error"]
    assert error["code"] == "invalid_arguments"

    (row,) = shell.json("workers", "ls")["workers"]
    assert (row["pid"], row["queues"], row["concurrency"]) == (worker.pid, None, 10)
    assert row["lease_seconds_left"] > 0
    assert str(worker.pid) in shell.run("workers", "ls")[1]

    assert stopped(worker, signal.SIGTERM) == 0
    assert shell.json("workers", "ls") == {"workers": []}


def test_cancel_reaches_a_running_job(shell: Shell) -> None:
    worker = shell.begin("worker", "app:app")
    job = shell.json("enqueue", "hang", "--app", "app")["id"]
    wait_until(lambda: shell.states()[job] == "running", START_SECONDS, "it runs")
    code, out, _ = shell.run("jobs", "cancel", job)
    assert (code, out) == (0, f"{job}  running -> running  (asked to stop)\n")
    wait_until(lambda: shell.states()[job] == "cancelled", START_SECONDS, "cancelled")
    assert stopped(worker, signal.SIGINT) == 0
    assert shell.run("jobs", "retry", job)[1] == f"{job}  cancelled -> ready\n"


@pytest.mark.parametrize(
    ("signals", "options", "code"),
    [
        ([signal.SIGTERM], ["--grace", "0"], 143),
        ([signal.SIGINT], ["--grace", "0"], 130),
        ([signal.SIGTERM], ["--grace", "100ms"], 143),
    ],
)
def test_jobs_cut_short_are_given_back(
    shell: Shell, signals: list[signal.Signals], options: list[str], code: int
) -> None:
    worker = shell.begin("worker", "app:app", *options)
    job = shell.json("enqueue", "hang", "--app", "app")["id"]
    wait_until(lambda: shell.states()[job] == "running", START_SECONDS, "it runs")
    assert stopped(worker, *signals) == code
    assert shell.states() == {job: "ready"}
    shown = shell.json("jobs", "show", job)
    assert (shown["attempt"], shown["attempts"]) == (1, [])


def test_second_signal_stops_at_once(shell: Shell) -> None:
    worker = shell.begin("worker", "app:app", "--grace", "3600")
    job = shell.json("enqueue", "hang", "--app", "app")["id"]
    wait_until(lambda: shell.states()[job] == "running", START_SECONDS, "it runs")
    worker.send_signal(signal.SIGTERM)
    read_until(worker, "worker.stopping")
    assert stopped(worker, signal.SIGTERM) == 143
    assert shell.states() == {job: "ready"}


def test_drain_lets_running_jobs_end(shell: Shell) -> None:
    worker = shell.begin("worker", "app:app", "--grace", "60")
    job = shell.json("enqueue", "until_told", "--app", "app")["id"]
    wait_until(lambda: shell.states()[job] == "running", START_SECONDS, "it runs")
    worker.send_signal(signal.SIGTERM)
    read_until(worker, "worker.stopping")
    (shell.folder / "told").touch()
    worker.communicate(timeout=START_SECONDS)
    assert worker.returncode == 0
    assert shell.states() == {job: "done"}


def test_idle_worker_drains_with_json(shell: Shell) -> None:
    worker = shell.begin("worker", "app:app", "--json")
    read_until(worker, '"event":"worker.started"')
    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=START_SECONDS)
    assert worker.returncode == 0
    assert json.loads(out) == {"exit_code": 0, "cut_short": False, "signal": "SIGTERM"}
    assert all(json.loads(line) for line in err.splitlines())


def test_burst_ends_when_nothing_is_left(shell: Shell) -> None:
    shell.environ["DURIO_APP"] = "app:app"
    ids = [shell.json("enqueue", "resize", f'["{n}"]')["id"] for n in range(3)]
    code, _, err = shell.run(
        "worker", "app", "--burst", "-c", "1", "--log-level", "debug"
    )
    assert code == 0
    assert err.count("job.done") == 3
    assert err.count("job.started") == 3
    assert shell.states() == dict.fromkeys(reversed(ids), "done")


def test_exit_codes(shell: Shell) -> None:
    (shell.folder / "broken.py").write_text("1 / 0\n")
    (shell.folder / "not.db").write_bytes(b"no database " * 400)
    asked = ("enqueue", "resize", '["a"]')
    assert shell.run("jobs", "ls", "--limit", "x")[0] == 2
    assert shell.run(*asked, "--priority", "10")[0] == 2
    assert shell.run("jobs", "ls")[0] == 3
    assert shell.run(*asked)[0] == 3
    assert shell.run("migrate", "--check")[0] == 3
    shell.environ["DURIO_APP"] = "app:app"
    assert shell.run("worker", "app", "--store", "sqlite:///not.db")[0] == 3
    assert shell.run("worker", "ap:app")[0] == 4
    code, out, err = shell.run("worker", "broken")
    assert (code, out) == (4, "")
    assert "ZeroDivisionError" in err
    assert "durio/cli" not in err
    assert shell.run("migrate", "--check")[0] == 5
    assert shell.run("migrate")[0] == 0
    assert shell.run("migrate", "--check")[0] == 0
    assert shell.run(*asked, "--wait", "--timeout", "10ms")[0] == 7
    assert shell.run("jobs", "show", "0198c2f4")[0] == 1
    assert shell.run("jobs", "show", "nonsense")[0] == 2


def test_schema_newer_than_the_code(shell: Shell) -> None:
    shell.run("migrate", "app:app")
    add_later_migration(shell.folder / "durio.db")
    for args in (
        ["jobs", "ls"],
        ["migrate"],
        ["migrate", "--check"],
        ["worker", "app"],
    ):
        error = shell.json(*args, code=5)["error"]
        assert error["code"] == "schema_mismatch"
        assert "9999_later" in error["what"]


def add_later_migration(path: Path) -> None:
    """As a later release would; in a process of its own, which nothing else has open."""
    script = (
        "import apsw, sys; db = apsw.Connection(sys.argv[1]);"
        "db.execute('insert into migration select 9999, \\'9999_later\\', checksum,"
        " applied_at from migration limit 1')"
    )
    command = [sys.executable, "-c", script, str(path)]
    subprocess.run(command, check=True, timeout=START_SECONDS)


def test_interrupted_while_waiting(shell: Shell) -> None:
    waiting = shell.begin("enqueue", "hang", "--wait", "--app", "app")
    wait_until(
        lambda: (shell.folder / "durio.db").exists() and shell.states(),
        START_SECONDS,
        "the job is stored",
    )
    assert stopped(waiting, signal.SIGINT) == 130
    assert set(shell.states().values()) == {"ready"}


def test_arguments_that_are_not_utf8(shell: Shell) -> None:
    error = shell.json("enqueue", "resize", b'["caf\xe9"]', code=2)["error"]
    assert "not valid UTF-8" in error["what"]
    assert not (shell.folder / "durio.db").exists()


def test_store_of_the_command_line_beats_all(shell: Shell) -> None:
    (shell.folder / "durio.toml").write_text('url = "sqlite:///from-file.db"\n')
    shell.json("enqueue", "resize", '["a"]')
    assert (shell.folder / "from-file.db").exists()
    shell.environ["DURIO_URL"] = "sqlite:///from-environment.db"
    shell.json("enqueue", "resize", '["a"]')
    assert (shell.folder / "from-environment.db").exists()
    shell.json("enqueue", "resize", '["a"]', "--store", "sqlite:///named.db")
    assert (shell.folder / "named.db").exists()
    assert not (shell.folder / "durio.db").exists()


def test_reader_that_goes_away_is_no_error(shell: Shell) -> None:
    shell.json("enqueue", "resize", '["a"]', "--app", "app")
    reading, writing = os.pipe()
    os.close(reading)
    run = subprocess.run(
        [sys.executable, "-m", "durio", "jobs", "ls"],
        cwd=shell.folder,
        env=shell.environ,
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
        timeout=START_SECONDS,
    )
    os.close(writing)
    assert b"Traceback" not in run.stderr
    assert run.returncode == 1


HOST_LOG = """
import logging
from durio import App, Context

logging.basicConfig(level="INFO", format="HOST %(message)s")
app = App(name="app")

@app.task
async def say(ctx: Context) -> None:
    ctx.log.info("by the task")
    logging.getLogger("mine").info("by a module")
"""


@pytest.mark.parametrize(
    ("form", "said"), [("text", "by the task"), ("none", "HOST by the task")]
)
def test_lines_of_a_host_are_not_doubled(shell: Shell, form: str, said: str) -> None:
    (shell.folder / "app.py").write_text(HOST_LOG)
    shell.json("enqueue", "say", "--app", "app")
    code, _, log = shell.run("worker", "app:app", "--burst", "--log-format", form)
    assert code == 0, log
    (line,) = [line for line in log.splitlines() if "by the task" in line]
    assert said in line
    assert line.startswith("HOST") is (form == "none")
    assert log.splitlines().count("HOST by a module") == 1
    (done,) = [line for line in log.splitlines() if "job.done" in line]
    assert done.startswith("HOST") is (form == "none")


@pytest.mark.parametrize("no_color", ["", "1"])
def test_terminal_gets_a_banner_and_a_table(shell: Shell, no_color: str) -> None:
    shell.environ |= {"NO_COLOR": no_color, "TERM": "xterm", "COLUMNS": "80"}
    job = shell.json("enqueue", "resize", '["a"]', "--app", "app")["id"]
    shown = on_terminal(shell, "worker", "app:app", "--burst")
    assert f"store   sqlite:///{shell.folder}/durio.db" in shown
    assert "tasks   app.hang, app.refuse, app.resize, app.until_told" in shown
    table = on_terminal(shell, "jobs", "ls")
    assert "app.resize" in table
    assert job in table
    assert max(len(click.unstyle(line)) for line in table.splitlines()) <= 80
    assert re.search(r"\n\d\d:\d\d:\d\d INFO    \S*job.done", shown)
    assert ("\x1b[" in table) is (no_color == "")


def on_terminal(shell: Shell, *args: str) -> str:
    """What a person sees."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "durio", *args],
        cwd=shell.folder,
        env=shell.environ,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            some = os.read(ours, 65536)
        except OSError:  # Linux says so when the other side has closed
            break
        if not some:
            break
        shown += some
    os.close(ours)
    assert process.wait(START_SECONDS) == 0, shown
    return shown.decode()
