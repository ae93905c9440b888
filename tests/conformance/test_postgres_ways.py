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
from tests.conformance.postgres import Grounds
from tests.conformance.test_postgres import LEFT_OUT
from tests.conftest import Require
from tests.servers import pgbouncer
from tests.servers.postgres import NEWEST, OLDEST, PostgresServer, programs

EVERY = os.environ.get("DURIO_EVERY_WAY") == "1"
WAYS: dict[str, frozenset[str]] = {
    "oldest": frozenset({"exchange", "finish", "upkeep", "bulk", "store"}),
    "psycopg": frozenset({"enqueue", "exchange", "browse", "live", "store"}),
    "pgbouncer": frozenset({"enqueue", "exchange", "lease", "live", "store"}),
    "split": frozenset({"exchange", "finish", "guilt", "bounds"}),
}
OPTIONS: dict[str, dict[str, str]] = {
    "oldest": {"prepared": "on"},
    "psycopg": {"prepared": "on", "driver": "psycopg"},
    "pgbouncer": {},
    "split": {"prepared": "on", "split": "on"},
}
# In transaction mode nobody can LISTEN there: jobs are polled for, events go unheard.
UNHEARD = {"pgbouncer": {"events_are_heard_by_everybody_who_listens"}}


@dataclass
class Host:
    """The server of one way at a time, for as long as promises are told on it."""

    require: Require
    stack: ExitStack
    way: str = ""
    grounds: Grounds | None = None

    def at(self, way: str) -> Grounds:
        if way != self.way or self.grounds is None:
            self.stack.close()
            self.way, self.grounds = way, self.start(way)
        return self.grounds

    def start(self, way: str) -> Grounds:
        version = OLDEST if way == "oldest" else NEWEST
        self.require(programs(version), f"PostgreSQL {version}")
        server = self.stack.enter_context(PostgresServer(version, durable=False))
        if way != "pgbouncer":
            return Grounds(server.url(**OPTIONS[way]))
        self.require(pgbouncer.program(), "PgBouncer (apt install pgbouncer)")
        bouncer = self.stack.enter_context(pgbouncer.PgBouncer(server))
        return Grounds(bouncer.url(**OPTIONS[way]))


@pytest.fixture(scope="module")
def host(require: Require) -> Iterator[Host]:
    with ExitStack() as stack:
        yield Host(require, stack)


def told() -> list[object]:
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
        if promise.name not in {*LEFT_OUT, *UNHEARD.get(way, ())}
        and (EVERY or promise.chapter in chapters)
    ]


@pytest.mark.parametrize(("way", "promise"), told())
def test_promise(way: str, promise: Promise, host: Host) -> None:
    grounds = host.at(way)
    grounds.clear()
    check(promise, grounds.subject())
