"""The two pages "follow a job" list the files that one job really runs through.

A program of its own traces jobs on a real store: coverage uses the same hook, so it stays
off there.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAID
from tests.servers.postgres import PostgresServer
from tests.tidy.house import ROOT, SRC, text_of

ROOMS = ("app/", "client/", "model/", "stores/", "worker/")
HELPERS_MAX = 13
HELPER_LINES_MAX = 150

SQLITE_PAGE = "docs/explanation/follow-a-job.md"
POSTGRES_PAGE = "docs/explanation/follow-a-job-postgresql.md"


def test_page_lists_what_a_job_runs_through_on_sqlite(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    compare(SQLITE_PAGE, trace(f"sqlite:///{tmp_path / 'shop.db'}"), request)


def test_page_lists_what_a_job_runs_through_on_postgresql(
    postgres: PostgresServer, request: pytest.FixtureRequest
) -> None:
    compare(POSTGRES_PAGE, trace(postgres.url()), request)


def trace(url: str) -> dict[str, Any]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("COV")}
    env["PYTHONPATH"] = f"{SRC.parent}{os.pathsep}{ROOT}"
    answer = subprocess.run(
        [sys.executable, "-m", "tests.docs.traced_job", url],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert answer.returncode == 0, answer.stderr
    traced: dict[str, Any] = json.loads(answer.stdout)
    return traced


def side_doors() -> set[str]:
    """Files of other stories; the loops among them may run beside any job."""
    pages = [(ROOT / page).read_text("utf-8") for page in (SQLITE_PAGE, POSTGRES_PAGE)]
    tables = "".join(text.partition("## Special cases")[2] for text in pages)
    return set(re.findall(r"`([\w/]+\.py)`", tables))


def compare(page: str, traced: dict[str, Any], request: pytest.FixtureRequest) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    path = re.findall(r"^\d+\. `([\w/]+\.py)`", text, flags=re.MULTILINE)
    helpers = re.findall(r"^- `([\w/]+\.py)`", text, flags=re.MULTILINE)
    ran = {file for file in traced["files"] if file.startswith(ROOMS)}

    missing = sorted(ran - {*path, *helpers} - ({*traced["idle"]} & side_doors()))
    assert not missing, f"{page}: a job runs through {missing}: list them"
    idle = sorted({*path, *helpers} - ran)
    assert not idle, f"{page}: no job runs through {idle}"
    assert not set(path) & set(helpers), f"{page}: a file is a step or a helper"
    assert len(helpers) <= HELPERS_MAX, f"{page}: {len(helpers)} helpers"
    for helper in helpers:
        lines = text_of(helper).count("\n")
        assert lines <= HELPER_LINES_MAX, f"{page}: {helper}: {lines} lines; a step"

    lines = sum(text_of(file).count("\n") for file in path)
    run = sum(traced["files"][file] for file in {*path, *helpers})
    said = f"{len(path)} files of {lines} lines, {len(helpers)} helpers; "
    said += f"{run} lines executed, {traced['hops']} hops between files"
    request.node.user_properties.append((SAID, said))
