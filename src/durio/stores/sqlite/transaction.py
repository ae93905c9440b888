"""One write transaction, as an operation sees it: the database, the time, whom to wake.

An operation is a plain function of a Transaction. It may be one of many in the same
commit, and it may be rolled back alone; what must happen after the commit, or be undone
without one, it leaves here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from durio.model.settings import RetentionSettings
from durio.ports.enqueue import Full
from durio.stores.sqlite.database import Database

EVERYBODY = 0  # no worker has this id


@dataclass(slots=True)
class Guard:
    """What a queue asks of an enqueue: see bounds.py."""

    limit: int | None  # None: no bound of its own
    depth: int  # waiting jobs; true only under a bound
    soft_limit: int  # the soft bound that it was seen beyond; 0: it is below
    is_closed: bool
    refuses: Full | None = None  # for the rest of this enqueue


@dataclass(slots=True)
class Transaction:
    """What operations write to, and the hints they leave for after the commit."""

    db: Database
    now: float  # wall clock: due times, ages
    ticks: float  # monotonic clock: leases
    boot: str
    retention: RetentionSettings
    known_lanes: frozenset[str] | set[str]
    # Claimed jobs that came with a key: a hint which way of finishing is quicker.
    keyed: set[bytes]
    # Lane -> its guard if it has one, of lanes that were asked about; see bounds.py.
    guards: dict[str, Guard | None] | None = None  # None: nobody has asked yet
    has_guards: bool = False  # any lane at all
    is_users: bool = False  # a caller's own: full queues refuse nothing there
    pressed: list[Full] = field(default_factory=list[Full])  # they are only named
    new_lanes: set[str] = field(default_factory=set[str])
    # Lane -> the worker that made its jobs ready and need not be told, or EVERYBODY.
    rung_lanes: dict[str, int] = field(default_factory=dict[str, int])
    rung_workers: set[int] = field(default_factory=set[int])
    after_commit: list[Callable[[], None]] = field(
        default_factory=list[Callable[[], None]]
    )
    after_rollback: list[Callable[[], None]] = field(
        default_factory=list[Callable[[], None]]
    )

    def ring(self, lane: str, *, but: int = EVERYBODY) -> None:
        """There is work in this lane: tell whoever serves it, but not this worker."""
        if self.rung_lanes.setdefault(lane, but) != but:
            self.rung_lanes[lane] = EVERYBODY

    def undo_since(self, committed: int, rolled_back: int) -> None:
        """One operation of several failed: undo what it did beside the database."""
        # Hints that may come from rows which are gone again: they are asked for anew.
        self.new_lanes.clear()
        self.guards = None
        for undo in self.after_rollback[rolled_back:]:
            undo()
        del self.after_commit[committed:], self.after_rollback[rolled_back:]
