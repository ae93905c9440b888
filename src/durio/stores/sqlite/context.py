"""State that the capabilities of an open store share: writer, reader, wakeups and locks."""

from dataclasses import dataclass, field

from durio.model.settings import RetentionSettings
from durio.ports.clock import Clock
from durio.stores.sqlite.caller_connection import UnsentWakeups
from durio.stores.sqlite.database import DriverName
from durio.stores.sqlite.live_events import SqliteLiveEvents
from durio.stores.sqlite.reader import Reader
from durio.stores.sqlite.store_files import Inode, SqliteLifeLocks, WriterLock
from durio.stores.sqlite.wakeups import SqliteWakeups
from durio.stores.sqlite.write_session import Writer
from durio.stores.sqlite.writer_handover import WriterHandovers


@dataclass(slots=True)
class SqliteContext:
    """The parts of one open store."""

    clock: Clock
    writer: Writer
    reader: Reader
    wakeups: SqliteWakeups
    lock: WriterLock
    life_locks: SqliteLifeLocks | None  # None: dead workers are found by lease only
    live_events: SqliteLiveEvents
    # Shown with each worker, because all should have the same.
    synchronous: str = "full"
    # By namespace: what its workers must know, as far as this process has asked.
    protocols: dict[str, int] = field(default_factory=dict[str, int])
    openers: int = 0  # calls of `open` that have opened it or still wait for it
    path: str | None = None  # None: in memory
    inode: Inode | None = None
    driver: DriverName = "apsw"
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    writer_handovers: WriterHandovers = field(default_factory=WriterHandovers)
    # By `id` of a task's open connection: the lanes that its commit wakes.
    task_wakeups: dict[int, UnsentWakeups] = field(
        default_factory=dict[int, UnsentWakeups]
    )


class SqliteCapability:
    """A part of the store with some methods of its port; uses the shared context."""

    @property
    def context(self) -> SqliteContext:
        """The shared context; SqliteStore raises StoreUnavailable unless it is open."""
        raise NotImplementedError
