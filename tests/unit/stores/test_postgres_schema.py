"""Migrations: how a schema stands to this code, and the text for running it by hand."""

import pytest

from durio.errors import SchemaMismatch
from durio.model.migration import compare_migrations
from durio.stores.postgres.driver import PostgresLocation
from durio.stores.postgres.schema import (
    check_complete,
    migrations,
    script,
)
from durio.stores.postgres.statements import SchemaStatements, quoted

PLACE = PostgresLocation(dsn="", shown="postgresql://db/shop")
ALL = [(step.number, step.name, step.checksum) for step in migrations()]
NAMES = [step.name for step in migrations()]


def test_nothing_is_there_yet() -> None:
    status = compare_migrations(migrations(), [])
    assert status == ([], NAMES, [], [])
    with pytest.raises(SchemaMismatch, match="is missing") as told:
        check_complete(status, PLACE)
    assert "durio migrate" in told.value.cure


def test_all_is_there() -> None:
    status = compare_migrations(migrations(), ALL)
    assert status == (NAMES, [], [], [])
    check_complete(status, PLACE)


def test_newer_code_was_here() -> None:
    status = compare_migrations(migrations(), [*ALL, (9999, "9999_later", "x")])
    assert status.newer == ["9999_later"]
    with pytest.raises(SchemaMismatch, match="newer than this code") as told:
        check_complete(status, PLACE)
    assert "Upgrade durio" in told.value.cure


def test_another_text_made_it() -> None:
    (number, name, _), *rest = ALL
    status = compare_migrations(migrations(), [(number, name, "x"), *rest])
    assert status.changed == [name]
    with pytest.raises(SchemaMismatch, match="migrations differ"):
        check_complete(status, PLACE)


def test_the_script_is_one_transaction_in_the_schema_that_is_named() -> None:
    text = script("jobs")
    assert text.startswith("begin;\n")
    assert text.endswith("commit;\n")
    assert "{schema}" not in text
    assert "$1" not in text
    assert 'create table "jobs".job' in text
    for step in migrations():
        assert f"'{step.checksum}'" in text


def test_braces_of_sql_itself_stay() -> None:
    filled = SchemaStatements("jobs")
    assert filled["select '{}' from {schema}.job"] == "select '{}' from \"jobs\".job"
    assert quoted('a"b') == '"a""b"'
