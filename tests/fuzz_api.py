"""Send requests to the admin API that its document allows, and some that it forbids.

    .venv/bin/python -m tests.fuzz_api --minutes 10

Starts a dashboard on a SQLite store with a few jobs of each state, where every request is
that of an admin, and lets schemathesis attack all routes but the stream. A failure is an
answer of 500 or more but 503, or one that the document does not describe. Each is printed with a
`curl` command; exit code 1. The seed is printed too: `--seed` repeats a run.
"""

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from durio import App, Concurrency, group
from durio.limits import Breaker
from durio.web import User
from durio.web.application import DashboardApplication
from durio.web.options import DashboardOptions
from tests.servers import process

HOST = "127.0.0.1"
LEFT_OUT = ("/admin/stream",)  # it has no end
# A full queue is no failure of the server: it says when to try again.
ALLOWED = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 503]
"""
OURS = "Sec-Fetch-Site: same-origin"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)
NAME_KEYS = ("id", "name", "fingerprint")


# --- the dashboard, in a process of its own


def admin(request: object) -> User:
    del request
    return User("ann", "admin", payloads=True)


async def work(number: int) -> int:
    return number


async def fail(number: int) -> None:
    raise ValueError(f"no such order: {number}")


async def fill(app: App) -> None:
    """Store jobs of each state, and something of all other kinds."""
    done = app.task(name="work", queue="mail", breaker="smtp")(work)
    dead = app.task(name="fail", retry=0)(fail)
    limited = app.task(name="limited", limits=[Concurrency(1, key="number")])(work)
    await group(done.s(number) for number in range(3)).enqueue()
    await dead.enqueue_many([(number,) for number in range(20)])
    await app.schedules.create("nightly", done.s(1), cron="0 3 * * *")
    async with app.worker() as worker:
        await worker.drained()
    await app.queue("mail").pause("the server is down")
    await done.options(delay="1h").enqueue_many([(number,) for number in range(20)])
    await limited.enqueue_many([(7,), (7,), (8,)])


async def serve(url: str, port: int) -> None:
    """Serve a dashboard whose users are all one admin."""
    app = App(url, name="shop", breakers=[Breaker("smtp", failures=3)])
    await fill(app)
    application = DashboardApplication(app, DashboardOptions(auth=admin))
    config = uvicorn.Config(application, host=HOST, port=port, log_level="warning")
    await uvicorn.Server(config).serve()


@dataclass
class RunningDashboard:
    """A dashboard to attack, and the document of its API."""

    address: str
    document: Path
    log: Path


@contextmanager
def running_dashboard(folder: Path) -> Generator[RunningDashboard]:
    """Start a dashboard on a new store in this folder."""
    port = process.free_port()
    found = RunningDashboard(
        f"http://{HOST}:{port}", folder / "openapi.json", folder / "dashboard.log"
    )
    url = f"sqlite:///{folder / 'jobs.db'}"
    command = [sys.executable, "-m", "tests.fuzz_api", "--serve", url, str(port)]
    with found.log.open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        process.until(lambda: is_ready(found.address), server, found.log)
        found.document.write_text(json.dumps(document_with_examples(found.address)))
        yield found
    finally:
        process.end(server, signal.SIGTERM, found.log)


def is_ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/livez").is_success
    except httpx.TransportError:
        return False


# --- the document


def document() -> dict[str, Any]:
    """Return the document of the API without the routes that are left out."""
    app = App("sqlite:///:memory:", name="shop")
    found: dict[str, Any] = DashboardApplication(app).api.openapi()
    for path in LEFT_OUT:
        found["paths"].pop(path, None)
    return found


def document_with_examples(address: str) -> dict[str, Any]:
    """Return the document with names that exist as examples of its paths."""
    found = document()
    for path, operations in found["paths"].items():
        area, _, rest = path.removeprefix("/admin/").partition("/")
        known = first_name(address, area) if rest.startswith("{") else None
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path" and known is not None:
                    parameter["example"] = known
    return found


def first_name(address: str, area: str) -> str | None:
    """Return the id or name of the first item of a list of the API."""
    answer = httpx.get(f"{address}/admin/{area}")
    items = answer.json().get("items") if answer.is_success else None
    for item in items or ():
        return next((str(item[key]) for key in NAME_KEYS if key in item), None)
    return None


# --- the attack


def attack(found: RunningDashboard, *options: str) -> "subprocess.Popen[str]":
    """Start schemathesis on the dashboard."""
    (found.log.parent / "schemathesis.toml").write_text(ALLOWED)
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", str(found.document)),
        *("--url", found.address, "--header", OURS, "--checks", ",".join(CHECKS)),
        *("--warnings", "off", "--no-color", "--continue-on-failure", *options),
    ]
    return subprocess.Popen(
        command,
        text=True,
        cwd=found.log.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def main(minutes: float, seed: int) -> int:
    with tempfile.TemporaryDirectory(prefix="durio-fuzz-") as folder:
        with running_dashboard(Path(folder)) as found:
            print(f"seed {seed}", flush=True)
            phases = "examples,coverage,fuzzing,stateful"
            seconds = str(round(minutes * 60))
            options = ("--phases", phases, "--seed", str(seed), "--max-time", seconds)
            with attack(found, *options) as running:
                assert running.stdout is not None
                for line in running.stdout:
                    print(line, end="", flush=True)
            status = running.returncode
        if status:
            print(found.log.read_text()[-20_000:])
        return status


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().getrandbits(32)
    )
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.serve[0], int(given.serve[1])))
    else:
        sys.exit(main(given.minutes, given.seed))
