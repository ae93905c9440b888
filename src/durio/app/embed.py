"""Run a worker inside another program: a web process, a script, a test.

It runs on the caller's event loop, installs no signal handlers and starts no second
process. Leaving the block drains it within the grace time; a cancel during the drain gives
running jobs back at once. It never ends the host program. Queues that declare no bound get
a small one, because producer and worker share one memory.
"""

import asyncio
import importlib
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, Self, cast

import msgspec

from durio.app.state import AppState
from durio.model.errors import InvalidOption, OperatingError
from durio.model.failure import failure_of
from durio.model.job import READY, RUNNING
from durio.model.names import queue_of
from durio.model.quantities import Duration, seconds
from durio.model.settings import Settings
from durio.ports.clock import Clock
from durio.ports.plan_reader import has_plan_work
from durio.ports.store import Store
from durio.telemetry.emit import Emit

POLL_SECONDS_FIRST, POLL_SECONDS_LAST = 0.002, 0.1


class EmbeddingApp(Protocol):
    """The part of an App that an embedded worker uses."""

    name: str
    settings: Settings
    imports: tuple[str, ...]

    @property
    def clock(self) -> Clock: ...

    @property
    def state(self) -> AppState: ...

    @property
    def default_maxsize(self) -> int | None:
        """The bound of queues that declare none."""
        ...

    @default_maxsize.setter
    def default_maxsize(self, maxsize: int | None) -> None: ...

    @property
    def emit(self) -> Emit: ...

    async def store(self) -> Store: ...

    async def __aenter__(self) -> Any: ...
    async def __aexit__(self, *exc: object) -> None: ...


class EmbeddedWorker:
    """A worker inside another program: jobs run while its `async with` block runs.

    It installs no signal handlers and starts no process, except for tasks with
    `process=True`. Queues that declare no bound get one of `queue.embedded_max` jobs.
    """

    def __init__(
        self,
        app: EmbeddingApp,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
        grace: Duration | None = None,
        **parts: Any,
    ) -> None:
        self._app = app
        self._queues = _checked_queues(queues)
        self._concurrency = concurrency
        changes: dict[str, Any] = {}
        if concurrency is not None:
            changes["concurrency"] = concurrency
        if grace is not None:
            changes["grace_seconds"] = seconds(grace, "grace")
        self._changes = changes
        self._settings()  # raises here, not when the program starts
        self._parts = parts  # tests replace threads and the machine
        self._worker: Any = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Start the worker; the end of the block waits for running jobs, then stops it.

        Jobs that still run after the grace time go back to their queue, and run again.
        """
        if self._task is not None:
            raise OperatingError(
                "this worker has been entered before",
                cure="Create another: async with app.worker() as worker.",
            )
        settings = self._settings()
        for module in self._app.imports:  # they declare tasks, as for `durio worker`
            importlib.import_module(module)
        await self._app.__aenter__()
        self._state = self._app.state
        self._state.workers += 1
        self._maxsize = self._app.default_maxsize
        if self._maxsize is None:
            self._app.default_maxsize = settings.queue.embedded_max
        try:
            await self._begin(settings)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._end()
        if error is None:
            self._raise_failure()

    async def drained(self, timeout: Duration | None = None) -> None:
        """Wait until no job is ready, running or before a gate in the worker's queues.

        A plan is run to its end, with the handlers of a failure.
        Scheduled jobs, such as retries, may be left. Raises TimeoutError after `timeout`,
        or the error that ended the worker.
        """
        limit = None if timeout is None else seconds(timeout, "timeout")
        pause = POLL_SECONDS_FIRST
        try:
            async with asyncio.timeout(limit):
                while await self._has_work():
                    await self._app.clock.sleep(pause)
                    pause = min(pause * 2, POLL_SECONDS_LAST)
        except TimeoutError:
            raise TimeoutError(
                f"jobs are left after {limit:g} s; they keep running"
            ) from None

    # --- starting

    def _settings(self) -> Settings:
        settings = self._app.settings
        worker = msgspec.structs.replace(settings.worker, **self._changes)
        return msgspec.structs.replace(settings, worker=worker)

    async def _begin(self, settings: Settings) -> None:
        # Imported on first use, because `import durio` loads no worker code.
        make_worker = importlib.import_module("durio.app.worker_builder").make_worker
        machine = importlib.import_module("durio.host.side_loop").EmbeddedMachine
        parts = {"machine": machine(self._app.emit), **self._parts}
        self._worker = await make_worker(
            self._app,
            queues=self._queues,
            concurrency=self._concurrency,
            settings=settings,
            **parts,
        )
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._work(), name=f"durio-{self._app.name}")
        started = loop.create_task(self._worker.started.wait())
        try:
            both = (self._task, started)
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            started.cancel()
        # Its dependencies or the store failed: the program must not start.
        if self._task.done():
            self._raise_failure()

    async def _work(self) -> None:
        try:
            await self._worker.run()
        except asyncio.CancelledError:
            raise  # the event loop ends; running jobs were given back
        except BaseException as error:
            self._report_failure(without_group(error))
            raise
        if self._worker.broken is not None:
            self._report_failure(self._worker.broken)
            raise self._worker.broken

    def _report_failure(self, error: BaseException) -> None:
        failure = failure_of(error)
        self._app.emit(
            "worker.failed",
            error=f"{failure.type}: {failure.message}",
            stack=failure.traceback,
        )

    # --- stopping

    async def _end(self) -> None:
        try:
            if self._task is not None:
                await self._drain(self._task)
        finally:
            self._state.workers -= 1
            self._app.default_maxsize = self._maxsize
            await self._app.__aexit__(None, None, None)

    async def _drain(self, task: "asyncio.Task[None]") -> None:
        """Wait for the worker's end; on a cancel, give its jobs back at once."""
        interrupted: asyncio.CancelledError | None = None
        self._worker.stop()
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as cancel:
                interrupted = cancel
                self._worker.stop()
        if interrupted is not None:
            raise interrupted

    def _raise_failure(self) -> None:
        if self._task is None or self._task.cancelled():
            return
        error = self._task.exception()
        if error is not None:
            raise without_group(error)

    async def _has_work(self) -> bool:
        if self._task is None or self._task.done():
            self._raise_failure()
            raise OperatingError("the worker has stopped; unfinished jobs may remain")
        store = await self._app.store()
        if await self._has_jobs(store) or await has_plan_work(store, self._app.name):
            return True
        # Again: the leader may have enqueued jobs between the two.
        return await self._has_jobs(store)

    async def _has_jobs(self, store: Store) -> bool:
        return any(
            row.jobs(READY, RUNNING) or row.before_gates
            for row in await store.queues(self._app.name, counts=True, gates=True)
            if self._worker.config.serving.serves(queue_of(row.name))
        )


def _checked_queues(queues: Sequence[str] | None) -> Sequence[str] | None:
    if isinstance(queues, str) or (queues is not None and not queues):
        raise InvalidOption(
            f"queues={queues!r} is not a list of queues",
            cure="Give names: queues=['mail']; without it every queue is served.",
        )
    return queues


def without_group(error: BaseException) -> BaseException:
    """Return the single error inside an exception group of a TaskGroup, else the error."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    inner = list(group.exceptions)
    return without_group(inner[0]) if len(inner) == 1 else group
