"""What runs in a child process: a bench for one job at a time, and the App's own tasks.

`python -m durio.app.child` is started by a worker, never by hand. It loads the App anew,
enters its dependencies once, and makes attempts exactly as a worker does: codec,
middleware, retry policy and time limits are the same code. It opens no store unless a task
enqueues something.
"""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from typing import NoReturn

from durio.app.app import App
from durio.app.connect import is_in_memory
from durio.app.origin import find_app
from durio.host.child_life import Post
from durio.host.child_log import forward_all
from durio.host.child_wire import (
    Broken,
    End,
    Finished,
    Interrupt,
    Leaving,
    Noted,
    Ready,
    Run,
    Setup,
    ToChild,
    Warn,
)
from durio.host.executors import ThreadExecutor
from durio.host.processes import own_cpu_seconds, own_rss_bytes
from durio.model.errors import UsageError
from durio.model.failure import failure_of
from durio.model.outcome import Kind, Outcome
from durio.telemetry.emit import JobEvent
from durio.telemetry.log import install_job_fields
from durio.worker.attempt import Bench
from durio.worker.inflight import Attempt, Why

OUR_FRAMES = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120
NOTE_SECONDS = 0.05  # between two notes of progress: only the newest counts


def main() -> int:
    """Serve the worker that started this process, until it says the end."""
    post = Post(*(int(number) for number in sys.argv[1:4]))
    post.settle_in()
    setup = post.setup()
    if setup is None:
        return 0
    try:
        app = prepared_app(setup, post)
        asyncio.run(serve(app, setup, post))
    except BaseException as error:  # the user's module and dependencies: anything
        told = failure_of(error, hidden=OUR_FRAMES)
        # Ours are left out, unless there are no others: then it shows nothing.
        shown = "" if OUR_FRAMES in told.traceback else told.traceback
        post.say(Broken(f"{told.type}: {told.message}", shown))
        return 1
    return 0


def prepared_app(setup: Setup, post: Post) -> App:
    """The worker's App, with its store and settings, whatever the code says."""
    app = find_app(setup.origin)
    install_job_fields()
    forward_all(post.say, setup.log_level, setup.settings.log)
    app.url, app.folder, app.settings = setup.url, setup.folder, setup.settings
    if is_in_memory(app.url):
        app.store = refuse_store
    return app


async def refuse_store() -> NoReturn:
    """A store in memory belongs to the worker's process."""
    raise UsageError(
        "a task with process=True cannot reach a store in memory",
        cure="Use a file (sqlite:///jobs.db), or take process=True off.",
    )


async def serve(app: App, setup: Setup, post: Post) -> None:
    """Jobs, one after another, with the dependencies entered around them."""
    seat = Seat(app, setup, post)
    seat.bench.host_task = asyncio.current_task()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(app.close)
        if app.deps is not None:
            seat.bench.deps = await stack.enter_async_context(app.deps())
        post.listen(asyncio.get_running_loop(), seat.hear)
        tasks = [task for task, h in app.registry.handlers.items() if h.is_process]
        post.say(Ready(tasks))
        try:
            await seat.ended.wait()
        finally:
            seat.leave()


class Seat:
    """The one slot of a child."""

    def __init__(self, app: App, setup: Setup, post: Post) -> None:
        self._handlers = app.registry.handlers
        self._post = post
        self._loop = asyncio.get_running_loop()
        self._attempt: Attempt | None = None
        self._newest: bytes | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._jobs = 0  # begun
        self._is_leaving = False
        self.ended = asyncio.Event()
        self.bench = Bench(
            clock=app.clock,
            executor=ThreadExecutor(1),
            settings=app.settings,
            middleware=app.middleware,
            keeps=app.registry.queue_keeps(),
            worker_name=setup.worker,
            report=self._report,
        )
        # By the job at hand, or by one before it: see `lost` of the bench.
        self.bench.torn_down = (
            f"child process {os.getpid()} is broken: a task stopped its event loop, or "
            "cancelled what is not its own"
        )

    def hear(self, word: ToChild) -> None:
        """What the worker says."""
        attempt = self._attempt
        match word:
            case Run():
                self._begin(word)
            case Warn():
                if attempt is not None:
                    attempt.warn()
            case Interrupt():
                if attempt is not None:
                    attempt.interrupt(Why(word.why))
            case End():
                self.ended.set()
            case _:
                pass

    def leave(self) -> None:
        """Begin nothing more, and say so if it was not the worker's wish."""
        if self._is_leaving:
            return
        self._is_leaving = True
        if self.ended.is_set():
            self.bench.executor.close()
        else:  # a task has stopped the loop, or cancelled what is not its own
            self._post.say(Leaving(self._jobs))

    def _begin(self, word: Run) -> None:
        claim = word.claim
        handler = self._handlers[claim.task]
        self._attempt = attempt = Attempt(claim, handler, self._loop.time(), self.bench)
        attempt.task_of_loop = asyncio.Task(self._make(attempt), loop=self._loop)

    async def _make(self, attempt: Attempt) -> None:
        if self._is_leaving:
            return  # the worker gives it to another child
        self._jobs += 1
        self.bench.is_first = self._jobs == 1
        outcome, event = await self.bench.make(attempt)
        if outcome.kind == Kind.LOST:
            self.leave()  # said first: whoever hears of an end sends the next job
        attempt.is_over = True
        self._attempt = None
        if self._timer is not None:
            self._timer.cancel()
            self._send_note()
        try:
            self._tell_end(outcome, event)
        except Exception as error:  # it must be heard, if only as a failure
            self._tell_end(*self.bench.unsaid(attempt, outcome, error))

    def _tell_end(self, outcome: Outcome, event: JobEvent | None) -> None:
        if event is not None:
            event = event._replace(meta=None)  # the worker has it
        usage = own_rss_bytes(), own_cpu_seconds()
        self._post.finish(Finished(outcome, event, *usage))

    # --- progress

    def _report(self, attempt: Attempt, told: bytes) -> None:
        if attempt.is_over:
            return
        self._newest = told
        if self._timer is None:
            self._send_note()
            self._timer = self._loop.call_later(NOTE_SECONDS, self._send_note)

    def _send_note(self) -> None:
        self._timer = None
        if self._newest is not None:
            self._post.say(Noted(self._newest))
            self._newest = None


if __name__ == "__main__":
    sys.exit(main())
