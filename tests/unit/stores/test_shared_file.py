"""A file of another program: jobs live beside its tables, or it stays as it was."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from durio.model.errors import SchemaMismatch, StoreCorrupt
from durio.stores.sqlite import schema
from durio.stores.sqlite.schema import migrations
from durio.stores.sqlite.schema_status import status
from durio.stores.sqlite.store import SqliteStore
from tests.unit.stores.sqlite_harness import lines_of, new_job, run_on_store, start

pytestmark = pytest.mark.slow  # real processes, servers or seconds

CLASHES = {
    "table job": ("create table job (id int)", "job"),
    "table JOB": ("create table JOB (id int)", "job"),
    "index Job_Ready": (
        "create table theirs (id int); create index Job_Ready on theirs (id)",
        "job_ready",
    ),
    "view Worker": ("create view Worker as select 1 as id", "worker"),
    "table of the later schema": ("create table Audit (id int)", "audit"),
    "table migration": ("create table migration (id, x)", "migration"),
    "table Migration": (
        "create table Migration (number primary key); insert into Migration values (1)",
        "migration",
    ),
    "table Migration with our columns": (
        "create table Migration (number primary key, name, checksum, applied_at)",
        "migration",
    ),
    "view migration": ("create view migration as select 1 as number", "migration"),
    "index migration": (
        "create table theirs (id int); create index migration on theirs (id)",
        "migration",
    ),
}


MIGRATION = """
create table migration (number integer primary key, name text not null,
  checksum text not null, applied_at real not null) strict
"""


def make_theirs(path: Path, script: str, mode: str = "delete") -> None:
    db = sqlite3.connect(path)
    db.execute(f"pragma journal_mode={mode}")
    db.executescript(script)
    db.close()


def everything(folder: Path) -> dict[str, bytes]:
    """Every file with its bytes; a folder has none."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


async def put_one(store: SqliteStore) -> None:
    await store.enqueue([new_job()])


@pytest.mark.parametrize("mode", ["delete", "wal"])
@pytest.mark.parametrize("clash", CLASHES)
def test_a_name_that_is_taken_is_refused_and_nothing_changes(
    tmp_path: Path, clash: str, mode: str
) -> None:
    script, name = CLASHES[clash]
    path = tmp_path / "theirs.db"
    make_theirs(path, script, mode)
    before = everything(tmp_path)
    with pytest.raises(SchemaMismatch) as told:
        run_on_store(path, put_one)
    assert str(path) in told.value.what
    assert told.value.what.endswith(f"of these names: {name}")
    assert told.value.cure == "Name another file."
    assert everything(tmp_path) == before
    with pytest.raises(SchemaMismatch) as looked:
        status(f"sqlite:///{path}")
    assert looked.value.what == told.value.what
    assert everything(tmp_path) == before


def test_a_log_that_holds_their_commits_is_not_moved(tmp_path: Path) -> None:
    """Their program has crashed: what is in its log is for it to find there."""
    path = tmp_path / "theirs.db"
    make_theirs(path, "create table other (id int)", "wal")
    process = start(CRASH_WITH_A_LOG, path)
    process.communicate(timeout=60)
    assert process.returncode == 9
    before = everything(tmp_path)
    assert before["theirs.db-wal"]
    with pytest.raises(SchemaMismatch):
        run_on_store(path, put_one)
    after = everything(tmp_path)
    after.pop("theirs.db-shm")  # SQLite's own index of the log
    before.pop("theirs.db-shm")
    assert after == before


CRASH_WITH_A_LOG = """
import os, sqlite3
db = sqlite3.connect(sys.argv[1])
db.execute("create table job (id int)")
db.commit()
os._exit(9)
"""


def test_a_file_that_is_no_database_gets_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "diary.txt"
    path.write_text("dear diary, " * 500)
    before = everything(tmp_path)
    with pytest.raises(StoreCorrupt):
        run_on_store(path, put_one)
    assert everything(tmp_path) == before


def test_newer_code_made_it_and_its_folder_was_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    later = "insert into migration values (9999, '9999_later', 'x', 0)"
    make_theirs(path, f"{MIGRATION}; {later}", "wal")
    before = everything(tmp_path)
    with pytest.raises(SchemaMismatch, match="newer than this code: 9999_later"):
        run_on_store(path, put_one)
    assert everything(tmp_path) == before


def test_an_older_file_of_ours_with_a_table_of_theirs(tmp_path: Path) -> None:
    """The upgrade needs a name that somebody took since."""
    old = migrations()[0]
    path = tmp_path / "jobs.db"
    make_theirs(path, f"{old.text};{MIGRATION}; create table Tally (id int)")
    with sqlite3.connect(path) as db:
        row = (old.number, old.name, old.checksum)
        db.execute("insert into migration values (?, ?, ?, 0)", row)
    db.close()
    before = everything(tmp_path)
    with pytest.raises(SchemaMismatch, match="of these names: tally"):
        run_on_store(path, put_one)
    assert everything(tmp_path) == before


def test_names_that_only_look_alike_are_no_clash(tmp_path: Path) -> None:
    """SQLite folds ASCII alone, and triggers have names of their own."""
    path = tmp_path / "theirs.db"
    script = (
        "create table wor\u212aer (id int);"  # the sign of Kelvin, no K
        " create table jobs (id int);"
        " create trigger job after insert on jobs begin select 1; end"
    )
    make_theirs(path, script)
    run_on_store(path, put_one)
    assert Path(f"{path}-durio").is_dir()
    with sqlite3.connect(path) as db:
        assert db.execute("select count(*) from job").fetchone() == (1,)
    db.close()


def test_another_process_that_migrates_while_we_look_is_no_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No migration was seen: then its tables must not be seen either."""
    path = tmp_path / "theirs.db"
    make_theirs(path, "create table theirs (id int)", "wal")
    check = schema.check_status
    looks: list[tuple[Any, ...]] = []

    def migrate_in_between(*seen: Any) -> None:
        check(*seen)
        looks.append(seen)
        if len(looks) == 1:
            assert lines_of(start(OPEN, path)) == ["stored"]

    monkeypatch.setattr(schema, "check_status", migrate_in_between)
    run_on_store(path, put_one)
    assert len(looks) == 2


OPEN = """
async def story(store):
    await store.enqueue([new_job()])
    print("stored")
for path in sys.argv[1:]:
    run_on_store(Path(path), story)
"""
ROUNDS, AT_ONCE = 5, 4
ON_START_SIGNAL = """
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("there", ["nothing", "a file of theirs"])
def test_processes_that_make_the_same_store_at_once(tmp_path: Path, there: str) -> None:
    paths = [tmp_path / f"{number}.db" for number in range(ROUNDS)]
    if there != "nothing":
        for path in paths:
            make_theirs(path, "create table theirs (id int)")
    processes = [start(ON_START_SIGNAL + OPEN, *paths) for _ in range(AT_ONCE)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        assert lines_of(process) == ["stored"] * ROUNDS
    for path in paths:
        with sqlite3.connect(path) as db:
            assert db.execute("select count(*) from job").fetchone() == (AT_ONCE,)
        db.close()
        assert Path(f"{path}-durio/writer.lock").exists()
