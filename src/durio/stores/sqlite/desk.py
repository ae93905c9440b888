"""Where the capabilities meet what they share: the writer, the reader, bells and locks."""

from dataclasses import dataclass, field

from durio.model.settings import RetentionSettings
from durio.ports.clock import Clock
from durio.stores.sqlite.bell import Bells
from durio.stores.sqlite.bulk import Bulks
from durio.stores.sqlite.database import DriverName
from durio.stores.sqlite.ear import Ears
from durio.stores.sqlite.folder import Lives, WriterLock
from durio.stores.sqlite.foreign import Rings
from durio.stores.sqlite.loan import Loans
from durio.stores.sqlite.operation import Writer
from durio.stores.sqlite.place import Inode
from durio.stores.sqlite.reader import Reader


@dataclass(slots=True)
class Desk:
    """The parts of one open store."""

    clock: Clock
    writer: Writer
    reader: Reader
    bells: Bells
    lock: WriterLock
    lives: Lives | None  # None: deaths on this host cannot be seen
    ears: Ears
    synchronous: str = "full"  # shown with each worker: all of a file should agree
    # Worker -> what `data_version` said when it last renewed or asked: see lease.py.
    renewed_versions: dict[int, int] = field(default_factory=dict[int, int])
    openers: int = 0  # who opened it, or wait for that
    bulks: Bulks = field(default_factory=Bulks)
    path: str | None = None  # None: in memory
    inode: Inode | None = None
    driver: DriverName = "apsw"
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    loans: Loans = field(default_factory=Loans)
    # Tasks' own connections that are open, by identity: whom their commits wake.
    own_rings: dict[int, Rings] = field(default_factory=dict[int, Rings])


class AtDesk:
    """A capability: it works at the store's desk."""

    @property
    def desk(self) -> Desk:
        """The desk of this store, which is open."""
        raise NotImplementedError
