"""The reader: queries on committed data, in a thread of its own."""

import asyncio
import threading
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol

from durio.model.errors import StoreUnavailable
from durio.stores.sqlite.database import DriverName, OwnDatabase
from durio.stores.sqlite.schema import connect_reader
from durio.stores.sqlite.write_session import (
    Answer,
    ReadFunction,
    RequestKind,
    WriteRequest,
    answer_callers,
)
from durio.stores.sqlite.writer import CLOSE_SECONDS_MAX, run_request


class Reader(Protocol):
    """Runs queries that write nothing."""

    async def read(self, look: ReadFunction[Answer]) -> Answer:
        """Run `look` on committed data."""
        ...

    async def close(self) -> object:
        """Complete all submitted queries, then close."""
        ...

    def before_fork(self) -> None:
        """Close the connection; start no query until the fork is done."""
        ...

    def after_fork_in_parent(self) -> None: ...

    def after_fork_in_child(self) -> None:
        """Drop the parent's thread and its queries."""
        ...


class ReaderThread:
    """One connection that cannot write, and the thread that owns it."""

    def __init__(self, path: str, driver: DriverName = "apsw") -> None:
        self._path = path
        self._driver: DriverName = driver
        self._db: OwnDatabase | None = None
        self._reset()

    def _reset(self) -> None:
        """Initialize a new reader, or one in a forked child, which has no thread."""
        self._requests: SimpleQueue[WriteRequest[Any]] = SimpleQueue()
        self._starting = threading.Lock()
        self._in_use = threading.Lock()  # held while the connection is in use
        self._closing = False
        self._thread: threading.Thread | None = None

    async def read(self, look: ReadFunction[Answer]) -> Answer:
        """Run a query; the first one starts the thread and opens the file."""
        if self._closing:
            raise StoreUnavailable(
                f"{self._path} is closed", cure="Open the store again.", path=self._path
            )
        question = WriteRequest(look, RequestKind.OUTSIDE)
        if self._thread is None:
            self._start_thread()
        self._requests.put(question)
        return await question.future

    def _start_thread(self) -> None:
        with self._starting:  # two threads may get here at once
            if self._thread is None:
                thread = threading.Thread(
                    target=self._read_forever, name="durio-reader", daemon=True
                )
                thread.start()
                self._thread = thread

    async def close(self) -> None:
        self._closing = True
        if self._thread is not None:
            last = WriteRequest(lambda _: None, RequestKind.LAST)
            self._requests.put(last)
            await asyncio.wait([last.future], timeout=CLOSE_SECONDS_MAX)

    def before_fork(self) -> None:
        self._in_use.acquire()
        self._drop_connection()

    def after_fork_in_parent(self) -> None:
        """Allow queries again; the next one opens the file."""
        self._in_use.release()

    def after_fork_in_child(self) -> None:
        self._reset()

    def _read_forever(self) -> None:
        while (question := self._requests.get()).kind != RequestKind.LAST:
            if not question.future.cancelled():
                with self._in_use:
                    run_request(
                        question, partial(self._run_read, question.work), self._path
                    )
                answer_callers([question])
        with self._in_use:
            self._drop_connection()
        answer_callers([question])

    def _run_read(self, look: ReadFunction[Answer]) -> Answer:
        if self._db is None:
            self._db = connect_reader(self._path, self._driver)
        return look(self._db)

    def _drop_connection(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = None
