"""Connections and their settings, and the numbered migrations that make the schema.

Each applied migration is recorded with a checksum of its text: a file that was changed
after the fact, or a schema from newer code, is refused rather than guessed at.
"""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

from durio.model.errors import SchemaMismatch, StoreReadOnly, StoreUnavailable
from durio.model.migration import (
    Migration,
    MigrationStatus,
    compare_migrations,
    migrations_of,
)
from durio.ports.clock import Clock
from durio.stores.sqlite.database import Database, DriverName, OwnDatabase, connect
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.store_files import WriterLock

BUSY_MILLISECONDS = 5000  # for writers that do not take our lock
IN_MEMORY = ":memory:"
# More cache is no faster, from 2 MB to 16, and every process has its own: others' commits
# empty it anyway. The size limit is in bytes.
SETTINGS = ("cache_size=-8000", "temp_store=memory", "journal_size_limit=67108864")

READ_MIGRATION_COLUMNS = statement("read_migration_columns")
CREATE_MIGRATION_TABLE = statement("create_migration_table")
READ_MIGRATIONS = statement("read_migrations")
RECORD_MIGRATION = statement("record_migration")

CREATED = re.compile(r"^create (?:table|index) (\w+)", re.MULTILINE)
# As `create_migration_table` makes it: another program may have a table of this name, too.
MIGRATION_COLUMNS = [
    ("table", "number", "integer", 0, 1),
    ("table", "name", "text", 1, 0),
    ("table", "checksum", "text", 1, 0),
    ("table", "applied_at", "real", 1, 0),
]

Synchronous = Literal["full", "normal"]


def connect_writer(
    path: str | None, synchronous: Synchronous, driver: DriverName = "apsw"
) -> OwnDatabase:
    """The one connection of a process that writes; nothing is written yet."""
    db = connect(path or IN_MEMORY, driver, make=True)
    db.wait_when_busy(BUSY_MILLISECONDS)
    db.leave_log_at_close(True)
    for setting in (*SETTINGS, f"synchronous={synchronous}"):
        db.rows(f"pragma {setting}")
    return db


def connect_reader(path: str, driver: DriverName = "apsw") -> OwnDatabase:
    """A connection that cannot write, beside the writer's."""
    db = connect(path, driver)
    db.wait_when_busy(BUSY_MILLISECONDS)
    db.leave_log_at_close(True)
    db.rows("pragma query_only=1")
    return db


def close_as_found(db: OwnDatabase) -> None:
    """Close a file that may be another program's: an empty log beside it was ours."""
    with suppress(OSError):
        if Path(f"{db.filename}-wal").stat().st_size == 0:
            db.leave_log_at_close(False)
    db.close()


def bring_up_to_date(
    db: OwnDatabase, path: str | None, lock: WriterLock, clock: Clock
) -> None:
    """Check the schema and, where it is older than this code, migrate it.

    A database that is up to date is not written to, so that opening it never waits for
    a stalled writer. One that is refused stays as it was, and nothing is made beside it.
    """
    if path is not None and db.is_read_only():
        raise StoreReadOnly(
            f"{path} can be read but not written",
            cure="Give this user the right to write the file and its folder.",
            path=path,
        )
    status = checked_status(db, path)
    lock.prepare()
    if not status.waiting:
        return
    with lock:
        if path is not None:
            use_wal(db, path)
        migrate(db, path, clock.now())


@contextmanager
def one_snapshot(db: Database) -> Generator[None, None, None]:
    """No commit of others is seen within: one may be migrating the file right now."""
    db.rows("savepoint moment")
    try:
        yield
    finally:
        db.rows("release moment")  # nothing was written


def checked_status(db: OwnDatabase, path: str | None) -> MigrationStatus:
    """How a file stands to this code; one that this code must not touch is refused."""
    with one_snapshot(db):
        status = migration_status(db)
        check_status(status, path)
        refuse_name_clashes(db, status)
    return status


def refuse_name_clashes(db: OwnDatabase, status: MigrationStatus) -> None:
    """Jobs may live beside another program's tables, but not in them."""
    waiting = [step for step in migrations() if step.name in status.waiting]
    ours = {name for step in waiting for name in CREATED.findall(step.text)}
    # SQLite's names are the same in either case; its `lower` folds as it does itself.
    there = db.rows("select lower(name) from sqlite_schema where type <> 'trigger'")
    if clash := sorted(ours & {name for (name,) in there}):
        raise name_clash(db, clash)


def name_clash(db: OwnDatabase, names: Sequence[str]) -> SchemaMismatch:
    """The file has such things already, and they are not ours."""
    return SchemaMismatch(
        f"{db.filename}: another program has tables or indexes of these names: "
        f"{', '.join(names)}",
        cure="Name another file.",
        path=db.filename,
    )


def use_wal(db: Database, path: str) -> None:
    """Write-ahead logging, and space that can be given back."""
    # In this order: after journal_mode=wal, auto_vacuum silently stays off.
    db.rows("pragma auto_vacuum=incremental")
    mode = db.value("pragma journal_mode=wal")
    if mode != "wal":
        raise StoreUnavailable(
            f"{path} cannot use a write-ahead log here (it stays {mode!r})",
            cure="Put the file on a local disk with shared memory.",
            path=path,
        )


def migrate(db: OwnDatabase, path: str | None, now: float) -> None:
    """Apply what is missing, all of it or nothing."""
    db.rows("begin immediate")
    try:
        status = checked_status(db, path)  # somebody may have been quicker
        db.rows(CREATE_MIGRATION_TABLE)
        for step in migrations():
            if step.name in status.waiting:
                db.run_script(step.text)
                row = (step.number, step.name, step.checksum, now)
                db.rows(RECORD_MIGRATION, row)
        db.rows("commit")
    finally:
        if db.in_transaction:
            db.rows("rollback")


def migration_status(db: OwnDatabase) -> MigrationStatus:
    """Compare the database with the migrations of this code."""
    rows = db.rows(READ_MIGRATIONS) if has_migrations(db) else ()
    return compare_migrations(migrations(), rows)


def has_migrations(db: OwnDatabase) -> bool:
    """Whether any was ever applied; another program's table of that name is refused."""
    columns = db.rows(READ_MIGRATION_COLUMNS)
    if columns and columns != MIGRATION_COLUMNS:
        raise name_clash(db, ["migration"])
    return bool(columns)


def check_status(status: MigrationStatus, path: str | None) -> None:
    """Refuse a schema that this code does not know."""
    if status.newer:
        raise SchemaMismatch(
            f"{path}: its schema is newer than this code: {', '.join(status.newer)}",
            cure="Upgrade durio here, or name another file.",
            path=path,
        )
    if status.changed:
        raise SchemaMismatch(
            f"{path}: made by another text of {', '.join(status.changed)}",
            cure="Use the release that made the file, or name another file.",
            path=path,
        )


@cache
def migrations() -> tuple[Migration, ...]:
    """Every migration of this code, in order."""
    folder = files("durio.stores.sqlite").joinpath("migrations")
    sql = [file for file in folder.iterdir() if file.name.endswith(".sql")]
    return migrations_of((file.name, file.read_text(encoding="utf-8")) for file in sql)
