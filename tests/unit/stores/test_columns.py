"""The classes that show a job, and the tables that hold it, have the columns of one list."""

from durio.model.job import (
    COMMON_COLUMNS,
    JOB_COLUMNS,
    Claim,
    NewJob,
    StoredJob,
)
from durio.ports.move import JobRow
from durio.stores.sqlite.schema import connect_writer, migrate
from durio.stores.statement_files import COLUMN_NAMES
from tests.tidy.house import ROOT

EVERY_COLUMN = {*JOB_COLUMNS, "worker", "cancel", "alone"}  # of a running job


def columns(kind: type[NewJob | Claim | StoredJob | JobRow]) -> tuple[str, ...]:
    return tuple(COLUMN_NAMES.get(field, field) for field in kind._fields)


def test_every_field_is_a_column() -> None:
    # A delay is added to the store's clock: `run_at`. `ties` has the wait, the entries and
    # the gates. An expiry is a record, and in `opts`.
    elsewhere = {"delay_seconds", "wait", "on_end", "gates", "expires_at"}
    new = {*columns(NewJob)} - elsewhere
    assert new <= EVERY_COLUMN
    assert {*columns(Claim)} <= EVERY_COLUMN
    assert {*columns(StoredJob)} <= EVERY_COLUMN


def test_a_moved_job_has_all_its_columns() -> None:
    assert columns(JobRow) == ("seq", *JOB_COLUMNS, "wait_delay")


def test_lists_are_rendered_in_the_order_of_their_classes() -> None:
    assert Claim._fields[:2] == ("id", "claim_no")
    assert StoredJob._fields[: len(COMMON_COLUMNS)] == COMMON_COLUMNS
    assert JOB_COLUMNS[: len(COMMON_COLUMNS)] == COMMON_COLUMNS


def test_the_table_of_sqlite() -> None:
    db = connect_writer(None, "full")
    migrate(db, None, 0.0)
    found = {name for (name,) in db.rows("select name from pragma_table_info('job')")}
    db.close()
    # The arrival, the lane, and an index of dead jobs.
    own = {"seq", "queue", "died_at"}
    assert found - own == EVERY_COLUMN - {"lane"}


def test_the_tables_of_postgresql() -> None:
    # tests/docs/test_reference.py makes this page from a server.
    page = ROOT / "docs/reference/postgresql-store.md"
    tables: dict[str, set[str]] = {}
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            table, *found = line.replace("`", "").replace("|", ",").split(",")[1:-1]
            tables[table.strip()] = {name.strip() for name in found}
    found = tables["job"] | tables["run"] | tables["kept"]
    assert found - {"held"} == EVERY_COLUMN  # places at gates are not moved
    assert {*COMMON_COLUMNS} <= tables["hist"] <= tables["kept"]
