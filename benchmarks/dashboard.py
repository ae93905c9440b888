"""How long the calls of the dashboard's screens take when a store holds millions of jobs.

    nice -n 5 .venv/bin/python -m benchmarks.dashboard                # 5 million, 1 million
    .venv/bin/python -m benchmarks.dashboard --postgres 0 --sqlite 0 --first-paint 5 --wheel
    .venv/bin/python -m benchmarks.dashboard --postgres 200000 --sqlite 100000

Fills a PostgreSQL and a SQLite file with jobs of 30 days, a tenth of them dead, starts a
worker and a dashboard, and makes the calls of each screen in turn. Prints p50 and p95 of each
call, and for PostgreSQL the statements that read many rows of big tables. Exits with 1 if a
p95 is above --aim, if a call fails, or if the API has a route to read that no screen of this
program calls. Exempt from the aim are searches that answered with a part, and previews of bulk
actions, which count exactly.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from benchmarks import dashboard_fill as fill
from benchmarks.dashboard_calls import CALLS, OTHERS, ScreenCall, take_sample
from benchmarks.dashboard_plans import EXPLAIN, EXPLAIN_ALL, Reading, readings
from benchmarks.dashboard_server import (
    HOST,
    free_port,
    process,
    server_command,
    wait_until_ready,
    worker_command,
)
from benchmarks.dashboard_start import first_paints, wheel_bytes
from benchmarks.dashboard_workload import (
    SLOTS,
    Workload,
    enqueue_live,
    enqueue_seeds,
    make_token,
    store_records,
)
from benchmarks.postgres_target import SETTINGS, connected, schemas_at
from durio.host.clock import HostClock
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.store import PostgresStore
from durio.web.api.routers import PREFIX, ROUTERS
from durio.web.roles import READING, checked_routes
from tests.servers.postgres import PostgresServer

SEED = 20
READY, SCHEDULED = 0.06, 0.02  # of all jobs
PAUSE_SECONDS = 0.02  # between two calls: a person does not call all the time
SQL_SHOWN = 160
ACTION_ROUNDS = 10  # previews are made in each tenth round


class Figures:
    """How long the calls of one store took."""

    def __init__(self) -> None:
        self.seconds: dict[ScreenCall, list[float]] = {}
        self.failed: dict[str, str] = {}
        self.partial: set[ScreenCall] = set()

    def note(self, call: ScreenCall, answer: httpx.Response, seconds: float) -> None:
        if not answer.is_success:
            self.failed[call.name] = f"{answer.status_code} {answer.text[:200]}"
            return
        self.seconds.setdefault(call, []).append(seconds)
        if answer.json().get("partial"):
            self.partial.add(call)

    def exempt(self, call: ScreenCall) -> str:
        """Return why a call has no aim; empty if it has one."""
        return "action" * call.is_action or "partial" * (call in self.partial)

    def rows(self, aim: float) -> list[dict[str, Any]]:
        return [
            {
                "call": call.name,
                "p50_ms": round(1000 * quantile(took, 0.5), 1),
                "p95_ms": round(1000 * quantile(took, 0.95), 1),
                "most_ms": round(1000 * max(took), 1),
                "exempt": self.exempt(call),
                "missed": quantile(took, 0.95) > aim and not self.exempt(call),
            }
            for call, took in self.seconds.items()
        ]


def quantile(values: list[float], part: float) -> float:
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, round(part * (len(ranked) - 1)))]


# --- stores


@asynccontextmanager
async def sqlite_store(jobs: int, folder: Path) -> AsyncGenerator[str]:
    """Yield the URL of a filled file, with a live worker."""
    path = folder / "jobs.db"
    url = f"sqlite:///{path}"
    load = Workload(url)
    async with load.app:
        await run_seeds(load, url, folder)
        await asyncio.to_thread(fill.fill_sqlite, path, jobs)
        async with with_live_jobs(load, url, jobs, folder):
            fill.add_workers_sqlite(path)
            yield url


@asynccontextmanager
async def postgres_store(
    server: PostgresServer, jobs: int, folder: Path
) -> AsyncGenerator[str]:
    """Yield the URL of a filled schema, with a live worker."""
    async with schemas_at(server.url()) as schemas:
        url = await schemas.new_store()
        load = Workload(url)
        store = PostgresStore(location_from_url(url), HostClock())
        await store.open()
        try:
            async with load.app, connected(url) as ask:
                await ask("set statement_timeout = 0")
                await run_seeds(load, url, folder)
                await fill.fill_postgres(store, ask, jobs)
                async with with_live_jobs(load, url, jobs, folder):
                    await fill.add_workers_postgres(ask)
                    yield url
        finally:
            await store.close()


async def run_seeds(load: Workload, url: str, folder: Path) -> None:
    """Let a worker run the jobs that are copied then."""
    await store_records(load)
    await enqueue_seeds(load, random.Random(SEED))  # noqa: S311 - no secret
    with process(worker_command(url, "--burst"), folder / "burst.log") as worker:
        if await asyncio.to_thread(worker.wait):
            sys.exit((folder / "burst.log").read_text()[-2000:])


@asynccontextmanager
async def with_live_jobs(
    load: Workload, url: str, jobs: int, folder: Path
) -> AsyncGenerator[None]:
    """Add jobs that wait, and a worker all of whose slots are taken."""
    await fill.count_copied_errors(load)
    await enqueue_live(load, int(jobs * READY), int(jobs * SCHEDULED))
    with process(worker_command(url), folder / "worker.log"):
        # The jobs start in another process.
        while await load.app.jobs(state="running").count() < SLOTS:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        yield


# --- measuring


async def measure(url: str, rounds: int, folder: Path) -> Figures:
    """Make all calls that the API has, in a new order each round."""
    async with dashboard_of(url, folder) as client:
        sample = await take_sample(client, SEED)
        calls = [call for call in CALLS if call.route in known_routes()]
        figures = Figures()
        for number in range(rounds):
            sample.chance.shuffle(calls)
            for call in calls:
                if call.is_action and number % ACTION_ROUNDS:
                    continue
                figures.note(call, *(await call.send(client, sample)))
                await asyncio.sleep(PAUSE_SECONDS)
    return figures


@asynccontextmanager
async def dashboard_of(url: str, folder: Path) -> AsyncGenerator[httpx.AsyncClient]:
    """Start a dashboard on the store; yield a client with an admin's token."""
    load, port = Workload(url), free_port()
    async with load.app:
        token = await make_token(load.app)
    address = f"http://{HOST}:{port}"
    with process(server_command(url, port), folder / "dashboard.log"):
        await wait_until_ready(address)
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(
            base_url=address, headers=headers, timeout=60
        ) as client:
            yield client


def known_routes() -> set[str]:
    """Return the routes of the API that read, and those of previews."""
    return {
        each.path.removeprefix(PREFIX)
        for each in checked_routes(ROUTERS, PREFIX)
        if each.method in READING or each.path.endswith("/bulk/preview")
    }


def uncalled_routes() -> list[str]:
    return sorted(known_routes() - {call.route for call in CALLS} - OTHERS)


async def statements(url: str, server: PostgresServer, folder: Path) -> list[Reading]:
    """Make each call once while the server explains; return what reads too much."""
    async with connected(url) as ask:
        await ask(EXPLAIN_ALL)
    before = len(server.said())
    await measure(url, 2, folder)
    found: dict[str, Reading] = {}
    for each in readings(server.said()[before:]):
        if each.problem and each.sql not in found:
            found[each.sql] = each
    return list(found.values())


# --- report


async def main(options: argparse.Namespace) -> dict[str, Any]:
    report: dict[str, Any] = {"aim_ms": options.aim, "stores": {}}
    with TemporaryDirectory(prefix="durio-dashboard-", dir=Path.cwd()) as name:
        if options.first_paint:
            paints = await first_paints(Path(name), options.first_paint)
            report["first_paint_ms"] = paints
        if options.wheel:
            report["wheel_bytes"] = await wheel_bytes(Path(name))
        if options.sqlite:
            folder = Path(name) / "sqlite"
            folder.mkdir()
            async with sqlite_store(options.sqlite, folder) as url:
                figures = await measure(url, options.rounds, folder)
            report["stores"]["sqlite"] = told(figures, options, [])
            show_store("sqlite", report["stores"]["sqlite"])
        if options.postgres:
            folder = Path(name) / "postgres"
            folder.mkdir()
            async with AsyncExitStack() as stack:
                server = stack.enter_context(
                    PostgresServer(settings={**SETTINGS, **EXPLAIN})
                )
                url = await stack.enter_async_context(
                    postgres_store(server, options.postgres, folder)
                )
                figures = await measure(url, options.rounds, folder)
                found = await statements(url, server, folder)
            report["stores"]["postgres"] = told(figures, options, found)
            show_store("postgres", report["stores"]["postgres"])
    report["uncalled"] = uncalled_routes()
    report["absent"] = sorted({c.route for c in CALLS} - known_routes())
    return report


def told(
    figures: Figures, options: argparse.Namespace, found: list[Reading]
) -> dict[str, Any]:
    rows = figures.rows(options.aim / 1000)
    return {
        "calls": sorted(rows, key=lambda row: -row["p95_ms"]),
        "failed": figures.failed,
        "statements": [
            {
                "problem": each.problem,
                "ms": each.milliseconds,
                "rows": each.rows,
                "sql": each.sql,
            }
            for each in found
        ],
    }


def show_store(store: str, told_of: dict[str, Any]) -> None:
    print(f"\n{store:44}{'p50':>9}{'p95':>9}{'most':>9} ms")
    for row in told_of["calls"]:
        mark = "MISSED" if row["missed"] else row["exempt"]
        print(
            f"{row['call']:44}{row['p50_ms']:9.1f}{row['p95_ms']:9.1f}"
            f"{row['most_ms']:9.1f}  {mark}"
        )
    for name, text in told_of["failed"].items():
        print(f"FAILED {name}: {text}")
    for each in told_of["statements"]:
        head = f"{each['problem']}: {each['rows']:,} rows, {each['ms']:.0f} ms"
        print(f"{head}: {each['sql'][:SQL_SHOWN]}", flush=True)


def show_rest(report: dict[str, Any]) -> None:
    for page, took in report.get("first_paint_ms", {}).items():
        median = statistics.median(took)
        print(f"first paint of {page} from a cold start: {median:,.0f} ms, of {took}")
    for part, size in report.get("wheel_bytes", {}).items():
        print(f"{part}: {size:,} bytes in the wheel")
    for route in report["absent"]:
        print(f"the API has no {route}")
    for route in report["uncalled"]:
        print(f"NOT CALLED {route}")


def is_missed(report: dict[str, Any]) -> bool:
    return bool(report["uncalled"]) or any(
        told_of["failed"] or any(row["missed"] for row in told_of["calls"])
        for told_of in report["stores"].values()
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--postgres", type=int, default=5_000_000, help="0: not at all")
    parser.add_argument("--sqlite", type=int, default=1_000_000, help="0: not at all")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--aim", type=float, default=300.0, help="p95, milliseconds")
    parser.add_argument("--first-paint", type=int, default=0, help="starts to measure")
    parser.add_argument("--wheel", action="store_true", help="its size, too")
    parser.add_argument("--json", type=Path, help="keep the figures there")
    given = parser.parse_args()
    result = asyncio.run(main(given))
    show_rest(result)
    if given.json:
        given.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if is_missed(result):
        sys.exit("an aim was missed, or a call failed")
