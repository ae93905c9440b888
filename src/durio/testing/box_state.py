"""The state of an App in a testing box, and the checks that protect its own store."""

import os
from collections.abc import Sequence

from durio.app.app import App
from durio.app.connect import (
    connect,
    current_folder,
    is_in_memory,
    masked,
    module_of,
    store_module,
)
from durio.app.state import BOXED_APPS, AppState
from durio.model.errors import UsageError
from durio.model.settings import Settings
from durio.ports.clock import Clock
from durio.ports.store import Store
from durio.telemetry.log import in_job
from durio.worker.middleware import Middleware

BOXED: list[App] = []  # in any box of this process, once per box


class BoxState(AppState):
    """The state of an App on the test store, until the box is left."""

    starts_children = False
    has_time_limits = False

    def __init__(
        self, app: App, url: str, clock: Clock, store: Store, watch: Middleware
    ) -> None:
        super().__init__(url, clock, current_folder(), app.emit)
        self.outer = app.state
        self.middleware = (watch,)
        self.stores[os.getpid()] = store

    @property
    def is_bounded(self) -> bool:
        """False: a test may enqueue any number of jobs before it drains."""
        return False

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
                f"{masked(url)} is the own store of App {app.name!r}",
                cure="Name another file: testing(app, url='sqlite:///test.db').",
            )


def file_of(url: str, folder: str) -> str | None:
    """Return the file of a SQLite URL; None for other URLs."""
    if "sqlite" not in module_of(url) or is_in_memory(url):
        return None
    path = store_module(url, "schema_status").path_of(url)
    return os.path.realpath(os.path.join(folder, path))  # noqa: PTH118
