"""The SQLite store: one file on one host, or memory; all capabilities in one class.

`sqlite:///file.db`, `sqlite:////absolute/file.db`, `sqlite:///:memory:`, `?options`.
"""

import math
import os
from collections.abc import Callable
from urllib.parse import parse_qsl, unquote

from durio.model.errors import InvalidURL, StoreUnavailable
from durio.model.names import did_you_mean
from durio.model.settings import RetentionSettings, Settings
from durio.ports.clock import Clock
from durio.ports.store import Health, Wake
from durio.stores.sqlite.browse import SqliteBrowse
from durio.stores.sqlite.commit import SqliteCommit
from durio.stores.sqlite.context import SqliteContext
from durio.stores.sqlite.control import SqliteControl
from durio.stores.sqlite.database import (
    Database,
    DriverName,
    check_library,
    check_other_libraries,
)
from durio.stores.sqlite.enqueue import SqliteEnqueue
from durio.stores.sqlite.exchange import SqliteExchange
from durio.stores.sqlite.lease import SqliteLease, seconds_behind
from durio.stores.sqlite.live import SqliteLive
from durio.stores.sqlite.live_events import (
    LocalLiveEvents,
    NoLiveEvents,
    SocketLiveEvents,
    SqliteLiveEvents,
)
from durio.stores.sqlite.logs import SqliteLogs
from durio.stores.sqlite.reader import ReaderThread
from durio.stores.sqlite.records import SqliteRecords
from durio.stores.sqlite.schema import (
    MigrationStatus,
    Synchronous,
    migration_status,
)
from durio.stores.sqlite.store_files import (
    Folder,
    Inode,
    SqliteLifeLocks,
    WriterLock,
    check_location,
    open_folder,
    register_open_file,
)
from durio.stores.sqlite.transactions import SqliteTransactions
from durio.stores.sqlite.translate import IN_MEMORY
from durio.stores.sqlite.upkeep import SqliteUpkeep
from durio.stores.sqlite.wakeups import (
    LocalWakeups,
    NoWakeups,
    SocketWakeups,
    SqliteWakeups,
)
from durio.stores.sqlite.write_session import WriteSession
from durio.stores.sqlite.writer import (
    InlineWriter,
    WriterThread,
    add_fork_handler,
    opening_lock,
    remove_fork_handler,
)
from durio.stores.waiting import NOT_WOKEN, POLL_WAKE

Warn = Callable[[str], None]
# How often a worker without a wakeup socket checks for commits.
POLL_SECONDS = 0.05


def ignore_warning(_text: str) -> None: ...


class SqliteStore(
    SqliteEnqueue,
    SqliteExchange,
    SqliteLease,
    SqliteUpkeep,
    SqliteControl,
    SqliteBrowse,
    SqliteRecords,
    SqliteCommit,
    SqliteLogs,
    SqliteLive,
    SqliteTransactions,
):
    """The store; every method may be awaited from any event loop of the process."""

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
        """Use the file `path`, or memory if there is none.

        `synchronous="normal"` may lose the last commits in a power failure. `life=False`
        works without the locks that show deaths on this host. `driver="stdlib"` uses
        Python's own SQLite, for a file that sqlite3 or SQLAlchemy have open too.
        """
        # Resolved once: the process may change its directory, and a symbolic link to the
        # file must lead to the same locks.
        self._path = None if path is None else os.path.realpath(path)
        self._clock = clock
        self._synchronous: Synchronous = synchronous
        self._life = life
        self._retention = retention or RetentionSettings()
        self._driver: DriverName = driver
        self.warn: Warn = ignore_warning
        self._folder: Folder | None = None
        self._inode: Inode | None = None
        self._context: SqliteContext | None = None
        self._is_open = False

    @property
    def context(self) -> SqliteContext:
        if self._context is None:
            raise StoreUnavailable(
                f"{self._path or IN_MEMORY} is not open",
                cure="Await `open()` first; a store in memory does not survive a fork.",
                path=self._path,
            )
        return self._context

    async def open(self) -> None:
        """Open and check the file; upgrade a schema that is older than this code."""
        if self._context is not None and self._is_open:
            return
        # The first caller creates the context; all callers wait until its writer is open.
        with opening_lock:
            context = self._context
            if context is None:
                if (risk := check_library(self._driver)) is not None:
                    self.warn(risk)
                context = self._new_context()
                self._context = context
            context.openers += 1
        try:
            await context.writer.open()
        except BaseException:
            # A cancelled caller must not close the context of the others.
            with opening_lock:
                context.openers -= 1
                is_last = self._context is context and not context.openers
                if is_last:
                    self._context = None
            if is_last:
                await self._close_context(context)
            raise
        self._is_open = True
        add_fork_handler(self)

    async def close(self) -> None:
        context, self._context = self._context, None
        if context is None:
            return
        self._is_open = False
        remove_fork_handler(self)
        await self._close_context(context)

    async def wait(self, worker: int, timeout_seconds: float) -> Wake:
        context = self.context
        wake = await context.wakeups.wait(worker, timeout_seconds)
        return await poll_for_change(context, timeout_seconds) if wake is None else wake

    async def health(self, worker: int | None = None) -> Health:
        """Report which process keeps our writes waiting, and whether others could renew."""
        stall = None if self._context is None else self._context.lock.stall()
        if worker is None:
            return Health(stall, behind_seconds=math.inf)
        return Health(stall, await seconds_behind(self.context, worker))

    async def migration_status(self) -> MigrationStatus:
        return await self.context.reader.read(migration_status)

    # --- parts

    def _new_context(self) -> SqliteContext:
        return (
            self._context_in_memory() if self._path is None else self._context_on_disk()
        )

    def _context_in_memory(self) -> SqliteContext:
        wakeups = LocalWakeups()
        lock = WriterLock(None, self._clock)
        writer = InlineWriter(self._write_session(wakeups, lock))
        context = SqliteContext(
            self._clock, writer, writer, wakeups, lock, None, LocalLiveEvents()
        )
        context.retention = self._retention
        return context

    def _context_on_disk(self) -> SqliteContext:
        path = self._path or ""
        check_location(path)
        check_other_libraries(path, self._driver)
        folder = self._folder = open_folder(path)
        self._inode = register_open_file(path, self._driver)
        wakeups: SqliteWakeups = (
            NoWakeups() if folder is None else SocketWakeups(folder)
        )
        live_events: SqliteLiveEvents = (
            NoLiveEvents() if folder is None else SocketLiveEvents(folder, self._clock)
        )
        lives = SqliteLifeLocks(folder) if self._life and folder is not None else None
        lock = WriterLock(folder, self._clock)
        writer = WriterThread(self._write_session(wakeups, lock))
        reader = ReaderThread(path, self._driver)
        context = SqliteContext(
            self._clock,
            writer,
            reader,
            wakeups,
            lock,
            lives,
            live_events,
            self._synchronous,
        )
        context.path, context.inode = path, self._inode
        context.driver, context.retention = self._driver, self._retention
        return context

    def _write_session(self, wakeups: SqliteWakeups, lock: WriterLock) -> WriteSession:
        session = WriteSession(
            self._path,
            self._clock,
            self._retention,
            self._synchronous,
            wakeups,
            lock,
            self._driver,
        )
        session.inode = self._inode
        return session

    async def _close_context(self, context: SqliteContext) -> None:
        """Close the reader first, then the writer, then the files beside the database."""
        folder, self._folder = self._folder, None  # the next context opens its own
        await context.reader.close()
        await context.writer.close()
        context.wakeups.close()
        context.live_events.close()
        if context.life_locks is not None:
            context.life_locks.close()
        if folder is not None:
            folder.close()

    # --- forks: see writer.py

    def before_fork(self) -> None:
        if self._context is not None:
            self._context.writer.before_fork()
            self._context.reader.before_fork()

    def after_fork_in_parent(self) -> None:
        if self._context is not None:
            self._context.reader.after_fork_in_parent()
            self._context.writer.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        """Drop the parent's workers, locks and sockets; a store in memory is closed."""
        context = self._context
        if context is None:
            return
        context.writer.after_fork_in_child()
        context.reader.after_fork_in_child()
        context.wakeups.forget()
        context.live_events.forget()
        if context.life_locks is not None:
            context.life_locks.close()
        if self._path is None:
            self._context = None
            self._is_open = False


def data_version(db: Database) -> int:
    """Return a number that changes when another connection has committed."""
    return db.value("pragma data_version")


async def poll_for_change(context: SqliteContext, timeout_seconds: float) -> Wake:
    """Watch for other connections' commits, for a worker without a wakeup socket."""
    seen = await context.reader.read(data_version)
    end = context.clock.monotonic() + timeout_seconds
    while (left := end - context.clock.monotonic()) > 0:
        await context.clock.sleep(min(left, POLL_SECONDS))
        if await context.reader.read(data_version) != seen:
            return POLL_WAKE
    return NOT_WOKEN


OPTIONS = {
    "synchronous": ("full", "normal"),
    "life": ("on", "off"),
    "driver": ("apsw", "stdlib"),
}


def store_at(
    url: str,
    clock: Clock,
    settings: Settings,
    folder: str = "",
    *,
    sets_time: bool = True,
) -> SqliteStore:
    """Return the SQLite store that the URL names, not opened yet.

    Paths are relative to `folder`.
    """
    del sets_time  # no other clock is involved
    where, _, query = url.partition("?")
    prefix = "sqlite:///"
    if not where.lower().startswith(prefix) or len(where) == len(prefix):
        raise InvalidURL(
            f"{url!r} names no file",
            cure="Use sqlite:///file.db, sqlite:////absolute/file.db or "
            "sqlite:///:memory:, with three slashes or four.",
        )
    path = unquote(where[len(prefix) :])
    options = _options(url, query)
    return SqliteStore(
        None if path == ":memory:" else os.path.join(folder, path),  # noqa: PTH118
        clock,
        synchronous="normal" if options.get("synchronous") == "normal" else "full",
        life=options.get("life") != "off",
        retention=settings.retention,
        driver="stdlib" if options.get("driver") == "stdlib" else "apsw",
    )


def _options(url: str, query: str) -> dict[str, str]:
    found = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in found.items():
        allowed = OPTIONS.get(name)
        if allowed is None:
            raise InvalidURL(
                f"{url!r}: there is no option {name!r}",
                cure=f"Options: {', '.join(OPTIONS)}.{did_you_mean(name, OPTIONS)}",
            )
        if value not in allowed:
            raise InvalidURL(
                f"{url!r}: {name} cannot be {value!r}",
                cure=f"Use {' or '.join(allowed)}.",
            )
    return found
