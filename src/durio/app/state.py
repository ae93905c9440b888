"""The state of an App: URL, clock, open stores, and the parts for each event loop.

It is one object, so that `durio.testing` replaces all of it at once.
"""

import asyncio
import os
from weakref import WeakKeyDictionary

from durio.app.connect import connect, is_in_memory, masked
from durio.app.spawn import Spawner
from durio.client.bounds import Bounds
from durio.client.enqueue import Enqueuer
from durio.client.manual_limits import ManualLimits
from durio.client.plan_commits import PlanCommits
from durio.client.result_waiters import Waiters
from durio.model.errors import UsageError
from durio.model.settings import Settings
from durio.ports.clock import Clock
from durio.ports.store import Store
from durio.telemetry.emit import Emit
from durio.worker.middleware import Middleware

# The names of the Apps that are in a testing box; child processes inherit it.
BOXED_APPS = "_DURIO_TESTING"


class LoopState:
    """The parts of an App for one event loop."""

    def __init__(
        self, store: Store, clock: Clock, emit: Emit, warn_bytes: int, bounds: Bounds
    ) -> None:
        self.store = store
        self.enqueuer = Enqueuer(store, clock, emit, warn_bytes, bounds)
        self.waiters = Waiters(store, clock)
        self.plan_commits = PlanCommits(store)


class AppState:
    # A testing box sets these.
    middleware: tuple[Middleware, ...] = ()  # outside the App's own
    starts_children = True  # for tasks with process=True
    has_time_limits = True

    def __init__(
        self, url: str, clock: Clock, folder: str, emit: Emit, namespace: str
    ) -> None:
        self.url = url
        self.clock = clock
        self.folder = folder  # the base of relative paths in the URL
        self._emit = emit
        self.manual_limits = ManualLimits(namespace, clock)
        # By process id: a forked child opens its own store.
        self.stores: dict[int, Store] = {}
        self.by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopState]
        self.by_loop = WeakKeyDictionary()
        self.spawner = Spawner(emit)
        self.entered = 0  # blocks of `async with app:`
        self.workers = 0  # that run in this process
        self.default_maxsize: int | None = None  # set beside an embedded worker

    @property
    def is_bounded(self) -> bool:
        """Whether queues that declare no bound have one: the store is in memory."""
        return is_in_memory(self.url)

    @property
    def open_store(self) -> Store | None:
        """The store of this process; None before its first use."""
        return self.stores.get(os.getpid())

    def ready_store(self, namespace: str, settings: Settings) -> Store:
        """Return the store of this process; the caller opens it."""
        store = self.open_store
        if store is None:
            made = self.connect(namespace, settings)
            made.warn = lambda text: self._emit("store.warned", text=text)
            # Another thread may have made one meanwhile.
            store = self.stores.setdefault(os.getpid(), made)
        return store

    def connect(self, namespace: str, settings: Settings) -> Store:
        """Return a store for this process, not opened yet."""
        boxed = os.environ.get(BOXED_APPS, "").split(",")
        if namespace in boxed and not is_in_memory(self.url):
            raise UsageError(
                f"a test has App {namespace!r} in durio.testing.testing(), and this is "
                f"another App of that name, which would open {masked(self.url)}",
                cure="Give both to the box: testing(app, other). A program that the "
                "test starts must get its store from the test: App(url).",
            )
        return connect(self.url, self.clock, settings, self.folder)

    def of_this_loop(self, store: Store, warn_bytes: int, bounds: Bounds) -> LoopState:
        """Return the parts for the running event loop and this store."""
        loop = asyncio.get_running_loop()
        state = self.by_loop.get(loop)
        if state is None or state.store is not store:
            state = LoopState(store, self.clock, self._emit, warn_bytes, bounds)
            self.by_loop[loop] = state
        return state

    async def close_store(self) -> None:
        """Close the store of this process; the next use opens it again."""
        store = self.stores.pop(os.getpid(), None)
        self.by_loop.clear()
        if store is not None:
            await store.close()
