"""The interface of a database driver, and how the store opens connections.

SQL has `$1`, `$2` ... for every driver, with a cast at each parameter. Ids are 16 bytes in
Python and `uuid` on the server. An adapter never lets its driver's own exceptions through:
it raises only `DriverError`, which translate.py turns into an error for callers. The
SQLSTATE codes named here are those that more than one module uses.

A connection gets its settings for its whole life. A pooler such as PgBouncer may refuse
settings at the start, and may give each transaction another server process, so that no
statement can stay prepared there. The Connector detects both, once per store. From then on
the settings are sent at the start of every transaction instead.
"""

import asyncio
import importlib
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Protocol

from durio.model.errors import StoreUnavailable

UNIQUE_VIOLATION = "23505"
FAILED_TRANSACTION = "25P02"  # after a failed statement; it can only be rolled back
READ_ONLY = "25006"
NOT_SERIALIZABLE = "40001"
DEADLOCK = "40P01"
NO_RIGHT = "42501"
LOCKED = "55P03"  # a lock was not free within lock_timeout


# Indexable and iterable like a tuple; some drivers have their own row type.
Row = tuple[Any, ...]
# Called with the payload of a notification, on the loop of the connection.
NotificationCallback = Callable[[str], None]
ID_CAST = re.compile(r"\$(\d+)::uuid\b(\[\])?")


class DriverError(Exception):
    """The server refused a request, or cannot be reached any more.

    `state` is the SQLSTATE, empty if the server sent none. `lost` says that the connection
    is gone: the call in progress may have taken effect or not, unless it was `unsent`.
    """

    def __init__(
        self,
        text: str,
        *,
        state: str = "",
        detail: str = "",
        lost: bool = False,
        unsent: bool = False,
    ) -> None:
        super().__init__(text)
        self.was_open = True  # False: the error happened while connecting
        self.text = text
        self.state = state
        self.detail = detail
        self.lost = lost
        self.unsent = unsent


@asynccontextmanager
async def time_limit(seconds: float) -> AsyncGenerator[None, None]:
    """Turn a timeout into a DriverError with `lost`."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise DriverError(f"no answer within {seconds:g} s", lost=True) from error


@dataclass(frozen=True, slots=True)
class PostgresLocation:
    """Where a database is, how to log in, and how the store uses it."""

    dsn: str  # for drivers: without Durio's own options
    shown: str  # for people: without the password
    schema: str = "durio"
    driver: str = "asyncpg"
    notify: bool = True
    is_split: bool = False  # finish and claim by key, for servers without row addresses
    prepared: bool | None = None  # None: yes, unless a pooler is in between
    connect_seconds: float = 10.0
    call_seconds: float = 30.0
    settings: Mapping[str, str] = field(default_factory=dict[str, str])


class Connection(Protocol):
    """One connection of one event loop; it runs one call at a time.

    After a cancelled call its state is unknown, and it must be terminated.
    """

    @property
    def pid(self) -> int:
        """The server process that the connection was opened with."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether the connection is known to be closed or lost."""
        ...

    async def rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        """Run one statement and return all rows.

        It commits itself unless a transaction is open.
        """
        ...

    async def run(self, sql: str) -> str:
        """Run statements without parameters in one round trip; return the last status."""
        ...

    async def listen(self, channel: str, callback: NotificationCallback) -> None:
        """Listen from now on, also while no call is in progress."""
        ...

    async def unlisten(self, channel: str) -> None: ...

    async def close(self) -> None:
        """Close the connection properly, within a limited time."""
        ...

    def terminate(self) -> None:
        """Cut the connection at once, whatever is in progress."""
        ...

    def abandon(self, *, inherited: bool) -> None:
        """Drop the connection without its event loop, which is closed or another process's.

        Nothing is sent on an `inherited` connection, because the other process still uses
        it.
        """
        ...


class Driver(Protocol):
    async def connect(
        self, location: PostgresLocation, settings: Mapping[str, str], *, prepared: bool
    ) -> Connection:
        """Open a connection with these server settings for its whole life.

        `prepared`: statements may stay prepared on the server.
        """
        ...


@lru_cache(maxsize=1000)
def id_parameters(sql: str) -> tuple[tuple[int, bool], ...]:
    """Return the index, from 0, of each parameter that is an id, and whether it is a list."""
    found = {int(number) - 1: bool(many) for number, many in ID_CAST.findall(sql)}
    return tuple(found.items())


# Every hot statement is written for its index. A plan that scans the table may be best for
# a small table, but the server would keep it when the table has grown.
PLANNER = MappingProxyType(
    {
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "enable_bitmapscan": "off",
        "jit": "off",
        # One plan for all values: planning takes as long as a batch of jobs.
        "plan_cache_mode": "force_generic_plan",
    }
)
# psycopg sends lists as text. With array_nulls off, a null in a list becomes the word
# "NULL".
SETTINGS = MappingProxyType({**PLANNER, "array_nulls": "on"})
SETTINGS_IN_TRANSACTION = "".join(
    f"; set local {name} = {SETTINGS[name]}" for name in SETTINGS
)
# How long a statement waits for a lock before other calls get the connection for a while:
# by default, for the key of an enqueue, and in later tries on a loop's connection.
LOCK_WAIT, KEY_WAIT, BRIEF_WAIT = "300ms", "100ms", "5ms"
# Every write is made for this isolation level: a statement that waited for a row continues
# with the row's new version. A role or a database may have another default.
ISOLATION = "read committed"
BEGIN_WRITE = f"begin isolation level {ISOLATION}"
VERSION_MIN = 150000
READ_SERVER = """
select pg_backend_pid(), current_setting('server_version_num')::int4,
  current_setting('server_version')
"""

DRIVERS = {
    "asyncpg": "durio.stores.postgres.asyncpg_driver",
    "psycopg": "durio.stores.postgres.psycopg_driver",
}
# The statement is prepared on another server process, or already on this one.
PREPARED_ELSEWHERE = frozenset({"26000", "42P05"})
PLAN_CHANGED = "0A000"  # the table of a prepared statement has changed

POOLED = (
    "There is a connection pooler in front of PostgreSQL (PgBouncer?): prepared "
    "statements are off. `?prepared=on` enables them with PgBouncer 1.21 or later "
    "and max_prepared_statements > 0."
)

Warn = Callable[[str], None]


class Connector:
    """Opens the connections of one store, and remembers whether there is a pooler."""

    def __init__(self, location: PostgresLocation, warn: Warn) -> None:
        self.location = location
        self.is_pooled = False
        self._driver = load_driver(location)
        self._takes_settings = True
        # None: it is not known yet whether there is a pooler.
        self._may_prepare = location.prepared
        # Limits how long a host that vanishes during a transaction keeps its locks. A call
        # of a live host lasts at most half of this time.
        self._idle = f"{max(1, round(location.call_seconds * 2))}s"
        self._warn = warn
        self._warned: set[str] = set()

    async def connect(self) -> Connection:
        """Open a connection and check that it works, within `connect_seconds` in total."""
        seconds = self.location.connect_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._connect_checked()
        except TimeoutError as error:
            late = DriverError(f"no answer within {seconds:g} s", lost=True)
            late.was_open = False
            raise late from error
        except DriverError as error:
            self.learn(error)
            raise

    async def _connect_checked(self) -> Connection:
        connection = await self._connect_once()
        await self._read_server(connection)
        if self._may_prepare is not None:
            return connection
        # The first connection prepares nothing: a pooler would pass the statement on to
        # other clients.
        self._may_prepare = not self.is_pooled
        if self.is_pooled:
            self.warn(POOLED)
            return connection
        await connection.close()
        return await self._connect_once()

    async def _connect_once(self) -> Connection:
        settings = {**self.location.settings}
        if self._takes_settings:
            settings |= {
                **SETTINGS,
                "default_transaction_isolation": ISOLATION,
                "idle_in_transaction_session_timeout": self._idle,
                "lock_timeout": LOCK_WAIT,
            }
        try:
            return await self._driver.connect(
                self.location, settings, prepared=bool(self._may_prepare)
            )
        except DriverError as error:
            error.was_open = False
            if not self._takes_settings or "startup parameter" not in error.text:
                raise
        self._takes_settings = False
        self.is_pooled = True
        return await self._connect_once()

    async def _read_server(self, connection: Connection) -> None:
        """Check the version, and whether the server process that accepted us still answers."""
        try:
            rows = await connection.rows(READ_SERVER, ())
            self._check(connection, *rows[0])
        except BaseException:
            connection.terminate()
            raise

    def _check(
        self, connection: Connection, pid: int, number: int, version: str
    ) -> None:
        if number < VERSION_MIN:
            raise StoreUnavailable(
                f"{self.location.shown} is PostgreSQL {version}, which is too old",
                cure=f"Use PostgreSQL {VERSION_MIN // 10000} or later.",
            )
        if pid != connection.pid:
            self.is_pooled = True

    # --- poolers

    def begin(self, text: str, lock_timeout: str | None = None) -> str:
        """Return the text that begins a transaction.

        The default `lock_timeout` is LOCK_WAIT.
        """
        if not self.is_pooled and lock_timeout is None:
            return text
        settings = SETTINGS_IN_TRANSACTION if self.is_pooled else ""
        wait = lock_timeout or LOCK_WAIT
        return f"{text}{settings}; set local lock_timeout = '{wait}'"

    def is_stale(self, error: DriverError) -> bool:
        """Whether nothing was done and the statement would work on another connection."""
        changed = error.state == PLAN_CHANGED and "cached plan" in error.text
        return changed or error.state in PREPARED_ELSEWHERE

    def learn(self, error: DriverError) -> None:
        """Detect a pooler by the errors that it causes."""
        if error.state in PREPARED_ELSEWHERE:
            self._may_prepare = False
            self.is_pooled = True
            self.warn(
                f"PostgreSQL lost prepared statements ({error.text}): they are "
                "switched off."
            )

    def warn(self, text: str) -> None:
        """Warn once per text."""
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)


def load_driver(location: PostgresLocation) -> Driver:
    try:
        return importlib.import_module(DRIVERS[location.driver]).driver
    except ImportError as error:
        raise StoreUnavailable(
            f"PostgreSQL needs the package {location.driver}, which cannot be imported "
            f"({error})",
            cure="Install it: pip install durio[postgres]",
        ) from error
