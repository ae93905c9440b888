"""What this process remembers beside the store: hints and marks, never a truth."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from durio.model.job import NewJob
from durio.ports.clock import Clock
from durio.stores.postgres.driver import Row
from durio.stores.postgres.due import LEADER_SLOW_SECONDS, DueLooks
from durio.stores.postgres.floor import Floors
from durio.stores.postgres.life import Lives
from durio.stores.postgres.lines import Patience
from durio.stores.postgres.opening import Warn

LOCKED_SECONDS = 30.0  # for which it is remembered that something was


@dataclass(slots=True)
class LeaseTime:
    """The time that leases count on: the server's, or a test's.

    A test may step its wall clock, as a host may; the server's clock, on which all leases
    count, does not step with it. So a test's leases go by the seconds that really passed.
    """

    injected: Clock | None
    shift: float = 0.0

    def __post_init__(self) -> None:
        if self.injected is not None:
            self.shift = self.injected.now() - self.injected.monotonic()

    def now(self) -> float | None:
        """What a statement gets; None: the server's own."""
        if self.injected is None:
            return None
        return self.injected.monotonic() + self.shift


@dataclass(slots=True)
class Days:
    """The days of history, as this process knows them: see days.py."""

    may_change: bool | None = None  # whether our role owns the tables; None: not asked
    next_at: float = 0.0  # by this process's clock


@dataclass(slots=True)
class Sweep:
    """When this process looked, cleaned and warned, by its own clock: see vacuum.py."""

    next_at: float = 0.0
    told_at: float | None = None
    cleaned_at: dict[str, float] = field(default_factory=dict[str, float])
    oldest_seconds: float = 0.0  # of the oldest transaction that keeps versions alive


@dataclass(slots=True)
class KeyWalk:
    """How far this process has walked over the keys: see stray_keys.py."""

    next_at: float = 0.0
    after: bytes = b""


@dataclass(slots=True)
class Locks:
    """Keys and lanes that were asked for in vain: nobody waits long for them again."""

    clock: Clock
    until: dict[bytes | str, float] = field(default_factory=dict[bytes | str, float])

    def patience(self, jobs: Sequence[NewJob]) -> Patience:
        """How long an enqueue of these may wait."""
        if not self.until:
            return Patience.ONE_TURN
        now = self.clock.monotonic()
        known = list(self.until.items())  # at once: other threads have loops of theirs
        self.until = {place: at for place, at in known if at > now}
        # Where one key is locked, others may be: each turn in vain keeps the line.
        is_likely = self.until and any(
            job.key is not None or job.lane in self.until for job in jobs
        )
        return Patience.BRIEF if is_likely else Patience.ONE_TURN

    def met(self, jobs: Sequence[NewJob]) -> None:
        """One of these places is locked; of several nobody knows which."""
        until = self.clock.monotonic() + LOCKED_SECONDS
        self.until |= dict.fromkeys(map(place_of, jobs), until)

    def free(self, jobs: Iterable[NewJob]) -> None:
        """None of them is."""
        if self.until:
            for job in jobs:
                self.until.pop(place_of(job), None)


def place_of(job: NewJob) -> bytes | str:
    """What an enqueue may have to wait for: its key, or else its lane."""
    return job.lane if job.key is None else job.key.key


@dataclass(slots=True)
class Local:
    """The parts of a desk that claims, leases and upkeep keep to themselves."""

    lease_time: LeaseTime
    lives: Lives
    floors: Floors
    due: DueLooks
    due_anywhere: DueLooks  # of a leader, in all lanes
    locks: Locks
    warn: Warn
    where: Row | None = None  # which database this is: see same.py
    is_split: bool = False  # finish and claim are two statements, by keys
    # Lanes with a due job that somebody holds: until when nobody asks for what is due.
    held_lanes: dict[str, float] = field(default_factory=dict[str, float])
    days: Days = field(default_factory=Days)
    sweep: Sweep = field(default_factory=Sweep)
    keys: KeyWalk = field(default_factory=KeyWalk)

    def close(self) -> None:
        """Nobody of this process lives any longer, as far as others can see."""
        self.lives.close()


def local_of(
    clock: Clock, injected: Clock | None, warn: Warn, *, is_split: bool
) -> Local:
    """What a new desk begins with."""
    return Local(
        lease_time=LeaseTime(injected),
        lives=Lives(clock),
        floors=Floors(clock),
        due=DueLooks(clock),
        due_anywhere=DueLooks(clock, LEADER_SLOW_SECONDS),
        locks=Locks(clock),
        warn=warn,
        is_split=is_split,
    )
