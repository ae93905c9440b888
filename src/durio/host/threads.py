"""A thread with an event loop of its own: for heartbeat, watchdog and sync callers.

Coroutines here keep running while the worker's loop is blocked, and code without a loop
can call coroutines. The loop is plain asyncio, whatever the rest of the process uses.
"""

import asyncio
import concurrent.futures
import os
import threading
import weakref
from collections.abc import Coroutine
from contextlib import suppress
from types import CoroutineType
from typing import Any, TypeVar, final

from durio.model.errors import OperatingError, StoreUnavailable, UsageError

T = TypeVar("T")

JOIN_SECONDS = 5.0


@final
class LoopThread:
    """A daemon thread that runs coroutines; started by its first use."""

    def __init__(self, name: str = "durio-loop") -> None:
        self.name = name
        self.is_stopped = False
        self.reset()
        ALIVE.add(self)

    def reset(self) -> None:
        """Have no thread: at first, and in a forked child, which inherits none."""
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.ending: asyncio.Future[None] | None = None
        self.futures: set[concurrent.futures.Future[Any]] = set()

    def submit(self, coro: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Run a coroutine on the thread; the future gets its result, error or cancel."""
        with self.lock:
            if self.is_stopped:
                coro.close()
                raise OperatingError(f"the thread {self.name!r} was stopped")
            loop = self.ensure_running()
            # With the lock held, so that all submitted work reaches the loop before its end
            # does.
            future = asyncio.run_coroutine_threadsafe(self.without_exit(coro), loop)
            self.futures.add(future)  # a loop holds its tasks only weakly
        future.add_done_callback(self.futures.discard)
        return future

    def stop(self, join_seconds: float = JOIN_SECONDS) -> bool:
        """Cancel what runs on the thread and close the loop.

        Returns False if it did not end in time.
        """
        with self.lock:
            self.is_stopped = True
            thread, loop, ending = self.thread, self.loop, self.ending
            if thread is None or loop is None or ending is None:
                return True
            with suppress(RuntimeError):  # closed already
                loop.call_soon_threadsafe(end, ending)
        if thread is threading.current_thread():
            return False
        thread.join(join_seconds)
        return not thread.is_alive()

    # --- with the lock held

    def ensure_running(self) -> asyncio.AbstractEventLoop:
        """Return the loop, with a thread that runs it."""
        if self.loop is not None and self.thread is not None and self.thread.is_alive():
            return self.loop
        runner = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)
        self.loop = runner.get_loop()
        self.ending = self.loop.create_future()
        self.thread = threading.Thread(
            target=serve, args=(runner, self.ending), name=self.name, daemon=True
        )
        self.thread.start()
        return self.loop

    async def without_exit(self, coro: Coroutine[Any, Any, T]) -> T:
        """Convert SystemExit and KeyboardInterrupt, which would end the loop."""
        try:
            return await coro
        except (SystemExit, KeyboardInterrupt) as error:
            raise OperatingError(
                f"{type(error).__name__} was raised in the thread {self.name!r}"
            ) from error


def serve(runner: asyncio.Runner, ending: "asyncio.Future[None]") -> None:
    """Run the loop until `ending` is set; then the runner cancels what is left."""

    async def wait() -> None:
        await ending

    with runner:
        runner.run(wait())


def end(ending: "asyncio.Future[None]") -> None:
    if not ending.done():
        ending.set_result(None)


ALIVE: "weakref.WeakSet[LoopThread]" = weakref.WeakSet()
# A forked child shares its parent's selector: closing the loop would unregister the
# parent's file descriptors. The loop is kept here so that no finalizer closes it.
INHERITED: list[asyncio.AbstractEventLoop] = []


def reset_threads() -> None:
    """Reset all threads in a forked child, where only the thread that forked exists."""
    for each in list(ALIVE):
        if each.loop is not None:
            INHERITED.append(each.loop)
        each.reset()


os.register_at_fork(after_in_child=reset_threads)


@final
class Portal:
    """Runs coroutines for sync callers, which wait a limited time for the result."""

    def __init__(self, thread: LoopThread) -> None:
        self.thread = thread

    def run(self, work: Coroutine[Any, Any, T], timeout_seconds: float) -> T:
        """Run a coroutine in the thread; return its result.

        Raises StoreUnavailable with `unknown` set after the timeout: the coroutine is
        cancelled, but the store may have done the work.
        """
        self.refuse_running_loop(work)
        future = self.thread.submit(work)
        try:
            return future.result(timeout_seconds)
        except TimeoutError:
            if future.done():  # the coroutine's own error
                raise
            future.cancel()
            raise StoreUnavailable(
                f"no answer within {timeout_seconds:g} s",
                cure="Ask again: with an idempotency key a repeat makes no second job.",
                unknown=True,
                timeout_seconds=timeout_seconds,
            ) from None
        except KeyboardInterrupt:
            future.cancel()
            raise

    def refuse_running_loop(self, work: object) -> None:
        """Refuse a thread with a running loop, which could not run during the wait."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        if isinstance(work, CoroutineType):
            work.close()  # or Python warns that it was never awaited
        raise UsageError(
            "a sync call from a thread with a running event loop would block that loop",
            cure="Use `await` and the call without `_sync`, as in "
            "`await task.enqueue(...)`; with app.jobs(...), `async for`.",
        )
