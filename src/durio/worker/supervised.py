"""The worker processes of a supervisor, their slots, and the pauses between starts."""

from dataclasses import dataclass, field

from durio.ports.clock import Clock
from durio.ports.fleet import ProcessMessage, WorkerProcess

# Pause between starts; the first start has none.
FIRST_SECONDS, LAST_SECONDS = 0.5, 30.0
HEALTHY_SECONDS = 60.0  # a process that lived this long did not fail at its start
STEADY_SECONDS = 10.0  # a process ready for this long ends a crash loop
DEATHS_MAX = 10  # in a row, with no steady process in between
GRACE_SECONDS = 25.0  # until a worker has reported its own grace
MARGIN_SECONDS = 20.0  # added to the grace: to cancel, to write, to leave
SILENT_LEASES = 2  # a worker silent for this many leases hangs and has lost its jobs
NEVER = float("inf")
NO_MESSAGE = ProcessMessage(word="beat")


def exit_text(code: int) -> str:
    """Return an exit code for people."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


@dataclass(slots=True, eq=False)
class SupervisedProcess:
    """One worker process that the supervisor started."""

    slot: "ProcessSlot"
    started_at: float
    process: WorkerProcess = field(init=False)
    ready_at: float = NEVER
    last_message_at: float = NEVER  # NEVER before it is ready
    kill_at: float = NEVER
    is_stop_requested: bool = False
    is_drain_commanded: bool = False  # through the store, not by the supervisor
    grace_seconds: float = GRACE_SECONDS
    lease_seconds: float = NEVER
    last_message: ProcessMessage = NO_MESSAGE
    grace_left_seconds: float = 0.0  # as it reported
    error: dict[str, str] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the process has ever been ready."""
        return self.ready_at < NEVER

    def end_reason(self, code: int) -> str:
        """Return why the process ended: the error that it reported, or its exit code."""
        if self.error is not None:
            return self.error.get("what", "")
        return exit_text(code)

    def is_steady(self, now: float) -> bool:
        """Whether the process has been ready for 10 s."""
        return now - self.ready_at >= STEADY_SECONDS

    def is_silent(self, now: float) -> bool:
        """Whether no message came for two leases, after which others have its jobs."""
        return now - self.last_message_at > self.lease_seconds * SILENT_LEASES

    def receive(self, message: ProcessMessage, now: float) -> None:
        self.last_message_at = now
        if message.word == "ready":
            self.ready_at = now
            self.grace_seconds = message.grace_seconds
            self.lease_seconds = message.lease_seconds
        elif message.word == "failed":
            self.error = message.error
        elif message.word == "ordered":
            self.is_drain_commanded = True
        else:
            self.last_message = message
            if message.word == "draining":
                self.grace_left_seconds = message.grace_seconds


@dataclass(slots=True, eq=False)
class ProcessSlot:
    """The place of one worker process, in which one process follows another."""

    number: int
    current: SupervisedProcess | None = None
    successor: SupervisedProcess | None = None  # starting; takes over when ready
    start_at: float = 0.0
    renew_at: float = 0.0  # earliest time of the next renewal
    failures: int = 0  # deaths in a row
    is_retired: bool = False  # no process is started in it again

    def back_off(self, ended: SupervisedProcess, clock: Clock) -> float:
        """Set the time of the next start after a death; return the seconds until then."""
        now = clock.monotonic()
        if now - ended.started_at >= HEALTHY_SECONDS:
            self.failures = 0
        pause = 0.0
        if self.failures:
            doubled = FIRST_SECONDS * 2 ** min(self.failures - 1, 10)
            pause = min(doubled, LAST_SECONDS) * (0.75 + clock.random() / 2)
        self.failures += 1
        self.start_at = now + pause
        return pause
