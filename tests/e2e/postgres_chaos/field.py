"""The field: a PostgreSQL server, workers and producers, and a proxy for each of them."""

import random
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from durio.stores.postgres import schema_status
from tests.e2e.chaos.field import Field, until
from tests.e2e.postgres_chaos.tail import Tail
from tests.e2e.proxy import HOST, FaultProxy
from tests.e2e.workers import Process, now_ns
from tests.servers.postgres import OWNER, PASSWORD, PostgresServer

PROMISED_SECONDS = 10.0  # until every worker works again
CONCURRENCY = 40  # slots of a worker, so that workers are faster than producers
RESUME_SECONDS = 3 * PROMISED_SECONDS
NEMESIS = "nemesis"  # the name of its own connections
SETTINGS = {
    "max_connections": "60",
    "superuser_reserved_connections": "0",
    "log_lock_waits": "off",
    "checkpoint_timeout": "30s",
}
EVERY_JOB = """
select id, payload, task, state, reason, result from durio.kept
union all
select id, payload, task, state, null, result from durio.hist
union all
select id, payload, task, 2, null, null from durio.job
"""


class PostgresField(Field):
    """A Field whose store is a server that can be disturbed."""

    def __init__(
        self, folder: Path, rng: random.Random, server: PostgresServer
    ) -> None:
        super().__init__(folder, rng)
        self.server = server
        target = (HOST, server.port)
        self.at_workers = FaultProxy(target, seed=rng.randrange(1 << 30))
        self.at_producers = FaultProxy(target, seed=rng.randrange(1 << 30))
        self.tail = Tail(self.ledger_folder)
        self.killed: set[int] = set()  # workers that we have killed
        self.left: list[str] = []  # workers that ended by themselves

    def begin(self) -> None:
        """Create the schema; start all processes and the first jobs."""
        schema_status.migrate(self.server.url())
        self.url = self.url_of(self.at_workers)
        self.gather()
        self.mend_producers()

        def has_begun() -> bool:
            self.tail.read()
            return self.tail.acknowledged > self.producer_size

        until(has_begun, 60, "producers enqueue")

    def url_of(self, proxy: FaultProxy) -> str:
        """Return the URL through this proxy."""
        secret = quote(PASSWORD, safe="")
        return f"postgresql://{OWNER}:{secret}@{HOST}:{proxy.address[1]}/postgres"

    # --- processes

    def begin_worker(self, *options: str, **settings: Any) -> Process:
        settings = {"concurrency": CONCURRENCY, **settings}
        return super().begin_worker(*options, **settings)

    def begin_producer(self) -> Process:
        self.url = self.url_of(self.at_producers)
        try:
            return super().begin_producer()
        finally:
            self.url = self.url_of(self.at_workers)

    def mend(self) -> None:
        """Replace ended workers; record those that we have not killed."""
        for worker in self.workers:
            code = worker.exit_code
            if code is not None and worker.pid not in self.killed:
                self.left.append(f"{worker.pid} with {code}: {worker.log[-500:]}")
        super().mend()

    def kill(self, process: Process, fault: str) -> None:
        self.killed.add(process.pid)
        super().kill(process, fault)

    # --- the server, from outside

    def connect(self) -> "psycopg.Connection[tuple[Any, ...]]":
        """Connect through the socket, without a proxy."""
        return psycopg.connect(
            host=str(self.server.folder),
            port=self.server.port,
            user=OWNER,
            dbname="postgres",
            application_name=NEMESIS,
            autocommit=True,
        )

    def select(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            return connection.execute(sql, values).fetchall()

    def end_backends(self) -> int:
        """Call pg_terminate_backend for every connection except our own."""
        sql = (
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where backend_type = 'client backend' and application_name <> %s"
        )
        return len(self.select(sql, NEMESIS))

    # --- recovery

    def back(self, fault: str) -> None:
        """Wait until every worker begins a job again: the fault is over."""
        since = now_ns()
        pids = [worker.pid for worker in self.workers if worker.exit_code is None]
        self.record.note("back", fault=fault, pids=pids)
        self.wait_for_starts(pids, since, fault)

    def wait_for_starts(self, pids: Collection[int], since: int, what: str) -> None:
        def all_work() -> bool:
            self.tail.read()
            self.mend()
            living = {worker.pid for worker in self.workers}
            starts = self.tail.last_start_ns
            return all(starts[pid] > since for pid in living.intersection(pids))

        until(all_work, RESUME_SECONDS, f"every worker works again after {what}")

    def heal(self) -> None:
        """Start all processes; wait until every worker begins a job."""
        for proxy in (self.at_workers, self.at_producers):
            proxy.heal()
        self.gather()
        self.mend_producers()
        pids = [worker.pid for worker in self.workers]
        self.wait_for_starts(pids, now_ns(), "everything")

    # --- the end

    def unfinished(self) -> int:
        self.tail.read()
        with suppress(psycopg.OperationalError):
            return self.select("select count(*) from durio.job")[0][0]
        return -1

    def stored(self) -> list[tuple[Any, ...]]:
        return [(row[0].bytes, *row[1:]) for row in self.select(EVERY_JOB)]
