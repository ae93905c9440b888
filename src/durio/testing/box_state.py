"""The state of an App in a testing box, and the checks that protect its own store."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress

from durio.app.app import App
from durio.app.connect import (
    connect,
    current_folder,
    is_in_memory,
    masked,
    module_of,
    store_module,
)
from durio.app.state import BOXED_APPS, AppState, LoopState
from durio.client.bounds import Bounds
from durio.client.result_waiters import Waiters
from durio.model.errors import UsageError
from durio.model.ids import id_text
from durio.model.settings import Settings
from durio.ports.clock import Clock
from durio.ports.store import Store
from durio.telemetry.log import in_job
from durio.worker.middleware import Middleware

BOXED: list[App] = []  # in any box of this process, once per box
UNDRAINED_SECONDS = 2.5  # between two looks whether a worker runs jobs in the box
IDLE_LOOKS = 2  # without a worker; one may fall between two workers of a drain


class BoxState(AppState):
    """The state of an App on the test store, until the box is left."""

    starts_children = False
    has_time_limits = False

    def __init__(
        self, app: App, url: str, clock: Clock, store: Store, watch: Middleware
    ) -> None:
        super().__init__(url, clock, current_folder(), app.emit, app.name)
        self.outer = app.state
        self.namespace = app.name
        self.middleware = (watch,)
        self.stores[os.getpid()] = store

    @property
    def is_bounded(self) -> bool:
        """False: a test may enqueue any number of jobs before it drains."""
        return False

    def of_this_loop(self, store: Store, warn_bytes: int, bounds: Bounds) -> LoopState:
        """Return the parts for the running event loop, with waiters for a box."""
        state = super().of_this_loop(store, warn_bytes, bounds)
        if not isinstance(state.waiters, BoxWaiters):
            state.waiters = BoxWaiters(store, self.clock, self.namespace)
        return state

    def connect(self, namespace: str, settings: Settings) -> Store:
        """Connect a forked child to the test store; refuse a store in memory."""
        if is_in_memory(self.url):
            raise UsageError(
                f"App {namespace!r} is in a testing box, whose store in memory exists "
                "only in the process of the test",
                cure="Use a file: testing(app, url='sqlite:///test.db').",
            )
        return connect(self.url, self.clock, settings, self.folder, sets_time=True)

    async def close_store(self) -> None:
        """Leave the store open: the box closes it, also after `async with app:` ends."""


class BoxWaiters(Waiters):
    """Waits for jobs in a box; raises UsageError if nothing runs them.

    A test that forgets `box.drain()` would hang.
    """

    def __init__(self, store: Store, clock: Clock, namespace: str) -> None:
        super().__init__(store, clock)
        self._namespace = namespace

    async def wait_final(self, job_id: bytes) -> int:
        idle = 0
        while idle < IDLE_LOOKS:
            with suppress(TimeoutError):
                async with asyncio.timeout(UNDRAINED_SECONDS):
                    return await super().wait_final(job_id)
            has_worker = bool(await self._store.workers(self._namespace))
            idle = 0 if has_worker else idle + 1
        raise UsageError(
            f"job {id_text(job_id)} has not ended, and nothing runs jobs in this testing "
            "box now",
            cure="Call box.drain_sync(), or await box.drain(), before you wait for it.",
        )


def enter(app: App, state: BoxState) -> None:
    """Give the App the state of the box."""
    BOXED.append(app)
    name_boxed_apps()
    app.state = state


def leave(app: App, state: BoxState) -> None:
    """Restore the App's own state; boxes may be left in any order."""
    if app.state is state:
        app.state = state.outer
    else:
        inner = app.state
        while isinstance(inner, BoxState):
            if inner.outer is state:
                inner.outer = state.outer
            inner = inner.outer
    BOXED.remove(app)
    name_boxed_apps()
    state.spawner.cancel_all()


def name_boxed_apps() -> None:
    """Set a variable for programs that the test starts; see `AppState.connect`."""
    if BOXED:
        os.environ[BOXED_APPS] = ",".join({app.name for app in BOXED})
    else:
        os.environ.pop(BOXED_APPS, None)


def check_apps(apps: Sequence[App]) -> None:
    """Refuse values that are not Apps, and Apps that are in use."""
    for app in apps:
        if not isinstance(app, App):
            raise UsageError(
                f"testing() takes Apps, not {app!r}",
                cure="Write: with testing(app) as box.",
            )
        if app.state.workers:
            raise UsageError(
                f"App {app.name!r} has a running worker, which uses its own store",
                cure="Leave `async with app.worker()` first, or start that worker inside "
                "the block of testing().",
            )
    if in_job.get() is not None:
        raise UsageError(
            "testing() was called inside a task",
            cure="Call it in the test, around box.drain().",
        )


def refuse_own_store(apps: Sequence[App], url: str) -> None:
    """Refuse a URL that names the own file of one of these Apps."""
    wanted = file_of(url, current_folder())
    for app in apps:
        own = app.state
        while isinstance(own, BoxState):
            own = own.outer
        if wanted is not None and wanted == file_of(own.url, own.folder):
            raise UsageError(
                f"{masked(url)} is the real store of App {app.name!r}",
                cure="Name another file: testing(app, url='sqlite:///test.db').",
            )


def file_of(url: str, folder: str) -> str | None:
    """Return the file of a SQLite URL; None for other URLs."""
    if "sqlite" not in module_of(url) or is_in_memory(url):
        return None
    path = store_module(url, "schema_status").path_of(url)
    return os.path.realpath(os.path.join(folder, path))  # noqa: PTH118
