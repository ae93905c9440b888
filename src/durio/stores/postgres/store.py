"""The PostgreSQL store, composed of its capabilities: one database for any number of hosts.

`postgresql://...` names this store; location.py lists what a URL may contain.

A forked child never uses its parent's connections. Both processes share the sockets after
the fork, and anything that the child sent or read there, even Terminate, would corrupt the
parent's connection. So the child drops these connections without closing them, and opens
its own.
"""

import math
import os
import weakref

from durio.model.errors import StoreUnavailable
from durio.model.settings import RetentionSettings, Settings
from durio.ports.clock import Clock
from durio.ports.store import Health, Wake
from durio.stores.postgres.browse import PostgresBrowse
from durio.stores.postgres.caller_checks import read_identity
from durio.stores.postgres.commit import PostgresCommit
from durio.stores.postgres.connections import Connections
from durio.stores.postgres.context import PostgresContext, new_process_state
from durio.stores.postgres.control import PostgresControl
from durio.stores.postgres.driver import Connector, PostgresLocation, Warn
from durio.stores.postgres.enqueue import PostgresEnqueue
from durio.stores.postgres.exchange import PostgresExchange
from durio.stores.postgres.lease import PostgresLease
from durio.stores.postgres.live import PostgresLive
from durio.stores.postgres.live_events import PostgresLiveEvents
from durio.stores.postgres.location import location_from_url
from durio.stores.postgres.logs import PostgresLogs
from durio.stores.postgres.records import PostgresRecords
from durio.stores.postgres.schema import (
    MigrationStatus,
    check_complete,
    migration_status,
)
from durio.stores.postgres.transactions import PostgresTransactions
from durio.stores.postgres.upkeep import PostgresUpkeep
from durio.stores.postgres.wakeups import (
    WAKEUPS_LOST,
    WAKEUPS_RESTORED,
    PostgresWakeups,
)

_open_stores: "weakref.WeakSet[PostgresStore]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for store in list(_open_stores):
        store.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)


def ignore_warning(_text: str) -> None:
    pass


class PostgresStore(
    PostgresEnqueue,
    PostgresExchange,
    PostgresLease,
    PostgresUpkeep,
    PostgresControl,
    PostgresBrowse,
    PostgresRecords,
    PostgresCommit,
    PostgresLogs,
    PostgresLive,
    PostgresTransactions,
):
    """The store; every method may be awaited from any event loop of the process."""

    def __init__(
        self,
        location: PostgresLocation,
        clock: Clock,
        *,
        injected: Clock | None = None,
        retention: RetentionSettings | None = None,
        warn: Warn = ignore_warning,
    ) -> None:
        """Take the location and clocks; nothing is opened yet.

        `clock` is this process's, for pauses and waits. Due times, ages and leases use the
        server's clock, or `injected` in tests that set the time.
        """
        self._location = location
        self._clock = clock
        self._injected = injected
        self._retention = retention or RetentionSettings()
        self.warn = warn
        self._context: PostgresContext | None = None

    @property
    def context(self) -> PostgresContext:
        """The context of the open store; raises StoreUnavailable while it is not open."""
        if self._context is None:
            raise StoreUnavailable(
                f"{self._location.shown} is not open", cure="Await `open()` first."
            )
        return self._context

    async def open(self) -> None:
        """Connect and check the schema; an older schema needs `durio migrate`."""
        if self._context is not None:
            return
        context = self._new_context()
        try:
            check_complete(
                await context.connections.read_many(migration_status), self._location
            )
            await context.live_events.check_subscribers()
            context.process.database_identity = await read_identity(context)
        except BaseException:
            await context.connections.close()
            raise
        if self._context is not None:  # another caller has opened it meanwhile
            await context.connections.close()
            return
        self._context = context
        _open_stores.add(self)

    async def close(self) -> None:
        """End all waits, send the remaining messages, then close."""
        context, self._context = self._context, None
        if context is None:
            return
        _open_stores.discard(self)
        await context.live_events.close()
        await context.wakeups.close()
        await context.connections.close()
        context.process.close()

    async def wait(self, worker: int, timeout_seconds: float) -> Wake:
        return await self.context.wakeups.wait(worker, timeout_seconds)

    async def health(self, worker: int | None = None) -> Health:
        """Report no stall; others may renew while we cannot reach the server."""
        del worker
        return Health(stalled_by=None, behind_seconds=math.inf)

    async def migration_status(self) -> MigrationStatus:
        return await self.context.connections.read_many(migration_status)

    def _new_context(self) -> PostgresContext:
        connections = Connections(
            Connector(self._location, self.warn),
            self._clock,
            self._injected,
            self._retention,
        )
        wakeups = PostgresWakeups(
            connections,
            self._clock,
            self._location.schema,
            notify=self._location.notify,
            on_change=lambda is_receiving: self.warn(
                WAKEUPS_RESTORED if is_receiving else WAKEUPS_LOST
            ),
        )
        connections.wake = wakeups.wake
        return PostgresContext(
            clock=self._clock,
            injected=self._injected,
            retention=self._retention,
            location=self._location,
            connections=connections,
            wakeups=wakeups,
            process=new_process_state(
                self._clock,
                self._injected,
                self.warn,
                is_split=self._location.is_split,
            ),
            live_events=PostgresLiveEvents(
                connections, self._clock, wakeups, self._location.schema
            ),
        )

    def after_fork_in_child(self) -> None:
        """Drop connections and listener, which are the parent's; new ones open when needed."""
        if self._context is not None:
            self._context.connections.forget()
            self._context.wakeups.forget()
            self._context.live_events.forget()
            self._context.process.close()


def store_at(
    url: str,
    clock: Clock,
    settings: Settings,
    _folder: str = "",
    *,
    sets_time: bool = False,
) -> PostgresStore:
    """Return the store that the URL names, not opened yet."""
    return PostgresStore(
        location_from_url(url),
        clock,
        injected=clock if sets_time else None,
        retention=settings.retention,
    )
