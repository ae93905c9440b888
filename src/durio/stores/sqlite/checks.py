"""Checks of a SQLite store for `durio doctor`; they create and write nothing in it.

To measure the cost of a commit, one scratch file is written beside the database and deleted
at once. The database itself is opened through SQLite only: closing a descriptor of it would
drop the locks that other connections of this process hold.
"""

import os
import select
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from shlex import quote
from statistics import median

import apsw

from durio.model.errors import DurioError, StoreUnavailable
from durio.model.finding import Finding, error, fine, warning
from durio.model.ids import id_made_at
from durio.ports.browse import moment_in_words
from durio.ports.clock import Clock
from durio.ports.move import MoveMark
from durio.stores.sqlite.database import (
    LIBRARY_MIN_TEXT,
    DriverName,
    OwnDatabase,
    check_library,
    connect,
    version_of,
)
from durio.stores.sqlite.schema import connect_reader
from durio.stores.sqlite.schema_status import driver_of, path_of, status
from durio.stores.sqlite.store_files import (
    NETWORK_FILE_SYSTEMS,
    PID_BYTES,
    check_links,
    file_system,
    try_lock,
)
from durio.stores.sqlite.translate import read_mark, translated

VOLATILE_FILE_SYSTEMS = {
    "overlay": "the container layer: lost with the container",
    "tmpfs": "memory: gone at the next boot",
    "ramfs": "memory: gone at the next boot",
}
SYNC_TIMES, SYNC_BYTES = 7, 4096
SYNC_SECONDS_MAX = 0.020
# No disk is that fast: it does not wait for the write, or is not a disk.
SYNC_SECONDS_MIN = 0.000_01
FREE_BYTES_MIN, FREE_BYTES_LOW = 100 * 2**20, 2**30
FREE_SHARE_LOW = 0.05
LOG_BYTES_MAX = 256 * 2**20
QUICK_CHECK_SECONDS_MAX = 1.0
QUICK_CHECK_STEPS = 10_000
STALL_SECONDS = 0.5  # a writer normally holds the lock for milliseconds
STALL_POLL_SECONDS = 0.001
SIDE_FILE_SUFFIXES = ("-wal", "-shm")
MIB = 2**20

Check = Callable[[], Iterator[Finding]]


def checks(url: str, clock: Clock) -> dict[str, Check]:
    """Return all checks of this store by name; `store_at` has accepted the URL."""
    path, driver = path_of(url), driver_of(url)
    found: dict[str, Check] = {"store.library": partial(library, driver)}
    if path is None:
        return found | {"store.place": in_memory}
    real = Path(os.path.realpath(path))
    return found | {
        "store.place": partial(place, real),
        "store.rights": partial(rights, real),
        "store.space": partial(space, real.parent),
        "store.fsync": partial(fsync, real.parent, clock),
        "store.writer": partial(writer, real, clock, driver),
        "store.schema": partial(schema, url, real),
        "store.integrity": partial(integrity, real, clock, driver),
        "store.log": partial(log, real),
        "store.move": partial(move, url, real, driver),
    }


def library(driver: DriverName = "apsw") -> Iterator[Finding]:
    """Check the version of SQLite: old ones can lose pages when several processes write."""
    name, evidence = "store.library", f"SQLite {version_of(driver)}"
    evidence += (
        f", apsw {apsw.apsw_version()}" if driver == "apsw" else " (driver=stdlib)"
    )
    try:
        risk = check_library(driver)
    except StoreUnavailable as trouble:
        yield error(name, f"{evidence}: can lose data", trouble.cure)
        return
    if risk is None:
        yield fine(name, evidence)
    else:
        fix = f"Run Python with SQLite {LIBRARY_MIN_TEXT} or later, or leave driver=stdlib out."
        yield warning(name, f"{evidence}: can lose data", fix)


def in_memory() -> Iterator[Finding]:
    fix = "Name a file: sqlite:///jobs.db."
    yield warning("store.place", "in memory: lost when the process ends", fix)


# --- where the file is


def place(path: Path) -> Iterator[Finding]:
    """Check that the file is on a local disk that outlives the process."""
    name, folder = "store.place", path.parent
    if not folder.is_dir():
        yield error(
            name, f"there is no folder {folder}", f"mkdir -p {quote(str(folder))}"
        )
        return
    if path.exists() and not path.is_file():
        yield error(name, f"{path} is not a file", "Name a file.")
        return
    try:
        check_links(str(path))
    except StoreUnavailable as trouble:
        yield error(name, trouble.what, trouble.cure)
        return
    kind = file_system(folder) or "unknown"
    if kind in NETWORK_FILE_SYSTEMS:
        fix = "Put the file on a local disk: locks do not hold over a network."
        yield error(name, f"{folder} lies on a network file system ({kind})", fix)
    elif kind in VOLATILE_FILE_SYSTEMS:
        fix = "Put the file on a persistent disk or volume."
        yield warning(
            name, f"{folder} lies on {kind}: {VOLATILE_FILE_SYSTEMS[kind]}", fix
        )
    else:
        yield fine(name, f"{path} on {kind}")


def rights(path: Path) -> Iterator[Finding]:
    """Check that this user may write the files, and that the private folder is private."""
    name, folder = "store.rights", path.parent
    troubles = list(folder_problems(folder)) + list(file_problems(path))
    private = Path(f"{path}-durio")
    if private.exists() and private.stat().st_mode & 0o077:
        mode = f"{private.stat().st_mode & 0o777:o}"
        troubles.append(
            (f"{private} is not private: mode {mode}", f"chmod 700 {private}")
        )
    for evidence, fix in troubles:
        yield error(name, evidence, fix)
    if not troubles:
        yield fine(name, f"this user may write {folder} and what is in it")


def folder_problems(folder: Path) -> Iterator[tuple[str, str]]:
    """Check that the folder is writable, because SQLite keeps files beside the database."""
    if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
        yield f"this user may not write in {folder}", f"chown or chmod u+wx {folder}"


def file_problems(path: Path) -> Iterator[tuple[str, str]]:
    """Find files that we cannot write, that every user can, or that have another owner."""
    if not path.is_file():
        return
    owner = path.stat().st_uid
    for file in (path, *(Path(f"{path}{end}") for end in SIDE_FILE_SUFFIXES)):
        with suppress(FileNotFoundError):
            found = file.stat()
            if found.st_mode & 0o002:
                yield f"every user may write {file}", f"chmod o-w {file}"
            if found.st_uid != owner:
                evidence = (
                    f"{file} belongs to user {found.st_uid}, the database to {owner}"
                )
                yield evidence, f"chown {owner} {file}; run every command as one user"
            if not os.access(file, os.R_OK | os.W_OK):
                yield f"this user may not write {file}", f"chown or chmod u+rw {file}"


def space(folder: Path) -> Iterator[Finding]:
    name = "store.space"
    if not folder.is_dir():
        return
    disk = os.statvfs(folder)
    free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    evidence = f"{free // MIB:,} MiB free of {total // MIB:,}"
    fix = "Make room, shorten retention.done_seconds, or move the store."
    if disk.f_files and not disk.f_favail:
        yield error(name, "the file system can make no more files (inodes)", fix)
    elif free < FREE_BYTES_MIN:
        yield error(name, evidence, fix)
    elif free < FREE_BYTES_LOW or free < total * FREE_SHARE_LOW:
        yield warning(name, evidence, fix)
    else:
        yield fine(name, evidence)


def fsync(folder: Path, clock: Clock) -> Iterator[Finding]:
    """Measure the cost of a commit, which waits for the disk once."""
    name = "store.fsync"
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return
    try:
        seconds = median(sync_seconds(folder, clock))
    except OSError as failure:
        fix = "Make room, or see what is wrong with this disk: nothing can be stored."
        yield error(name, f"a small file cannot be written: {failure.strerror}", fix)
        return
    evidence = f"{seconds * 1000:.2f} ms, median of {SYNC_TIMES}"
    if seconds > SYNC_SECONDS_MAX:
        fix = "Use a faster disk: every commit waits for it."
        yield warning(name, f"{evidence}: slow", fix)
    elif seconds < SYNC_SECONDS_MIN:
        fix = "Check whether this disk ignores sync: a power cut may lose commits."
        yield warning(name, f"{evidence}: too fast for a real sync", fix)
    else:
        yield fine(name, evidence)


def sync_seconds(folder: Path, clock: Clock) -> list[float]:
    """Time several small writes with fsync, in a scratch file."""
    path = folder / f".durio-doctor-{os.getpid()}"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_EXCL | os.O_CLOEXEC, 0o600)
    seen: list[float] = []
    try:
        for turn in range(SYNC_TIMES):
            os.pwrite(descriptor, bytes(SYNC_BYTES), turn * SYNC_BYTES)
            began = clock.monotonic()
            os.fsync(descriptor)
            seen.append(clock.monotonic() - began)
    finally:
        os.close(descriptor)
        path.unlink()
    return seen


def writer(path: Path, clock: Clock, driver: DriverName = "apsw") -> Iterator[Finding]:
    """Check that no stopped process blocks all writers in the middle of a transaction."""
    name = "store.writer"
    lock = Path(f"{path}-durio") / "writer.lock"
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # no process has written yet, or the folder is another user's
        return
    try:
        holder = holder_of(descriptor, clock)
        # While we hold the writers' lock, only a program other than Durio can hold SQLite's
        # own lock.
        is_free = not path.is_file() or not try_lock(descriptor)
        is_free = is_free or may_write(path, driver)
    except apsw.Error as trouble:
        failure = translated(trouble, str(path), at_commit=False)
        yield error(name, failure.what, failure.cure)
        return
    finally:
        os.close(descriptor)  # closing it releases the lock
    if holder is not None:
        evidence = f"process {holder} holds the write lock and does not release it"
        fix = f"Is it stopped? kill -CONT {holder}, or kill it: nothing is lost. If it "
        fix += "runs, it may itself wait for another program that writes to the file."
        yield error(name, evidence, fix)
    elif not is_free:
        evidence = f"a program other than Durio locks {path} and does not release it"
        fix = f"Find it (fuser {path}) and let it end its transaction, or stop it."
        yield error(name, evidence, fix)
    else:
        yield fine(name, "the write lock is released in time")


def may_write(path: Path, driver: DriverName) -> bool:
    """Whether SQLite lets us begin to write within STALL_SECONDS; nothing is written."""
    db = connect(str(path), driver)
    try:
        db.wait_when_busy(round(STALL_SECONDS * 1000))
        db.leave_log_at_close(True)
        db.rows("begin immediate")
        db.rows("rollback")
    except apsw.BusyError:
        return False
    finally:
        db.close()
    return True


def holder_of(descriptor: int, clock: Clock) -> int | None:
    """Return the process that holds the lock during all of STALL_SECONDS, or 0 if unknown.

    Returns None if the lock was free, or passed from one process to another.
    """
    end = clock.monotonic() + STALL_SECONDS
    holders: set[bytes] = set()
    while clock.monotonic() < end:
        if try_lock(descriptor):
            return None
        holders.add(os.pread(descriptor, PID_BYTES, 0).strip())
        if len(holders) > 1:
            return None
        select.select([], [], [], STALL_POLL_SECONDS)
    return int(holders.pop() or 0) if holders else None


# --- what is in the file


def schema(url: str, path: Path) -> Iterator[Finding]:
    """Check that the schema of the file fits this release."""
    name = "store.schema"
    if not path.exists():
        fix = (
            "Start a worker, or let the App enqueue a job: that creates it.\n"
            "Or name another: --app MODULE:APP, --store URL, DURIO_APP or DURIO_URL."
        )
        yield warning(name, f"there is no store yet at {path}", fix)
        return
    try:
        seen = status(url)
    except DurioError as trouble:
        yield error(name, trouble.what, trouble.cure)
        return
    if seen.newer:
        evidence = f"newer than this code: {', '.join(seen.newer)}"
        yield error(name, evidence, "Upgrade durio here.")
    elif seen.changed:
        evidence = f"its migrations differ from this release: {', '.join(seen.changed)}"
        yield error(name, evidence, "Use the release that made the file.")
    elif seen.waiting:
        evidence = f"older than this code: {', '.join(seen.waiting)} not applied"
        yield warning(name, evidence, "Run: durio migrate")
    else:
        yield fine(name, seen.applied[-1])


def integrity(
    path: Path, clock: Clock, driver: DriverName = "apsw"
) -> Iterator[Finding]:
    """Run SQLite's own quick_check, for at most QUICK_CHECK_SECONDS_MAX."""
    name = "store.integrity"
    if not path.is_file() or not path.stat().st_size:
        return
    fix = "Stop the workers, copy the file away, and restore a backup."
    try:
        db = connect_reader(str(path), driver)
        try:
            result = quick_check(db, clock)
        finally:
            db.close()
    except apsw.Error as trouble:
        yield error(name, translated(trouble, str(path), at_commit=False).what, fix)
        return
    if result is None:
        size = f"{path.stat().st_size // MIB:,} MiB"
        yield fine(
            name, f"no damage in {QUICK_CHECK_SECONDS_MAX:g} s of looking ({size})"
        )
    elif result == "ok":
        yield fine(name, "quick_check: ok")
    else:
        yield error(name, f"quick_check: {result}", fix)


def quick_check(db: OwnDatabase, clock: Clock) -> str | None:
    """Return the first damage, or "ok"; None if it was not finished in time."""
    end = clock.monotonic() + QUICK_CHECK_SECONDS_MAX
    db.stop_when(lambda: clock.monotonic() > end, QUICK_CHECK_STEPS)
    try:
        return str(db.value("pragma quick_check(1)"))
    except apsw.InterruptError:
        return None


def log(path: Path) -> Iterator[Finding]:
    """Check the size of the log, which grows while a read is open or no worker shortens it."""
    name = "store.log"
    size = 0
    with suppress(FileNotFoundError):
        size = Path(f"{path}-wal").stat().st_size
    evidence = f"{size // MIB:,} MiB of write-ahead log"
    if size > LOG_BYTES_MAX:
        fix = "End programs that keep a read open; then a worker truncates the log."
        yield warning(name, evidence, fix)
    elif path.exists():
        yield fine(name, evidence)


def move(url: str, path: Path, driver: DriverName = "apsw") -> Iterator[Finding]:
    """Report a move of the jobs to another store that has begun or is done.

    A file that cannot be read is reported by the earlier checks.
    """
    mark: MoveMark | None = None
    if not path.is_file() or not path.stat().st_size:
        return
    with suppress(apsw.Error):
        db = connect_reader(str(path), driver)
        try:
            mark = read_mark(db)
        finally:
            db.close()
    if mark is None:
        return
    name, began = "store.move", moment_in_words(id_made_at(bytes.fromhex(mark.id)))
    command = f"durio move {quote(url)} {quote(mark.to)}"
    go_on = f"Continue: {command} (with its password). To undo it: the same with "
    go_on += "--back-out."
    to = f"to {mark.to}, begun {began}"
    if mark.stage == "draining":
        evidence = f"a move {to}, is not finished: no worker starts, jobs are accepted"
        yield warning(name, evidence, go_on)
    elif mark.stage == "frozen":
        evidence = f"a move {to}, is not finished: nothing can be written here"
        yield error(name, evidence, go_on)
    else:
        fix = f"Use that store: DURIO_URL={mark.to} (with its password). Nothing needs "
        fix += f"{path} any more, nor what begins with its name."
        yield error(name, f"its jobs have moved {to}: nothing can be written here", fix)
