"""Several statements on one connection: a snapshot to read, or a transaction to write.

A write may be repeated from its beginning, after a deadlock or a serialization failure. So
it collects its wakeups and other effects here, and they happen after the commit.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from durio.model.errors import InvariantBroken
from durio.model.gate import GateChange
from durio.model.settings import RetentionSettings
from durio.stores.postgres.driver import Connection, Row

NO_WORKER = 0  # no worker has this id
ASK_NOW = "select extract(epoch from clock_timestamp())::float8"

StatementHook = Callable[[str], None]


class LogRow(NamedTuple):
    """An entry that a transaction appends to a log, or the name of a log to look at."""

    log: str
    tag: int | None = None  # None: no entry; new jobs wait for this log
    ttl_seconds: float | None = None
    state: int | None = None
    job: bytes | None = None
    uid: str | None = None
    body: bytes | None = None


@dataclass(slots=True)
class GateWork:
    """What a transaction does at gates: see gates.py."""

    changes: list[GateChange] = field(default_factory=list[GateChange])
    entering: list[bytes] = field(default_factory=list[bytes])  # jobs, in their order
    places: Counter[str] = field(default_factory=Counter[str])  # given back, by gate
    is_deferred: bool = False  # a function has done something that is not applied yet
    counts: list[int] = field(default_factory=list[int])  # gates changed by each change

    def __bool__(self) -> bool:
        return bool(self.changes or self.entering or self.places or self.is_deferred)

    def copy(self) -> "GateWork":
        return GateWork(
            list(self.changes),
            list(self.entering),
            Counter(self.places),
            self.is_deferred,
        )


class ReadTransaction:
    """Statements that all see one snapshot."""

    def __init__(
        self,
        connection: Connection,
        statements: Mapping[str, str],
        injected: float | None = None,
        on_statement: StatementHook | None = None,
    ) -> None:
        self.injected = injected  # a test's time; None: the server's
        self._connection = connection
        self._statements = statements
        self._on_statement = (
            on_statement  # called for every statement; tests make one fail
        )
        self._now = injected

    async def rows(self, sql: str, *args: Any) -> Sequence[Row]:
        text = self._statements[sql]
        if self._on_statement is not None:
            self._on_statement(text)
        return await self._connection.rows(text, args)

    async def value(self, sql: str, *args: Any) -> Any:
        """Return the first column of the first row; None if there are no rows."""
        rows = await self.rows(sql, *args)
        return rows[0][0] if rows else None

    async def run(self, sql: str) -> None:
        """Run statements without parameters and without results, in one round trip."""
        text = self._statements[sql]
        if self._on_statement is not None:
            self._on_statement(text)
        await self._connection.run(text)

    async def now(self) -> float:
        """Return the time of this transaction, read once: a test's, or the server's."""
        if self._now is None:
            self._now = float(await self.value(ASK_NOW))
        return self._now


class PostgresTransaction(ReadTransaction):
    """A transaction to write, and the wakeups to send after its commit."""

    def __init__(
        self,
        connection: Connection,
        statements: Mapping[str, str],
        injected: float | None,
        on_statement: StatementHook | None,
        retention: RetentionSettings,
        *,
        may_be_long: bool = False,
    ) -> None:
        super().__init__(connection, statements, injected, on_statement)
        self.retention = retention
        self.may_be_long = may_be_long  # a caller's or a task's: it locks no log
        # Logs are locked last: `logs.write_entries` writes these before the commit.
        self.entries: list[LogRow] = []
        self.gates = GateWork()  # ... and then does this
        # By lane: the worker that made its jobs ready and needs no wakeup, or NO_WORKER.
        self.woken_lanes: dict[str, int] = {}
        self.woken_workers: set[int] = set()
        self.freed: list[tuple[bytes, bytes]] = []  # keys, and the jobs that held them
        # For locks that all transactions compete for: they are taken last, to be held
        # briefly.
        self.before_commit: list[Callable[[], Awaitable[None]]] = []
        self.after_commit: list[Callable[[], None]] = []

    async def finish(self) -> None:
        """Run what belongs at the end of the transaction."""
        if self.entries:
            raise InvariantBroken(f"{len(self.entries)} entries were not written")
        if self.gates:
            raise InvariantBroken(f"{self.gates} was not done")
        for call in self.before_commit:
            await call()

    def wake(self, lane: str, *, except_worker: int = NO_WORKER) -> None:
        """Wake the workers that serve this lane, because it has work, except one."""
        if self.woken_lanes.setdefault(lane, except_worker) != except_worker:
            self.woken_lanes[lane] = NO_WORKER

    def wake_worker(self, worker: int) -> None:
        """Make the worker renew now, because it has a command or its jobs have changed."""
        self.woken_workers.add(worker)
