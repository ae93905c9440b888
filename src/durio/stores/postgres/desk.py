"""Where the capabilities meet what they share: the lines to the server, the bell."""

from dataclasses import dataclass, field

from durio.model.settings import RetentionSettings
from durio.ports.clock import Clock
from durio.stores.postgres.bell import Bell
from durio.stores.postgres.driver import Place
from durio.stores.postgres.ears import Ears
from durio.stores.postgres.lines import Lines
from durio.stores.postgres.local import Local
from durio.stores.postgres.steps import Bulks


@dataclass(slots=True)
class Desk:
    """The parts of one open store."""

    clock: Clock  # of this process: pauses, jitter, waits
    injected: Clock | None  # a test's time instead of the server's
    retention: RetentionSettings
    place: Place
    lines: Lines
    bell: Bell
    local: Local
    ears: Ears
    # Lanes whose row this process has seen or made: an enqueue need not make it again.
    known_lanes: set[str] = field(default_factory=set[str])
    # Lanes that were guarded when an enqueue last looked: a hint which statement to send.
    guarded_lanes: set[str] = field(default_factory=set[str])
    bulks: Bulks = field(default_factory=Bulks)
    is_users: bool = False  # writes in a caller's transaction: see transactions.py
    is_frozen: bool = False  # one that does not see bounds which are younger than it


class AtDesk:
    """A capability: it works at the store's desk."""

    @property
    def desk(self) -> Desk:
        """The desk of this store, which is open."""
        raise NotImplementedError
