"""Several statements on one connection: a snapshot to read, or a transaction to write.

A write may be done again from its beginning (a deadlock, a serialization failure): what
it must tell others it leaves here, for after the commit.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from durio.model.settings import RetentionSettings
from durio.stores.postgres.driver import Connection, Row

NO_WORKER = 0  # no worker has this id
ASK_NOW = "select extract(epoch from clock_timestamp())::float8"

StatementHook = Callable[[str], None]


class ReadTransaction:
    """Statements that see one state of the database."""

    def __init__(
        self,
        connection: Connection,
        statements: Mapping[str, str],
        injected: float | None,
        on_statement: StatementHook | None,
    ) -> None:
        self.injected = injected  # the tests' time; None: the server's counts
        self._connection = connection
        self._statements = statements
        self._on_statement = (
            on_statement  # told of every statement: tests make one fail
        )
        self._now = injected

    async def rows(self, sql: str, *args: Any) -> Sequence[Row]:
        """All rows of one statement."""
        text = self._statements[sql]
        if self._on_statement is not None:
            self._on_statement(text)
        return await self._connection.rows(text, args)

    async def value(self, sql: str, *args: Any) -> Any:
        """The first column of the first row; None without one."""
        rows = await self.rows(sql, *args)
        return rows[0][0] if rows else None

    async def run(self, sql: str) -> None:
        """Statements without parameters and without answers, in one round trip."""
        text = self._statements[sql]
        if self._on_statement is not None:
            self._on_statement(text)
        await self._connection.run(text)

    async def now(self) -> float:
        """One time for all that happens here: the tests', or the server's, asked once."""
        if self._now is None:
            self._now = float(await self.value(ASK_NOW))
        return self._now


class PostgresTransaction(ReadTransaction):
    """What operations write to, and the hints they leave for after the commit."""

    def __init__(
        self,
        connection: Connection,
        statements: Mapping[str, str],
        injected: float | None,
        on_statement: StatementHook | None,
        retention: RetentionSettings,
    ) -> None:
        super().__init__(connection, statements, injected, on_statement)
        self.retention = retention
        # Lane -> the worker that made its jobs ready and need not be told, or EVERYBODY.
        self.woken_lanes: dict[str, int] = {}
        self.woken_workers: set[int] = set()
        self.freed: list[tuple[bytes, bytes]] = []  # keys, and who lets go of them
        # The last locks, and the shortest: what everybody has to pass one by one.
        self.before_commit: list[Callable[[], Awaitable[None]]] = []
        self.after_commit: list[Callable[[], None]] = []

    def wake(self, lane: str, *, except_worker: int = NO_WORKER) -> None:
        """There is work in this lane: tell whoever serves it, but not this worker."""
        if self.woken_lanes.setdefault(lane, except_worker) != except_worker:
            self.woken_lanes[lane] = NO_WORKER

    def wake_worker(self, worker: int) -> None:
        """Somebody acted on its jobs, or asks something of it: it should renew now."""
        self.woken_workers.add(worker)
