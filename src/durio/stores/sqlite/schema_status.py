"""Inspect a database without opening the store: whether it exists, and its migrations.

Nothing is created, migrated or locked. `store_at` has accepted every URL given here.
"""

from pathlib import Path
from urllib.parse import parse_qsl, unquote

import apsw

from durio.model.migration import MigrationStatus
from durio.stores.sqlite.database import DriverName, OwnDatabase
from durio.stores.sqlite.schema import (
    close_as_found,
    connect_reader,
    migration_status,
    migrations,
    one_snapshot,
    refuse_name_clashes,
)
from durio.stores.sqlite.store_files import refuse_folder
from durio.stores.sqlite.translate import translated

MADE_AT_OPEN = True  # opening a file makes or upgrades its schema


def path_of(url: str) -> str | None:
    """Return the file that a URL names; None if it is in memory."""
    path = unquote(url.partition("?")[0].partition(":///")[2])
    return None if path == ":memory:" else path


def driver_of(url: str) -> DriverName:
    asked = dict(parse_qsl(url.partition("?")[2]))
    return "stdlib" if asked.get("driver") == "stdlib" else "apsw"


def is_missing(url: str) -> bool:
    path = path_of(url)
    return path is not None and not Path(path).exists()


def status(url: str) -> MigrationStatus:
    """Return which migrations the database has, and which this code would apply."""
    path, names = path_of(url), [step.name for step in migrations()]
    if path is None:  # every open makes a new database
        return MigrationStatus(applied=names, waiting=[], newer=[], changed=[])
    refuse_folder(path)
    if not Path(path).exists():
        return MigrationStatus(applied=[], waiting=names, newer=[], changed=[])
    try:
        db = connect_reader(path, driver_of(url))
        try:
            return status_of(db)
        finally:
            close_as_found(db)
    except apsw.Error as error:
        raise translated(error, path, at_commit=False) from None


def status_of(db: OwnDatabase) -> MigrationStatus:
    """Return the migrations of an open file; refuse a file with clashing names."""
    with one_snapshot(db):
        seen = migration_status(db)
        if not seen.applied:
            refuse_name_clashes(db, seen)
    return seen


def script(_url: str) -> str:
    return "\n".join(f"-- {step.name}.sql\n{step.text}" for step in migrations())
