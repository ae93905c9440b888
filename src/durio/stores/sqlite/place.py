"""Where a database may lie: what is looked at before SQLite opens the file.

The file itself is never opened here: closing a descriptor of it would drop the locks that
SQLite holds on it in this process.
"""

import os
from contextlib import suppress
from pathlib import Path

from durio.model.errors import StoreReplaced, StoreUnavailable

# Locks or shared memory do not hold on these.
NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "fuse.sshfs", "9p", "afs", "ceph"}
)
MOUNTS = Path("/proc/self/mountinfo")
DESCRIPTORS = Path("/proc/self/fd")

Inode = tuple[int, int]
# The file of each store of ours that is open, and its library; several threads add and
# remove.
_opened: list[tuple[Inode, str]] = []


def check_place(path: str) -> None:
    """Refuse what cannot work, with a hint, before anything is made."""
    parent = Path(path).resolve().parent
    if not parent.is_dir():
        raise StoreUnavailable(
            f"{path} cannot be opened: there is no folder {parent}",
            cure=f"Make it first: mkdir -p {parent}",
            path=path,
        )
    kind = file_system(parent)
    if kind in NETWORK:
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
    if Path(path).is_dir():
        raise StoreUnavailable(
            f"{path} is a folder, not a database", cure="Name a file in it.", path=path
        )
    if Path(path).exists() and not Path(path).is_file():
        raise StoreUnavailable(
            f"{path} is not a regular file", cure="Name another file.", path=path
        )
    check_links(path)


def check_links(path: str) -> None:
    """Refuse a file with two names: each would get a log of its own, over one file."""
    with suppress(OSError):
        if os.stat(path).st_nlink > 1:  # noqa: PTH116
            raise StoreUnavailable(
                f"{path} has another name (a hard link), under which its log is not seen",
                cure="Remove the other name, or copy the file.",
                path=path,
            )


def file_system(folder: Path) -> str | None:
    """The type of the file system that holds a folder; None: nobody can tell."""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError):
        for line in MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
            fields = line.split(" ")
            if fields[2:3] == [wanted] and "-" in fields[:-1]:
                return fields[fields.index("-") + 1]
    return None


def opened_by(inode: Inode) -> set[str]:
    """By which library stores of this process have that file open."""
    return {driver for other, driver in list(_opened) if other == inode}


def enter(path: str, driver: str) -> Inode | None:
    """Note that a store of ours opens this file, made if it is missing: which one."""
    if inode_of(path) is None:
        # Nobody has it open, so closing it drops no locks.
        with suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644))
    inode = inode_of(path)
    if inode is not None:
        _opened.append((inode, driver))
    return inode


def check_same(path: str, inode: Inode | None) -> None:
    """Refuse to go on with a file that was deleted or replaced under its name."""
    if inode is not None and inode_of(path) != inode:
        raise StoreReplaced(
            f"{path} was deleted or replaced while it was in use",
            cure="Start this process again: what it has open is no longer that file.",
            path=path,
        )


def depart(inode: Inode | None, driver: str) -> None:
    """Note that it has closed it."""
    if inode is not None and (inode, driver) in _opened:
        _opened.remove((inode, driver))


def inode_of(path: str) -> Inode | None:
    """Which file a path names; None: there is none."""
    with suppress(OSError):
        found = os.stat(path)  # noqa: PTH116
        return found.st_dev, found.st_ino
    return None
