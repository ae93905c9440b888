"""What a caller is told of each failure of PostgreSQL: what happened, and the cure."""

import pytest

from durio.errors import (
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from durio.stores.postgres.driver import DriverError, PostgresLocation
from durio.stores.postgres.translate import MEANINGS, translated

PLACE = PostgresLocation(
    dsn="postgresql://ann:pw@db/shop", shown="postgresql://ann@db/shop"
)


@pytest.mark.parametrize(
    ("state", "kind", "words"),
    [
        ("28P01", StoreUnavailable, ["password was refused", "PGPASSWORD"]),
        ("28000", StoreUnavailable, ["refuses this user", "pg_hba.conf"]),
        ("3D000", StoreUnavailable, ["no such database", "createdb"]),
        ("53300", StoreUnavailable, ["no free connections", "max_connections"]),
        ("53100", StoreFull, ["nothing was written", "Free space"]),
        ("25006", StoreReadOnly, ["replica", "target_session_attrs=read-write"]),
        (
            "42501",
            StoreUnavailable,
            ["lacks a privilege", "grant usage on schema durio"],
        ),
        ("3F000", SchemaMismatch, ["no schema durio", "durio migrate"]),
        ("42P01", SchemaMismatch, ["table of the schema durio", "durio migrate"]),
        ("42703", SchemaMismatch, ["column", "durio migrate"]),
        ("57014", StoreUnavailable, ["cancelled a statement", "statement_timeout"]),
        ("55P03", StoreUnavailable, ["lock was not free", "pg_stat_activity"]),
        ("57P01", StoreUnavailable, ["ended this connection", "Durio continues"]),
        ("57P03", StoreUnavailable, ["does not accept connections", "Durio continues"]),
        ("26000", StoreUnavailable, ["prepared statements", "?prepared=off"]),
        ("42P05", StoreUnavailable, ["prepared statements", "?prepared=off"]),
        ("40P01", StoreUnavailable, ["the same rows", "Try again"]),
        ("08P01", StoreUnavailable, ["the connection failed", "pooler"]),
        ("53400", StoreUnavailable, ["lacks a resource", "log"]),
        ("XX001", StoreCorrupt, ["damaged", "backup"]),
        ("22012", StoreError, ["22012", "report it"]),
    ],
)
def test_each_state(state: str, kind: type[StoreError], words: list[str]) -> None:
    error = translated(DriverError("it said so", state=state, detail="why"), PLACE)
    assert type(error) is kind
    text = str(error)
    for word in [*words, "postgresql://ann@db/shop", "it said so; why"]:
        assert word in text
    assert "pw" not in text
    assert not error.unknown


def test_a_line_that_was_never_there() -> None:
    error = DriverError("refused", lost=True)
    error.was_open = False
    told = translated(error, PLACE)
    assert type(told) is StoreUnavailable
    assert "cannot be reached" in str(told)
    assert "Check host, port" in str(told)


@pytest.mark.parametrize("state", ["", "08006"])
def test_a_line_that_broke(state: str) -> None:
    told = translated(DriverError("reset", state=state, lost=True), PLACE, unknown=True)
    assert "connection was lost" in str(told)
    assert told.unknown


def test_every_meaning_has_a_cure() -> None:
    for state in MEANINGS:
        told = translated(DriverError("x", state=state), PLACE)
        assert told.cure
        assert "{" not in str(told)


@pytest.mark.parametrize(
    ("text", "state", "word"),
    [
        (
            "transaction blocks not allowed in statement pooling mode",
            "08P01",
            "pool_mode",
        ),
        ("server does not support SSL, but SSL was required", "", "sslmode"),
        ('PostgreSQL server at "h:1" rejected SSL upgrade', "", "sslmode"),
        ('unrecognized configuration parameter "nosuch"', "42704", "PGOPTIONS"),
        ('invalid value for parameter "work_mem": "x"', "22023", "PGOPTIONS"),
    ],
)
def test_what_the_words_say(text: str, state: str, word: str) -> None:
    error = DriverError(text, state=state, lost=True)
    error.was_open = False
    told = translated(error, PLACE)
    assert isinstance(told, StoreUnavailable)
    assert word in told.cure
    assert text in told.what
