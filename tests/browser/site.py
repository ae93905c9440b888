"""The dashboard of one store as users run it: `durio worker`, `durio dashboard`, a user.

The processes of a site are ended with it, each by its own pid.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
APP = "tests.browser.shop:app"
START_SECONDS = 60.0
LOOK_SECONDS = 0.05
ADMIN = "ann"
PASSWORD = "correct horse battery"  # noqa: S105 - of a user who lives for one test


class Site:
    """A filled store, a worker and dashboards, which are all processes of their own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def begin(self) -> None:
        """Fill the store and start its worker."""
        self.python("-m", "tests.browser.shop")
        self.start("worker", "-m", "durio", "worker", APP, "--concurrency", "8")

    def add_user(self, name: str, role: str) -> None:
        """Add a user with `durio users add`."""
        self.python(
            "-m", "durio", "users", "add", name, "--role", role, "--app", APP,
            "--password-stdin", text=f"{PASSWORD}\n",
        )  # fmt: skip

    def dashboard(self, *options: str, root: str = "") -> str:
        """Start `durio dashboard`; return the address of its page, with a slash."""
        port = free_port()
        arguments = ["dashboard", APP, "--port", str(port), *options]
        if root:
            arguments += ["--root-path", root]
        process = self.start(f"dashboard{port}", "-m", "durio", *arguments)
        address = f"http://127.0.0.1:{port}{root}/"
        wait_until(lambda: answers(f"{address}livez", process), "the dashboard answers")
        return address

    def python(self, *args: str, text: str = "") -> str:
        """Run a Python program to its end; return what it printed."""
        ended = subprocess.run(
            [sys.executable, *args],
            cwd=ROOT,
            env=self.environ,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=START_SECONDS,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def start(self, name: str, *args: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *args],
                cwd=ROOT,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        self._processes.append(process)
        return process

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT), "DURIO_URL": self.url}

    def logs(self) -> str:
        """Return what the processes have written."""
        return "\n".join(path.read_text() for path in self.folder.glob("*.log"))

    def end(self) -> None:
        """End every process that it has started."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            if not ended(process, 1.0):
                process.terminate()  # a worker waits no more for its jobs
            if not ended(process, 10.0):
                process.kill()
                process.wait()


def ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a process ends within this time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def answers(address: str, process: subprocess.Popen[bytes]) -> bool:
    """Whether a server answers there."""
    assert process.poll() is None, f"ended with exit code {process.returncode}"
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310 - ours
            return answer.status == 200
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Poll until the condition holds."""
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {START_SECONDS:g} s: {what}"
        time.sleep(LOOK_SECONDS)


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
