"""Rows and bytes in the tables of a store, read without Durio."""

from typing import Any, NamedTuple

import apsw

from durio.stores.postgres.driver import Connector
from durio.stores.postgres.location import location_from_url
from durio.stores.sqlite.schema_status import path_of

SQLITE_TABLES = "select name from sqlite_master where type = 'table'"
POSTGRES_TABLES = """
select tablename from pg_tables where schemaname = $1::text and tablename !~ '^hist_'
"""


class TableSize(NamedTuple):
    rows: int
    bytes: int


async def table_sizes(url: str) -> dict[str, TableSize]:
    """Return the size of each table of a store."""
    return sqlite_sizes(url) if url.startswith("sqlite") else await postgres_sizes(url)


def sqlite_sizes(url: str) -> dict[str, TableSize]:
    db: Any = apsw.Connection(str(path_of(url)))

    def size(table: str) -> TableSize:
        columns = [row[1] for row in db.execute(f"pragma table_info({table})")]
        lengths = " + ".join(f"coalesce(length({c}), 0)" for c in columns)
        size = f"coalesce(sum({lengths}), 0)"
        sql = f"select count(*), {size} from {table}"  # noqa: S608 - our own names
        return TableSize(*one_row(db.execute(sql)))

    try:
        return {name: size(name) for (name,) in db.execute(SQLITE_TABLES).fetchall()}
    finally:
        db.close()


def one_row(rows: Any) -> Any:
    return next(iter(rows))


async def postgres_sizes(url: str) -> dict[str, TableSize]:
    location = location_from_url(url)
    connection = await Connector(location, lambda _text: None).connect()
    try:
        found: dict[str, TableSize] = {}
        for (name,) in await connection.rows(POSTGRES_TABLES, (location.schema,)):
            size = "coalesce(sum(pg_column_size(t.*)), 0)::int8"
            table = f'"{location.schema}"."{name}"'
            sql = f"select count(*), {size} from {table} as t"  # noqa: S608 - our names
            found[name] = TableSize(*one_row(await connection.rows(sql, ())))
        return found
    finally:
        await connection.close()


async def distinct(url: str, table: str, column: str) -> set[str]:
    """Return the different texts in a column of a store."""
    sql = "select distinct {} from {}"
    if url.startswith("sqlite"):
        db: Any = apsw.Connection(str(path_of(url)))
        try:
            return {name for (name,) in db.execute(sql.format(column, table))}
        finally:
            db.close()
    location = location_from_url(url)
    connection = await Connector(location, lambda _text: None).connect()
    try:
        named = sql.format(column, f'"{location.schema}".{table}')
        return {name for (name,) in await connection.rows(named, ())}
    finally:
        await connection.close()
