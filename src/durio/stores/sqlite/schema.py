"""Open connections with their settings, and create the schema by numbered migrations.

Each applied migration is recorded with a checksum of its text. A file made by another text
of a migration, or by newer code, is refused.
"""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from durio.model.errors import SchemaMismatch, StoreReadOnly, StoreUnavailable
from durio.model.migration import (
    Migration,
    MigrationStatus,
    compare_migrations,
)
from durio.ports.clock import Clock
from durio.stores.sqlite.database import Database, DriverName, OwnDatabase, connect
from durio.stores.sqlite.freeze_triggers import refuse_all_changes
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.store_files import WriterLock
from durio.stores.sqlite.translate import read_mark
from durio.stores.statement_files import read_migrations

BUSY_MILLISECONDS = 5000  # wait for writers that do not take our lock
IN_MEMORY = ":memory:"
# Caches from 2 MB to 16 MB are equally fast. Every process has its own, and other
# processes' commits empty it. The limit of the log's size is in bytes.
SETTINGS = ("cache_size=-8000", "temp_store=memory", "journal_size_limit=67108864")

READ_MIGRATION_COLUMNS = statement("read_migration_columns")
CREATE_MIGRATION_TABLE = statement("create_migration_table")
READ_MIGRATIONS = statement("read_migrations")
RECORD_MIGRATION = statement("record_migration")

CREATED = re.compile(r"^create (?:table|index) (\w+)", re.MULTILINE)
# The columns that `create_migration_table` makes; another program may have a table of this
# name.
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
    """Return the one writing connection of a process; nothing is written yet."""
    db = connect(path or IN_MEMORY, driver, make=True)
    db.wait_when_busy(BUSY_MILLISECONDS)
    db.leave_log_at_close(True)
    for setting in (*SETTINGS, f"synchronous={synchronous}"):
        db.rows(f"pragma {setting}")
    return db


def connect_reader(path: str, driver: DriverName = "apsw") -> OwnDatabase:
    db = connect(path, driver)
    db.wait_when_busy(BUSY_MILLISECONDS)
    db.leave_log_at_close(True)
    db.rows("pragma query_only=1")
    return db


def close_as_found(db: OwnDatabase) -> None:
    """Close a file that may be another program's; remove an empty log, which is ours."""
    with suppress(OSError):
        if Path(f"{db.filename}-wal").stat().st_size == 0:
            db.leave_log_at_close(False)
    db.close()


def bring_up_to_date(
    db: OwnDatabase, path: str | None, lock: WriterLock, clock: Clock
) -> None:
    """Check the schema and, if it is older than this code, migrate it.

    A database that is up to date is not written to, so that opening it never waits for a
    stalled writer. A database that is refused stays unchanged, and no file is created
    beside it.
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
    """Hide others' commits from the block: another process may be migrating the file."""
    db.rows("savepoint moment")
    try:
        yield
    finally:
        db.rows("release moment")  # nothing was written


def checked_status(db: OwnDatabase, path: str | None) -> MigrationStatus:
    """Return the migrations of a file; refuse a file that this code must not change."""
    with one_snapshot(db):
        status = migration_status(db)
        check_status(status, path)
        refuse_name_clashes(db, status)
    return status


def refuse_name_clashes(db: OwnDatabase, status: MigrationStatus) -> None:
    """Refuse tables of another program that have our names; others may be in the same file."""
    waiting = [step for step in migrations() if step.name in status.waiting]
    ours = {name for step in waiting for name in CREATED.findall(step.text)}
    # SQLite's names ignore case, and `lower` folds case as SQLite does.
    there = db.rows("select lower(name) from sqlite_schema where type <> 'trigger'")
    if clash := sorted(ours & {name for (name,) in there}):
        raise name_clash(db, clash)


def name_clash(db: OwnDatabase, names: Sequence[str]) -> SchemaMismatch:
    return SchemaMismatch(
        f"{db.filename}: another program has tables or indexes of these names: "
        f"{', '.join(names)}",
        cure="Name another file.",
        path=db.filename,
    )


def use_wal(db: Database, path: str) -> None:
    """Turn on write-ahead logging and incremental vacuum."""
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
    """Apply all missing migrations in one transaction."""
    db.rows("begin immediate")
    try:
        status = checked_status(
            db, path
        )  # another process may have migrated it meanwhile
        db.rows(CREATE_MIGRATION_TABLE)
        for step in migrations():
            if step.name in status.waiting:
                db.run_script(step.text)
                row = (step.number, step.name, step.checksum, now)
                db.rows(RECORD_MIGRATION, row)
        freeze_new_tables(db)
        db.rows("commit")
    finally:
        if db.in_transaction:
            db.rows("rollback")


def freeze_new_tables(db: OwnDatabase) -> None:
    """Freeze new tables of a file that an older release has frozen."""
    mark = read_mark(db)
    if mark is not None and mark.stage != "draining":
        refuse_all_changes(db, mark.to)


def migration_status(db: OwnDatabase) -> MigrationStatus:
    rows = db.rows(READ_MIGRATIONS) if has_migrations(db) else ()
    return compare_migrations(migrations(), rows)


def has_migrations(db: OwnDatabase) -> bool:
    """Whether any migration was applied; refuses another program's `migration` table."""
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
            f"{path}: its migrations differ from this release: "
            f"{', '.join(status.changed)}",
            cure="Use the release that made the file, or name another file.",
            path=path,
        )


def migrations() -> tuple[Migration, ...]:
    return read_migrations("durio.stores.sqlite")
