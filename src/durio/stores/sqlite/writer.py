"""The writer: whatever waits becomes one transaction, and each caller its own answer.

One thread owns the one connection that writes. Callers leave operations in a line; the
thread takes its turn among the processes (WriterLock), puts all that waits into one
transaction, commits, and answers every caller on the caller's own loop. When nobody else
waits an operation commits at once; under load the cost of a commit is shared by hundreds.

Renewals of leases go first, and what can precede one is bounded: a transaction takes 1,000
rows or 50 ms. With several operations each has a savepoint, so that one failure does not
spoil the others. A caller that was cancelled before its operation began has written
nothing: `begun` is set before the look at `cancelled`, so there is no moment between.

In memory there is no thread: operations run in the caller's, under a lock, so that a
simulated world stays deterministic.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import apsw

from durio.model.errors import StoreStalled, StoreUnavailable
from durio.stores.sqlite.operation import Answer, Kind, Look, Operation, Work, answer
from durio.stores.sqlite.scribe import Scribe
from durio.stores.sqlite.transaction import Transaction
from durio.stores.sqlite.translate import translated

ROWS_MAX = 1000
BATCH_SECONDS_MAX = 0.05
CLOSE_SECONDS_MIN, CLOSE_SECONDS_MAX = 0.5, 5.0

# Held while a store of this process is being made, never across an await.
opening = threading.RLock()


class InlineWriter:
    """Runs operations and questions at once, in the caller's thread: for memory."""

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe
        self._in_use = threading.RLock()

    async def open(self) -> None:
        """Make the database."""
        with self._in_use:
            self._scribe.connection()

    async def write(
        self, work: Work[Answer], *, rows: int = 1, urgent: bool = False
    ) -> Answer:
        """Run one transaction, without ever giving up the loop."""
        del rows, urgent
        tx: Transaction | None = None
        with self._in_use:
            try:
                tx = self._scribe.begin()
                answer = work(tx)
                self._scribe.commit(tx)
            except apsw.Error as error:
                self._scribe.roll_back(tx)
                raise translated(error, None, at_commit=False) from None
            except BaseException:
                self._scribe.roll_back(tx)
                raise
            return answer

    def post(self, work: Work[object]) -> None:
        """Only other connections need it, and memory has none."""

    async def write_outside(self, work: Look[Answer]) -> Answer:
        """Run it on the connection as it is."""
        with self._in_use:
            return work(self._scribe.connection())

    async def read(self, look: Look[Answer]) -> Answer:
        """In memory each connection is its own database: reads come here too."""
        with self._in_use:
            try:
                return look(self._scribe.connection())
            except apsw.Error as error:
                raise translated(error, None, at_commit=False) from None

    def peek(self, look: Look[Answer]) -> Answer | None:
        """Nobody else can write to memory of ours."""
        with self._in_use:
            return look(self._scribe.connection())

    async def close(self) -> None:
        """Drop the connection, and all jobs with it."""
        with self._in_use:
            self._scribe.retire()

    def before_fork(self) -> None:
        """Memory is copied: nothing is shared."""

    def after_fork_in_parent(self) -> None:
        """Nothing has changed."""

    def after_fork_in_child(self) -> None:
        """The store refuses by itself: jobs put in here would be lost."""


class WriterThread:
    """The line of operations and the thread that writes them."""

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe
        self._begin_anew()

    def _begin_anew(self) -> None:
        """At first, and in a forked child, which has no such thread."""
        self._arrivals: SimpleQueue[Operation[Any]] = SimpleQueue()
        self._lines: dict[Kind, deque[Operation[Any]]] = {
            kind: deque() for kind in Kind
        }
        self._in_use = threading.Lock()  # held while the connection is
        self._asked: set[Operation[Any]] = set()  # somebody waits for the answer
        self._closing = False
        self._given_up = False
        self._thread: threading.Thread | None = None

    # --- the callers' side

    async def open(self) -> None:
        """Open and check the file; waits for other writers only if it must migrate."""
        await self._submit(Operation(lambda _: None, Kind.OPEN))

    async def write(
        self, work: Work[Answer], *, rows: int = 1, urgent: bool = False
    ) -> Answer:
        """Leave an operation in the line and wait for its answer."""
        kind = Kind.FIRST if urgent else Kind.USUAL
        return await self._submit(Operation(work, kind, rows))

    def post(self, work: Work[object]) -> None:
        """Leave it in the line, from any thread; nobody waits for its answer."""
        if not self._closing:
            if self._thread is None:
                self._start_thread()
            self._arrivals.put(Operation(work, Kind.USUAL, is_awaited=False))

    async def write_outside(self, work: Look[Answer]) -> Answer:
        """The same for what must not be inside a transaction."""
        return await self._submit(Operation(work, Kind.OUTSIDE))

    async def _submit(self, operation: Operation[Answer]) -> Answer:
        if self._closing:
            raise StoreUnavailable(
                f"{self._scribe.path} is closed", cure="Open the store again."
            )
        if self._thread is None:
            self._start_thread()
        self._asked.add(operation)
        self._arrivals.put(operation)
        try:
            return await operation.future
        finally:
            self._asked.discard(operation)

    def _start_thread(self) -> None:
        with opening:  # two threads may have come here at once
            if self._thread is None:
                thread = threading.Thread(
                    target=self._write_forever, name="durio-writer", daemon=True
                )
                thread.start()
                self._thread = thread

    def peek(self, look: Look[Answer]) -> Answer | None:
        """From any thread; a writer that waits for its turn does not use the connection."""
        if not self._in_use.acquire(blocking=False):
            return None
        try:
            return look(self._scribe.connection())
        except apsw.Error as error:
            raise translated(error, self._scribe.path, at_commit=False) from None
        finally:
            self._in_use.release()

    async def close(self) -> None:
        """Write what waits, then close; a stalled writer is left behind."""
        self._closing = True
        if self._thread is None:
            self._scribe.retire()
            return
        last = Operation(lambda _: None, Kind.LAST)
        self._arrivals.put(last)
        await asyncio.wait([last.future], timeout=CLOSE_SECONDS_MIN)
        if self._asked or self._scribe.lock.stall() is None:
            rest = CLOSE_SECONDS_MAX - CLOSE_SECONDS_MIN
            await asyncio.wait([last.future], timeout=rest)
        if not last.future.done():
            self._give_up()

    def _give_up(self) -> None:
        """Another process keeps the lock: nothing of what waits has been written."""
        stall = self._scribe.lock.stall()
        holder = "another process" if stall is None else f"process {stall.pid}"
        self._given_up = True
        self._gather(block=False)
        waiting = self._drop_work()
        for operation in waiting:
            operation.error = StoreStalled(
                f"{self._scribe.path} was closed while {holder} kept it locked",
                cure=f"See what {holder} does: it may be stopped (SIGSTOP, a debugger).",
            )
        answer(waiting)

    # --- forks

    def before_fork(self) -> None:
        """Wait for the transaction at hand, then close: no handle crosses a fork."""
        self._in_use.acquire()
        self._scribe.drop_connection()

    def after_fork_in_parent(self) -> None:
        """Go on; the next transaction opens the file again."""
        self._in_use.release()

    def after_fork_in_child(self) -> None:
        """The thread, its lines and its lock stayed with the parent."""
        self._scribe.lock.close()
        self._begin_anew()

    # --- the thread's side

    def _write_forever(self) -> None:
        last = self._lines[Kind.LAST]
        while not last or self._has_work():
            if self._has_work():
                self._take_turn()
            self._gather(block=not (last or self._has_work()))
        with self._in_use:
            self._scribe.retire()
        answer(list(last))

    def _has_work(self) -> bool:
        return any(line for kind, line in self._lines.items() if kind != Kind.LAST)

    def _gather(self, *, block: bool) -> None:
        """Sort what has arrived into the lines."""
        with suppress(Empty):
            operation = self._arrivals.get(block=block)
            while True:
                self._lines[operation.kind].append(operation)
                operation = self._arrivals.get_nowait()

    def _take_turn(self) -> None:
        """Open if need be; then a transaction, what goes outside of it, a checkpoint."""
        try:
            with self._in_use:
                self._scribe.connection()
            self._run_line(Kind.OPEN)
            if not self._has_work():
                return
            with self._scribe.lock, self._in_use:
                if self._given_up:  # while we waited: they have been told
                    return
                # Whatever arrived while we waited for our turn goes with us.
                self._gather(block=False)
                self._write_batch()
                self._run_line(Kind.OUTSIDE)
                self._scribe.checkpoint_if_long()
        except Exception as error:  # the thread must live, and callers must hear
            self._fail(self._drop_work(), error, at_commit=False)

    def _write_batch(self) -> None:
        """One transaction of what waits, within its bounds; every caller is answered."""
        first, usual = self._lines[Kind.FIRST], self._lines[Kind.USUAL]
        several = len(first) + len(usual) > 1
        batch: list[Operation[Any]] = []
        tx: Transaction | None = None
        at_commit = False
        try:
            tx = self._scribe.begin()
            rows = 0
            while (line := first or usual) and self._has_room(tx, rows):
                operation = line.popleft()
                operation.begun = True
                if not operation.is_cancelled:
                    batch.append(operation)
                    rows += operation.rows
                    self._perform(tx, operation, several=several)
            at_commit = True
            self._scribe.commit(tx)
        except Exception as error:
            self._scribe.roll_back(tx)
            self._fail(
                batch or self._drop_line(first or usual), error, at_commit=at_commit
            )
        else:
            answer(batch)

    def _has_room(self, tx: Transaction, rows: int) -> bool:
        if rows == 0:
            return True
        took_seconds = self._scribe.clock.monotonic() - tx.ticks
        return rows < ROWS_MAX and took_seconds < BATCH_SECONDS_MAX

    def _perform(
        self, tx: Transaction, operation: Operation[Any], *, several: bool
    ) -> None:
        """Run one operation; its failure is its own unless SQLite gave up everything."""
        if not several:
            operation.value = operation.work(tx)
            return
        tx.db.rows("savepoint operation")
        mark = len(tx.after_commit), len(tx.after_rollback)
        try:
            operation.value = operation.work(tx)
        except Exception as error:
            if not tx.db.in_transaction:
                raise
            operation.error = told(error, self._scribe.path, at_commit=False)
            tx.db.rows("rollback to operation")
            tx.undo_since(*mark)
        tx.db.rows("release operation")

    def _run_line(self, kind: Kind) -> None:
        for operation in self._drop_line(self._lines[kind]):
            operation.begun = True
            work = partial(operation.work, self._scribe.connection())
            attempt(operation, work, self._scribe.path)
            answer([operation])

    def _drop_work(self) -> list[Operation[Any]]:
        kinds = [kind for kind in Kind if kind != Kind.LAST]
        return [op for kind in kinds for op in self._drop_line(self._lines[kind])]

    def _drop_line(self, line: deque[Operation[Any]]) -> list[Operation[Any]]:
        dropped: list[Operation[Any]] = []
        with suppress(IndexError):
            while True:
                dropped.append(line.popleft())
        return dropped

    def _fail(
        self, operations: list[Operation[Any]], error: Exception, *, at_commit: bool
    ) -> None:
        for operation in operations:
            operation.error = told(error, self._scribe.path, at_commit=at_commit)
        answer(operations)


def attempt(
    operation: Operation[Any], run: Callable[[], Any], path: str | None
) -> None:
    """Run something for an operation; whatever it raises becomes the caller's."""
    try:
        operation.value = run()
    except Exception as error:
        operation.error = told(error, path, at_commit=False)


def told(error: Exception, path: str | None, *, at_commit: bool) -> Exception:
    """Each caller gets an exception of its own: they are raised in several places."""
    if isinstance(error, apsw.Error):
        return translated(error, path, at_commit=at_commit)
    return error
