"""Making a connection: the driver, the settings for its whole life, what stands between.

A pooler such as PgBouncer may refuse settings at the start, and may give each transaction
another server process, so that nothing can be kept prepared there. Both are seen here,
once per store; then settings ride at the head of every transaction instead.
"""

import asyncio
import importlib
from collections.abc import Callable
from types import MappingProxyType

from durio.model.errors import StoreUnavailable
from durio.stores.postgres.driver import Connection, Driver, DriverError, Place

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
IN_TRANSACTION = "".join(f"; set local {name} = {SETTINGS[name]}" for name in SETTINGS)
# How long a statement waits for a lock before its line is somebody else's for a while; and
# in later turns.
LOCK_WAIT, BRIEF_WAIT = "300ms", "5ms"
# Every write is made for this level: whoever waited for a row goes on with what it is now.
# A role, or a database, may have another one by default.
ISOLATION = "read committed"
WRITE = f"begin isolation level {ISOLATION}"
VERSION_MIN = 150000
LOOK_AROUND = """
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


class Opening:
    """Opens the connections of one store, and remembers what their way is like."""

    def __init__(self, place: Place, warn: Warn) -> None:
        self.place = place
        self.is_pooled = False
        self._driver = driver_of(place)
        self._takes_settings = True
        self._prepares = place.prepared  # None: nobody knows yet what is in between
        # A machine that vanishes in a transaction must not keep its locks for hours: no
        # call of a living one lasts half as long.
        self._idle = f"{max(1, round(place.call_seconds * 2))}s"
        self._warn = warn
        self._warned: set[str] = set()

    async def connect(self) -> Connection:
        """A new connection that is known to work; all of it within one time limit."""
        seconds = self.place.connect_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._found()
        except TimeoutError as error:
            late = DriverError(f"no answer within {seconds:g} s", lost=True)
            late.was_open = False
            raise late from error
        except DriverError as error:
            self.learn(error)
            raise

    async def _found(self) -> Connection:
        connection = await self._connected()
        await self._look_around(connection)
        if self._prepares is not None:
            return connection
        # The first one prepares nothing: behind a pooler that would stay, for others.
        self._prepares = not self.is_pooled
        if self.is_pooled:
            self.warn(POOLED)
            return connection
        await connection.close()
        return await self._connected()

    async def _connected(self) -> Connection:
        settings = {**self.place.settings}
        if self._takes_settings:
            settings |= {
                **SETTINGS,
                "default_transaction_isolation": ISOLATION,
                "idle_in_transaction_session_timeout": self._idle,
                "lock_timeout": LOCK_WAIT,
            }
        try:
            return await self._driver.connect(
                self.place, settings, prepared=bool(self._prepares)
            )
        except DriverError as error:
            error.was_open = False
            if not self._takes_settings or "startup parameter" not in error.text:
                raise
        self._takes_settings = False
        self.is_pooled = True
        return await self._connected()

    async def _look_around(self, connection: Connection) -> None:
        """Who answers, and is it the process that answered when we came in?"""
        try:
            rows = await connection.rows(LOOK_AROUND, ())
            self._check(connection, *rows[0])
        except BaseException:
            connection.terminate()
            raise

    def _check(
        self, connection: Connection, pid: int, number: int, version: str
    ) -> None:
        if number < VERSION_MIN:
            raise StoreUnavailable(
                f"{self.place.shown} is PostgreSQL {version}, which is too old",
                cure=f"Use PostgreSQL {VERSION_MIN // 10000} or later.",
            )
        if pid != connection.pid:
            self.is_pooled = True

    # --- what is learnt on the way

    def begin(self, text: str, *, brief: bool = False) -> str:
        """How a transaction begins here; a `brief` one hardly waits for locks."""
        if not self.is_pooled and not brief:
            return text
        settings = IN_TRANSACTION if self.is_pooled else ""
        wait = BRIEF_WAIT if brief else LOCK_WAIT
        return f"{text}{settings}; set local lock_timeout = '{wait}'"

    def is_stale(self, error: DriverError) -> bool:
        """Whether the same would work on another connection; nothing was done on this."""
        changed = error.state == PLAN_CHANGED and "cached plan" in error.text
        return changed or error.state in PREPARED_ELSEWHERE

    def learn(self, error: DriverError) -> None:
        """From a failure: a pooler that nobody had noticed."""
        if error.state in PREPARED_ELSEWHERE:
            self._prepares = False
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


def driver_of(place: Place) -> Driver:
    """The adapter of the driver that the place names."""
    try:
        return importlib.import_module(DRIVERS[place.driver]).driver
    except ImportError as error:
        raise StoreUnavailable(
            f"PostgreSQL needs the package {place.driver}, which cannot be imported "
            f"({error})",
            cure="Install it: pip install durio[postgres]",
        ) from error
