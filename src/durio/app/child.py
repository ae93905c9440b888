"""The program of a child process, which runs one job at a time with the App's own tasks.

A worker starts it with `python -m durio.app.child`. It loads the App again, enters its
dependencies once, and runs attempts as a worker does: codec, middleware, retry policy and
time limits are the same code. It opens no store unless a task enqueues something.
"""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from typing import NoReturn

from durio.app.app import App
from durio.app.connect import is_in_memory
from durio.app.origin import find_app
from durio.client.plan_prepare import PlanPreparer
from durio.host.child_connection import WorkerConnection
from durio.host.child_log import forward_all
from durio.host.child_wire import (
    ChildRun,
    End,
    Finished,
    Interrupt,
    Leaving,
    LoadFailed,
    ProgressUpdate,
    Ready,
    Setup,
    ToChild,
    Warn,
)
from durio.host.executors import ThreadExecutor
from durio.host.processes import own_cpu_seconds, own_rss_bytes
from durio.model.errors import DurioError, UsageError
from durio.model.failure import failure_of
from durio.model.outcome import Outcome, OutcomeKind
from durio.telemetry.emit import JobEvent
from durio.telemetry.log import install_job_fields
from durio.worker.attempt import AttemptRunner
from durio.worker.inflight import Attempt, InterruptReason

PACKAGE_FOLDER = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120
PROGRESS_SECONDS = 0.05  # between two progress updates; the newest replaces older ones


def main() -> int:
    """Serve the worker that started this process until it sends End."""
    connection = WorkerConnection(*(int(number) for number in sys.argv[1:4]))
    connection.attach()
    setup = connection.read_setup()
    if setup is None:
        return 0
    try:
        app = prepared_app(setup, connection)
        asyncio.run(serve(app, setup, connection))
    except BaseException as error:  # user code may raise anything
        failure = failure_of(error, hidden=PACKAGE_FOLDER)
        # Frames of this package are left out. If there are no others, they are all kept,
        # and the traceback is not shown.
        shown = "" if PACKAGE_FOLDER in failure.traceback else failure.traceback
        what, cure = f"{failure.type}: {failure.message}", ""
        if isinstance(
            error, DurioError
        ):  # the cure goes where the worker shows its own
            what, cure = f"{error.what} [{error.code}]", error.cure
        connection.send(LoadFailed(what, shown, cure))
        return 1
    return 0


def prepared_app(setup: Setup, connection: WorkerConnection) -> App:
    """Return the worker's App, with the worker's URL, folder and settings."""
    app = find_app(setup.origin)
    install_job_fields()
    forward_all(connection.send, setup.log_level, setup.settings.log)
    app.url, app.folder, app.settings = setup.url, setup.folder, setup.settings
    if is_in_memory(app.url):
        app.store = refuse_store
    return app


async def refuse_store() -> NoReturn:
    """Replace `App.store`: a store in memory exists only in the worker's process."""
    raise UsageError(
        "a task with process=True cannot reach a store in memory",
        cure="Use a file (sqlite:///jobs.db), or remove process=True.",
    )


async def serve(app: App, setup: Setup, connection: WorkerConnection) -> None:
    """Run jobs, one after another, inside the App's dependencies."""
    slot = ChildSlot(app, setup, connection)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(app.close)
        deps = app.deps
        entered = None if deps is None else await stack.enter_async_context(deps())
        slot.runner.start(entered)
        connection.listen(asyncio.get_running_loop(), slot.on_message)
        tasks = [task for task, h in app.registry.by_name.items() if h.is_process]
        connection.send(Ready(tasks))
        try:
            await slot.ended.wait()
        finally:
            slot.leave()


class ChildSlot:
    """The one slot of a child."""

    def __init__(self, app: App, setup: Setup, connection: WorkerConnection) -> None:
        self._handlers = app.registry.by_name
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._attempt: Attempt | None = None
        self._latest_progress: bytes | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._jobs_begun = 0
        self._is_leaving = False
        self.ended = asyncio.Event()
        self.runner = AttemptRunner(
            clock=app.clock,
            executor=ThreadExecutor(1),
            settings=app.settings,
            middleware=app.middleware,
            keeps=app.registry.queue_keeps(),
            worker_name=setup.worker,
            report=self._report,
            plans=PlanPreparer(app, self._handlers),
            # This job or an earlier one caused it: see `AttemptRunner.lost`.
            loop_ended_message=(
                f"child process {os.getpid()} is broken: a task stopped its event "
                "loop, or cancelled asyncio tasks of Durio"
            ),
            is_first_in_child=lambda: self._jobs_begun == 1,
        )

    def on_message(self, message: ToChild) -> None:
        attempt = self._attempt
        match message:
            case ChildRun():
                self._begin(message)
            case Warn():
                if attempt is not None:
                    attempt.warn()
            case Interrupt():
                if attempt is not None:
                    attempt.interrupt(InterruptReason(message.why))
            case End():
                self.ended.set()
            case _:
                pass

    def leave(self) -> None:
        """Start no more jobs, and tell the worker unless it asked for that."""
        if self._is_leaving:
            return
        self._is_leaving = True
        if self.ended.is_set():
            self.runner.executor.close()
        else:  # a task stopped the loop, or cancelled another task
            self._connection.send(Leaving(self._jobs_begun))

    def _begin(self, message: ChildRun) -> None:
        claim = message.claim
        handler = self._handlers.find(claim.task)
        assert handler is not None, claim.task  # noqa: S101 - the worker has the same tasks
        self._attempt = attempt = Attempt(
            claim, handler, self._loop.time(), self.runner
        )
        attempt.asyncio_task = asyncio.Task(self._run_attempt(attempt), loop=self._loop)

    async def _run_attempt(self, attempt: Attempt) -> None:
        if self._is_leaving:
            return  # the worker gives the job to another child
        self._jobs_begun += 1
        outcome, event = await self.runner.make(attempt)
        if outcome.kind == OutcomeKind.LOST:
            # Send Leaving before Finished, because on Finished the worker sends the next
            # job.
            self.leave()
        attempt.is_over = True
        self._attempt = None
        if self._timer is not None:
            self._timer.cancel()
            self._send_progress()
        try:
            self._send_finished(outcome, event)
        except Exception as error:  # the worker must get an outcome, so send a failure
            self._send_finished(*self.runner.unsendable(attempt, outcome, error))

    def _send_finished(self, outcome: Outcome, event: JobEvent | None) -> None:
        if event is not None:
            event = event._replace(meta=None)  # the worker has it already
        usage = own_rss_bytes(), own_cpu_seconds()
        self._connection.send_finished(Finished(outcome, event, *usage))

    # --- progress

    def _report(self, attempt: Attempt, progress: bytes) -> None:
        if attempt.is_over:
            return
        self._latest_progress = progress
        if self._timer is None:
            self._send_progress()
            self._timer = self._loop.call_later(PROGRESS_SECONDS, self._send_progress)

    def _send_progress(self) -> None:
        self._timer = None
        if self._latest_progress is not None:
            self._connection.send(ProgressUpdate(self._latest_progress))
            self._latest_progress = None


if __name__ == "__main__":
    sys.exit(main())
