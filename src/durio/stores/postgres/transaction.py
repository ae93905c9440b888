"""Several statements on one connection: a snapshot to read, or a transaction to write.

A write may be done again from its beginning (a deadlock, a serialization failure): what
it must tell others it leaves here, for after the commit.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from durio.model.settings import RetentionSettings
from durio.stores.postgres.driver import Connection, Row

EVERYBODY = 0  # no worker has this id
ASK_NOW = "select extract(epoch from clock_timestamp())::float8"

Look = Callable[[str], None]


class Reading:
    """Statements that see one state of the database."""

    def __init__(
        self,
        connection: Connection,
        filled: Mapping[str, str],
        injected: float | None,
        look: Look | None,
    ) -> None:
        self.injected = injected  # the tests' time; None: the server's counts
        self._connection = connection
        self._filled = filled
        self._look = look  # told of every statement: tests make one fail
        self._now = injected

    async def rows(self, sql: str, *args: Any) -> Sequence[Row]:
        """All rows of one statement."""
        text = self._filled[sql]
        if self._look is not None:
            self._look(text)
        return await self._connection.rows(text, args)

    async def value(self, sql: str, *args: Any) -> Any:
        """The first column of the first row; None without one."""
        rows = await self.rows(sql, *args)
        return rows[0][0] if rows else None

    async def run(self, sql: str) -> None:
        """Statements without parameters and without answers, in one round trip."""
        text = self._filled[sql]
        if self._look is not None:
            self._look(text)
        await self._connection.run(text)

    async def now(self) -> float:
        """One time for all that happens here: the tests', or the server's, asked once."""
        if self._now is None:
            self._now = float(await self.value(ASK_NOW))
        return self._now


class Transaction(Reading):
    """What operations write to, and the hints they leave for after the commit."""

    def __init__(
        self,
        connection: Connection,
        filled: Mapping[str, str],
        injected: float | None,
        look: Look | None,
        retention: RetentionSettings,
    ) -> None:
        super().__init__(connection, filled, injected, look)
        self.retention = retention
        # Lane -> the worker that made its jobs ready and need not be told, or EVERYBODY.
        self.rung_lanes: dict[str, int] = {}
        self.rung_workers: set[int] = set()
        self.freed: list[tuple[bytes, bytes]] = []  # keys, and who lets go of them
        # The last locks, and the shortest: what everybody has to pass one by one.
        self.before_commit: list[Callable[[], Awaitable[None]]] = []
        self.after_commit: list[Callable[[], None]] = []

    def ring(self, lane: str, *, but: int = EVERYBODY) -> None:
        """There is work in this lane: tell whoever serves it, but not this worker."""
        if self.rung_lanes.setdefault(lane, but) != but:
            self.rung_lanes[lane] = EVERYBODY

    def ring_worker(self, worker: int) -> None:
        """Somebody acted on its jobs, or asks something of it: it should renew now."""
        self.rung_workers.add(worker)
