"""The adapters: ids, failures in our words, a driver that is not installed."""

import sys

import asyncpg
import psycopg
import pytest

from durio.errors import StoreUnavailable
from durio.stores.postgres import asyncpg_driver, psycopg_driver
from durio.stores.postgres.driver import Connector, PostgresLocation, load_driver
from durio.stores.postgres.psycopg_driver import (
    Id,
    Ids,
    IdsDumper,
    id_parameters,
    with_typed_parameters,
)

ONE, TWO = bytes(range(16)), bytes(range(16, 32))


def test_the_casts_say_which_parameters_are_ids() -> None:
    sql = "select $2::uuid[], $1::text, $3::uuid, $11::uuid[], $4::uuidish"
    assert dict(id_parameters(sql)) == {1: True, 2: False, 10: True}


def test_only_ids_are_marked() -> None:
    given = with_typed_parameters(
        "$1::bytea $2::uuid $3::uuid[]", (ONE, TWO, [ONE, None])
    )
    assert given == [ONE, TWO, (ONE, None)]
    assert [type(each) for each in given] == [bytes, Id, Ids]
    assert with_typed_parameters("$1::uuid $2::uuid[]", (None, None)) == [None, None]
    assert with_typed_parameters("$1::bytea", (ONE,)) == (ONE,)


def test_a_list_of_ids_in_the_servers_own_form() -> None:
    dumper = IdsDumper(Ids, None)
    head = bytes.fromhex("00000001 00000000 00000b86 00000002 00000001")
    sixteen = bytes.fromhex("00000010")
    assert dumper.dump(Ids([ONE, TWO])) == head + sixteen + ONE + sixteen + TWO
    assert dumper.dump(Ids([])) == bytes.fromhex("00000000 00000000 00000b86")
    with_null = bytes(dumper.dump(Ids([None])))
    assert with_null[4:8] == bytes.fromhex("00000001")
    assert with_null[-4:] == bytes.fromhex("ffffffff")


def test_what_asyncpg_says() -> None:
    told = asyncpg_driver.driver_error(asyncpg.DiskFullError("no room"), lost=False)
    assert (told.state, told.lost, told.unsent) == ("53100", False, False)
    told = asyncpg_driver.driver_error(ConnectionResetError("reset"), lost=False)
    assert (told.state, told.lost, told.unsent) == ("", True, False)
    told = asyncpg_driver.driver_error(
        asyncpg.InterfaceError("connection is closed"), lost=True
    )
    assert (told.lost, told.unsent) == (True, True)
    ending = asyncpg.InternalClientError("cannot switch to state 11")
    told = asyncpg_driver.driver_error(ending, lost=False)
    assert (told.lost, told.unsent) == (True, True)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ('FATAL:  password authentication failed for user "ann"', "28P01"),
        ('FATAL:  database "shop" does not exist', "3D000"),
        ('FATAL:  role "ann" does not exist', "28000"),
        ("FATAL:  sorry, too many clients already", "53300"),
        ("FATAL:  the database system is starting up", "57P03"),
        ("FATAL:  unsupported startup parameter: jit", "08P01"),
        ("could not translate host name", ""),
    ],
)
def test_what_libpq_says_of_a_refused_connection(text: str, state: str) -> None:
    told = psycopg_driver.driver_error(psycopg.OperationalError(text), lost=True)
    assert (told.state, told.lost, told.text) == (state, True, text)


@pytest.mark.parametrize("name", ["asyncpg", "psycopg"])
def test_a_driver_that_is_not_installed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"durio.stores.postgres.{name}_driver")
    with pytest.raises(StoreUnavailable, match=f"the package {name}") as told:
        load_driver(PostgresLocation(dsn="", shown="", driver=name))
    assert told.value.cure == "Install it: pip install durio[postgres]"


def test_a_warning_is_given_once() -> None:
    said: list[str] = []
    opening = Connector(PostgresLocation(dsn="", shown=""), said.append)
    for text in ("a", "b", "a"):
        opening.warn(text)
    assert said == ["a", "b"]
