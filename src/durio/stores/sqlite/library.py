"""Which copy of SQLite stands behind a store: one per file and process, and a sound one.

Two copies in one process break each other's locks on a file they share: closing a
descriptor in one drops the locks that the other believes to hold.
"""

import os
import sqlite3
from contextlib import suppress

import apsw

from durio.model.errors import StoreUnavailable
from durio.stores.sqlite.bundled import ApswDatabase
from durio.stores.sqlite.database import DriverName, OwnDatabase
from durio.stores.sqlite.place import DESCRIPTORS, Inode, inode_of, opened_by
from durio.stores.sqlite.stdlib import StdlibDatabase

# Before it, a write at one moment of another process's checkpoint could lose pages.
LIBRARY_MIN = (3, 51, 3)
WANTED = ".".join(str(part) for part in LIBRARY_MIN)


def connect(path: str, driver: DriverName, *, make: bool = False) -> OwnDatabase:
    """A connection of the store's own, by this library; `make` the file if need be."""
    kind = ApswDatabase if driver == "apsw" else StdlibDatabase
    return kind(path, make=make)


def version_of(driver: DriverName) -> str:
    """The version of SQLite behind a driver."""
    return apsw.sqlite_lib_version() if driver == "apsw" else sqlite3.sqlite_version


def is_sound(driver: DriverName) -> bool:
    """Whether this SQLite keeps what several processes write."""
    parts = version_of(driver).split(".")
    return tuple(int(part) for part in parts) >= LIBRARY_MIN


def check_library(driver: DriverName) -> str | None:
    """Refuse an apsw that can lose pages; of the standard library's SQLite only warn.

    Whoever chose that one shares the file with it, and has no other.
    """
    if is_sound(driver):
        return None
    told = f"SQLite {version_of(driver)} can lose data under several processes"
    if driver == "apsw":
        cure = f"Install apsw {WANTED} or later: it brings its own SQLite."
        raise StoreUnavailable(told, cure=cure)
    return (
        f"{told}, and driver=stdlib uses it: run Python with SQLite {WANTED} or later, "
        "or keep jobs in a file of their own without driver=stdlib"
    )


def check_strangers(path: str, driver: DriverName) -> None:
    """Refuse a file that another library of this process has open: best effort.

    Descriptors do not tell whose they are, but apsw knows its own connections.
    """
    inode = inode_of(path)
    ours = set[str]() if inode is None else opened_by(inode)
    if inode is None or driver in ours:
        return
    if driver == "stdlib":
        if ours or is_open_by_apsw(inode):
            raise mixed(path, "apsw", "Leave driver=stdlib out, or open it by sqlite3.")
    elif ours or (is_open(inode) and not is_open_by_apsw(inode)):
        cure = "Close that connection, or keep jobs in a file of their own. "
        cure += "To share the file with sqlite3 or SQLAlchemy, add ?driver=stdlib."
        raise mixed(path, "another library", cure)


def mixed(path: str, library: str, cure: str) -> StoreUnavailable:
    """Two copies of SQLite would have one file open."""
    return StoreUnavailable(
        f"{path} is open in this process already, through {library}",
        cure=cure,
        path=path,
    )


def is_open(inode: Inode) -> bool:
    """Whether this process has a descriptor of that file, as far as it can see."""
    if not DESCRIPTORS.is_dir():
        return False
    for name in os.listdir(DESCRIPTORS):  # noqa: PTH208 - iterdir would stat each twice
        with suppress(OSError):
            found = os.stat(f"{DESCRIPTORS}/{name}")  # noqa: PTH116
            if (found.st_dev, found.st_ino) == inode:
                return True
    return False


def is_open_by_apsw(inode: Inode) -> bool:
    """Whether a connection of apsw has that file open."""
    for connection in apsw.connections():
        with suppress(apsw.Error):  # closed meanwhile, in another thread
            if connection.filename and inode_of(connection.filename) == inode:
                return True
    return False
