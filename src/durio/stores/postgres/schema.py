"""Create and update the schema by numbered migrations, each recorded with its checksum.

Opening a store never migrates. On a cluster that is a separate step (`durio migrate`), run
by a role that may change the schema while workers of the previous release still run. A
migration file that was changed after it was applied is refused, and so is a schema from
newer code.
"""

from durio.model.errors import SchemaMismatch, StoreUnavailable
from durio.model.migration import (
    Migration,
    MigrationStatus,
    compare_migrations,
)
from durio.stores.postgres.driver import NO_RIGHT, DriverError, PostgresLocation
from durio.stores.postgres.statements import SchemaStatements, statement
from durio.stores.postgres.transaction import ReadTransaction
from durio.stores.statement_files import read_migrations

HAS_MIGRATIONS = statement("has_migrations")
HAS_SCHEMA = statement("has_schema")
CREATE_SCHEMA = statement("create_schema")
CREATE_MIGRATION = statement("create_migration_table")
READ_MIGRATIONS = statement("read_migrations")
RECORD_MIGRATION = statement("record_migration")

# One advisory lock for all migrations of a database, of any schema. `durio`, in ASCII.
LOCK = 0x647572696F
TAKE_LOCK = f"set local lock_timeout = 0; select pg_advisory_xact_lock({LOCK})"
# A waiting ALTER blocks every later statement on its table, so it waits only this long.
LOCK_WAIT = "set local lock_timeout = '5s'"
CREATE_CURE = (
    "Let the database's owner run: grant create on database NAME to ROLE; or: create "
    "schema {name} authorization ROLE;"
)
OWNER_CURE = "Run `durio migrate` with the role that owns the schema {name}: name it in --store URL."


async def migration_status(reading: ReadTransaction) -> MigrationStatus:
    """Compare the schema with the migrations of this code."""
    if not await reading.value(HAS_MIGRATIONS):
        return compare_migrations(migrations(), ())
    return compare_migrations(migrations(), await reading.rows(READ_MIGRATIONS))


def check_status(status: MigrationStatus, location: PostgresLocation) -> None:
    """Refuse a schema that newer code or a changed migration has made."""
    where = f"{location.shown}, schema {location.schema}"
    if status.newer:
        raise SchemaMismatch(
            f"{where}: newer than this code: {', '.join(status.newer)}",
            cure="Upgrade durio here, or name another schema.",
        )
    if status.changed:
        raise SchemaMismatch(
            f"{where}: its migrations differ from this release: "
            f"{', '.join(status.changed)}",
            cure="Use the release that made it, or name another schema.",
        )


def check_complete(status: MigrationStatus, location: PostgresLocation) -> None:
    """Refuse what `check_status` refuses, and a schema that is missing or older."""
    check_status(status, location)
    if status.waiting:
        how = "is older than this code" if status.applied else "is missing"
        raise SchemaMismatch(
            f"{location.shown}: the schema {location.schema} {how}; not applied: "
            f"{', '.join(status.waiting)}",
            cure="Run `durio migrate`, with a role that may create tables there.",
        )


async def migrate(tx: ReadTransaction, location: PostgresLocation) -> list[str]:
    """Apply missing migrations; return their names. The caller commits."""
    await tx.run(TAKE_LOCK)
    await tx.run(LOCK_WAIT)
    status = await migration_status(
        tx
    )  # another process may have applied them meanwhile
    check_status(status, location)
    if not status.waiting:
        return []
    # The owner of a schema may lack the right to create one.
    has_schema = await tx.value(HAS_SCHEMA, location.schema)
    try:
        if not has_schema:
            await tx.run(CREATE_SCHEMA)
        await tx.run(CREATE_MIGRATION)
        for step in migrations():
            if step.name in status.waiting:
                await tx.run(step.text)
                await tx.rows(RECORD_MIGRATION, step.number, step.name, step.checksum)
    except DriverError as error:
        if error.state != NO_RIGHT:
            raise
        raise missing_right(
            error, location, OWNER_CURE if has_schema else CREATE_CURE
        ) from error
    return status.waiting


def missing_right(
    error: DriverError, location: PostgresLocation, cure: str
) -> StoreUnavailable:
    """Return the error for a role without the rights that migrations need."""
    return StoreUnavailable(
        f"{location.shown}: this role lacks a privilege to create or change the schema "
        f"{location.schema} ({error.text})",
        cure=cure.format(name=location.schema),
        state=error.state,
    )


def script(schema: str) -> str:
    """Return the whole schema as SQL in one transaction, for people to run."""
    parts = ["begin;", f"{CREATE_SCHEMA.strip()};", f"{CREATE_MIGRATION.strip()};"]
    for step in migrations():
        parts.append(f"-- {step.name}.sql\n{step.text.strip()}")
        parts.append(
            f"{RECORD_MIGRATION.strip()};".replace("$1::int4", str(step.number))
            .replace("$2::text", f"'{step.name}'")
            .replace("$3::text", f"'{step.checksum}'")
        )
    return with_schema("\n\n".join([*parts, "commit;"]), schema) + "\n"


def with_schema(text: str, schema: str) -> str:
    return SchemaStatements(schema)[text]


def migrations() -> tuple[Migration, ...]:
    return read_migrations("durio.stores.postgres")
