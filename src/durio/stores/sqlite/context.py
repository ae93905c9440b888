"""Where the capabilities meet what they share: the writer, the reader, bells and locks."""

from dataclasses import dataclass, field

from durio.model.settings import RetentionSettings
from durio.ports.clock import Clock
from durio.stores.sqlite.caller_connection import UnsentWakeups
from durio.stores.sqlite.database import DriverName
from durio.stores.sqlite.job_actions import SqliteBulkActions
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
    life_locks: SqliteLifeLocks | None  # None: deaths on this host cannot be seen
    live_events: SqliteLiveEvents
    synchronous: str = "full"  # shown with each worker: all of a file should agree
    # Worker -> what `data_version` said when it last renewed or asked: see lease.py.
    renewed_versions: dict[int, int] = field(default_factory=dict[int, int])
    openers: int = 0  # who opened it, or wait for that
    bulk_actions: SqliteBulkActions = field(default_factory=SqliteBulkActions)
    path: str | None = None  # None: in memory
    inode: Inode | None = None
    driver: DriverName = "apsw"
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    writer_handovers: WriterHandovers = field(default_factory=WriterHandovers)
    # Tasks' own connections that are open, by identity: whom their commits wake.
    task_wakeups: dict[int, UnsentWakeups] = field(
        default_factory=dict[int, UnsentWakeups]
    )


class SqliteCapability:
    """A capability: it works at the store's desk."""

    @property
    def context(self) -> SqliteContext:
        """The desk of this store, which is open."""
        raise NotImplementedError
