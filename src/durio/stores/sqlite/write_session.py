"""Write transactions: what an operation sees, begin and commit.

An operation is a plain function of a SqliteTransaction. It may be one of many in the same
commit, and it may be rolled back alone. It records in the transaction what must happen
after the commit, or be undone without one.

WriteSession begins and commits, sends wakeups, and decides when to checkpoint.
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
from durio.stores.sqlite.wakeups import SqliteWakeups
from durio.stores.waiting import CONTROL, WORK

Answer = TypeVar("Answer")

NO_WORKER = 0  # no worker has this id


@dataclass(slots=True)
class SqliteGuard:
    """The bound and depth of a queue, as an enqueue reads them: see bounds.py."""

    limit: int | None  # None: no bound of its own
    depth: int  # waiting jobs; exact only under a bound
    soft_limit: int  # the soft bound, if the queue exceeds it; else 0
    is_closed: bool
    refuses: Full | None = None  # for the rest of this enqueue


@dataclass(slots=True)
class SqliteTransaction:
    """The transaction that operations write to, and their effects after the commit."""

    db: Database
    now: float  # wall clock: due times, ages
    monotonic_seconds: float  # monotonic clock: leases
    boot: str
    retention: RetentionSettings
    known_lanes: frozenset[str] | set[str]
    # Ids of claimed jobs with a key or ties: a hint for which way of finishing is faster.
    special: set[bytes]
    # By lane: its guard, or None if it has none. Only lanes that were read; see bounds.py.
    guards: dict[str, SqliteGuard | None] | None = None  # None: nothing read yet
    has_guards: bool = False  # whether any lane of the store has a guard
    in_caller_tx: bool = False  # the caller's own transaction
    enters_full: bool = False  # full queues accept the jobs and are only reported
    enters_closed: bool = False  # closed queues accept the jobs too
    full_queues: list[Full] = field(default_factory=list[Full])
    has_marked_logs: bool = False  # jobs whose wait is over are left for `settle`
    gate_due: float | None = (
        None  # when `settle` has to look at a gate, of those written
    )
    new_lanes: set[str] = field(default_factory=set[str])
    # By lane: the worker that made its jobs ready and needs no wakeup, or NO_WORKER.
    woken_lanes: dict[str, int] = field(default_factory=dict[str, int])
    woken_workers: set[int] = field(default_factory=set[int])
    after_commit: list[Callable[[], None]] = field(
        default_factory=list[Callable[[], None]]
    )
    after_rollback: list[Callable[[], None]] = field(
        default_factory=list[Callable[[], None]]
    )

    def wake(self, lane: str, *, except_worker: int = NO_WORKER) -> None:
        """After the commit, wake the workers that serve this lane, except one."""
        if self.woken_lanes.setdefault(lane, except_worker) != except_worker:
            self.woken_lanes[lane] = NO_WORKER

    def undo_since(self, committed: int, rolled_back: int) -> None:
        """Undo the effects outside the database of one failed operation of several."""
        # These may come from rows that are rolled back, so they are read again.
        self.new_lanes.clear()
        self.guards = None
        for undo in self.after_rollback[rolled_back:]:
            undo()
        del self.after_commit[committed:], self.after_rollback[rolled_back:]


class RequestKind(Enum):
    """When in a turn of the writer an operation runs."""

    OPEN = 0  # before the turn; it needs only the connection
    FIRST = 1  # in the transaction, ahead of the others
    USUAL = 2
    OUTSIDE = 3  # after the transaction, with the writers' lock
    LAST = 4  # when nothing else is left; the thread ends


class WriteRequest(Generic[Answer]):
    """One caller's operation, and the future that the caller awaits."""

    __slots__ = (
        "begun",
        "error",
        "future",
        "is_awaited",
        "is_durable",
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
        is_durable: bool = True,
    ) -> None:
        self.work = work
        self.is_durable = is_durable
        self.kind = kind
        self.rows = rows
        self.is_awaited = is_awaited
        if is_awaited:  # otherwise this thread may have no loop
            self.future: asyncio.Future[Answer]
            self.future = asyncio.get_running_loop().create_future()
        self.begun = False
        self.value: Any = None
        self.error: Exception | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether the caller has stopped waiting."""
        return self.is_awaited and self.future.cancelled()


def answer_callers(requests: list[WriteRequest[Any]]) -> None:
    """Deliver the results, with one call into each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[WriteRequest[Any]]] = {}
    for operation in requests:
        if operation.is_awaited:
            by_loop.setdefault(operation.future.get_loop(), []).append(operation)
    for loop, some in by_loop.items():
        with suppress(RuntimeError):  # that loop is closed, and no caller waits
            loop.call_soon_threadsafe(deliver, some)


def deliver(requests: list[WriteRequest[Any]]) -> None:
    """Set the futures; runs on their loop."""
    for operation in requests:
        if operation.future.done():
            continue
        if operation.error is None:
            operation.future.set_result(operation.value)
        else:
            operation.future.set_exception(operation.error)


WriteFunction = Callable[[SqliteTransaction], Answer]
ReadFunction = Callable[[OwnDatabase], Answer]


class Writer(Protocol):
    """Runs operations, each in a transaction."""

    async def open(self) -> None: ...

    async def write(
        self,
        work: WriteFunction[Answer],
        *,
        rows: int = 1,
        urgent: bool = False,
        durable: bool = True,
    ) -> Answer:
        """Run the operation, commit, return its result.

        `rows` is its size. Urgent operations go first. A power cut may undo an operation
        that is not `durable`, and nothing else can.
        """
        ...

    def post(self, work: WriteFunction[object]) -> None:
        """Run the operation soon in a transaction; its result is not reported."""
        ...

    async def write_outside(self, work: ReadFunction[Answer]) -> Answer:
        """Run the operation with the writers' lock, but outside a transaction."""
        ...

    def peek(self, look: ReadFunction[Answer]) -> Answer | None:
        """Use the connection at once if it is idle; None if it is in use."""
        ...

    async def close(self) -> None:
        """Write what waits, then close; a stalled writer closes later by itself."""
        ...

    def before_fork(self) -> None:
        """Close the connection; write nothing until the fork is done."""
        ...

    def after_fork_in_parent(self) -> None: ...

    def after_fork_in_child(self) -> None:
        """Drop the parent's thread, queues and lock."""
        ...


CHECKPOINT_PAGES = 4000
SPECIAL_MAX = 100_000
FILE_CHECK_SECONDS = 1.0
WAKEUPS_MAX = 32  # per lane and commit; more workers would find no job

FIND_WORKERS_TO_WAKE = statement("find_workers_to_wake")

decode_queues = msgspec.json.Decoder(list[str]).decode


class WriteSession:
    """Begins, commits and rolls back; used by one thread at a time."""

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
        self._flushes = True  # whether this connection flushes commits to the disk
        self._known_lanes: set[str] = set()
        self._special: set[bytes] = set()
        self._log_pages = 0
        self._commits = 0
        self.inode: Inode | None = None
        self._file_checked_at = float("-inf")

    def connection(self) -> OwnDatabase:
        """The connection, opened if needed: at first, and after a fork."""
        if self._db is None:
            db = connect_writer(self.path, self._synchronous, self._driver)
            try:
                bring_up_to_date(db, self.path, self.lock, self.clock)
            except BaseException:
                close_as_found(db)
                raise
            db.watch_log(self._set_log_pages)
            self._db, self._flushes = db, True
        return self._db

    def begin(self, *, is_durable: bool = True) -> SqliteTransaction:
        """Begin a transaction; the clock is read once, after SQLite has let us write."""
        self._check_not_replaced()
        db = self.connection()
        if is_durable is not self._flushes and self._synchronous == "full":
            # With "normal", only a power cut can undo a commit, and only until the next
            # commit that is flushed.
            db.rows(f"pragma synchronous = {'full' if is_durable else 'normal'}")
            self._flushes = is_durable
        db.rows("begin immediate")
        return SqliteTransaction(
            db=db,
            now=self.clock.now(),
            monotonic_seconds=self.clock.monotonic(),
            boot=self.clock.boot_id(),
            retention=self._retention,
            known_lanes=self._known_lanes,
            special=self._special,
        )

    def _check_not_replaced(self) -> None:
        """Check every FILE_CHECK_SECONDS that the path still names the open file."""
        seconds = self.clock.monotonic()
        if (
            self.path is not None
            and seconds - self._file_checked_at > FILE_CHECK_SECONDS
        ):
            check_not_replaced(self.path, self.inode)
            self._file_checked_at = seconds

    def commit(self, tx: SqliteTransaction) -> None:
        """Commit, run `after_commit`, and send the wakeups.

        Workers of a file need the writers' lock to claim. So they are woken before the
        commit, and get ready while it is flushed. A wakeup for nothing does no harm.
        """
        wakeups = self._wakeups_after(tx)
        if self.path is not None:
            self._send(wakeups)
        tx.db.rows("commit")
        self._commits += 1
        self._known_lanes |= tx.new_lanes
        if len(self._special) > SPECIAL_MAX:
            self._special.clear()  # a hint only
        # Committed. Errors below must not be reported as a failed write.
        for act in tx.after_commit:
            with suppress(OSError):
                act()
        if self.path is None:
            self._send(wakeups)

    def _send(self, wakeups: list[tuple[int, str]]) -> None:
        for worker, message in wakeups:
            with suppress(OSError):
                self._wakeups.wake(worker, message)

    def roll_back(self, tx: SqliteTransaction | None) -> None:
        """Roll back, unless SQLite has done so itself; then run `after_rollback`."""
        if self._db is not None and self._db.in_transaction:
            with suppress(apsw.Error):
                self._db.rows("rollback")
        if tx is not None:
            for undo in tx.after_rollback:
                undo()

    def checkpoint_if_long(self) -> None:
        """Copy a long log into the database, as far as readers allow."""
        if self._log_pages > CHECKPOINT_PAGES:
            with suppress(apsw.Error):  # the next commit tries again
                self.connection().checkpoint()

    def drop_connection(self) -> None:
        """Close the connection; the next use opens another."""
        if self._db is not None:
            self._db.close()
        self._db = None

    def retire(self) -> None:
        """Close everything for good; leave a short log if no other process writes."""
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

    def _wakeups_after(self, tx: SqliteTransaction) -> list[tuple[int, str]]:
        wakeups = [(worker, CONTROL) for worker in tx.woken_workers]
        for lane, except_worker in tx.woken_lanes.items():
            found = workers_to_wake(tx.db, lane, except_worker, self._commits)
            wakeups += [(worker, WORK + lane) for worker in found]
        return wakeups

    def _set_log_pages(self, pages: int) -> None:
        self._log_pages = pages


def workers_to_wake(
    db: Database, lane: str, except_worker: int, turn: int
) -> list[int]:
    """Return up to WAKEUPS_MAX workers that have a wakeup socket and serve the lane.

    If there are more, `turn` says where to start, so that all get their share.
    """
    namespace, _, queue = lane.partition(":")
    found: list[int] = []
    for worker, queues in db.rows(FIND_WORKERS_TO_WAKE, (namespace,)):
        served = None if queues is None else decode_queues(queues)
        if worker != except_worker and serves(served, queue):
            found.append(worker)
    start = turn % len(found) if len(found) > WAKEUPS_MAX else 0
    return (found[start:] + found[:start])[:WAKEUPS_MAX]


def shorten_log(db: OwnDatabase) -> None:
    """Copy the whole log into the database and truncate it, unless a reader prevents it."""
    db.wait_when_busy(0)  # writers wait for our lock, so do not wait for a reader
    try:
        db.checkpoint(cut=True)
    except apsw.BusyError:
        return
    finally:
        db.wait_when_busy(BUSY_MILLISECONDS)
