"""App: a namespace, its tasks, and access to its store.

Nothing is opened at import or construction. The first use opens the store; `async with
app:` opens it early and closes it. An App works from several event loops and threads,
and after a fork: it keeps one state per loop and one store per process.
"""

import asyncio
import importlib
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from durio.app.configuration import configuration, version_of_code
from durio.app.connect import current_folder, masked
from durio.app.cures import open_store, with_flags
from durio.app.embed import EmbeddedWorker
from durio.app.lifespan import Lifespan
from durio.app.limiting import LimitingApp
from durio.app.live_publisher import LivePublisher
from durio.app.named_task import NamedTask
from durio.app.prefix_tasks import task_of
from durio.app.registry import Registry
from durio.app.state import AppState, LoopState
from durio.app.task_decorator import TaskDecorator
from durio.client import task_by_name
from durio.client.bounds import Bounds, declare_at_start
from durio.client.caller_transaction import (
    enqueue_in_caller_tx,
    refuse_async_tx,
    run_without_loop,
)
from durio.client.handle import Job, find_job
from durio.client.plan import Immutable, NamedSignature
from durio.client.plan_commits import PlanCommits
from durio.client.result_waiters import Waiters
from durio.client.routing import routes_of
from durio.client.task_by_name import TaskTarget
from durio.host.clock import HostClock
from durio.host.signals import user_at_host
from durio.host.threads import LoopThread, Portal
from durio.model.breaker_rule import Breaker, declared_breakers
from durio.model.error_rules import ErrorKey, ErrorRule
from durio.model.job import NewJob, State
from durio.model.names import check_name, lane, task_name
from durio.model.options import UNSET, CallOptions, Retention
from durio.model.quantities import Duration
from durio.model.queues import Queue
from durio.model.retry import Retry
from durio.model.routes import RouteRule
from durio.model.settings import Settings
from durio.model.timeout import TimeLimits, Timeout
from durio.model.tx import Joinable
from durio.ports.clock import Clock
from durio.ports.enqueue import Enqueued
from durio.ports.handler import DepsFactory, Handler
from durio.ports.store import Stall, Store
from durio.telemetry.emit import Emitter
from durio.telemetry.log import LogWriter, in_job
from durio.worker.middleware import Hooks, Middleware
from durio.worker.transaction import refuse_outside_transaction

if TYPE_CHECKING:  # loaded on first use: programs that only enqueue need none of them
    from durio.client.job_filter import TaskReference
    from durio.client.job_query import JobQuery
    from durio.client.plan_job import PlanJob
    from durio.client.queue_handle import QueueHandle

T = TypeVar("T")
SYNC_SECONDS_MAX = 24 * 3600.0


class App(LimitingApp):
    """An App declares tasks, enqueues jobs and runs workers, on one store.

    Nothing is opened before the first use. An App can be used from several threads and
    event loops, and after a fork.
    """

    __module__ = "durio"

    def __init__(  # noqa: PLR0913 - the choices of an application, all keywords
        self,
        # The store. Default: `DURIO_URL`, else the settings file, else
        # `sqlite:///durio.db`.
        url: str | None = None,
        *,
        # The namespace of its tasks, queues and jobs. Default: `DURIO_NAME`, else the
        # settings file, else `app`; a PostgreSQL store needs a name.
        name: str | None = None,
        # Settings, a dict of the same shape, or the path of a settings file.
        settings: Settings | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        retry: Retry | int = UNSET,  # default of its tasks; `Retry(5)` if not given
        # What happens after which errors, for all its tasks.
        errors: Mapping[ErrorKey, ErrorRule] = UNSET,
        timeout: Timeout = UNSET,  # default of its tasks; (270, 300) s if not given
        # Returns an async context manager. A worker enters it once at its start; tasks
        # read its value from `ctx.deps`.
        deps: DepsFactory | None = None,
        middleware: Sequence[Middleware] = (),  # runs around each attempt
        imports: Sequence[str] = (),  # modules with tasks; workers import them
        queues: Sequence[Queue] = (),  # declared queues; see `app.queue`
        # The version of your code, such as a git hash: errors are counted by it. Default:
        # `DURIO_VERSION`.
        version: str | None = None,
        # Choose queue and priority where a job is enqueued: the first rule that gives a
        # route decides. A rule is a pair `("payment:*", Route("critical"))`, or a function
        # `router(task, arguments, meta)`. Those of the settings file come after these.
        routes: Sequence[RouteRule] = (),
        # Breakers, which tasks name with `breaker=` or `app.breaker(...)`.
        breakers: Sequence[Breaker] = (),
        clock: Clock | None = None,  # replaces the machine's clock in simulations
    ) -> None:
        # Code overrides the environment: a test with a memory store must never open
        # production.
        self.configuration = configuration(url, settings, name)
        self.name = self.configuration.name_on(self.configuration.url)
        self.settings = self.configuration.settings
        self.live = LivePublisher(
            self.name, lambda: self.clock, lambda: self._state.open_store
        )
        self.emit = Emitter(LogWriter(), self.live)
        store_url, clock = self.configuration.url, clock or HostClock()
        self._state = AppState(store_url, clock, current_folder(), self.emit, self.name)
        self.hooks = Hooks()  # decorators for functions that observe jobs
        self.deps = deps
        self.middleware = tuple(middleware)
        self.imports = tuple(imports)
        self.version = version_of_code(version)
        self.breakers = declared_breakers(breakers)
        self.registry = Registry(
            self.name, self.settings, self.emit, retry, timeout, errors, self.breakers
        )
        self.bounds = Bounds(self.settings.queue.full_seconds)
        for queue in queues:
            self._declare(queue)
        rules = [*routes, *self.configuration.routes]
        self.routes = routes_of(self.name, rules, self.registry.queue_names)
        self.origin: str | None = None  # module:attribute, as given on the command line
        self._portal = Portal(LoopThread(f"durio-{self.name}"))

    def __repr__(self) -> str:
        return f"App({masked(self.url)!r}, name={self.name!r})"

    # --- what it stands on

    @property
    def url(self) -> str:
        """The URL of the store."""
        return self._state.url

    @url.setter
    def url(self, url: str) -> None:
        self._state.url = url

    @property
    def folder(self) -> str:
        """The folder that relative paths in the URL start from."""
        return self._state.folder

    @folder.setter
    def folder(self, folder: str) -> None:
        self._state.folder = folder

    @property
    def clock(self) -> Clock:
        """The source of time, sleep, random numbers and job ids."""
        return self._state.clock

    @property
    def state(self) -> AppState:
        """The URL, clock and open store in use; `durio.testing` replaces them."""
        return self._state

    @state.setter
    def state(self, state: AppState) -> None:
        self._state = state
        self.bounds.default = self.default_maxsize
        self.live.reset()

    # --- declaring

    @property
    def task(self) -> TaskDecorator:
        """Make a function a task: `@app.task`, or `@app.task(queue="mail")`."""
        return TaskDecorator(self._declare_task)

    def _declare_task(self, function: Callable[..., Any], options: CallOptions) -> Any:
        handler = self.registry.add(function, options)
        return task_of(self, handler)

    def queue(
        self,
        name: str,  # without the App's name
        *,
        retention: Retention = UNSET,  # of done and cancelled jobs; the task's comes first
        maxsize: int | None = UNSET,  # most jobs that wait; None: no bound
        full_wait: Duration = UNSET,  # how long an enqueue waits for room; default 5 s
        weight: int = UNSET,  # share of a worker among its queues; default 1
        slots: int | None = UNSET,  # most running jobs in one worker; None: all slots
        prefetch: int | None = UNSET,  # most claimed jobs that wait for a slot
    ) -> "QueueHandle":
        """Return a handle to a queue; with options, declare the queue too.

        A queue needs no declaration: a task may name any queue.

            app.queue("mail", maxsize=10_000).pause_sync("the mail server is down")
        """
        queue = Queue(
            name,
            retention=retention,
            maxsize=maxsize,
            full_wait=full_wait,
            weight=weight,
            slots=slots,
            prefetch=prefetch,
        )
        if queue != Queue(name):
            self._declare(queue)
        return importlib.import_module("durio.client.queue_handle").QueueHandle(
            self, name
        )

    def _declare(self, queue: Queue) -> None:
        self.registry.add_queue(queue)
        self.bounds.declare(lane(self.name, queue.name), queue)

    @property
    def default_maxsize(self) -> int | None:
        """The bound of queues that declare none; None means no bound.

        It is set if the store is in memory, or while a worker runs in this process.
        """
        state = self._state
        if state.default_maxsize is None and state.is_bounded:
            return self.settings.queue.embedded_max or None
        return state.default_maxsize

    @default_maxsize.setter
    def default_maxsize(self, maxsize: int | None) -> None:
        self._state.default_maxsize = maxsize or None
        self.bounds.default = self.default_maxsize

    async def declare_bounds(self) -> None:
        """Write the bounds of queues to the store, as a worker does at start."""
        await declare_at_start(await self.store(), self.bounds, self.name)

    # --- enqueueing

    async def enqueue(self, name: str, /, *args: Any, **kwargs: Any) -> Job[Any]:
        """Enqueue a job of a task by name; the code of the task may be elsewhere.

        A name without a dot belongs to this App. Arguments are checked against what
        workers have published. Raises UnknownTask for a task that they do not have. For
        options use `app.named(name).options(...)`.
        """
        return await self.named(name).enqueue(*args, **kwargs)

    def enqueue_sync(self, name: str, /, *args: Any, **kwargs: Any) -> Job[Any]:
        """Enqueue by name without an event loop, as `enqueue` does."""
        return self.run_sync(self.enqueue(name, *args, **kwargs))

    async def enqueue_named(
        self,
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: CallOptions,
    ) -> Job[Any]:
        """Enqueue by name with options."""
        task = NamedTask(self, self.named(name).name, options)
        return await task.enqueue(*args, **kwargs)

    def named(self, name: str) -> NamedTask:
        """Return a task by its name; the code of the task may be elsewhere."""
        full = task_name(self.name, check_name("task", name))
        handler = self.registry.by_name.get(full)  # an alias means the task's own name
        return NamedTask(self, full if handler is None else handler.task)

    def s(self, name: str, /, *args: Any, **kwargs: Any) -> NamedSignature:
        """Return a task with arguments by name, for a plan: `app.s("shop.resize", path)`.

        The code of the task may be elsewhere. Without its first argument it gets the
        result before it.
        """
        return self.named(name).s(*args, **kwargs)

    def si(self, name: str, /, *args: Any, **kwargs: Any) -> Immutable[Any]:
        """Return a task with all its arguments by name: it ignores other results."""
        return self.named(name).si(*args, **kwargs)

    async def find_task(self, task: str) -> Handler | TaskTarget:
        """Return a task's code if it is loaded here, else what workers published."""
        handler = self.registry.by_name.find_target(task)
        if handler is not None:
            return handler
        namespace = task.partition(".")[0]
        published = await task_by_name.published_tasks(await self.store(), namespace)
        if published is None and namespace == self.name and self.registry.handlers:
            published = self.registry.published()
        return task_by_name.named_target(task, published, self.emit)

    async def job(self, job_id: str) -> Job[Any]:
        """Return a handle to a stored job; raises JobNotFound if there is none."""
        return await find_job(self, job_id)

    def job_sync(self, job_id: str) -> Job[Any]:
        """Look up a job without an event loop, as `job` does."""
        return self.run_sync(self.job(job_id))

    async def plan(self, plan_id: str) -> "PlanJob[Any]":
        """Return a handle to a stored plan; raises PlanNotFound if there is none."""
        handles = importlib.import_module("durio.client.plan_job")
        return await handles.find_plan_job(self, plan_id)

    def plan_sync(self, plan_id: str) -> "PlanJob[Any]":
        """Look up a plan without an event loop, as `plan` does."""
        return self.run_sync(self.plan(plan_id))

    def jobs(  # noqa: PLR0913 - the filters, all keywords
        self,
        *,
        # One state or several: `"dead"`, `("ready", "running")`.
        state: State | str | Iterable[State | str] | None = None,
        task: "TaskReference | str | None" = None,  # a task, or its name
        queue: str | None = None,  # name of a queue
        error: str | None = None,  # text in the last error's type or message
        reason: str | None = None,  # why jobs are dead, such as `"exhausted"`
        # Ended longer ago than this; or created longer ago, and not ended.
        older: Duration | None = None,
        # Ended at most this long ago; or created at most this long ago, and not ended.
        newer: Duration | None = None,
        ids: Iterable[str] | None = None,  # ids of jobs
        # A query, such as `"state:dead -task:send_* args.user:42"`.
        query: str | None = None,
    ) -> "JobQuery":
        """Choose jobs of this App by filters, to read, count or change them.

        A job must match every filter. Nothing is read before the result is used.
        """
        return importlib.import_module("durio.client.job_query").jobs_of(
            self,
            state=state,
            task=task,
            queue=queue,
            error=error,
            reason=reason,
            older=older,
            newer=newer,
            ids=ids,
            query=query,
        )

    def run_sync(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the App's own thread and return its result.

        It is for code without an event loop. Most calls have a `_sync` twin instead.
        """
        return self._portal.run(coro, SYNC_SECONDS_MAX)

    def run_with(self, tx: Joinable | None, coro: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine for a sync caller; with a `tx`, in the calling thread."""
        if tx is UNSET or tx is None:
            return self.run_sync(coro)
        try:
            refuse_async_tx(tx)
            self.run_sync(self.open_for_tx())
        except BaseException:
            coro.close()
            raise
        return run_without_loop(coro)

    def spawn(
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None
    ) -> "asyncio.Task[T]":
        """Run a coroutine in this process without storing it: a crash loses it.

        Closing the App waits for it, up to `worker.grace_seconds`. Raises SpawnFull if
        `worker.spawned_max` (1,000) coroutines run on this event loop.
        """
        return self._state.spawner.spawn(coro, name, self.settings.worker.spawned_max)

    # --- opening and closing

    async def __aenter__(self) -> Self:
        """Open the store now; the end of the outermost block closes the App."""
        await self.store()
        self._state.entered += 1
        return self

    async def __aexit__(self, *exc: object) -> None:
        # Blocks may be nested, and an inner block must not close what an outer one opened.
        self._state.entered -= 1
        if self._state.entered == 0:
            await self.close()

    async def close(self) -> None:
        """Wait for spawned coroutines, then close the store; the next use reopens it."""
        state = self._state
        try:
            await state.spawner.end(self.settings.worker.grace_seconds)
        finally:
            await state.close_store()

    @property
    def lifespan(self) -> Lifespan:
        """A lifespan for ASGI frameworks: `FastAPI(lifespan=app.lifespan)`."""
        return Lifespan(self)

    def worker(
        self,
        *,
        queues: Sequence[str] | None = None,  # names or globs; None: every queue
        concurrency: int | None = None,  # jobs at a time; default `worker.concurrency`
        grace: Duration | None = None,  # time for running jobs to end; default 25 s
    ) -> EmbeddedWorker:
        """Return a worker that runs on this event loop: `async with app.worker():`."""
        return EmbeddedWorker(self, queues=queues, concurrency=concurrency, grace=grace)

    # --- for tasks and handles

    async def store(self) -> Store:
        """Return the open store of this process."""
        state = self._state
        if state.open_store is None:  # the URL may have changed
            self.configuration.name_on(self.url)  # raises for a server without a name
            self.bounds.default = self.default_maxsize
        store = state.ready_store(self.name, self.settings)
        await open_store(store, self)
        return store

    def stall(self) -> Stall | None:
        """Return the process that blocks our writes, if any; works while the store opens."""
        store = self._state.open_store
        return None if store is None else run_without_loop(store.health()).stalled_by

    async def send(
        self, jobs: list[NewJob], tx: Joinable | None = UNSET
    ) -> list[Enqueued]:
        """Store jobs, batched with other calls of this event loop.

        With a `tx` the caller commits them, and no worker is woken before the commit.
        """
        if tx is not UNSET and tx is not None:
            warn, store = self.settings.payload.warn_bytes, self.store
            if self._state.manual_limits.is_used:
                await self.prepare_gates(await store(), jobs, in_tx=True)
            return await enqueue_in_caller_tx(store(), self.emit, warn, tx, jobs)
        if in_job.get() is not None:
            refuse_outside_transaction()
        state = await self._loop_state()
        if self._state.manual_limits.is_used:
            await self.prepare_gates(state.store, jobs)
        answers = await state.enqueuer.enqueue(jobs)
        self.live.on_enqueued(jobs, answers)
        return answers

    async def waiters(self) -> Waiters:
        """Return the shared result poller of this event loop."""
        return (await self._loop_state()).waiters

    async def plan_commits(self) -> PlanCommits:
        """Return what stores the plans of this event loop."""
        return (await self._loop_state()).plan_commits

    async def _loop_state(self) -> LoopState:
        state, warn = self._state, self.settings.payload.warn_bytes
        store = await self.store()
        return state.of_this_loop(store, warn, self.bounds)

    def retries_of(self, task: str) -> int | None:
        """Return the retries of the task's policy; None if its code is not loaded here."""
        handler = self.registry.by_name.find(task)
        return None if handler is None else handler.retry.retries

    def limits_of(self, task: str) -> TimeLimits | None:
        """Return the time limits of the task; None if its code is not loaded here."""
        handler = self.registry.by_name.find(task)
        return None if handler is None else handler.limits

    def declared_names(self) -> tuple[set[str], set[str]]:
        """Return the tasks and the queues that the code names."""
        tasks = self.registry.by_name.keys() - self.registry.system.keys()
        return {*tasks}, self.registry.queue_names()

    def acting_user(self) -> str:
        """Return the user for the audit, such as `ann@web-1 via app`."""
        return f"{user_at_host()} via app"

    def decoder_of(self, task: str) -> Callable[[bytes], Any] | None:
        """Return the decoder of this task's results; None if its code is not loaded here."""
        handler = self.registry.by_name.find(task)
        return None if handler is None else handler.codec.result.decode

    def pasteable(self, cure: str) -> str:
        """Return a cure whose commands mean the store of this App."""
        return with_flags(cure, self)

    def now(self) -> float:
        """Return wall-clock seconds."""
        return self.clock.now()
