"""The SQLite store: one file on one host, or memory, as the sum of its capabilities."""

import os
from collections.abc import Callable

from durio.model.errors import StoreUnavailable
from durio.model.settings import RetentionSettings
from durio.ports.clock import Clock
from durio.ports.store import Stall, Wake
from durio.stores.sqlite.bell import QUIET, Bells, LocalBells, NoBells, SocketBells
from durio.stores.sqlite.browse import SqliteBrowse
from durio.stores.sqlite.control import SqliteControl
from durio.stores.sqlite.database import DriverName
from durio.stores.sqlite.desk import Desk
from durio.stores.sqlite.ear import Ears, LocalEars, NoEars, SocketEars
from durio.stores.sqlite.enqueue import SqliteEnqueue
from durio.stores.sqlite.exchange import SqliteExchange
from durio.stores.sqlite.finish import SqliteFinish
from durio.stores.sqlite.folder import Folder, Lives, WriterLock, open_folder
from durio.stores.sqlite.fork import forget_forks, watch_forks
from durio.stores.sqlite.lease import SqliteLease, data_version
from durio.stores.sqlite.library import check_library, check_strangers
from durio.stores.sqlite.live import SqliteLive
from durio.stores.sqlite.place import Inode, check_place, enter
from durio.stores.sqlite.reader import ReaderThread
from durio.stores.sqlite.schema import (
    MigrationStatus,
    Synchronous,
    migration_status,
)
from durio.stores.sqlite.scribe import Scribe
from durio.stores.sqlite.transactions import SqliteTransactions
from durio.stores.sqlite.translate import IN_MEMORY
from durio.stores.sqlite.upkeep import SqliteUpkeep
from durio.stores.sqlite.writer import InlineWriter, WriterThread, opening

Warn = Callable[[str], None]
# Without a bell a worker looks whether anything changed, so often.
LOOK_SECONDS = 0.05


def in_silence(_text: str) -> None:
    """Nobody wants to know."""


class SqliteStore(
    SqliteEnqueue,
    SqliteExchange,
    SqliteFinish,
    SqliteLease,
    SqliteUpkeep,
    SqliteControl,
    SqliteBrowse,
    SqliteLive,
    SqliteTransactions,
):
    """Every method may be awaited from any event loop of the process."""

    def __init__(
        self,
        path: str | None,
        clock: Clock,
        *,
        synchronous: Synchronous = "full",
        life: bool = True,
        retention: RetentionSettings | None = None,
        driver: DriverName = "apsw",
    ) -> None:
        """A store in the file `path`, or in memory without one.

        `synchronous="normal"` may lose the last commits at a power cut; `life=False` does
        without the locks that show deaths on this host; `driver="stdlib"` uses Python's
        own SQLite, for a file that sqlite3 or SQLAlchemy have open too.
        """
        # Once and for all: a process may go to another folder, and a link to the file
        # must lead to the same locks.
        self._path = None if path is None else os.path.realpath(path)
        self._clock = clock
        self._synchronous: Synchronous = synchronous
        self._life = life
        self._retention = retention or RetentionSettings()
        self._driver: DriverName = driver
        self.warn: Warn = in_silence
        self._folder: Folder | None = None
        self._inode: Inode | None = None
        self._desk: Desk | None = None
        self._is_open = False

    @property
    def desk(self) -> Desk:
        """The parts of the open store."""
        if self._desk is None:
            raise StoreUnavailable(
                f"{self._path or IN_MEMORY} is not open",
                cure="Await `open()` first; a store in memory does not survive a fork.",
                path=self._path,
            )
        return self._desk

    async def open(self) -> None:
        """Open, check and, where the schema is older than this code, upgrade it."""
        if self._desk is not None and self._is_open:
            return
        # Whoever comes first makes the desk; all wait until its writer is open.
        with opening:
            desk = self._desk
            if desk is None:
                if (risk := check_library(self._driver)) is not None:
                    self.warn(risk)
                desk = self._new_desk()
                self._desk = desk
            desk.openers += 1
        try:
            await desk.writer.open()
        except BaseException:
            # One that is cancelled must not take the desk from the others.
            with opening:
                desk.openers -= 1
                is_last = self._desk is desk and not desk.openers
                if is_last:
                    self._desk = None
            if is_last:
                await self._clear(desk)
            raise
        self._is_open = True
        watch_forks(self)

    async def close(self) -> None:
        """Answer what waits, then close."""
        desk, self._desk = self._desk, None
        if desk is None:
            return
        self._is_open = False
        forget_forks(self)
        await self._clear(desk)

    async def wait(self, worker: int, timeout_seconds: float) -> Wake:
        """Until somebody rings this worker, or the time is over."""
        desk = self.desk
        wake = await desk.bells.wait(worker, timeout_seconds)
        return await look_for_change(desk, timeout_seconds) if wake is None else wake

    def stall(self) -> Stall | None:
        """Which process keeps our writes waiting, if one does."""
        return None if self._desk is None else self._desk.lock.stall()

    async def migration_status(self) -> MigrationStatus:
        """Which migrations this file has."""
        return await self.desk.reader.read(migration_status)

    # --- parts

    def _new_desk(self) -> Desk:
        return self._desk_in_memory() if self._path is None else self._desk_on_disk()

    def _desk_in_memory(self) -> Desk:
        bells = LocalBells()
        lock = WriterLock(None, self._clock)
        writer = InlineWriter(self._scribe(bells, lock))
        desk = Desk(self._clock, writer, writer, bells, lock, None, LocalEars())
        desk.retention = self._retention
        return desk

    def _desk_on_disk(self) -> Desk:
        path = self._path or ""
        check_place(path)
        check_strangers(path, self._driver)
        folder = self._folder = open_folder(path)
        self._inode = enter(path, self._driver)
        bells: Bells = NoBells() if folder is None else SocketBells(folder)
        ears: Ears = NoEars() if folder is None else SocketEars(folder, self._clock)
        lives = Lives(folder) if self._life and folder is not None else None
        lock = WriterLock(folder, self._clock)
        writer = WriterThread(self._scribe(bells, lock))
        reader = ReaderThread(path, self._driver)
        desk = Desk(
            self._clock, writer, reader, bells, lock, lives, ears, self._synchronous
        )
        desk.path, desk.inode = path, self._inode
        desk.driver, desk.retention = self._driver, self._retention
        return desk

    def _scribe(self, bells: Bells, lock: WriterLock) -> Scribe:
        scribe = Scribe(
            self._path,
            self._clock,
            self._retention,
            self._synchronous,
            bells,
            lock,
            self._driver,
        )
        scribe.inode = self._inode
        return scribe

    async def _clear(self, desk: Desk) -> None:
        """The reader first, then the writer, then what lies beside the file."""
        folder, self._folder = self._folder, None  # the next desk has one of its own
        await desk.reader.close()
        await desk.writer.close()
        desk.bells.close()
        desk.ears.close()
        if desk.lives is not None:
            desk.lives.close()
        if folder is not None:
            folder.close()

    # --- forks: see fork.py

    def before_fork(self) -> None:
        """Close the connections and hold still."""
        if self._desk is not None:
            self._desk.writer.before_fork()
            self._desk.reader.before_fork()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        if self._desk is not None:
            self._desk.reader.after_fork_in_parent()
            self._desk.writer.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        """Workers, locks and bells are the parent's; jobs in memory are too."""
        desk = self._desk
        if desk is None:
            return
        desk.writer.after_fork_in_child()
        desk.reader.after_fork_in_child()
        desk.renewed_versions.clear()
        desk.bells.forget()
        desk.ears.forget()
        if desk.lives is not None:
            desk.lives.close()
        if self._path is None:
            self._desk = None
            self._is_open = False


async def look_for_change(desk: Desk, timeout_seconds: float) -> Wake:
    """Without a bell: has anybody committed anything since we began to wait?"""
    seen = await desk.reader.read(data_version)
    end = desk.clock.monotonic() + timeout_seconds
    while (left := end - desk.clock.monotonic()) > 0:
        await desk.clock.sleep(min(left, LOOK_SECONDS))
        if await desk.reader.read(data_version) != seen:
            return Wake(rung=True, lanes=frozenset(), control=False)
    return QUIET
