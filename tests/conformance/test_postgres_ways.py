"""Other ways to PostgreSQL: the oldest server, psycopg, PgBouncer, two statements.

Chapters in which a way can matter, about a minute each; DURIO_EVERY_WAY=1 tells the whole
suite on each of them.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.conformance import SUITE, Promise, check
from tests.conformance.postgres import ScratchSchema
from tests.conformance.test_postgres import LEFT_OUT
from tests.conftest import Require
from tests.servers import pgbouncer
from tests.servers.postgres import NEWEST, OLDEST, PostgresServer, programs

EVERY = os.environ.get("DURIO_EVERY_WAY") == "1"
TIED = frozenset({"logs", "waits", "on_end", "gates", "places", "gated_jobs"})
TIED |= {"rates", "fairness"}
WAYS: dict[str, frozenset[str]] = {
    "oldest": frozenset({"exchange", "outcomes", "upkeep", "bulk", "store", "commit"})
    | TIED,
    "psycopg": frozenset(
        {"enqueue", "exchange", "browse", "live", "store", "records", "commit"}
    )
    | TIED,
    "pgbouncer": frozenset({"enqueue", "exchange", "lease", "live", "store", "commit"}),
    "split": frozenset({"exchange", "outcomes", "guilt", "bounds"}) | TIED,
}
OPTIONS: dict[str, dict[str, str]] = {
    "oldest": {"prepared": "on"},
    "psycopg": {"prepared": "on", "driver": "psycopg"},
    "pgbouncer": {},
    "split": {"prepared": "on", "split": "on"},
}
# In transaction mode nobody can LISTEN there: jobs are polled for, events go unheard.
WITHOUT_LISTEN = {"pgbouncer": {"events_are_heard_by_everybody_who_listens"}}


@dataclass
class ServerPool:
    """The server of one way at a time, for as long as promises are told on it."""

    require: Require
    stack: ExitStack
    way: str = ""
    schema: ScratchSchema | None = None

    def at(self, way: str) -> ScratchSchema:
        if way != self.way or self.schema is None:
            self.stack.close()
            self.way, self.schema = way, self.start(way)
        return self.schema

    def start(self, way: str) -> ScratchSchema:
        version = OLDEST if way == "oldest" else NEWEST
        self.require(programs(version), f"PostgreSQL {version}")
        server = self.stack.enter_context(PostgresServer(version, durable=False))
        if way != "pgbouncer":
            return ScratchSchema(server.url(**OPTIONS[way]))
        self.require(pgbouncer.program(), "PgBouncer (apt install pgbouncer)")
        bouncer = self.stack.enter_context(pgbouncer.PgBouncer(server))
        return ScratchSchema(bouncer.url(**OPTIONS[way]))


@pytest.fixture(scope="module")
def host(require: Require) -> Iterator[ServerPool]:
    with ExitStack() as stack:
        yield ServerPool(require, stack)


def promise_params() -> list[object]:
    """Grouped by way: each has its own server for as long as it is told."""
    return [
        pytest.param(
            way,
            promise,
            id=f"{way}-{promise}",
            marks=[pytest.mark.proves(*promise.proves)] if promise.proves else [],
        )
        for way, chapters in WAYS.items()
        for promise in SUITE
        if promise.name not in {*LEFT_OUT, *WITHOUT_LISTEN.get(way, ())}
        and (EVERY or promise.chapter in chapters)
    ]


@pytest.mark.parametrize(("way", "promise"), promise_params())
def test_promise(way: str, promise: Promise, host: ServerPool) -> None:
    grounds = host.at(way)
    grounds.clear()
    check(promise, grounds.subject())
