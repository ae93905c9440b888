"""Worker processes in virtual time: they boot, tell, drain and die as real ones do.

What the real fleet promises holds here too: nothing is called before `start` returns,
what was told is heard before the end is, an end is told once, the dead take no notice. A
signal that comes while a process boots kills it; later it drains, and a second one cuts
that short.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, count, repeat
from typing import Any

from durio.ports.fleet import ProcessMessage, SendProcessMessage
from durio.telemetry.names import MEANINGS
from durio.testing.clock import VirtualClock
from durio.worker.supervisor import Supervisor, SupervisorResult

BEAT_SECONDS = 5.0
SIGNALS = {"SIGTERM": -15, "SIGINT": -2}
CUT_SHORT = {"SIGTERM": 143, "SIGINT": 130}


@dataclass(frozen=True)
class Life:
    """How one process will live."""

    boot_seconds: float = 0.5
    dies_after: float = float("inf")  # seconds since its start
    exit_code: int = 1
    drain_seconds: float = 0.0
    grace_seconds: float = 25.0
    ignores_signals: bool = False  # to signals
    silent_after: float = float("inf")
    recycles_after: float = float("inf")
    ordered_after: float = float("inf")
    error: dict[str, str] | None = None


FINE = Life()
NEVER_READY = Life(boot_seconds=float("inf"))


@dataclass(eq=False)
class FakeProcess:
    """One process."""

    pid: int
    life: Life
    on_message: SendProcessMessage
    ended: Callable[[int], None]
    clock: VirtualClock
    started_at: float
    signals: list[str] = field(default_factory=list)
    looks: int = 0
    ready_at: float | None = None
    asked_at: float | None = None
    died_at: float | None = None

    def __post_init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.changed = asyncio.Event()
        self.task = self.loop.create_task(self.live())

    @property
    def is_alive(self) -> bool:
        return self.died_at is None

    def signal(self, name: str) -> None:
        if not self.is_alive:
            return
        self.signals.append(name)
        if self.life.ignores_signals:
            return
        if self.ready_at is None:
            self.die(SIGNALS[name])
        elif len(self.signals) > 1:
            self.die(CUT_SHORT[name])
        else:
            self.asked_at = self.clock.monotonic()
            self.changed.set()

    def kill(self) -> None:
        self.die(-9)

    def look_for_deaths(self) -> None:
        self.looks += self.is_alive

    def die(self, code: int) -> None:
        if self.is_alive:
            self.died_at = self.clock.monotonic()
            self.task.cancel()
            self.loop.call_soon(self.ended, code)

    def tell(self, **said: Any) -> None:
        if self.is_alive:
            self.loop.call_soon(self.on_message, ProcessMessage(**said))

    async def live(self) -> None:
        life = self.life
        doom = self.loop.call_later(min(life.dies_after, 1e9), self.fail)
        try:
            await self.clock.sleep(min(life.boot_seconds, 1e9))
            self.ready_at = self.clock.monotonic()
            grace = life.grace_seconds
            self.tell(word="ready", grace_seconds=grace, lease_seconds=30.0, tasks=3)
            await self.work()
            await self.drain()
        finally:
            doom.cancel()

    def fail(self) -> None:
        if self.life.error:
            self.tell(word="failed", error=self.life.error)
        self.die(self.life.exit_code)

    async def work(self) -> None:
        life = self.life
        while self.asked_at is None:
            age = self.clock.monotonic() - self.started_at
            if age >= life.ordered_after:
                self.tell(word="ordered")
                return
            if age < life.silent_after:
                self.tell(
                    word="beat", running=2, wants_recycle=age >= life.recycles_after
                )
            try:
                async with asyncio.timeout(BEAT_SECONDS):
                    await self.changed.wait()
            except TimeoutError:
                pass

    async def drain(self) -> None:
        left = self.life.grace_seconds
        self.tell(word="draining", running=2, grace_seconds=left)
        await self.clock.sleep(min(self.life.drain_seconds, left))
        self.die(0 if self.life.drain_seconds <= left else 143)


@dataclass
class FakeFleet:
    """Starts processes, each with the next life; a number instead of one is an OSError."""

    clock: VirtualClock
    lives: Iterator[Life | int]
    all: list[FakeProcess] = field(default_factory=list)
    pids: Iterator[int] = field(default_factory=lambda: count(100))

    def start(
        self, on_message: SendProcessMessage, on_exit: Callable[[int], None]
    ) -> FakeProcess:
        life = next(self.lives)
        if isinstance(life, int):
            raise OSError(life, "no room")
        now = self.clock.monotonic()
        process = FakeProcess(
            next(self.pids), life, on_message, on_exit, self.clock, now
        )
        self.all.append(process)
        return process

    @property
    def alive(self) -> list[FakeProcess]:
        return [process for process in self.all if process.is_alive]

    @property
    def claiming(self) -> list[FakeProcess]:
        """Ready, and not asked to stop."""
        return [p for p in self.alive if p.ready_at is not None and not p.signals]


@dataclass
class FakeAnnounce:
    """Remembers what systemd would have heard."""

    every_seconds: float = float("inf")
    calls: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    signs: int = 0

    def ready(self, status: str) -> None:
        self.calls.append(f"ready: {status}")

    def status(self, text: str) -> None:
        self.texts.append(text)

    def reloading(self) -> None:
        self.calls.append("reloading")

    def stopping(self) -> None:
        self.calls.append("stopping")

    def alive(self) -> None:
        self.signs += 1


@dataclass
class SupervisorHarness:
    """A supervisor with everything around it."""

    clock: VirtualClock
    fleet: FakeFleet
    announce: FakeAnnounce
    supervisor: Supervisor
    events: list[tuple[str, dict[str, Any]]]
    shown: list[tuple[int, float]]
    running: "asyncio.Task[SupervisorResult]"

    def events_named(self, name: str) -> list[dict[str, Any]]:
        return [fields for event, fields in self.events if event == name]

    async def until(self, seconds: float) -> None:
        """Let so many seconds pass."""
        await self.clock.sleep(seconds)

    async def end(self, signal: str = "SIGTERM") -> SupervisorResult:
        self.supervisor.stop(signal)
        return await self.over()

    async def over(self) -> SupervisorResult:
        verdict = await self.running
        await self.clock.sleep(0)
        assert not self.fleet.alive, "a process was left behind"
        return verdict


def supervisor_harness(
    clock: VirtualClock,
    *lives: Life | int,
    processes: int = 2,
    then: Life = FINE,
    is_burst: bool = False,
) -> SupervisorHarness:
    """Start a supervisor; its processes have these lives, then all the same one."""
    events: list[tuple[str, dict[str, Any]]] = []
    shown: list[tuple[int, float]] = []
    fleet = FakeFleet(clock, chain(lives, repeat(then)))
    announce = FakeAnnounce()
    supervisor = Supervisor(
        processes=processes,
        fleet=fleet,
        clock=clock,
        emit=RecordedEvents(events),
        announce=announce,
        show=lambda running, left: shown.append((running, left)),
        is_burst=is_burst,
    )
    task = asyncio.get_running_loop().create_task(supervisor.run())
    return SupervisorHarness(clock, fleet, announce, supervisor, events, shown, task)


@dataclass
class RecordedEvents:
    """Keeps emissions; their names must exist."""

    events: list[tuple[str, dict[str, Any]]]

    def __call__(self, name: str, **fields: Any) -> None:
        assert name in MEANINGS
        self.events.append((name, fields))

    def jobs(self, events: object) -> None:
        del events

    def wants(self, name: str) -> bool:
        return bool(name)
