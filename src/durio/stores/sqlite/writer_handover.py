"""Hand the writer's turn over to a task's own transaction.

While that transaction lasts, no other connection can write to the file anyway. So the
writer's thread keeps the writers' lock and waits until the turn is returned. One turn is
handed over at a time. Between two of them the writer has a turn of its own, in which
renewals come first.
"""

import asyncio
import threading
from weakref import WeakKeyDictionary

from durio.stores.sqlite.write_session import Writer

# The writer's thread waits no longer than this, whatever the task does.
HELD_SECONDS_MAX = 20.0


class WriterHandover:
    """One turn of the writer, handed over."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self._loop = asyncio.get_running_loop()
        self._granted: asyncio.Future[None] = self._loop.create_future()
        self._returned = threading.Event()

    async def begin(self, writer: Writer) -> None:
        """Wait for the turn; a caller that is cancelled meanwhile blocks no other."""
        await self._lock.acquire()
        try:
            request = self._loop.create_task(writer.write_outside(self._hold))
            request.add_done_callback(ignore_result)
            await asyncio.wait(
                (request, self._granted), return_when=asyncio.FIRST_COMPLETED
            )
            if request.done():
                request.result()  # the store is closed, or cannot be opened
        except BaseException:
            self.end()
            raise

    def _hold(self, _db: object) -> None:
        """Keep the turn and do nothing; runs in the writer's thread."""
        self._loop.call_soon_threadsafe(self._grant)
        self._returned.wait(HELD_SECONDS_MAX)

    def _grant(self) -> None:
        if not self._granted.done():
            self._granted.set_result(None)

    def end(self) -> None:
        """Return the turn, once, on the loop that took it."""
        if self._returned.is_set():
            return
        self._returned.set()
        self._lock.release()


def ignore_result(request: "asyncio.Task[None]") -> None:
    """Ignore errors of the writer after the turn was granted: they do not concern the task."""
    if not request.cancelled():
        request.exception()


class WriterHandovers:
    """Allows one handover at a time per event loop."""

    def __init__(self) -> None:
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]
        self._locks = WeakKeyDictionary()

    async def acquire(self, writer: Writer) -> WriterHandover:
        lock = self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        handover = WriterHandover(lock)
        await handover.begin(writer)
        return handover
