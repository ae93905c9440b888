"""State that the store's capabilities share: connections, wakeups, hints of this process.

Correctness does not depend on the hints.
"""

from dataclasses import dataclass, field

from durio.model.settings import RetentionSettings
from durio.ports.clock import Clock
from durio.stores.postgres.connections import Connections
from durio.stores.postgres.driver import PostgresLocation, Row, Warn
from durio.stores.postgres.life_sockets import PostgresLifeSockets
from durio.stores.postgres.live_events import PostgresLiveEvents
from durio.stores.postgres.wakeups import PostgresWakeups
from durio.stores.postgres.watermarks import (
    LEADER_DUE_SLOW_SECONDS,
    DueWatermarks,
    Watermarks,
)


@dataclass(slots=True)
class LeaseClock:
    """The clock for leases: the server's, or a test's.

    A test may step its wall clock, as a host's clock may step. The server's clock, which
    decides all leases, does not step with it. So leases in a test use elapsed seconds.
    """

    injected: Clock | None
    shift: float = 0.0

    def __post_init__(self) -> None:
        if self.injected is not None:
            self.shift = self.injected.now() - self.injected.monotonic()

    def now(self) -> float | None:
        """Return the time argument of a statement; None means the server's own clock."""
        if self.injected is None:
            return None
        return self.injected.monotonic() + self.shift


@dataclass(slots=True)
class PartitionState:
    """The daily partitions that this process knows: see finished_jobs.py."""

    # Whether our role owns the tables; None: not known yet.
    may_change: bool | None = None
    next_at: float = 0.0  # time of the next check, by this process's clock


@dataclass(slots=True)
class VacuumState:
    """When this process checked, vacuumed and warned, by its own clock: see vacuum.py."""

    next_at: float = 0.0
    warned_at: float | None = None
    cleaned_at: dict[str, float] = field(default_factory=dict[str, float])
    # Age of the oldest transaction that keeps old row versions alive.
    oldest_seconds: float = 0.0


@dataclass(slots=True)
class UnusedKeyScan:
    """How far this process has scanned the keys: see `keys.free_unused_keys`."""

    next_at: float = 0.0
    after: bytes = b""


@dataclass(slots=True)
class ProcessState:
    """State that claims, leases and upkeep share in this process."""

    lease_time: LeaseClock
    life_sockets: PostgresLifeSockets
    watermarks: Watermarks
    due_watermarks: DueWatermarks
    leader_due_watermarks: DueWatermarks  # the leader's, for all lanes
    warn: Warn
    # Identity of the database: see caller_checks.py.
    database_identity: Row | None = None
    is_split: bool = False  # finish and claim are two statements: see driver.py
    # Lanes with a due job that another transaction has locked: due jobs are not read until
    # this monotonic time.
    held_lanes: dict[str, float] = field(default_factory=dict[str, float])
    # Lanes with a bound: `claim_idle` is not tried until this monotonic time.
    bounded_lanes: dict[str, float] = field(default_factory=dict[str, float])
    partitions: PartitionState = field(default_factory=PartitionState)
    vacuum: VacuumState = field(default_factory=VacuumState)
    unused_keys: UnusedKeyScan = field(default_factory=UnusedKeyScan)
    gates_pruned_to: str = ""  # the last gate that `prune` has looked at

    def close(self) -> None:
        """Close the life sockets: other processes then see that these workers are gone."""
        self.life_sockets.close()


def new_process_state(
    clock: Clock, injected: Clock | None, warn: Warn, *, is_split: bool
) -> ProcessState:
    return ProcessState(
        lease_time=LeaseClock(injected),
        life_sockets=PostgresLifeSockets(clock),
        watermarks=Watermarks(clock),
        due_watermarks=DueWatermarks(clock),
        leader_due_watermarks=DueWatermarks(clock, LEADER_DUE_SLOW_SECONDS),
        warn=warn,
        is_split=is_split,
    )


@dataclass(slots=True)
class PostgresContext:
    clock: Clock  # this process's clock: for pauses, jitter, waits
    injected: Clock | None  # a test's time instead of the server's
    retention: RetentionSettings
    location: PostgresLocation
    connections: Connections
    wakeups: PostgresWakeups
    process: ProcessState
    live_events: PostgresLiveEvents
    # Lanes whose row this process has seen or created: an enqueue need not create it.
    known_lanes: set[str] = field(default_factory=set[str])
    # By namespace: what its workers must know, as far as this process has asked.
    protocols: dict[str, int] = field(default_factory=dict[str, int])
    # Lanes that were guarded at the last enqueue: a hint for which statement to send.
    guarded_lanes: set[str] = field(default_factory=set[str])
    # Whether writes run in a caller's transaction: see caller_transaction.py.
    in_caller_tx: bool = False
    # Whether that transaction may not see bounds that were set after it began.
    has_fixed_snapshot: bool = False


class PostgresCapability:
    @property
    def context(self) -> PostgresContext:
        """The context of this store; raises if the store is not open."""
        raise NotImplementedError
