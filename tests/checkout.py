"""This checkout: its root folder and its commit."""

import os
import subprocess  # noqa: TID251 - git is a process
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def commit() -> str:
    """Twelve digits, and `-dirty` if files have changed since."""
    asked = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty"]
    answer = subprocess.run(
        asked,
        cwd=ROOT,
        env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() or "unknown"
