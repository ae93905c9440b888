"""A bench that somebody ends leaves nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.workers import wait_until

SECONDS_MAX = 60.0


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_its_folder_is_removed(tmp_path: Path, how: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "durio", "bench", "--jobs", "300"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: list(tmp_path.glob("*/*.db")), SECONDS_MAX, "the bench's files")
    process.send_signal(how)
    printed, error = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 130, printed + error
    assert not list(tmp_path.iterdir())
