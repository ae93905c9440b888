"""The files of a store: where the database may be, and the private folder beside it.

The database file is never opened here, except to create it: closing a descriptor of it
would drop the locks that SQLite holds on it in this process.

The private folder `<db>-durio/` belongs to one user (0700). It holds `writer.lock`,
`<worker>.bell` and `<worker>.life`. SQLite makes waiting writers poll, which is slow and
unfair. With `flock` on a side file the kernel queues them. It must be a side file, for
the reason above.

A life file is locked while its worker lives. A process that gets that lock knows that the
owner is dead, whatever its lease says. Never judge by pid: pids are reused.

`flock` belongs to the open file, which a forked child shares. The child closes its copies;
otherwise a dead parent's locks would live on in it.
"""

import errno
import fcntl
import os
import shlex
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from durio.model.errors import StoreError, StoreFull, StoreReplaced, StoreUnavailable
from durio.ports.clock import Clock
from durio.ports.store import Stall

# Locks or shared memory do not work on these file systems.
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "fuse.sshfs", "9p", "afs", "ceph"}
)
MOUNTS = Path("/proc/self/mountinfo")
DESCRIPTORS = Path("/proc/self/fd")

Inode = tuple[int, int]
# The file and the library of each open store of this process. Several threads change it.
_opened: list[tuple[Inode, str]] = []


def check_location(path: str) -> None:
    """Refuse a path where a store cannot work, before anything is created."""
    parent = Path(path).resolve().parent
    if not parent.is_dir():
        raise StoreUnavailable(
            f"{path} cannot be opened: there is no folder {parent}",
            cure=f"Make it first: mkdir -p {shlex.quote(str(parent))}",
            path=path,
        )
    kind = file_system(parent)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreUnavailable(
            f"{path} lies on a network file system ({kind}), where its locks do not hold",
            cure="Put the file on a local disk, or use PostgreSQL for several machines.",
            path=path,
        )
    if not os.access(parent, os.W_OK | os.X_OK):
        raise StoreUnavailable(
            f"{path} cannot be opened: this user may not write in {parent}",
            cure="SQLite keeps files beside the database: make its folder writable.",
            path=path,
        )
    refuse_folder(path)
    if Path(path).exists() and not Path(path).is_file():
        raise StoreUnavailable(
            f"{path} is not a regular file", cure="Name another file.", path=path
        )
    check_links(path)


def refuse_folder(path: str) -> None:
    if Path(path).is_dir():
        raise StoreUnavailable(
            f"{path} is a folder, not a database", cure="Name a file in it.", path=path
        )


def check_links(path: str) -> None:
    """Refuse a file with two names, because each name would get a log of its own."""
    with suppress(OSError):
        if os.stat(path).st_nlink > 1:  # noqa: PTH116
            raise StoreUnavailable(
                f"{path} is hard-linked under another name, without its write-ahead log",
                cure="Remove the other name, or copy the file.",
                path=path,
            )


def file_system(folder: Path) -> str | None:
    """Return the type of the file system that holds a folder; None if unknown."""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError):
        for line in MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
            fields = line.split(" ")
            if fields[2:3] == [wanted] and "-" in fields[:-1]:
                return fields[fields.index("-") + 1]
    return None


def opened_by(inode: Inode) -> set[str]:
    """Return the libraries with which stores of this process have that file open."""
    return {driver for other, driver in list(_opened) if other == inode}


def register_open_file(path: str, driver: str) -> Inode | None:
    """Record that a store of this process opens this file; create a missing file.

    Returns None if it cannot be created.
    """
    if inode_of(path) is None:
        # The file is new, so closing this descriptor drops no locks.
        with suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644))
    inode = inode_of(path)
    if inode is not None:
        _opened.append((inode, driver))
    return inode


def check_not_replaced(path: str, inode: Inode | None) -> None:
    """Refuse to continue with a file that was deleted or replaced under its name."""
    if inode is not None and inode_of(path) != inode:
        raise StoreReplaced(
            f"{path} was deleted or replaced while it was in use",
            cure="Restart this process: it still has the old file open.",
            path=path,
        )


def unregister_open_file(inode: Inode | None, driver: str) -> None:
    if inode is not None and (inode, driver) in _opened:
        _opened.remove((inode, driver))


def inode_of(path: str) -> Inode | None:
    """Return the inode of the file that a path names; None if there is no file."""
    with suppress(OSError):
        found = os.stat(path)  # noqa: PTH116
        return found.st_dev, found.st_ino
    return None


PID_BYTES = 12
SUFFIX = "-durio"


class Folder:
    """The open private folder; its files are reached only through its descriptor."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    def make(self) -> None:
        """Create and open the folder now, if `open_folder` left that for later."""
        if self.descriptor < 0:
            descriptor = enter_folder(self.path)
            if descriptor is None:  # the database's owner has created it meanwhile
                raise not_private(self.path)
            self.descriptor = descriptor

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1

    def unlink(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(name, dir_fd=self.descriptor)


def open_folder(database: str) -> Folder | None:
    """Open or create the folder; None if it and the database belong to another user.

    In that case this process only produces jobs. It can take no lock and send no wakeup;
    SQLite's own locks and the workers' safety poll are enough for it. Beside a file with
    content, which may be another program's, no folder is created yet.
    """
    path = f"{database}{SUFFIX}"
    if is_filled(database) and not os.path.lexists(path):
        return Folder(path, -1)  # see `make`
    descriptor = enter_folder(path)
    return None if descriptor is None else Folder(path, descriptor)


def is_filled(path: str) -> bool:
    with suppress(OSError):
        return os.stat(path).st_size > 0  # noqa: PTH116
    return False


def enter_folder(path: str) -> int | None:
    """Return a descriptor of the folder, created if it is missing.

    Returns None if the owner of the database owns it. A folder of any other user is
    refused, because its owner could block us.
    """
    database = path.removesuffix(SUFFIX)
    with suppress(FileExistsError):
        make_folder(path)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        found = Path(path).lstat()
        is_ours = found.st_uid == os.geteuid()
        is_private = not found.st_mode & 0o077
        if is_private and not is_ours and found.st_uid == owner(database):
            return None
        descriptor = os.open(path, flags) if is_ours and is_private else -1
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be opened: {error.strerror}",
            cure="It must be a folder of this user's with mode 0700.",
            path=path,
        ) from None
    if descriptor < 0:
        raise not_private(path)
    return descriptor


def not_private(path: str) -> StoreUnavailable:
    """Return the error for a folder that another user owns or can write, and so block us."""
    found = Path(path).lstat()
    return StoreUnavailable(
        f"{path} is not private: owner {found.st_uid}, mode {found.st_mode & 0o777:o}",
        cure=f"Run as its owner and `chmod 700 {path}`.",
        path=path,
    )


def make_folder(path: str) -> None:
    try:
        Path(path).mkdir(mode=0o700)
    except FileExistsError:
        raise
    except OSError as error:
        raise cannot_be_made(error, path) from None


def cannot_be_made(error: OSError, path: str) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(
            f"{path} cannot be made: {error.strerror}",
            cure="Free space on its file system; nothing was written.",
            path=path,
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return StoreUnavailable(
            f"{path} cannot be opened: {error.strerror}",
            cure="Raise the limit of open files (ulimit -n), or find what keeps them "
            "open.",
            path=path,
        )
    return StoreUnavailable(
        f"{path} cannot be made: {error.strerror}",
        cure="Give this user the right to write in the database's folder.",
        path=path,
    )


def owner(path: str) -> int:
    """Return the user id of the owner; -1 if there is no such file yet."""
    file = Path(path)
    return file.stat().st_uid if file.exists() else -1


class WriterLock:
    """The lock that the writers of one database take in turn; a context for one turn."""

    def __init__(self, folder: Folder | None, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._descriptor = -1
        self._waiting_since: float | None = None
        self._depth = 0

    def __enter__(self) -> None:
        # May nest: a writer that opens the file within its turn may have to migrate it.
        if self._depth or self.take_nowait():
            self._depth += 1
            return
        # flock has no timeout, and a stopped process keeps its lock. Meanwhile `stall`
        # names the holder.
        self._waiting_since = self._clock.monotonic()
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        finally:
            self._waiting_since = None
        self._write_pid()
        self._depth = 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.release()

    def prepare(self) -> None:
        """Create the folder of the lock, once the database is known to be Durio's."""
        if self._folder is not None:
            self._folder.make()

    def take_nowait(self) -> bool:
        """Take the lock if it is free."""
        if self._folder is None:
            return True
        if self._descriptor < 0:
            self._descriptor = self._open(self._folder)
        if not try_lock(self._descriptor):
            return False
        self._write_pid()
        return True

    def _open(self, folder: Folder) -> int:
        try:
            return open_lock(folder, "writer.lock")
        except OSError as error:
            raise cannot_be_made(error, f"{folder.path}/writer.lock") from None

    def release(self) -> None:
        if self._descriptor >= 0:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _write_pid(self) -> None:
        # Only for the messages of waiting processes; a full disk may have no room for it.
        with suppress(OSError):
            os.pwrite(self._descriptor, str(os.getpid()).ljust(PID_BYTES).encode(), 0)

    def stall(self) -> Stall | None:
        """Return which process keeps us waiting, and for how long; None if we do not wait."""
        since = self._waiting_since
        if since is None:
            return None
        written = os.pread(self._descriptor, PID_BYTES, 0).strip()
        pid = int(written) if written.isdigit() else 0
        return Stall(pid, self._clock.monotonic() - since)

    def close(self) -> None:
        """Close the descriptor, which releases the lock."""
        close_quietly(self._descriptor)
        self._descriptor = -1
        self._depth = 0
        self._waiting_since = None


class SqliteLifeLocks:
    """The life locks of this process's workers, and a way to test those of others."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._held: dict[int, int] = {}

    def begin(self, worker: int) -> bool:
        """Lock the life file of a worker, before its registration is committed."""
        try:
            descriptor = open_lock(self._folder, life_name(worker))
        except OSError:
            return False
        self._held[worker] = descriptor
        return try_lock(descriptor)

    def end(self, worker: int) -> None:
        """Release the lock, after the worker's row is deleted."""
        self._folder.unlink(life_name(worker))
        close_quietly(self._held.pop(worker, -1))

    def seize(self, worker: int) -> int | None:
        """Return a descriptor that holds a dead worker's lock.

        Returns None if the worker is alive or unknown.
        """
        try:
            descriptor = os.open(
                life_name(worker),
                os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW,
                dir_fd=self._folder.descriptor,
            )
        except OSError:
            return None
        if try_lock(descriptor):
            return descriptor
        os.close(descriptor)
        return None

    def close(self) -> None:
        """Close every lock of this process: in a forked child, or when the store closes."""
        for descriptor in self._held.values():
            close_quietly(descriptor)
        self._held.clear()


def life_name(worker: int) -> str:
    return f"{worker}.life"


def open_lock(folder: Folder, name: str) -> int:
    """Return a descriptor of a lock file in the folder, created if it is missing."""
    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(name, flags, 0o600, dir_fd=folder.descriptor)


def try_lock(descriptor: int) -> bool:
    """Take the lock if it is free."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def close_quietly(descriptor: int) -> None:
    """Close a descriptor that may be closed already; -1 is none."""
    if descriptor >= 0:
        with suppress(OSError):
            os.close(descriptor)
