"""What a worker is told before it starts, and who it is once it has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from durio.model.outcome import Keep
from durio.model.queues import Serving
from durio.model.settings import Settings
from durio.ports.fleet import Tell
from durio.ports.handler import DepsFactory, Handler
from durio.worker.middleware import Hooks, Middleware


@dataclass(slots=True)
class Me:
    """The identity of a worker: a fenced one registers anew; id 0 is nobody yet."""

    id: int = 0
    renewed_at: float = 0.0  # when the lease was last known good, monotonic


@dataclass(slots=True, kw_only=True)
class Plan:
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
    tell: Tell | None = None  # whoever minds this process: a supervisor, systemd
