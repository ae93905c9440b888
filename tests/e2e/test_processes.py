"""Child processes: stopped, ended, and never left behind."""

import os
import signal
import sys
from pathlib import Path

import pytest

from durio.host.processes import Subprocess, Subprocesses, durio_command

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('ready', flush=True); time.sleep(600)"
)
PATIENT = "import time; print('ready', flush=True); time.sleep(600)"


def start(children: Subprocesses, folder: Path, program: str) -> Subprocess:
    log = folder / "child.log"
    child = children.start([sys.executable, "-c", program], log=log, environ={})
    while "ready" not in child.tail():
        assert child.wait(0.01) is None
    return child


def test_a_stubborn_child_is_killed(tmp_path: Path) -> None:
    with Subprocesses() as children:
        child = start(children, tmp_path, STUBBORN)
        children.end(0.1)
        assert child.exit_code == -signal.SIGKILL


@pytest.mark.parametrize("is_held", [True, False])
def test_leaving_the_block_ends_children(tmp_path: Path, *, is_held: bool) -> None:
    with Subprocesses() as children:
        child = start(children, tmp_path, PATIENT)
        if is_held:
            os.kill(child.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
            state = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2]
            assert state.split()[0] == "T"
    assert child.exit_code == -signal.SIGTERM


def test_this_program_is_the_command_line(tmp_path: Path) -> None:
    with Subprocesses() as children:
        command = [*durio_command(), "--version"]
        child = children.start(command, log=tmp_path / "log", environ={})
        assert child.wait(30) == 0
    assert child.tail().startswith("durio ")
