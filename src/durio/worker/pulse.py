"""How a worker is: measured with each heartbeat, told to the store and to its supervisor."""

from collections.abc import Callable, Sized
from typing import Protocol

from durio.model.settings import WorkerSettings
from durio.ports.executor import ChildVitals
from durio.ports.fleet import Note, Tell
from durio.ports.lease import Vitals

NO_CHILDREN = ChildVitals(0.0, 0, 0)


class Gauge(Protocol):
    """What this process uses."""

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        ...

    def rss_bytes(self) -> int:
        """Resident memory now."""
        ...


class Counted(Protocol):
    """The attempts of a worker."""

    @property
    def running(self) -> Sized:
        """Those under way."""
        ...

    @property
    def ended(self) -> int:
        """How many have ended."""
        ...


class Pulse:
    """Measures one worker. Nobody who minds it: nobody is told but the store."""

    def __init__(
        self,
        settings: WorkerSettings,
        gauge: Gauge,
        counted: Counted,
        tell: Tell | None,
    ) -> None:
        self._settings = settings
        self._gauge = gauge
        self._counted = counted
        self._tell = tell
        self.children: Callable[[], ChildVitals] = lambda: NO_CHILDREN

    def ready(self, tasks: int) -> None:
        """It has a lease and claims."""
        if self._tell is not None:
            settings = self._settings
            note = Note(
                word="ready",
                tasks=tasks,
                grace_seconds=settings.grace_seconds,
                lease_seconds=settings.lease_seconds,
            )
            self._tell(note)

    def measure(self) -> Vitals:
        """One beat; from the heartbeat's thread."""
        children = self.children()
        vitals = Vitals(
            round(self._gauge.cpu_seconds() + children.cpu_seconds, 3),
            self._gauge.rss_bytes() + children.rss_bytes,
            self._counted.ended,
            children.count,
        )
        if self._tell is not None:
            note = Note(
                word="beat",
                running=len(self._counted.running),
                rss_bytes=vitals.rss_bytes,
                wants_recycle=self._wants_recycle(vitals),
            )
            self._tell(note)
        return vitals

    def _wants_recycle(self, vitals: Vitals) -> bool:
        jobs, rss = self._settings.recycle_jobs, self._settings.recycle_rss_bytes
        return 0 < jobs <= vitals.ended or 0 < rss <= vitals.rss_bytes

    def draining(self, seconds_left: float) -> None:
        """No more claims, and so long is left for what runs."""
        if self._tell is not None:
            running = len(self._counted.running)
            left = max(seconds_left, 0.0)
            self._tell(Note(word="draining", running=running, grace_seconds=left))

    def ordered(self) -> None:
        """Somebody asked for a drain through the store: nobody is to come after us."""
        if self._tell is not None:
            self._tell(Note(word="ordered"))
