"""The writer: runs all waiting requests in one transaction; each caller gets its result.

One thread owns the one connection that writes. Callers put requests into a queue. The
thread takes its turn among the processes (WriterLock), runs all waiting requests in one
transaction, commits, and delivers each result on the caller's own loop. A request that
waits alone commits at once; under load, hundreds of requests share the cost of a commit.

Renewals of leases go first, and what can precede one is limited: a transaction takes 1,000
rows or 50 ms. With several requests each has a savepoint, so that one failure does not undo
the others. A caller that was cancelled before its request began has written nothing:
`begun` is set before `is_cancelled` is read, so there is no gap between the two.

A database in memory has no writer thread. Requests run in the caller's thread, under a
lock, so that a simulation stays deterministic.

No SQLite handle is ever shared across a fork: stores close theirs before it. A child cannot
use an inherited connection, and cannot close it, which could write to the shared log. It
cannot even open the file again: within one process SQLite remembers which locks it holds,
and the child inherits that memory without the locks. So a fork waits for the current
transaction, all connections are closed, and both processes open new ones when they need
them. `subprocess` is not affected, because it never runs our code.
"""

import asyncio
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import apsw

from durio.model.errors import StoreStalled, StoreUnavailable
from durio.stores.sqlite.translate import translated
from durio.stores.sqlite.write_session import (
    Answer,
    ReadFunction,
    RequestKind,
    SqliteTransaction,
    WriteFunction,
    WriteRequest,
    WriteSession,
    answer_callers,
)

ROWS_MAX = 1000
BATCH_SECONDS_MAX = 0.05
CLOSE_SECONDS_MIN, CLOSE_SECONDS_MAX = 0.5, 5.0

# Held while a store of this process is being created, never across an await.
opening_lock = threading.RLock()


class InlineWriter:
    """Runs requests at once in the caller's thread, for a store in memory."""

    def __init__(self, session: WriteSession) -> None:
        self._session = session
        self._in_use = threading.RLock()

    async def open(self) -> None:
        with self._in_use:
            self._session.connection()

    async def write(
        self,
        work: WriteFunction[Answer],
        *,
        rows: int = 1,
        urgent: bool = False,
        durable: bool = True,
    ) -> Answer:
        """Run one transaction without yielding to the loop."""
        del rows, urgent, durable
        tx: SqliteTransaction | None = None
        with self._in_use:
            try:
                tx = self._session.begin()
                answer = work(tx)
                self._session.commit(tx)
            except apsw.Error as error:
                self._session.roll_back(tx)
                raise translated(error, None, at_commit=False) from None
            except BaseException:
                self._session.roll_back(tx)
                raise
            return answer

    def post(self, work: WriteFunction[object]) -> None:
        """Do nothing: only callers with other connections need it, and memory has none."""

    async def write_outside(self, work: ReadFunction[Answer]) -> Answer:
        with self._in_use:
            return work(self._session.connection())

    async def read(self, look: ReadFunction[Answer]) -> Answer:
        """Read on this connection: in memory each connection is its own database."""
        with self._in_use:
            try:
                return look(self._session.connection())
            except apsw.Error as error:
                raise translated(error, None, at_commit=False) from None

    def peek(self, look: ReadFunction[Answer]) -> Answer | None:
        with self._in_use:
            return look(self._session.connection())

    async def close(self) -> None:
        """Drop the connection, and with it all jobs."""
        with self._in_use:
            self._session.retire()

    def before_fork(self) -> None:
        """Do nothing: memory is copied, and nothing is shared."""

    def after_fork_in_parent(self) -> None: ...

    def after_fork_in_child(self) -> None:
        """Do nothing: the store itself refuses calls, as jobs stored here would be lost."""


class WriterThread:
    """The queues of requests and the thread that runs them."""

    def __init__(self, session: WriteSession) -> None:
        self._session = session
        self._reset()

    def _reset(self) -> None:
        """Initialize a new writer, or one in a forked child, which has no thread."""
        self._submitted: SimpleQueue[WriteRequest[Any]] = SimpleQueue()
        self._queues: dict[RequestKind, deque[WriteRequest[Any]]] = {
            kind: deque() for kind in RequestKind
        }
        self._in_use = threading.Lock()  # held while the connection is in use
        self._awaited: set[WriteRequest[Any]] = set()  # callers wait for these
        self._closing = False
        self._given_up = False
        self._thread: threading.Thread | None = None

    # --- the callers' side

    async def open(self) -> None:
        """Open and check the file; wait for other writers only if it must migrate."""
        await self._submit(WriteRequest(lambda _: None, RequestKind.OPEN))

    async def write(
        self,
        work: WriteFunction[Answer],
        *,
        rows: int = 1,
        urgent: bool = False,
        durable: bool = True,
    ) -> Answer:
        kind = RequestKind.FIRST if urgent else RequestKind.USUAL
        return await self._submit(WriteRequest(work, kind, rows, is_durable=durable))

    def post(self, work: WriteFunction[object]) -> None:
        """Queue an operation; callable from any thread."""
        if not self._closing:
            if self._thread is None:
                self._start_thread()
            self._submitted.put(WriteRequest(work, RequestKind.USUAL, is_awaited=False))

    async def write_outside(self, work: ReadFunction[Answer]) -> Answer:
        return await self._submit(WriteRequest(work, RequestKind.OUTSIDE))

    async def _submit(self, request: WriteRequest[Answer]) -> Answer:
        if self._closing:
            raise StoreUnavailable(
                f"{self._session.path} is closed", cure="Open the store again."
            )
        if self._thread is None:
            self._start_thread()
        self._awaited.add(request)
        self._submitted.put(request)
        try:
            return await request.future
        finally:
            self._awaited.discard(request)

    def _start_thread(self) -> None:
        with opening_lock:  # two threads may get here at once
            if self._thread is None:
                thread = threading.Thread(
                    target=self._write_forever, name="durio-writer", daemon=True
                )
                thread.start()
                self._thread = thread

    def peek(self, look: ReadFunction[Answer]) -> Answer | None:
        """Use the idle connection, from any thread.

        It is idle while the writer waits for its turn.
        """
        if not self._in_use.acquire(blocking=False):
            return None
        try:
            return look(self._session.connection())
        except apsw.Error as error:
            raise translated(error, self._session.path, at_commit=False) from None
        finally:
            self._in_use.release()

    async def close(self) -> None:
        """Write what waits, then close; a stalled writer thread is abandoned."""
        self._closing = True
        if self._thread is None:
            self._session.retire()
            return
        last = WriteRequest(lambda _: None, RequestKind.LAST)
        self._submitted.put(last)
        await asyncio.wait([last.future], timeout=CLOSE_SECONDS_MIN)
        if self._awaited or self._session.lock.stall() is None:
            rest = CLOSE_SECONDS_MAX - CLOSE_SECONDS_MIN
            await asyncio.wait([last.future], timeout=rest)
        if not last.future.done():
            self._give_up()

    def _give_up(self) -> None:
        """Fail all waiting requests, because another process keeps the lock.

        None was written.
        """
        stall = self._session.lock.stall()
        holder = "another process" if stall is None else f"process {stall.pid}"
        self._given_up = True
        self._gather(block=False)
        waiting = self._drain_queues()
        for operation in waiting:
            operation.error = StoreStalled(
                f"{self._session.path} was closed while {holder} kept it locked",
                cure=f"Check what {holder} does: it may be stopped (SIGSTOP, a "
                "debugger).",
            )
        answer_callers(waiting)

    # --- forks

    def before_fork(self) -> None:
        """Wait for the current transaction, then close, so that the fork shares no handle."""
        self._in_use.acquire()
        self._session.drop_connection()

    def after_fork_in_parent(self) -> None:
        """Allow transactions again; the next one opens the file."""
        self._in_use.release()

    def after_fork_in_child(self) -> None:
        """Start anew: the thread, its queues and its lock belong to the parent."""
        self._session.lock.close()
        self._reset()

    # --- the thread's side

    def _write_forever(self) -> None:
        last = self._queues[RequestKind.LAST]
        while not last or self._has_work():
            if self._has_work():
                self._take_turn()
            self._gather(block=not (last or self._has_work()))
        with self._in_use:
            self._session.retire()
        answer_callers(list(last))

    def _has_work(self) -> bool:
        return any(
            queue for kind, queue in self._queues.items() if kind != RequestKind.LAST
        )

    def _gather(self, *, block: bool) -> None:
        """Sort submitted requests into the queues of their kinds."""
        with suppress(Empty):
            operation = self._submitted.get(block=block)
            while True:
                self._queues[operation.kind].append(operation)
                operation = self._submitted.get_nowait()

    def _take_turn(self) -> None:
        """Run one transaction, then requests outside of it, then a checkpoint.

        Opens the file first if needed.
        """
        try:
            with self._in_use:
                self._session.connection()
            self._run_queue(RequestKind.OPEN)
            if not self._has_work():
                return
            with self._session.lock, self._in_use:
                if self._given_up:  # `close` has failed all requests meanwhile
                    return
                # Include requests that were submitted while we waited for our turn.
                self._gather(block=False)
                self._write_batch()
                self._run_queue(RequestKind.OUTSIDE)
                self._session.checkpoint_if_long()
        except Exception as error:  # the thread must survive, and callers need results
            self._fail(self._drain_queues(), error, at_commit=False)

    def _write_batch(self) -> None:
        """Run waiting requests in one limited transaction, and complete every caller."""
        first, usual = self._queues[RequestKind.FIRST], self._queues[RequestKind.USUAL]
        several = len(first) + len(usual) > 1
        batch: list[WriteRequest[Any]] = []
        tx: SqliteTransaction | None = None
        at_commit = False
        try:
            is_durable = any(request.is_durable for request in (*first, *usual))
            tx = self._session.begin(is_durable=is_durable)
            rows = 0
            while (queue := first or usual) and self._has_room(tx, rows):
                operation = queue.popleft()
                operation.begun = True
                if not operation.is_cancelled:
                    batch.append(operation)
                    rows += operation.rows
                    self._run_in_savepoint(tx, operation, several=several)
            at_commit = True
            self._session.commit(tx)
        except Exception as error:
            self._session.roll_back(tx)
            self._fail(
                batch or self._drain_queue(first or usual), error, at_commit=at_commit
            )
        else:
            answer_callers(batch)

    def _has_room(self, tx: SqliteTransaction, rows: int) -> bool:
        if rows == 0:
            return True
        took_seconds = self._session.clock.monotonic() - tx.monotonic_seconds
        return rows < ROWS_MAX and took_seconds < BATCH_SECONDS_MAX

    def _run_in_savepoint(
        self, tx: SqliteTransaction, request: WriteRequest[Any], *, several: bool
    ) -> None:
        """Run one request; its failure affects no other request.

        If SQLite has rolled back the whole transaction, the failure is raised.
        """
        if not several:
            request.value = request.work(tx)
            return
        tx.db.rows("savepoint operation")
        mark = len(tx.after_commit), len(tx.after_rollback)
        try:
            request.value = request.work(tx)
        except Exception as error:
            if not tx.db.in_transaction:
                raise
            request.error = error_for_caller(error, self._session.path, at_commit=False)
            tx.db.rows("rollback to operation")
            tx.undo_since(*mark)
        tx.db.rows("release operation")

    def _run_queue(self, kind: RequestKind) -> None:
        for operation in self._drain_queue(self._queues[kind]):
            operation.begun = True
            work = partial(operation.work, self._session.connection())
            run_request(operation, work, self._session.path)
            answer_callers([operation])

    def _drain_queues(self) -> list[WriteRequest[Any]]:
        kinds = [kind for kind in RequestKind if kind != RequestKind.LAST]
        return [op for kind in kinds for op in self._drain_queue(self._queues[kind])]

    def _drain_queue(self, queue: deque[WriteRequest[Any]]) -> list[WriteRequest[Any]]:
        dropped: list[WriteRequest[Any]] = []
        with suppress(IndexError):
            while True:
                dropped.append(queue.popleft())
        return dropped

    def _fail(
        self, requests: list[WriteRequest[Any]], error: Exception, *, at_commit: bool
    ) -> None:
        for operation in requests:
            operation.error = error_for_caller(
                error, self._session.path, at_commit=at_commit
            )
        answer_callers(requests)


def run_request(
    request: WriteRequest[Any], run: Callable[[], Any], path: str | None
) -> None:
    """Run a function for a request; what it raises becomes the error of the request."""
    try:
        request.value = run()
    except Exception as error:
        request.error = error_for_caller(error, path, at_commit=False)


def error_for_caller(
    error: Exception, path: str | None, *, at_commit: bool
) -> Exception:
    """Return a new exception for each caller, because they are raised in several places."""
    if isinstance(error, apsw.Error):
        return translated(error, path, at_commit=at_commit)
    return error


class SqliteForkHandler(Protocol):
    """An owner of handles that must not be shared across a fork."""

    def before_fork(self) -> None:
        """Close handles that must not be shared; use nothing until the fork is done."""
        ...

    def after_fork_in_parent(self) -> None: ...

    def after_fork_in_child(self) -> None:
        """Drop the parent's threads, locks and sockets."""
        ...


_fork_handlers: "weakref.WeakSet[SqliteForkHandler]" = weakref.WeakSet()
_stopped_handlers: list[SqliteForkHandler] = []


def add_fork_handler(handler: SqliteForkHandler) -> None:
    """Call this handler at forks; it is held by a weak reference."""
    _fork_handlers.add(handler)


def remove_fork_handler(handler: SqliteForkHandler) -> None:
    _fork_handlers.discard(handler)


def _before_fork() -> None:
    opening_lock.acquire()
    for handler in list(_fork_handlers):
        handler.before_fork()
        _stopped_handlers.append(handler)


def _after_fork_in_parent() -> None:
    while _stopped_handlers:
        _stopped_handlers.pop().after_fork_in_parent()
    opening_lock.release()


def _after_fork_in_child() -> None:
    while _stopped_handlers:
        _stopped_handlers.pop().after_fork_in_child()
    opening_lock.release()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
