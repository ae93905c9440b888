"""What surrounds every transaction: begin, commit, whom to ring, when to checkpoint."""

from contextlib import suppress

import apsw
import msgspec

from durio.model.errors import StoreError
from durio.model.queues import serves
from durio.model.settings import RetentionSettings
from durio.ports.clock import Clock
from durio.stores.sqlite.bell import CONTROL, Bells, ring_for
from durio.stores.sqlite.database import Database, DriverName, OwnDatabase
from durio.stores.sqlite.folder import WriterLock
from durio.stores.sqlite.place import Inode, check_same, depart
from durio.stores.sqlite.schema import (
    BUSY_MILLISECONDS,
    Synchronous,
    bring_up_to_date,
    close_as_found,
    connect_writer,
)
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.transaction import Transaction

CHECKPOINT_PAGES = 4000
KEYED_MAX = 100_000
LOOK_SECONDS = 1.0
RINGS_MAX = 32  # per lane and commit: a herd would find nothing

FIND_BELLS = statement("find_bells")

decode_queues = msgspec.json.Decoder(list[str]).decode


class Scribe:
    """Begins, commits and rolls back, whoever runs it."""

    def __init__(
        self,
        path: str | None,
        clock: Clock,
        retention: RetentionSettings,
        synchronous: Synchronous,
        bells: Bells,
        lock: WriterLock,
        driver: DriverName = "apsw",
    ) -> None:
        self.path = path
        self.clock = clock
        self.lock = lock
        self._retention = retention
        self._synchronous: Synchronous = synchronous
        self._bells = bells
        self._driver: DriverName = driver
        self._db: OwnDatabase | None = None
        self._known_lanes: set[str] = set()
        self._keyed: set[bytes] = set()
        self._log_pages = 0
        self._commits = 0
        self.inode: Inode | None = None
        self._looked_at = float("-inf")

    def connection(self) -> OwnDatabase:
        """The connection, made when it is not there: at first, and after a fork."""
        if self._db is None:
            db = connect_writer(self.path, self._synchronous, self._driver)
            try:
                bring_up_to_date(db, self.path, self.lock, self.clock)
            except BaseException:
                close_as_found(db)
                raise
            db.watch_log(self._note_log)
            self._db = db
        return self._db

    def begin(self) -> Transaction:
        """A new transaction; the clock is read once, after we have the right to write."""
        self._check_same()
        db = self.connection()
        db.rows("begin immediate")
        return Transaction(
            db=db,
            now=self.clock.now(),
            ticks=self.clock.monotonic(),
            boot=self.clock.boot_id(),
            retention=self._retention,
            known_lanes=self._known_lanes,
            keyed=self._keyed,
        )

    def _check_same(self) -> None:
        """Now and then: is the file still the one that its name leads to?"""
        ticks = self.clock.monotonic()
        if self.path is not None and ticks - self._looked_at > LOOK_SECONDS:
            check_same(self.path, self.inode)
            self._looked_at = ticks

    def commit(self, tx: Transaction) -> None:
        """Commit, then do and ring what the operations left for now."""
        rings = self._rings(tx)
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
                self._bells.ring(worker, ring)

    def roll_back(self, tx: Transaction | None) -> None:
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
            depart(self.inode, self._driver)
            self.lock.close()

    def _shorten_if_idle(self, db: OwnDatabase) -> None:
        if self.lock.take_nowait():
            try:
                shorten_log(db)
            finally:
                self.lock.release()

    def _rings(self, tx: Transaction) -> list[tuple[int, bytes]]:
        rings = [(worker, CONTROL) for worker in tx.rung_workers]
        for lane, but in tx.rung_lanes.items():
            found = bells_to_ring(tx.db, lane, but, self._commits)
            rings += [(worker, ring_for(lane)) for worker in found]
        return rings

    def _note_log(self, pages: int) -> None:
        self._log_pages = pages


def bells_to_ring(db: Database, lane: str, but: int, turn: int) -> list[int]:
    """The workers with a bell that serve a lane, another first each time."""
    namespace, _, queue = lane.partition(":")
    found: list[int] = []
    for worker, queues in db.rows(FIND_BELLS, (namespace,)):
        told = None if queues is None else decode_queues(queues)
        if worker != but and serves(told, queue):
            found.append(worker)
    start = turn % len(found) if len(found) > RINGS_MAX else 0
    return (found[start:] + found[:start])[:RINGS_MAX]


def shorten_log(db: OwnDatabase) -> None:
    """Move the whole log into the database and cut it, unless a reader is in the way."""
    db.wait_when_busy(0)  # the writers' lock is held: nobody shall wait for a reader
    try:
        db.checkpoint(cut=True)
    except apsw.BusyError:
        return
    finally:
        db.wait_when_busy(BUSY_MILLISECONDS)
