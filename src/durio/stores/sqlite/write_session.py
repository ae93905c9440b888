"""One write transaction, as an operation sees it: the database, the time, whom to wake.

An operation is a plain function of a Transaction. It may be one of many in the same
commit, and it may be rolled back alone; what must happen after the commit, or be undone
without one, it leaves here.

One caller's wish, on its way to a thread of the store and back to the caller's loop.

What surrounds every transaction: begin, commit, whom to ring, when to checkpoint.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

import apsw
import msgspec

from durio.model.errors import StoreError
from durio.model.queues import serves
from durio.model.settings import RetentionSettings
from durio.ports.clock import Clock
from durio.ports.enqueue import Full
from durio.stores.sqlite.database import Database, DriverName, OwnDatabase
from durio.stores.sqlite.schema import (
    BUSY_MILLISECONDS,
    Synchronous,
    bring_up_to_date,
    close_as_found,
    connect_writer,
)
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.store_files import (
    Inode,
    WriterLock,
    check_not_replaced,
    unregister_open_file,
)
from durio.stores.sqlite.wakeups import CONTROL, SqliteWakeups, lane_message

NO_WORKER = 0  # no worker has this id


@dataclass(slots=True)
class SqliteGuard:
    """What a queue asks of an enqueue: see bounds.py."""

    limit: int | None  # None: no bound of its own
    depth: int  # waiting jobs; true only under a bound
    soft_limit: int  # the soft bound that it was seen beyond; 0: it is below
    is_closed: bool
    refuses: Full | None = None  # for the rest of this enqueue


@dataclass(slots=True)
class SqliteTransaction:
    """What operations write to, and the hints they leave for after the commit."""

    db: Database
    now: float  # wall clock: due times, ages
    monotonic_seconds: float  # monotonic clock: leases
    boot: str
    retention: RetentionSettings
    known_lanes: frozenset[str] | set[str]
    # Claimed jobs that came with a key: a hint which way of finishing is quicker.
    keyed: set[bytes]
    # Lane -> its guard if it has one, of lanes that were asked about; see bounds.py.
    guards: dict[str, SqliteGuard | None] | None = None  # None: nobody has asked yet
    has_guards: bool = False  # any lane at all
    in_caller_tx: bool = False  # a caller's own: full queues refuse nothing there
    full_queues: list[Full] = field(default_factory=list[Full])  # they are only named
    new_lanes: set[str] = field(default_factory=set[str])
    # Lane -> the worker that made its jobs ready and need not be told, or EVERYBODY.
    woken_lanes: dict[str, int] = field(default_factory=dict[str, int])
    woken_workers: set[int] = field(default_factory=set[int])
    after_commit: list[Callable[[], None]] = field(
        default_factory=list[Callable[[], None]]
    )
    after_rollback: list[Callable[[], None]] = field(
        default_factory=list[Callable[[], None]]
    )

    def wake(self, lane: str, *, except_worker: int = NO_WORKER) -> None:
        """There is work in this lane: tell whoever serves it, but not this worker."""
        if self.woken_lanes.setdefault(lane, except_worker) != except_worker:
            self.woken_lanes[lane] = NO_WORKER

    def undo_since(self, committed: int, rolled_back: int) -> None:
        """One operation of several failed: undo what it did beside the database."""
        # Hints that may come from rows which are gone again: they are asked for anew.
        self.new_lanes.clear()
        self.guards = None
        for undo in self.after_rollback[rolled_back:]:
            undo()
        del self.after_commit[committed:], self.after_rollback[rolled_back:]


Answer = TypeVar("Answer")
WriteFunction = Callable[[SqliteTransaction], Answer]
ReadFunction = Callable[[OwnDatabase], Answer]


class RequestKind(Enum):
    """Where in a turn an operation belongs."""

    OPEN = 0  # before the turn: it needs the connection only
    FIRST = 1  # in the transaction, ahead of the others
    USUAL = 2
    OUTSIDE = 3  # after the transaction, with the writers' lock
    LAST = 4  # when nothing else is left: the thread ends


class WriteRequest(Generic[Answer]):
    """One caller's write, and the future it waits for."""

    __slots__ = (
        "begun",
        "error",
        "future",
        "is_awaited",
        "kind",
        "rows",
        "value",
        "work",
    )

    def __init__(
        self,
        work: Callable[[Any], Answer],
        kind: RequestKind,
        rows: int = 0,
        *,
        is_awaited: bool = True,
    ) -> None:
        self.work = work
        self.kind = kind
        self.rows = rows
        self.is_awaited = is_awaited
        if is_awaited:  # else there may be no loop here
            self.future: asyncio.Future[Answer]
            self.future = asyncio.get_running_loop().create_future()
        self.begun = False
        self.value: Any = None
        self.error: Exception | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether whoever waited for it does not any more."""
        return self.is_awaited and self.future.cancelled()


def answer_callers(requests: list[WriteRequest[Any]]) -> None:
    """One call per loop, each caller on its own."""
    by_loop: dict[asyncio.AbstractEventLoop, list[WriteRequest[Any]]] = {}
    for operation in requests:
        if operation.is_awaited:
            by_loop.setdefault(operation.future.get_loop(), []).append(operation)
    for loop, some in by_loop.items():
        with suppress(RuntimeError):  # that loop is closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, some)


def deliver(requests: list[WriteRequest[Any]]) -> None:
    """Set the futures, on their own loop."""
    for operation in requests:
        if operation.future.done():
            continue
        if operation.error is None:
            operation.future.set_result(operation.value)
        else:
            operation.future.set_exception(operation.error)


class Writer(Protocol):
    """Runs operations, each in a transaction."""

    async def open(self) -> None:
        """Open and check the database."""
        ...

    async def write(
        self, work: WriteFunction[Answer], *, rows: int = 1, urgent: bool = False
    ) -> Answer:
        """Run it, commit, answer."""
        ...

    def post(self, work: WriteFunction[object]) -> None:
        """Run it soon, in a transaction; nobody waits, and nothing tells of a failure."""
        ...

    async def write_outside(self, work: ReadFunction[Answer]) -> Answer:
        """Run it with the writers' lock but in no transaction."""
        ...

    def peek(self, look: ReadFunction[Answer]) -> Answer | None:
        """Use the connection at once if it is idle; None: it is in use."""
        ...

    async def close(self) -> None:
        """Write what waits, then close; what a stalled writer holds it closes later."""
        ...

    def before_fork(self) -> None:
        """Close the connection and hold still."""
        ...

    def after_fork_in_parent(self) -> None:
        """Go on."""
        ...

    def after_fork_in_child(self) -> None:
        """Begin anew."""
        ...


CHECKPOINT_PAGES = 4000
KEYED_MAX = 100_000
FILE_CHECK_SECONDS = 1.0
WAKEUPS_MAX = 32  # per lane and commit: a herd would find nothing

FIND_WORKERS_TO_WAKE = statement("find_workers_to_wake")

decode_queues = msgspec.json.Decoder(list[str]).decode


class WriteSession:
    """Begins, commits and rolls back, whoever runs it."""

    def __init__(
        self,
        path: str | None,
        clock: Clock,
        retention: RetentionSettings,
        synchronous: Synchronous,
        wakeups: SqliteWakeups,
        lock: WriterLock,
        driver: DriverName = "apsw",
    ) -> None:
        self.path = path
        self.clock = clock
        self.lock = lock
        self._retention = retention
        self._synchronous: Synchronous = synchronous
        self._wakeups = wakeups
        self._driver: DriverName = driver
        self._db: OwnDatabase | None = None
        self._known_lanes: set[str] = set()
        self._keyed: set[bytes] = set()
        self._log_pages = 0
        self._commits = 0
        self.inode: Inode | None = None
        self._file_checked_at = float("-inf")

    def connection(self) -> OwnDatabase:
        """The connection, made when it is not there: at first, and after a fork."""
        if self._db is None:
            db = connect_writer(self.path, self._synchronous, self._driver)
            try:
                bring_up_to_date(db, self.path, self.lock, self.clock)
            except BaseException:
                close_as_found(db)
                raise
            db.watch_log(self._set_log_pages)
            self._db = db
        return self._db

    def begin(self) -> SqliteTransaction:
        """A new transaction; the clock is read once, after we have the right to write."""
        self._check_not_replaced()
        db = self.connection()
        db.rows("begin immediate")
        return SqliteTransaction(
            db=db,
            now=self.clock.now(),
            monotonic_seconds=self.clock.monotonic(),
            boot=self.clock.boot_id(),
            retention=self._retention,
            known_lanes=self._known_lanes,
            keyed=self._keyed,
        )

    def _check_not_replaced(self) -> None:
        """Now and then: is the file still the one that its name leads to?"""
        ticks = self.clock.monotonic()
        if self.path is not None and ticks - self._file_checked_at > FILE_CHECK_SECONDS:
            check_not_replaced(self.path, self.inode)
            self._file_checked_at = ticks

    def commit(self, tx: SqliteTransaction) -> None:
        """Commit, then do and ring what the operations left for now."""
        rings = self._wakeups_after(tx)
        tx.db.rows("commit")
        self._commits += 1
        self._known_lanes |= tx.new_lanes
        if len(self._keyed) > KEYED_MAX:
            self._keyed.clear()  # a hint only
        # It is written: nothing from here on may make anybody believe that it is not.
        for act in tx.after_commit:
            with suppress(OSError):
                act()
        for worker, ring in rings:
            with suppress(OSError):
                self._wakeups.wake(worker, ring)

    def roll_back(self, tx: SqliteTransaction | None) -> None:
        """Leave nothing of it; SQLite itself may have been quicker."""
        if self._db is not None and self._db.in_transaction:
            with suppress(apsw.Error):
                self._db.rows("rollback")
        if tx is not None:
            for undo in tx.after_rollback:
                undo()

    def checkpoint_if_long(self) -> None:
        """Move the log into the database, as far as readers allow, when it is long."""
        if self._log_pages > CHECKPOINT_PAGES:
            with suppress(apsw.Error):  # the next commit tries again
                self.connection().checkpoint()

    def drop_connection(self) -> None:
        """Close the connection; the next use makes another."""
        if self._db is not None:
            self._db.close()
        self._db = None

    def retire(self) -> None:
        """Close all for good, leaving a short log if nobody is at work."""
        try:
            if self.path is not None and self._db is not None:
                with suppress(apsw.Error, StoreError):  # a long log does no harm
                    self._shorten_if_idle(self._db)
        finally:
            self.drop_connection()
            unregister_open_file(self.inode, self._driver)
            self.lock.close()

    def _shorten_if_idle(self, db: OwnDatabase) -> None:
        if self.lock.take_nowait():
            try:
                shorten_log(db)
            finally:
                self.lock.release()

    def _wakeups_after(self, tx: SqliteTransaction) -> list[tuple[int, bytes]]:
        rings = [(worker, CONTROL) for worker in tx.woken_workers]
        for lane, but in tx.woken_lanes.items():
            found = workers_to_wake(tx.db, lane, but, self._commits)
            rings += [(worker, lane_message(lane)) for worker in found]
        return rings

    def _set_log_pages(self, pages: int) -> None:
        self._log_pages = pages


def workers_to_wake(
    db: Database, lane: str, except_worker: int, turn: int
) -> list[int]:
    """The workers with a bell that serve a lane, another first each time."""
    namespace, _, queue = lane.partition(":")
    found: list[int] = []
    for worker, queues in db.rows(FIND_WORKERS_TO_WAKE, (namespace,)):
        told = None if queues is None else decode_queues(queues)
        if worker != except_worker and serves(told, queue):
            found.append(worker)
    start = turn % len(found) if len(found) > WAKEUPS_MAX else 0
    return (found[start:] + found[:start])[:WAKEUPS_MAX]


def shorten_log(db: OwnDatabase) -> None:
    """Move the whole log into the database and cut it, unless a reader is in the way."""
    db.wait_when_busy(0)  # the writers' lock is held: nobody shall wait for a reader
    try:
        db.checkpoint(cut=True)
    except apsw.BusyError:
        return
    finally:
        db.wait_when_busy(BUSY_MILLISECONDS)
