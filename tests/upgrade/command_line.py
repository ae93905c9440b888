"""`durio ... --json` in this process: the same as `python -m durio`, without its start."""

import io
import json
import os
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.upgrade.shop import NAME

SPEC = find_spec("durio")
assert SPEC is not None
assert SPEC.origin is not None
# By its path: pytest loads a package that has a plugin in a way that runpy cannot take.
PROGRAM = str(Path(SPEC.origin).with_name("__main__.py"))

# Fields that depend on the time of the question.
WORKER_FIELDS_OF_NOW = ("lease_seconds_left", "cpu_percent")


class CommandFailed(AssertionError):
    """The exit code is not 0; `code` says which it is."""

    def __init__(self, code: object, said: str) -> None:
        super().__init__(f"exit code {code}: {said}")
        self.code = code


def durio(url: str, *words: str) -> Any:
    """The JSON object that a command prints about the shop in this store."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    errors = io.StringIO()
    before, environment = sys.argv, dict(os.environ)
    sys.argv = ["durio", *words, "--json", "--store", url]
    if words[0] != "migrate":
        sys.argv += ["--name", NAME]
    try:
        with redirect_stdout(out), redirect_stderr(errors):
            runpy.run_path(PROGRAM, run_name="__main__")
        code: object = 0
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        sys.argv = before
        os.environ.clear()
        os.environ.update(environment)
    out.flush()
    said = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    if code != 0:
        raise CommandFailed(code, f"{said}{errors.getvalue()}")
    return json.loads(said)


def all_answers(url: str) -> dict[str, Any]:
    """What the command line says about everything in a store; it changes nothing."""
    listed = durio(url, "jobs", "ls", "--limit", "1000")
    assert listed["cursor"] is None
    workers = durio(url, "workers", "ls")["workers"]
    for worker in workers:
        for name in WORKER_FIELDS_OF_NOW:
            del worker[name]
    return {
        "list": listed["jobs"],
        "jobs": {
            job["id"]: without_new_fields(durio(url, "jobs", "show", job["id"]))
            for job in listed["jobs"]
        },
        "dead": durio(url, "dead", "ls", "--limit", "1000"),
        "totals": durio(url, "dead", "totals"),
        "queues": durio(url, "queues", "ls"),
        "audit": without_details(durio(url, "audit", "ls")),
        "workers": workers,
    }


def without_new_fields(job: dict[str, Any]) -> dict[str, Any]:
    """Return what the release before printed; what it did not know is empty."""
    assert job.pop("plan") is None
    for attempt in job["attempts"]:
        assert attempt.pop("decision") == ""
    if job["progress"] is not None:
        del job["progress"]["changes"]  # a job that has run since then has some
    return job


def without_details(audit: dict[str, Any]) -> dict[str, Any]:
    """Return the audit as the release before printed it."""
    for line in audit["audit"]:
        assert not line.pop("details")
    return audit
