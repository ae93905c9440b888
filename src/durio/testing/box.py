"""`with testing(app) as box:` gives an App a test store for the length of a block.

The box replaces the App's `AppState` (URL, clock and open store) and restores it at the
end. The App's own store cannot be opened meanwhile, because every access goes through
that state, in this process and in a fork. In a program that the test starts, an App of
the same name refuses to open its store.

`drain` starts the worker that `durio worker --burst` starts, on the caller's event loop,
and waits for its end.
"""

from collections import deque
from collections.abc import Coroutine, Generator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, TypeVar, cast

from durio.app.app import SYNC_SECONDS_MAX, App
from durio.app.connect import connect, current_folder, module_of, store_module
from durio.app.prefix_tasks import no_name
from durio.app.tasks import TaskCalls
from durio.client.handle import Job
from durio.host.threads import LoopThread, Portal
from durio.model.batch import error_of
from durio.model.errors import Control, InvalidOption, JobDead, UsageError
from durio.model.ids import id_bytes, id_text
from durio.model.job import DEAD, READY, StoredJob
from durio.model.names import did_you_mean, is_prefix, task_name
from durio.model.quantities import Duration, seconds
from durio.ports.browse import Query
from durio.ports.plan_reader import has_plan_work
from durio.ports.store import Store
from durio.telemetry.log import in_job
from durio.testing.box_clock import BoxClock
from durio.testing.box_jobs import BoxJob, box_job, next_due, next_gate, stored_jobs
from durio.testing.box_state import (
    BoxState,
    check_apps,
    enter,
    leave,
    refuse_own_store,
)
from durio.testing.box_ticks import end_expired, next_tick, tick_turns
from durio.testing.burst import run_burst
from durio.worker.batch_call import BatchContext
from durio.worker.context import Context
from durio.worker.middleware import CallNext

T = TypeVar("T")
MEMORY_URL = "sqlite:///:memory:"
PROMOTED_MAX = 1000  # per call

AnyTask = TaskCalls[..., Any] | str
OnDead = Literal["raise", "keep"]


@contextmanager
def testing(app: App, *more_apps: App, url: str = MEMORY_URL) -> Generator["Box"]:  # noqa: PT028 - no test, see below
    """Give Apps a test store for the length of a `with` block.

    The store is in memory, unless `url` names a file or a PostgreSQL database; there the
    box uses a schema of its own. The Apps' own stores cannot be opened in the block. It is
    a plain `with`, also in async code. Raises UsageError while a worker of the App runs in
    this process, and for the App's own URL.

        with testing(app) as box:
            send.enqueue_sync("ann@example.com")
            box.drain_sync()
            assert box.jobs(send)[0].state == "done"
    """
    apps = (app, *more_apps)
    check_apps(apps)
    refuse_own_store(apps, url)
    with ExitStack() as stack:
        yield Box(apps, url, stack)


# pytest takes every function whose name begins with `test` for a test.
testing.__test__ = False  # type: ignore[attr-defined]  # pyright: ignore[reportFunctionMemberAccess]


class Box:
    """The jobs of the Apps in a test, their clock, and the calls that run the jobs.

    Tasks with `process=True` run in a thread, and time limits do not run.
    """

    __module__ = "durio.testing"

    def __init__(self, apps: tuple[App, ...], url: str, stack: ExitStack) -> None:
        self.clock = BoxClock()  # the time of the Apps and their store
        self._apps = apps
        # Two threads: a task that `drain_sync` runs may call `jobs`.
        self._thread = LoopThread("durio-testing")
        self._portal = Portal(LoopThread("durio-testing-drain"))
        self._planned: dict[str, deque[Exception]] = {}  # by task, see `fail_next`
        self._raised: dict[bytes, Exception] = {}  # by job, in its newest attempt
        self._is_draining = False
        stack.callback(self._portal.thread.stop)
        stack.callback(self._thread.stop)
        self.url = self._prepared(url, stack)  # of the test store
        self._store = self._opened(apps[0], stack)
        for one in apps:
            state = BoxState(one, self.url, self.clock, self._store, self._watch)
            stack.callback(leave, one, state)
            enter(one, state)

    # --- what a test does

    def jobs(self, task: AnyTask | None = None) -> list[BoxJob]:
        """Return the jobs of a task, or all jobs, in the order of enqueue.

        `task` is a task of an App in the box, or its name.
        """
        name = None if task is None else self._task_name(task, is_own=False)
        found = self._ask(stored_jobs(self._store, Query(task=name)))
        return [self._shown(job) for job in found]

    async def drain(
        self, *, errors: OnDead = "raise", until: Duration | None = None
    ) -> None:
        """Run the jobs that are ready, and the jobs that these enqueue, as a worker does.

        Scheduled jobs stay, and so do jobs before a gate that only time opens. With
        `until="1h"` jobs that are due or pass their gates within that time run too, and
        schedules of the App make their jobs: the clock jumps from one due time to the next,
        and then to the end of the hour.
        When a job ends dead, `drain` raises the task's own exception, or JobDead if the
        task raised none; with `errors="keep"` it raises nothing.
        """
        self._check_drain(errors)
        span = None if until is None else seconds(until, "until")
        self._is_draining = True
        try:
            with self.clock.standing_still():
                await self._run_ready(errors)
                if span is not None:
                    await self._run_due(errors, self.clock.now() + span)
        finally:
            self._is_draining = False

    def drain_sync(
        self, *, errors: OnDead = "raise", until: Duration | None = None
    ) -> None:
        """Run the jobs without an event loop, as `drain` does."""
        self._check_drain(errors)
        self._portal.run(self.drain(errors=errors, until=until), SYNC_SECONDS_MAX)

    def fail_next(self, task: AnyTask, error: Exception | type[Exception]) -> None:
        """Make the next attempt of a task raise `error` instead of calling its function.

        `error` is an exception or its class. Several calls are for several attempts. In a
        batch task the call fails for all of its jobs.
        """
        made: object = error() if isinstance(error, type) else error
        if not isinstance(made, Exception):
            raise UsageError(
                f"fail_next takes an exception, not {error!r}",
                cure="Write box.fail_next(task, ConnectionError('no route')).",
            )
        name = self._task_name(task, is_own=True)
        self._planned.setdefault(name, deque()).append(made)

    # --- its store

    def _prepared(self, url: str, stack: ExitStack) -> str:
        """Return the URL to open: on PostgreSQL that of an empty schema."""
        if "postgres" not in module_of(url):
            return url
        schema = store_module(url, "scratch_schema").ScratchSchema(url)
        stack.callback(lambda: self._ask(schema.release()))
        return self._ask(schema.acquire())

    def _opened(self, app: App, stack: ExitStack) -> Store:
        folder = current_folder()
        store = connect(self.url, self.clock, app.settings, folder, sets_time=True)
        store.warn = lambda text: app.emit("store.warned", text=text)
        stack.callback(lambda: self._ask(store.close()))
        self._ask(store.open())
        return store

    def _ask(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in a thread of the box, also while the caller's loop waits."""
        return self._thread.submit(coro).result()

    def _shown(self, job: StoredJob) -> BoxJob:
        owner = self._apps[0]
        for app in self._apps:
            if app.registry.by_name.find(job.task) is not None:
                owner = app
        handler = owner.registry.by_name.find(job.task)
        return box_job(job, handler, owner.retries_of(job.task))

    def _task_name(self, task: AnyTask, *, is_own: bool) -> str:
        given = task.name if isinstance(task, TaskCalls) else str(task)
        names = [task_name(app.name, given) for app in self._apps]
        known: set[str] = set()
        for app, name in zip(self._apps, names, strict=True):
            handlers = app.registry.by_name
            handler = handlers.find_target(name)
            if handler is not None and is_prefix(handler.task):
                raise no_name(handler.task)
            if handler is not None:
                return handler.task  # its own name, also for an alias
            known.update(handlers)
        namespaces = {app.name for app in self._apps}
        if not is_own and names[0].partition(".")[0] not in namespaces:
            return names[0]  # of another program, enqueued by name
        raise UsageError(
            f"no App in this box has a task {given!r}",
            cure=f"Give a task of the App, or its name.{did_you_mean(names[0], known)}",
        )

    # --- running jobs

    def _check_drain(self, errors: str) -> None:
        if in_job.get() is not None:
            raise UsageError(
                "box.drain() was called inside a task: it would wait for that task",
                cure="Call it in the test: a drain also runs the jobs that tasks "
                "enqueue.",
            )
        if self._is_draining:
            raise UsageError(
                "this box is being drained already",
                cure="Wait for the end of the first box.drain().",
            )
        if errors not in ("raise", "keep"):
            raise InvalidOption(
                f"errors cannot be {errors!r}", cure="Give 'raise' or 'keep'."
            )

    async def _run_ready(self, errors: str) -> None:
        before = await self._dead_ids()
        for app in self._apps:
            await end_expired(app)
        has_run = True
        while has_run:  # a job of one App may enqueue for another
            has_run = False
            for app in self._apps:
                if await self._has_ready(app):
                    has_run |= await run_burst(app)
        if errors == "raise":
            dead = [job for job in await self._dead_ids() if job not in before]
            await self._raise_first(dead)

    async def _run_due(self, errors: str, last: float) -> None:
        """Run scheduled jobs until `last`: move the clock from due time to due time."""
        names = [app.name for app in self._apps]
        turns = [turn for app in self._apps for turn in await tick_turns(app)]
        while True:
            times = [await next_due(self._store, names)]
            times += [await next_tick(self._store, name) for name in names]
            times.append(await next_gate(self._store, self.clock.now()))
            due = min((at for at in times if at is not None), default=None)
            if due is None or due > last:
                self.clock.advance_to(last)
                return
            self.clock.advance_to(due)
            for turn in turns:
                await turn()
            await self._run_ready(errors)

    async def _has_ready(self, app: App) -> bool:
        while (await self._store.promote(PROMOTED_MAX)).count >= PROMOTED_MAX:
            pass
        if await has_plan_work(self._store, app.name):
            return True
        rows = await self._store.queues(app.name, counts=True)
        return any(row.jobs(READY) and not row.paused for row in rows)

    async def _dead_ids(self) -> list[bytes]:
        dead = Query(states=(DEAD,))
        return [job.id for job in await stored_jobs(self._store, dead)]

    async def _raise_first(self, dead: list[bytes]) -> None:
        """Raise the task's own exception, or JobDead where the task raised none."""
        if not dead:
            return
        error = self._raised.get(dead[0])
        if error is None:
            error = await dead_error(self._apps[0], dead[0])
        others = f", and {len(dead) - 1} more" if len(dead) > 1 else ""
        error.add_note(f"Job {id_text(dead[0])} ended dead in box.drain(){others}.")
        raise error

    async def _watch(self, context: Context[Any], call_next: CallNext) -> Any:
        """Record the error of each attempt, and raise the errors of `fail_next`.

        It is the outermost middleware.
        """
        job_ids = [id_bytes(job.job_id) for job in context.jobs]
        for job_id in job_ids:
            self._raised.pop(job_id, None)
        try:
            self._raise_planned(context.task)
            returned = await call_next()
        except Exception as error:
            for job_id in job_ids:
                self._raised[job_id] = own_error(error)
            raise
        if isinstance(context, BatchContext):
            for job_id, error in errors_of_items(job_ids, returned):
                self._raised[job_id] = own_error(error)
        return returned

    def _raise_planned(self, task: str) -> None:
        if planned := self._planned.get(task):
            raise planned.popleft()


def own_error(error: Exception) -> Exception:
    """Return the task's own error, as in `raise Retry(...) from error`."""
    cause = error.__cause__ if isinstance(error, Control) else None
    return cause if isinstance(cause, Exception) else error


def errors_of_items(
    job_ids: list[bytes], returned: object
) -> list[tuple[bytes, Exception]]:
    """Return the errors that a batch task has returned, each with its job."""
    ends = cast("list[object]", returned) if isinstance(returned, list) else []
    found = zip(job_ids, map(error_of, ends), strict=False)
    return [(job_id, error) for job_id, error in found if isinstance(error, Exception)]


async def dead_error(app: App, job_id: bytes) -> Exception:
    """Return the JobDead that a handle of this job raises."""
    try:
        await Job(app, job_id).result()
    except JobDead as error:
        return error
    raise AssertionError
