"""Threads for sync tasks: their functions run here, outside the event loop.

Each call belongs to one thread from the moment it is handed over until that thread is
released. Three things are hard, and they are all here.

*Interrupts.* CPython can raise an exception in another thread, at its next Python
instruction, but it cannot say in which function that will be. So an interrupt is sent
under the call's lock and only while the call is RUNNING. The thread leaves that state
by a plain store, which nothing can interrupt. Then it waits until the lock is free and
lets an exception that was sent but not yet raised be raised. After that no interrupt of
this call can exist. In between at most two may still be raised: one sent before the
store, and one by a sender that was already past its check. `ThreadCall.run` has a
handler for each. CPython can also take back a sent exception, by sending nothing; but
3.11 then believes for ever that one is pending: every loop and call of the process
takes a slow path, and under a tracer it never ends. So only real exceptions are sent,
and they are raised.

One place must never be hit: between taking a lock of `logging` and the `try` that
releases it. A thread that waits for such a lock would be hit exactly there, keep the
lock for ever, and block every thread that logs, the loop's among them. So an interrupt
of a thread in that place is retried a little later.

*Completions.* A thread wakes the loop only if no wakeup is pending: calls that end in
the meantime are delivered with it.

*Threads that hang.* A thread cannot be killed. It can be abandoned: it no longer
counts, another may be started in its place, and it ends when its function ends.
"""

import asyncio
import contextvars
import ctypes
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, final

from durio.model.errors import OperatingError, UsageError
from durio.ports.executor import ThreadResult

WAITING: Final = 0
RUNNING: Final = 1
OVER: Final = 2
RAISING_TURNS: Final = 3  # one would be enough
INTERRUPT_RETRY_SECONDS: Final = 0.001
LOCKING_FUNCTIONS: Final = frozenset(
    {
        *("acquire", "release", "handle", "_acquireLock", "_releaseLock"),
        *("isEnabledFor", "getLogger", "_clear_cache"),
    }
)

send_error = ctypes.pythonapi.PyThreadState_SetAsyncExc
send_error.argtypes = (ctypes.c_ulong, ctypes.py_object)
send_error.restype = ctypes.c_int


@final
class ThreadExecutor:
    """Up to `threads_max` daemon threads, started on demand; last idle, first used.

    Further calls wait for a thread. A worker never has more calls than slots; `waiting_max`
    limits other users. `on_busy` is called when the first call begins and the last one ends,
    with the lock held: it must not use the executor.
    """

    def __init__(
        self, threads_max: int, on_busy: Callable[[bool], None] | None = None
    ) -> None:
        self.threads_max = threads_max
        self.on_busy = on_busy
        self.is_busy = False
        self.waiting_max = 10_000
        self.lock = threading.Lock()
        self.idle: list[SimpleQueue[ThreadCall | None]] = []
        self.waiting: deque[ThreadCall] = deque()  # calls that wait for a free thread
        self.counted = 0  # threads that count against `threads_max`
        self.abandoned = 0  # threads without a caller, still inside their function
        self.started = 0
        self.closed = False
        self.mailbox: CompletionQueue | None = None

    def start(self, function: Callable[[], Any]) -> "ThreadCall":
        loop = asyncio.get_running_loop()
        mailbox = self.mailbox
        if mailbox is None or mailbox.loop is not loop:
            mailbox = self.mailbox = CompletionQueue(loop)
        call = ThreadCall(self, mailbox, function)
        with self.lock:
            self.admit(call)
            self.report_busy()
        return call

    def close(self) -> None:
        with self.lock:
            self.closed = True
            idle, self.idle = self.idle, []
            waiting = list(self.waiting)
            self.counted -= len(idle)
        for inbox in idle:
            inbox.put(None)
        for call in waiting:
            call.interrupt(asyncio.CancelledError)

    # --- with the lock held

    def admit(self, call: "ThreadCall") -> None:
        """Give a call to an idle thread, to a new one, or let it wait."""
        if self.closed:
            raise UsageError("the thread executor is closed", cure="Start a new one.")
        if self.idle:
            call.held = True
            self.idle.pop().put(call)
        elif not self.start_thread(call):
            self.add_waiting(call)

    def add_waiting(self, call: "ThreadCall") -> None:
        """Let a call wait for a released thread; raises OperatingError at the limit."""
        if self.counted == 0 or len(self.waiting) >= self.waiting_max:
            raise OperatingError(
                f"no thread for this call: {self.counted} threads are busy, "
                f"{len(self.waiting)} calls wait",
                cure="Raise the machine's limit on threads, or lower the concurrency.",
            )
        self.waiting.append(call)

    def report_busy(self) -> None:
        is_busy = self.counted + self.abandoned > len(self.idle)
        if self.on_busy is not None and is_busy is not self.is_busy:
            self.is_busy = is_busy
            self.on_busy(is_busy)

    def start_thread(self, call: "ThreadCall") -> bool:
        """Start a thread with this call; return False if there can be no more threads."""
        if self.counted >= self.threads_max:
            return False
        inbox: SimpleQueue[ThreadCall | None] = SimpleQueue()
        self.started += 1
        thread = threading.Thread(
            target=serve,
            args=(self, inbox),
            name=f"durio-task-{self.started}",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError:  # the machine has no more threads
            return False
        self.counted += 1
        call.held = True
        inbox.put(call)
        return True

    # --- called by calls and by threads

    def remove_waiting(self, call: "ThreadCall") -> None:
        with self.lock:
            if call in self.waiting:
                self.waiting.remove(call)

    def abandon(self, call: "ThreadCall") -> None:
        """Stop counting the thread of this call; a waiting call may get a new one."""
        with self.lock:
            if not call.held or call.is_abandoned:
                return
            call.is_abandoned = True
            self.counted -= 1
            self.abandoned += 1
            if self.waiting and not self.closed and self.start_thread(self.waiting[0]):
                self.waiting.popleft()

    def release(
        self, call: "ThreadCall", inbox: "SimpleQueue[ThreadCall | None]"
    ) -> None:
        """Decide what the thread of an ended call does next: work, wait or end."""
        with self.lock:
            call.held = False
            if call.is_abandoned:
                self.abandoned -= 1
                self.counted += 1
            if self.closed or self.counted > self.threads_max:
                self.counted -= 1
                inbox.put(None)
            elif self.waiting:
                call = self.waiting.popleft()
                call.held = True
                inbox.put(call)
            elif call.is_abandoned:
                self.counted -= 1
                inbox.put(None)
            else:
                self.idle.append(inbox)
            self.report_busy()


def serve(executor: ThreadExecutor, inbox: "SimpleQueue[ThreadCall | None]") -> None:
    """Run calls in this thread until None arrives."""
    home = os.getpid()
    while (call := inbox.get()) is not None:
        call.run()
        if os.getpid() != home:
            os._exit(0)  # a task forked and returned in both: this is the copy
        # Released before delivery, because the caller that gets the result may start the
        # next call at once, and then finds this thread idle.
        executor.release(call, inbox)
        call.mailbox.put(call)
        del call  # an idle thread keeps nothing of its last job alive


@final
class ThreadCall:
    __slots__ = (
        "context",
        "error",
        "executor",
        "function",
        "future",
        "held",
        "is_abandoned",
        "lock",
        "mailbox",
        "state",
        "thread_id",
        "value",
        "was_sent",
    )

    def __init__(
        self,
        executor: ThreadExecutor,
        mailbox: "CompletionQueue",
        function: Callable[[], Any],
    ) -> None:
        self.executor = executor
        self.mailbox = mailbox
        self.function: Callable[[], Any] | None = function
        self.context = contextvars.copy_context()
        self.future: asyncio.Future[ThreadResult] = mailbox.loop.create_future()
        self.lock = threading.Lock()
        self.state = WAITING
        self.thread_id = 0
        self.value: Any = None
        self.error: BaseException | None = None
        self.held = False  # whether a thread has it; guarded by the executor's lock
        self.is_abandoned = False  # guarded by the executor's lock
        self.was_sent = False  # an interrupt was sent, but may not have been raised yet

    # --- the caller's side

    def interrupt(self, error: type[BaseException]) -> bool:
        """Raise `error` at the function's next Python instruction; False if it has ended.

        A function that blocks inside C (a sleep, a read) sees it when that call returns.
        """
        with self.lock:
            if self.state == RUNNING and may_hold_logging_lock(self.thread_id):
                self.mailbox.loop.call_later(
                    INTERRUPT_RETRY_SECONDS, self.interrupt, error
                )
                return True
            if self.state == RUNNING:
                self.was_sent = True
                return send_error(self.thread_id, error) == 1
            is_refused = self.refuse(error)
        if is_refused:
            self.executor.remove_waiting(self)
            self.mailbox.put(self)
        return is_refused

    def abandon(self) -> None:
        self.executor.abandon(self)
        with self.lock:
            is_refused = self.refuse(asyncio.CancelledError)
        if is_refused:
            self.executor.remove_waiting(self)
            self.mailbox.put(self)

    def refuse(self, error: type[BaseException]) -> bool:
        """End the call before it starts, with the lock held; False if it has started."""
        if self.state != WAITING:
            return False
        self.state = OVER
        self.error = error()
        return True

    # --- the thread's side: read the head of this file before changing any line

    def run(self) -> None:
        """Run the function; no interrupt of this call is raised afterwards."""
        try:
            try:
                self.context.run(self.body)
                self.settle()
            except BaseException:  # a late interrupt
                self.settle()
        except BaseException:  # and an interrupt that was being sent
            self.settle()

    def body(self) -> None:
        """Call the function and keep its value or error."""
        try:
            with self.lock:
                if self.state != WAITING or self.function is None:
                    return
                self.thread_id = threading.get_ident()
                self.state = RUNNING
            self.value = self.function()
        except BaseException as error:
            self.error = error
        # No call and no jump between the function's end and this store, because only there
        # CPython raises what other threads send.
        self.state = OVER

    def settle(self) -> None:
        """Wait for a sender that is past its check, then let its error be raised."""
        self.state = OVER  # again: a debugger makes every line interruptible
        while self.lock.locked():
            time.sleep(0)
        if self.was_sent:
            # A pending exception is raised at the next backward jump, which is here.
            for _ in range(RAISING_TURNS):
                time.sleep(0)

    # --- the loop's side

    def deliver(self) -> None:
        """Set the result, and drop all other references."""
        if self.error is not None:
            strip_own_frames(self.error)
        if not self.future.done():
            self.future.set_result(ThreadResult(self.value, self.error))
        self.function = self.value = self.error = None


def may_hold_logging_lock(thread_id: int) -> bool:
    """Whether an error raised in this thread now could leave a logging lock taken."""
    frame = sys._current_frames().get(thread_id)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    if frame is None:
        return False
    code = frame.f_code
    return code.co_name in LOCKING_FUNCTIONS and code.co_filename == logging.__file__


def strip_own_frames(error: BaseException) -> None:
    """Make a traceback begin with the task's function, without references to our frames.

    Frames refer to the frames that called them. Ours (`body`, called by `run`) refer to the
    call, the call to its future, and that to the error: a cycle that would keep a failed
    job's arguments alive until the garbage collector runs.
    """
    trace = error.__traceback__
    if trace is None:
        return
    error.__traceback__ = trace.tb_next
    ours = (trace.tb_frame, trace.tb_frame.f_back)
    # If two calls raised the same error object, these may be live frames of the other call.
    with suppress(RuntimeError):
        for frame in ours:
            if frame is not None:
                frame.clear()


@final
class CompletionQueue:
    """Ended calls for one loop, with at most one pending wakeup."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.calls: deque[ThreadCall] = deque()
        self.has_wakeup = False

    def put(self, call: ThreadCall) -> None:
        """Add an ended call; callable from any thread."""
        self.calls.append(call)
        # The flag is read after the append and cleared before the calls are taken: if a
        # wakeup is pending here, it finds this call.
        if self.has_wakeup:
            return
        self.has_wakeup = True
        try:
            self.loop.call_soon_threadsafe(self.deliver_all)
        except RuntimeError:  # the loop is closed: no caller waits
            self.calls.clear()

    def deliver_all(self) -> None:
        self.has_wakeup = False
        while self.calls:
            self.calls.popleft().deliver()
