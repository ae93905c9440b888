"""Words that must name the right culprit: what happened, and what helps."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from durio.errors import StoreError, StoreUnavailable
from durio.host.clock import HostClock
from durio.model.finding import Finding
from durio.stores.postgres import schema_status
from durio.stores.postgres.checks import Probe, checks, listen_failed
from durio.stores.postgres.driver import DriverError
from durio.stores.postgres.location import location_from_url
from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="module")
def hand(postgres: PostgresServer) -> "Iterator[psycopg.Connection]":
    with psycopg.connect(postgres.url(), autocommit=True) as hand:
        yield hand


def refused(url: str) -> StoreError:
    with pytest.raises(StoreUnavailable) as told:
        schema_status.migrate(url)
    return told.value


def test_whoever_may_not_make_a_schema_needs_another_right(
    postgres: PostgresServer, hand: "psycopg.Connection"
) -> None:
    """The text of the cure, run as it stands, is all that is missing."""
    hand.execute("create role maker login")
    url = postgres.url(user="maker", schema="made")
    error = refused(url)
    assert "permission denied for database" in error.what
    assert "grant usage" not in error.cure
    cure = error.cure.partition("run: ")[2].partition(";")[0]
    hand.execute(cure.replace("NAME", "postgres").replace("ROLE", "maker"))
    assert schema_status.migrate(url) == [
        *("0001_jobs", "0002_records", "0003_logs", "0004_gates"),
        *("0005_audit_details", "0006_log_heads"),
    ]


def test_whoever_does_not_own_the_schema_is_told_so(
    postgres: PostgresServer, hand: "psycopg.Connection"
) -> None:
    hand.execute("create role stranger login; create schema theirs")
    hand.execute("grant usage on schema theirs to stranger")
    error = refused(postgres.url(user="stranger", schema="theirs"))
    assert "permission denied for schema" in error.what
    assert "the role that owns the schema theirs: name it in --store URL" in error.cure


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_no_server_is_of_the_kind_that_is_asked_for(
    postgres: PostgresServer, hand: "psycopg.Connection", driver: str
) -> None:
    """It is there, and answers: host and port are right."""
    role = f"reader_{driver}"
    hand.execute(f"create role {role} login")
    hand.execute(f"alter role {role} set default_transaction_read_only = on")
    url = postgres.url(user=role, driver=driver, target_session_attrs="read-write")
    error = refused(url)
    assert "target_session_attrs" in error.what
    assert "primary" in error.cure


# --- doctor's word on LISTEN


def listening(url: str) -> Finding:
    async def main() -> Finding:
        found = checks(url, HostClock())
        said = {
            name: [finding async for finding in found[name]()]
            for name in ("store.place", "store.listen", "store.clock")
        }
        return said["store.listen"][0]

    return asyncio.run(main())


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_one_connection_is_too_few_to_try(
    postgres: PostgresServer, hand: "psycopg.Connection", driver: str
) -> None:
    role = f"lonely_{driver}"
    hand.execute(f"create role {role} login connection limit 1")
    told = listening(postgres.url(user=role, driver=driver, prepared="off"))
    assert "was not tried" in told.evidence
    assert "pooler in transaction mode" not in told.fix
    assert "max_connections" in told.fix


def test_a_replica_is_no_pooler() -> None:
    visit = Probe(location_from_url("postgresql:///shop"))
    failure = DriverError("cannot execute LISTEN during recovery", state="25006")
    assert "Name the primary" in listen_failed(visit, failure).fix
    assert "pooler" in listen_failed(visit, TimeoutError()).fix
    visit.connector.is_pooled = True
    assert "pooler" in listen_failed(visit, failure).fix
