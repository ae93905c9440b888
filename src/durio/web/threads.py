"""Run plain functions beside the event loop, a limited number at a time.

A caller may give up; the thread keeps its place until the function has returned, so a
function that hangs can not take all threads of the host application.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class BesideLoop:
    """Runs at most `limit` functions at a time for each event loop."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]
        self.by_loop = WeakKeyDictionary()

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Return what the function returns, or raise what it raises."""
        loop = asyncio.get_running_loop()
        free = self.by_loop.setdefault(loop, asyncio.Semaphore(self.limit))
        await free.acquire()
        try:
            future = loop.run_in_executor(None, lambda: function(*args))
        except BaseException:
            free.release()
            raise
        future.add_done_callback(lambda done: ended(done, free))
        return await asyncio.shield(future)


def ended(future: "asyncio.Future[Any]", free: asyncio.Semaphore) -> None:
    free.release()
    if not future.cancelled():
        future.exception()  # of a caller that gave up: it is not reported as lost
