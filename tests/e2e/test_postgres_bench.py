"""`durio bench` on a real server: every figure, a schema of its own, and nothing is left.

How fast it is on this machine is nobody's business here: no test looks at a figure's size.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from durio.bench.server_cpu import postmaster_of
from durio.bench.targets import PREFIX, PostgresBenchTarget, url_with
from durio.stores.postgres import schema_status
from durio.stores.postgres.driver import Connector
from durio.stores.postgres.location import location_from_url
from tests.servers.postgres import NEWEST, PASSWORD, PostgresServer

SECONDS_MAX = 100.0
SMALL = ["--jobs", "300", "--wakeups", "5", "--idle-seconds", "0.2"]
FIGURES = {
    "enqueue_one_per_s",
    "enqueue_many_per_s",
    "enqueue_concurrent_per_s",
    "drain_per_s",
    "raw_cycle_per_s",
    "raw_drain_per_s",
    "drain_vs_raw",
    "drain_vs_raw_drain",
    "cpu_us_per_job",
    "worker_rss_mb",
}


def asked(postgres: PostgresServer, sql: str, *args: Any) -> Any:
    """The first value, asked by the owner."""

    async def main() -> Any:
        opening = Connector(location_from_url(postgres.url()), lambda _text: None)
        connection = await opening.connect()
        try:
            rows = await connection.rows(sql, args)
            return rows[0][0] if rows else None
        finally:
            await connection.close()

    return asyncio.run(main())


def schemas(postgres: PostgresServer) -> int:
    """How many the bench has there now."""
    counted = "select count(*) from pg_namespace where starts_with(nspname, $1::text)"
    return asked(postgres, counted, PREFIX)


def bench(folder: Path, url: str, *flags: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "durio", "bench", "--store", url, *SMALL, *flags],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_every_figure_is_there(postgres: PostgresServer, tmp_path: Path) -> None:
    # The schema that the URL names is somebody's: it may even be missing.
    process = bench(tmp_path, postgres.url(schema="nowhere"), "--json")
    printed, error = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, printed + error
    told = json.loads(printed)
    assert all(told[name] > 0 for name in FIGURES), told
    assert set(told["latency_ms"]) == {"p50", "p95", "p99"}
    for name in ("wal_bytes_per_job", "commits_per_job", "dead_tuples_per_job"):
        assert set(told[name]) == {"enqueue", "drain", "both"}
    assert told["wal_bytes_per_job"]["both"] > 0
    assert 0 < told["commits_per_job"]["drain"] < 1
    # A job leaves `ready`, `run` and `job`: three versions, and no update.
    assert told["dead_tuples_per_job"]["drain"] == pytest.approx(3, abs=0.5)
    assert told["postgresql"].startswith(f"{NEWEST}.")
    assert told["settings"]["fsync"] == "off"
    assert schemas(postgres) == 0
    assert asked(postgres, "select to_regnamespace('nowhere') is null")
    assert not list(tmp_path.iterdir()), "the bench leaves files behind"


def test_cpu_time_of_the_server(postgres: PostgresServer, tmp_path: Path) -> None:
    process = bench(tmp_path, postgres.url(), "--cpu", "--passes", "1", "--json")
    printed, error = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, printed + error
    costs = json.loads(printed)["cpu_us_per_job"]
    assert all(cost["server"] > 0 for cost in costs.values()), costs
    assert schemas(postgres) == 0


def test_plans_beside_jobs(postgres: PostgresServer, tmp_path: Path) -> None:
    flags = ["--scenario", "plans", "--seconds", "0.2", "--json"]
    process = bench(tmp_path, postgres.url(), *flags)
    printed, error = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, printed + error
    figures = json.loads(printed)
    assert figures["chains_per_s"] > 0
    assert figures["chords_per_s"] > 0
    assert schemas(postgres) == 0


def test_the_postmaster_is_found(postgres: PostgresServer) -> None:
    assert asyncio.run(PostgresBenchTarget(postgres.url()).postmaster()) == postgres.pid
    by_tcp = PostgresBenchTarget(postgres.url(password=PASSWORD))
    assert asyncio.run(by_tcp.postmaster()) == postgres.pid
    assert postmaster_of(os.getpid()) is None, "not a process of PostgreSQL"


def test_a_role_that_may_not_make_a_schema(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    schema_status.migrate(postgres.url(schema="jobs"))
    asked(postgres, "create role poor login")
    process = bench(tmp_path, postgres.url(user="poor", schema="jobs"))
    printed, error = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 3, printed + error
    assert "a schema of its own" in error
    assert "grant create on database" in error


def test_an_interrupted_bench_leaves_nothing(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    process = bench(tmp_path, postgres.url())
    deadline = time.monotonic() + SECONDS_MAX
    while not schemas(postgres):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    printed, error = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 130, printed + error
    assert schemas(postgres) == 0
    assert not list(tmp_path.iterdir())


def test_another_schema_in_a_url() -> None:
    assert url_with("postgresql:///shop", "x") == "postgresql:///shop?schema=x"
    url = "postgresql://ann:p%40ss@h/shop?schema=a&driver=psycopg"
    assert url_with(url, "b") == url.replace("schema=a", "schema=b")


def test_an_interrupt_while_a_connection_closes_is_kept() -> None:
    class SlowToClose:
        def __init__(self) -> None:
            self.is_closing = asyncio.Event()

        async def connect(self) -> "SlowToClose":
            return self

        async def close(self) -> None:
            self.is_closing.set()
            await asyncio.sleep(SECONDS_MAX)

    async def main() -> None:
        target, connection = PostgresBenchTarget("postgresql:///shop"), SlowToClose()
        target._opening = connection

        async def use() -> None:
            async with target._connected():
                pass

        work = asyncio.create_task(use())
        await connection.is_closing.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(main())
