"""What the server's five letters mean, for those that we act on in more than one place.

What the store asks of a driver: one connection, its answers, its failures.

SQL has `$1`, `$2` ... for every driver, each cast where it stands. Ids are 16 bytes on
our side and `uuid` on the server's. No exception of a driver leaves its adapter: there
is only `DriverError`, and translate.py says what it means.

Making a connection: the driver, the settings for its whole life, what stands between.

A pooler such as PgBouncer may refuse settings at the start, and may give each transaction
another server process, so that nothing can be kept prepared there. Both are seen here,
once per store; then settings ride at the head of every transaction instead.
"""

import asyncio
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Protocol

from durio.model.errors import StoreUnavailable

UNIQUE_VIOLATION = "23505"
FAILED_TRANSACTION = "25P02"  # a statement of it has failed: it can only be rolled back
READ_ONLY = "25006"
NOT_SERIALIZABLE = "40001"
DEADLOCK = "40P01"
NO_RIGHT = "42501"
LOCKED = "55P03"  # a lock was not free within lock_timeout


# Indexable and iterable like a tuple; some drivers have a type of their own for it.
Row = tuple[Any, ...]
# Who hears a channel: gets the payload, on the loop of the connection.
NotificationCallback = Callable[[str], None]
ID_CAST = re.compile(r"\$(\d+)::uuid\b(\[\])?")


class DriverError(Exception):
    """The server refused something, or cannot be reached any more.

    `state` is PostgreSQL's five letters, empty when the server said nothing. `lost` says
    that the connection is gone: what was under way may have happened or not, unless it
    was `unsent`.
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
        self.was_open = True  # False: it happened while connecting
        self.text = text
        self.state = state
        self.detail = detail
        self.lost = lost
        self.unsent = unsent


@dataclass(frozen=True, slots=True)
class PostgresLocation:
    """Where a database is, how to enter it, and how we use it there."""

    dsn: str  # what drivers understand: our own options are taken out of it
    shown: str  # for people: without the password
    schema: str = "durio"
    driver: str = "asyncpg"
    notify: bool = True
    is_split: bool = False  # exchange by keys, for servers that have no row addresses
    prepared: bool | None = None  # None: unless something pools connections in between
    connect_seconds: float = 10.0
    call_seconds: float = 30.0
    settings: Mapping[str, str] = field(default_factory=dict[str, str])


class Connection(Protocol):
    """One connection of one event loop; one call at a time.

    A call that is cancelled leaves it in an unknown state: terminate it.
    """

    @property
    def pid(self) -> int:
        """The process that the other side says it is."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether it is known to be of no more use."""
        ...

    async def rows(self, sql: str, args: Sequence[Any]) -> Sequence[Row]:
        """One statement and all of its rows; its own transaction unless one is begun."""
        ...

    async def run(self, sql: str) -> str:
        """Statements without parameters, in one round trip; what the last one did."""
        ...

    async def listen(self, channel: str, callback: NotificationCallback) -> None:
        """Hear this channel from now on, also while nothing is asked."""
        ...

    async def unlisten(self, channel: str) -> None:
        """No more."""
        ...

    async def close(self) -> None:
        """Say goodbye, a bounded time."""
        ...

    def terminate(self) -> None:
        """Cut it at once, whatever is under way."""
        ...

    def abandon(self, *, inherited: bool) -> None:
        """Forget it without its event loop, which is gone or another process's.

        One that is `inherited` hears no word of it: the other process still uses it.
        """
        ...


class Driver(Protocol):
    """Makes connections."""

    async def connect(
        self, location: PostgresLocation, settings: Mapping[str, str], *, prepared: bool
    ) -> Connection:
        """A new one, with these settings of the server for its whole life.

        `prepared`: statements may be kept prepared on the server.
        """
        ...


@lru_cache(maxsize=1000)
def id_parameters(sql: str) -> tuple[tuple[int, bool], ...]:
    """Which parameters of a statement are ids, from 0, and whether they are lists."""
    found = {int(number) - 1: bool(many) for number, many in ID_CAST.findall(sql)}
    return tuple(found.items())


# Every hot statement is written for its index: a plan that scans would be right on the
# tables of one moment, and kept for those of the next.
PLANNER = MappingProxyType(
    {
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "enable_bitmapscan": "off",
        "jit": "off",
        # One plan for all values: making one takes as long as a batch of jobs.
        "plan_cache_mode": "force_generic_plan",
    }
)
# psycopg writes lists as text, where an old habit of servers makes a word of each null.
SETTINGS = MappingProxyType({**PLANNER, "array_nulls": "on"})
SETTINGS_IN_TRANSACTION = "".join(
    f"; set local {name} = {SETTINGS[name]}" for name in SETTINGS
)
# How long a statement waits for a lock before other calls get the connection for a while:
# as a rule, for the key of an enqueue, and in later tries over the connection of a loop.
LOCK_WAIT, KEY_WAIT, BRIEF_WAIT = "300ms", "100ms", "5ms"
# Every write is made for this level: whoever waited for a row goes on with what it is now.
# A role, or a database, may have another one by default.
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
# A statement that was prepared elsewhere, or there already; one whose table has changed.
PREPARED_ELSEWHERE = frozenset({"26000", "42P05"})
PLAN_CHANGED = "0A000"

POOLED = (
    "Something pools connections on the way to PostgreSQL (PgBouncer?): statements are "
    "not kept prepared. `?prepared=on` keeps them, with PgBouncer 1.21 or later and "
    "max_prepared_statements > 0."
)

Warn = Callable[[str], None]


class Connector:
    """Opens the connections of one store, and remembers what their way is like."""

    def __init__(self, location: PostgresLocation, warn: Warn) -> None:
        self.location = location
        self.is_pooled = False
        self._driver = load_driver(location)
        self._takes_settings = True
        self._may_prepare = (
            location.prepared
        )  # None: nobody knows yet what is in between
        # A machine that vanishes in a transaction must not keep its locks for hours: no
        # call of a living one lasts half as long.
        self._idle = f"{max(1, round(location.call_seconds * 2))}s"
        self._warn = warn
        self._warned: set[str] = set()

    async def connect(self) -> Connection:
        """A new connection that is known to work; all of it within one time limit."""
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
        # The first one prepares nothing: behind a pooler that would stay, for others.
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
        """Who answers, and is it the process that answered when we came in?"""
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

    # --- what is learnt on the way

    def begin(self, text: str, lock_timeout: str | None = None) -> str:
        """How a transaction begins here; without a `lock_timeout` it is LOCK_WAIT."""
        if not self.is_pooled and lock_timeout is None:
            return text
        settings = SETTINGS_IN_TRANSACTION if self.is_pooled else ""
        wait = lock_timeout or LOCK_WAIT
        return f"{text}{settings}; set local lock_timeout = '{wait}'"

    def is_stale(self, error: DriverError) -> bool:
        """Whether the same would work on another connection; nothing was done on this."""
        changed = error.state == PLAN_CHANGED and "cached plan" in error.text
        return changed or error.state in PREPARED_ELSEWHERE

    def learn(self, error: DriverError) -> None:
        """From a failure: a pooler that nobody had noticed."""
        if error.state in PREPARED_ELSEWHERE:
            self._may_prepare = False
            self.is_pooled = True
            self.warn(
                "PostgreSQL does not find prepared statements again "
                f"({error.text}): statements are not kept prepared any more."
            )

    def warn(self, text: str) -> None:
        """Say it once."""
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)


def load_driver(location: PostgresLocation) -> Driver:
    """The adapter of the driver that the place names."""
    try:
        return importlib.import_module(DRIVERS[location.driver]).driver
    except ImportError as error:
        raise StoreUnavailable(
            f"PostgreSQL needs the package {location.driver}, which cannot be imported "
            f"({error})",
            cure="Install it: pip install durio[postgres]",
        ) from error
