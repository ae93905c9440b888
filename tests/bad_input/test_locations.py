"""Stores that cannot be opened or written: URLs, folders, files, disks.

What was stored before stays readable, what could not be stored is told, and what is half
written does not exist.
"""

import asyncio
import os
import sqlite3
import subprocess  # noqa: TID251 - mounts small disks, starts workers
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from durio import App, DurioError
from durio.errors import (
    InvalidURL,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from durio.stores.sqlite import store_files
from tests.bad_input.refusals import declined
from tests.conftest import Require


def run(command: str, *args: object) -> bool:
    """Run a tool of the system; False: it is not there, or it refused."""
    try:
        done = subprocess.run(
            [command, *map(str, args)], capture_output=True, check=False, timeout=30
        )
    except OSError:
        return False
    return done.returncode == 0


async def echo(value: str = "") -> str:
    return value


def app_at(path: Path, query: str = "") -> Any:
    """An App with its store in this file, and a task."""
    app = App(f"sqlite:///{path}{query}")
    return app, app.task(echo)


def filled(path: Path, jobs: int = 3) -> None:
    """A good store with some jobs in it, closed."""

    async def main() -> None:
        app, task = app_at(path)
        async with app:
            await task.enqueue_many([(str(n),) for n in range(jobs)])

    asyncio.run(main())


def count(path: Path) -> int:
    """How many jobs the file holds, by another reader of the format."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        rows = db.execute("select count(*) from job").fetchone()
    db.close()
    return rows[0]


def refuses(path: Path, error: type[DurioError], *words: str) -> None:
    """To open the file, and to enqueue into it, is refused the same way."""

    async def enqueue() -> None:
        app, task = app_at(path)
        try:
            await task.enqueue("x")
        finally:
            await app.close()

    async def enter() -> None:
        app, _ = app_at(path)
        async with app:
            raise AssertionError("opened")

    for attempt in (enqueue, enter):
        with declined(error, str(path), *words):
            asyncio.run(attempt())


# --- URLs


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlit:///jobs.db", ["Did you mean 'sqlite'?"]),
        ("shop", ['For the name of an App write App(name="shop").']),
        ("sqllite:///jobs.db", ["Did you mean 'sqlite'?"]),
        ("mongodb://host/jobs", ["unknown kind of store"]),
        ("jobs.db", ["sqlite:///file.db"]),
        ("/var/lib/jobs.db", ["sqlite:///file.db"]),
        ("sqlite:jobs.db", ["three slashes"]),
        ("sqlite:/jobs.db", ["three slashes"]),
        ("sqlite://jobs.db", ["three slashes"]),
        ("sqlite:///", ["names no file"]),
        ("sqlite://", ["names no file"]),
        ("sqlite:///jobs.db?synchronos=full", ["Did you mean 'synchronous'?"]),
        ("sqlite:///jobs.db?synchronous=off", ["full or normal"]),
        ("sqlite:///jobs.db?synchronous", ["full or normal"]),
        ("sqlite:///jobs.db?life=maybe", ["on or off"]),
        ("sqlite:///a%00b.db", ["cannot be the URL"]),
        ("sqlite:///a\0b.db", ["cannot be the URL"]),
        ("sqlite:///\ud800.db", ["cannot be the URL"]),
    ],
    ids=repr,
)
def test_a_url_with_a_mistake(
    url: Any, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with declined(InvalidURL, *words):
        App(url).task(echo).enqueue_sync("x")
    assert list(tmp_path.iterdir()) == []


def test_a_password_is_not_told():
    app = App("postgrs://ada:secret@host/jobs")
    assert "secret" not in repr(app)
    with pytest.raises(InvalidURL) as caught:
        app.task(echo).enqueue_sync("x")
    assert "secret" not in str(caught.value)


@pytest.mark.proves("M15")
def test_a_mistake_in_the_environment_is_told_the_same_way(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("DURIO_URL", "sqlit:///jobs.db")
    with declined(InvalidURL, "Did you mean 'sqlite'?"):
        App().task(echo).enqueue_sync("x")


# --- folders and files


def test_a_folder_that_does_not_exist(tmp_path: Path):
    refuses(tmp_path / "no" / "jobs.db", StoreUnavailable, "no folder", "mkdir -p")
    assert list(tmp_path.iterdir()) == []


def test_a_parent_that_is_a_file(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    refuses(tmp_path / "file" / "jobs.db", StoreUnavailable, "no folder")
    assert (tmp_path / "file").read_text() == "x"


def test_a_file_that_is_a_folder(tmp_path: Path):
    (tmp_path / "jobs.db").mkdir()
    refuses(tmp_path / "jobs.db", StoreUnavailable, "is a folder")
    assert list((tmp_path / "jobs.db").iterdir()) == []


def test_a_folder_that_cannot_be_written(tmp_path: Path, require: Require):
    """Permissions do not stop root: a folder that is immutable does."""
    folder = tmp_path / "frozen"
    folder.mkdir()
    if os.geteuid() == 0:
        require.kernel(run("chattr", "+i", folder), "immutable folders (chattr +i)")
    else:
        folder.chmod(0o500)
    try:
        refuses(folder / "jobs.db", StoreUnavailable)
        assert list(folder.iterdir()) == []
    finally:
        run("chattr", "-i", folder)
        folder.chmod(0o700)
    filled(folder / "jobs.db")


@pytest.fixture
def disk(tmp_path: Path, require: Require) -> Iterator[Path]:
    """A file system of 2 MB for one test."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = run("mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "durio", folder)
    require.kernel(mounted, "mounting a small disk (tmpfs, as root)")
    try:
        yield folder
    finally:
        run("umount", "-l", folder)


def test_a_file_system_that_is_read_only(disk: Path):
    filled(disk / "jobs.db")
    assert run("mount", "-o", "remount,ro", disk)
    with pytest.raises((StoreReadOnly, StoreUnavailable)) as caught:
        app_at(disk / "jobs.db")[1].enqueue_sync("x")
    assert "writ" in str(caught.value)
    assert caught.value.cure
    assert run("mount", "-o", "remount,rw", disk)
    filled(disk / "jobs.db")
    assert count(disk / "jobs.db") == 6


def test_a_file_that_is_read_only(tmp_path: Path, require: Require):
    """The folder may be written, the database may not."""
    path = tmp_path / "jobs.db"
    filled(path)
    if os.geteuid() == 0:
        require.kernel(run("chattr", "+i", path), "immutable files (chattr +i)")
    else:
        path.chmod(0o400)
    try:
        refuses(path, StoreReadOnly, "can be read but not written", "right to write")
        assert count(path) == 3
    finally:
        run("chattr", "-i", path)
        path.chmod(0o600)
    filled(path)
    assert count(path) == 6


def test_a_full_disk_loses_nothing_and_goes_on_by_itself(disk: Path):
    async def main() -> tuple[int, int]:
        app, task = app_at(disk / "jobs.db")
        stored = 0
        async with app:
            with declined(StoreFull, "no space left", "Free space"):
                for _ in range(200):
                    await task.enqueue("x" * 50_000)
                    stored += 1
            for _ in range(3):  # and so does the next one
                with pytest.raises(StoreFull) as caught:
                    await task.enqueue_many([("x" * 50_000,)] * 5)
                assert not caught.value.unknown
            full = len(await everything(app))
            assert run("mount", "-o", "remount,size=20m", disk)
            await task.enqueue_many([("x" * 50_000,)] * 5)
            return stored, full

    stored, full = asyncio.run(main())
    assert 0 < stored == full
    assert count(disk / "jobs.db") == stored + 5


async def everything(app: App) -> list[Any]:
    store: Any = await app.store()
    return await store.context.reader.read(lambda db: db.rows("select id from job"))


def test_a_disk_that_is_full_before_the_store_is_made(disk: Path):
    ballast = disk / "ballast"
    with pytest.raises(OSError, match="No space left"):
        ballast.write_bytes(b"x" * 3_000_000)
    path = disk / "jobs.db"
    with pytest.raises((StoreFull, StoreUnavailable)) as caught:
        app_at(path)[1].enqueue_sync("x")
    assert caught.value.cure
    ballast.unlink()
    filled(path)
    assert count(path) == 3


@pytest.mark.parametrize("processes", [(), ("--processes", "1")])
def test_a_worker_that_a_full_disk_ends_tells_what_helps_then(
    disk: Path, processes: tuple[str, ...]
):
    """It has ended: it will not go on by itself."""
    path = disk / "jobs.db"
    filled(path)
    with (disk / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
        while True:
            ballast.write(b"x" * 4096)
    code = "import durio; app = durio.App()"
    (disk.parent / "full.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "durio", "worker", "full:app", *processes],
        cwd=disk.parent,
        env={**os.environ, "DURIO_URL": f"sqlite:///{path}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 3, done.stderr
    told = done.stderr.partition("error:")[2]
    assert "[store_full]" in told
    assert "Free space on this disk, then start it again." in told
    assert "Durio continues" not in told


# --- what lies there already


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def overwrite_header(path: Path) -> None:
    overwrite(path, 0, b"\0" * 100)


def overwrite_schema(path: Path) -> None:
    overwrite(path, 100, b"\xff" * 3996)


def become_text(path: Path) -> None:
    path.write_text("this is a letter to my aunt, and no database at all\n" * 99)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize(
    "spoil", [overwrite_header, overwrite_schema, become_text, truncate]
)
def test_a_file_that_is_damaged_or_is_no_database(
    tmp_path: Path, spoil: Callable[[Path], None]
):
    path = tmp_path / "jobs.db"
    filled(path, jobs=500)
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt) as caught:
        app_at(path)[1].enqueue_sync("x")
    assert str(path) in str(caught.value)
    assert caught.value.cure
    assert path.read_bytes() == before  # not touched, let alone made anew


def test_damage_inside_is_told_when_it_is_met(tmp_path: Path):
    path = tmp_path / "jobs.db"
    filled(path, jobs=500)
    pages = path.stat().st_size // 4096
    for page in range(4, pages):
        overwrite(path, page * 4096, b"\xa5" * 4096)

    async def main() -> None:
        app, task = app_at(path)
        try:
            await task.enqueue_many([(str(n),) for n in range(100)])
        finally:
            await app.close()

    with declined(StoreCorrupt, "is damaged", "backup"):
        asyncio.run(main())


def test_somebody_elses_database_is_left_alone(tmp_path: Path):
    """Our tables are added beside theirs, unless a name is taken."""
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as db:
        db.execute("create table job (name text)")
        db.execute("insert into job values ('carpenter')")
    db.close()
    with pytest.raises(StoreError) as caught:
        app_at(path)[1].enqueue_sync("x")
    assert str(path) in str(caught.value)
    with sqlite3.connect(path) as db:
        assert db.execute("select name from job").fetchall() == [("carpenter",)]
        tables = db.execute("select name from sqlite_master").fetchall()
    db.close()
    assert tables == [("job",)]  # nothing of ours, nothing by halves


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            "insert into migration values (9000, '9000_future', 'x', 0)",
            ["newer than this code", "9000_future", "Upgrade durio"],
        ),
        ("update migration set checksum = 'other'", ["migrations differ"]),
    ],
)
def test_a_schema_that_this_code_does_not_know(
    tmp_path: Path, change: str, words: list[str]
):
    path = tmp_path / "jobs.db"
    filled(path)
    with sqlite3.connect(path) as db:
        db.execute(change)
    db.close()
    refuses(path, SchemaMismatch, *words)
    assert count(path) == 3


# --- network file systems


@pytest.mark.parametrize("kind", sorted(store_files.NETWORK_FILE_SYSTEMS))
def test_a_file_on_a_network_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    """The kernel's list of mounts decides; here it is a list of our own."""
    device = tmp_path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 0:99 / / rw shared:1 - ext4 /dev/vda rw\n"
        f"36 22 {number} / /mnt rw,noatime shared:7 master:1 - {kind} host:/x rw\n"
    )
    monkeypatch.setattr(store_files, "MOUNTS", mounts)
    assert store_files.file_system(tmp_path) == kind
    words = (f"network file system ({kind})", "local disk", "PostgreSQL")
    refuses(tmp_path / "jobs.db", StoreUnavailable, *words)
    assert [p.name for p in tmp_path.iterdir()] == ["mountinfo"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense\n\n22 1\n",
        "22 1 0:99 / / rw - nfs4 host:/ rw\n",
    ],
    ids=["empty", "unreadable", "another disk"],
)
def test_a_list_of_mounts_that_says_nothing_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(text)
    monkeypatch.setattr(store_files, "MOUNTS", mounts)
    filled(tmp_path / "jobs.db")
    monkeypatch.setattr(store_files, "MOUNTS", tmp_path / "nowhere")
    filled(tmp_path / "jobs.db")
    assert count(tmp_path / "jobs.db") == 6


# --- a store that may not grow


def test_a_store_that_may_not_grow_refuses_and_stays_whole(tmp_path: Path):
    """The same as a full disk, told by SQLite itself: no mount is needed."""
    path = tmp_path / "jobs.db"

    async def main() -> None:
        app, task = app_at(path)
        async with app:
            store: Any = await app.store()
            await task.enqueue("first")
            pages = await store.context.writer.write_outside(
                lambda db: db.value("pragma page_count")
            )
            await store.context.writer.write_outside(
                lambda db: db.rows(f"pragma max_page_count = {pages + 5}")
            )
            with declined(StoreFull, str(path), "nothing was written"):
                await task.enqueue_many([("x" * 10_000,)] * 20)
            assert len(await everything(app)) == 1
            await task.enqueue("small")  # there is room for this one
            await store.context.writer.write_outside(
                lambda db: db.rows("pragma max_page_count = 100000")
            )
            await task.enqueue_many([("x" * 10_000,)] * 20)

    asyncio.run(main())
    assert count(path) == 22
