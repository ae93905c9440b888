"""What a worker is told before it starts, and who it is once it has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from durio.model.outcome import Keep
from durio.model.queues import Serving
from durio.model.settings import Settings
from durio.ports.fleet import SendProcessMessage
from durio.ports.handler import DepsFactory, Handler
from durio.worker.middleware import Hooks, Middleware

RESUME_RENEWALS = 1.2  # a little more than one renewal
# In renewals, less than a lease has (three, at least) without the one of its owner: who is
# that fresh has written later than any lease began that is over now.
FRESH_RENEWALS = 1.8


@dataclass(slots=True)
class WorkerIdentity:
    """The identity of a worker: a fenced one registers anew; id 0 is nobody yet."""

    id: int = 0
    renewed_at: float = 0.0  # when the lease was last known good, monotonic
    resumed_at: float = 0.0  # when it began, or was renewed after a time without

    def may_rescue(self, now: float, interval_seconds: float) -> bool:
        """Whether an ended lease of others means their death, as far as we can tell.

        When nobody could write, on a full disk or behind a stopped writer, nobody could
        renew. Whoever has just been such a one, or has just begun, gives the others the
        time of one renewal first.
        """
        is_settled = now - self.resumed_at >= RESUME_RENEWALS * interval_seconds
        return is_settled and self.is_fresh(now, interval_seconds)

    def is_fresh(self, now: float, interval_seconds: float) -> bool:
        """Whether we could write of late: hardly one renewal has failed since."""
        return now - self.renewed_at < FRESH_RENEWALS * interval_seconds


@dataclass(slots=True, kw_only=True)
class WorkerConfig:
    """What a worker is told: whom to serve, with what."""

    namespace: str
    name: str
    host: str
    pid: int
    version: str
    serving: Serving
    handlers: Mapping[str, Handler]
    tasks: Mapping[str, Mapping[str, Any]]
    settings: Settings
    keeps: Mapping[str, Keep] = field(default_factory=dict[str, Keep])  # by lane
    middleware: Sequence[Middleware] = ()
    hooks: Hooks = field(default_factory=Hooks)
    deps: DepsFactory | None = None
    is_burst: bool = False
    send_message: SendProcessMessage | None = (
        None  # whoever minds this process: a supervisor, systemd
    )
