"""Nothing that a test starts inside a box can open the App's own store."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from durio import App
from durio.errors import UsageError
from durio.testing import testing

PROGRAM = """
from durio import App

app = App("sqlite:///own.db", name="shop")


@app.task(process=True)
def add(a: int, b: int) -> int:
    return a + b


if __name__ == "__main__":
    add.enqueue_sync(1, 2)
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(PROGRAM)
    app = App("sqlite:///own.db", name="shop")

    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    return app


def in_a_fork(work: Callable[[], object]) -> str:
    """What the work raises in a forked child; `fine` if nothing."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work()
            answer = "fine"
        except BaseException as error:  # noqa: BLE001 - the parent judges it
            answer = f"{type(error).__name__}: {error}"
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return answer


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_cannot_reach_a_box_in_memory(app: App, tmp_path: Path) -> None:
    with testing(app) as box:
        answer = in_a_fork(lambda: app.enqueue_sync("shop.add", 1, 2))
        assert answer.startswith("UsageError: App 'shop' is in a testing box")
        assert box.jobs() == []
    assert not (tmp_path / "own.db").exists()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_shares_the_file_of_a_box(app: App, tmp_path: Path) -> None:
    with testing(app, url="sqlite:///test.db") as box:
        assert in_a_fork(lambda: app.enqueue_sync("shop.add", 1, 2)) == "fine"
        assert len(box.jobs()) == 1
    assert not (tmp_path / "own.db").exists()


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "shop.py"],
        [sys.executable, "-m", "durio", "worker", "shop:app", "--burst"],
    ],
)
def test_a_program_of_the_test_is_refused(
    app: App, tmp_path: Path, command: list[str]
) -> None:
    with testing(app):
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60
        )
    assert done.returncode != 0
    assert "is another App of that name" in done.stderr
    assert not (tmp_path / "own.db").exists()
    # The same program works once the box is left.
    assert subprocess.run([sys.executable, "shop.py"], check=False).returncode == 0
    assert (tmp_path / "own.db").exists()


def test_no_process_starts_for_a_process_task(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_keywords: object) -> None:
        raise AssertionError("a process was started")

    @app.task(name="crunch", process=True)
    def crunch() -> int:
        return os.getpid()

    with testing(app) as box:
        monkeypatch.setattr(subprocess, "Popen", refuse)
        monkeypatch.setattr(os, "posix_spawn", refuse)
        job = crunch.enqueue_sync()
        box.drain_sync()
        assert job.result_sync() == os.getpid()


def test_the_message_names_the_store(app: App) -> None:
    other = App("postgresql://ann:secret@never-opened.invalid/shop", name="shop")
    with testing(app), pytest.raises(UsageError) as caught:
        other.run_sync(other.store())
    assert "postgresql://ann:***@never-opened.invalid/shop" in str(caught.value)
