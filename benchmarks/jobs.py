"""The App of the benchmarks, and what they share: folders, workers, states."""

import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from durio import App
from durio.demo.record import Ledger, LedgerLineKind
from durio.host.processes import Subprocess, Subprocesses, durio_command
from durio.model.ids import id_text as id_text
from durio.model.job import STATE_BY_CODE
from durio.model.job import StoredJob as StoredJob
from durio.ports.browse import Query

TARGET = "jobs:app"
LEDGER_VARIABLE = "BENCHMARK_LEDGER"
PAGE = 200

app = App(name="benchmarks")
ledger = Ledger(Path(os.environ.get(LEDGER_VARIABLE, ".")))


@app.task
async def sleep(number: int, seconds: float) -> int:
    """Sleep, and return `number`."""
    ledger.write(LedgerLineKind.STARTED, job=str(number))
    await asyncio.sleep(seconds)
    return number


@app.task
async def note(number: int) -> int:
    """Write a line to the ledger."""
    ledger.write(LedgerLineKind.EFFECT, job=str(number))
    return number


@app.task
async def nothing(number: int) -> int:
    """Return `number`."""
    return number


@contextmanager
def place() -> Generator[Path]:
    """A temporary folder on the disk of the current directory, with a ledger in it."""
    with tempfile.TemporaryDirectory(prefix="durio-bench-", dir=Path.cwd()) as name:
        folder = Path(name)
        (folder / "ledger").mkdir()
        yield folder


def url_in(folder: Path, options: str = "") -> str:
    return f"sqlite:///{folder / 'jobs.db'}{options}"


def start(children: Subprocesses, folder: Path, url: str, *command: str) -> Subprocess:
    """Start a program that can import this App."""
    environ = {
        "DURIO_URL": url,
        LEDGER_VARIABLE: str(folder / "ledger"),
        "PYTHONPATH": os.pathsep.join(
            [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        ),
    }
    number = len(children.started)
    return children.start(command, log=folder / f"{number}.log", environ=environ)


def start_worker(
    children: Subprocesses, folder: Path, url: str, *flags: str
) -> Subprocess:
    command = (*durio_command(), "worker", TARGET, *flags)
    return start(children, folder, url, *command)


def wait(child: Subprocess, seconds: float) -> None:
    """Wait for its end; fail if its exit code is not 0."""
    code = child.wait(seconds)
    if code != 0:
        raise SystemExit(f"process {child.pid} ended with {code}:\n{child.tail()}")


async def drained(seconds: float) -> None:
    """Wait until no job waits or runs."""
    store, clock = await app.store(), app.clock
    deadline = clock.monotonic() + seconds
    while any(row.counts for row in await store.queues(app.name, counts=True)):
        check(clock.monotonic() < deadline, f"all jobs are final after {seconds:g} s")
        await clock.sleep(0.1)


async def records() -> list[StoredJob]:
    store = await app.store()
    found: list[StoredJob] = []
    cursor: str | None = None
    while True:
        page = await store.find(Query(), limit=PAGE, cursor=cursor)
        found += page.jobs
        cursor = page.cursor
        if cursor is None:
            return found


def states(found: list[StoredJob]) -> dict[str, int]:
    """Number of jobs by state."""
    return dict(Counter(STATE_BY_CODE[record.state].value for record in found))


def span_seconds(found: list[StoredJob]) -> float:
    """From the first claim to the last finish, by the times that the store keeps."""
    first = min(record.started_at or 0.0 for record in found)
    return max(record.finished_at or 0.0 for record in found) - first


def check(holds: object, claim: str) -> None:
    """Exit with code 1 if it does not hold."""
    if not holds:
        raise SystemExit(f"BROKEN: {claim}")
