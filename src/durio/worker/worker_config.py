"""The configuration of a worker, and its identity once it is registered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from durio.model.breaker_rule import Breaker
from durio.model.outcome import KeepRule
from durio.model.queues import Serving
from durio.model.settings import Settings
from durio.ports.fleet import SendProcessMessage
from durio.ports.handler import DepsFactory, TaskHandlers
from durio.ports.plan_maker import PlanMaker
from durio.worker.burst_end import BurstRules
from durio.worker.middleware import Hooks, Middleware

RESUME_RENEWALS = 1.2  # in renewal intervals: a little more than one
# In renewal intervals; less than a lease (at least three) minus one interval. So a fresh
# worker has written after the last renewal of every lease that has ended by now.
FRESH_RENEWALS = 1.8


@dataclass(slots=True)
class WorkerIdentity:
    """The identity of a worker.

    The id is 0 before it is registered, and while it is fenced.
    """

    id: int = 0
    renewed_at: float = 0.0  # monotonic time at which the last successful renewal began
    resumed_at: float = 0.0  # registration, or first renewal after a gap; monotonic

    def may_rescue(self, now: float, interval_seconds: float) -> bool:
        """Whether the ended lease of another worker means that it died.

        While writes are blocked (a full disk, a stopped writer) no worker can renew. A
        worker that has just started, or could not renew until now, first gives the others
        the time of one renewal.
        """
        is_settled = now - self.resumed_at >= RESUME_RENEWALS * interval_seconds
        return is_settled and self.is_fresh(now, interval_seconds)

    def is_fresh(self, now: float, interval_seconds: float) -> bool:
        """Whether the last successful renewal began less than 1.8 intervals ago."""
        return now - self.renewed_at < FRESH_RENEWALS * interval_seconds


@dataclass(slots=True, kw_only=True)
class WorkerConfig:
    """What a worker serves, and with which settings and parts."""

    namespace: str
    name: str
    host: str
    pid: int
    version: str  # of Durio
    serving: Serving
    handlers: TaskHandlers
    tasks: Mapping[str, Mapping[str, Any]]
    settings: Settings
    plans: PlanMaker
    keeps: Mapping[str, KeepRule] = field(
        default_factory=dict[str, KeepRule]
    )  # by lane
    breakers: Mapping[str, Breaker] = field(default_factory=dict[str, Breaker])
    schedules: tuple[str, ...] = ()  # names of those that the code declares
    python: str | None = None  # its version
    code_version: str | None = None  # of the user's code
    middleware: Sequence[Middleware] = ()
    hooks: Hooks = field(default_factory=Hooks)
    deps: DepsFactory | None = None
    burst: BurstRules | None = None  # None: the worker runs until `stop`
    has_time_limits: bool = True
    send_message: SendProcessMessage | None = (
        None  # to a supervisor or systemd, if there is one
    )
