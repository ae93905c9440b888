"""The worker processes of a supervisor: whose place is whose, and when to start again."""

from dataclasses import dataclass, field

from durio.ports.clock import Clock
from durio.ports.fleet import ProcessMessage, WorkerProcess

FIRST_SECONDS, LAST_SECONDS = 0.5, 30.0  # between starts; the first one is at once
HEALTHY_SECONDS = 60.0  # who lived so long did not fail at the start
STEADY_SECONDS = 10.0  # ready for so long: this is no crash loop
DEATHS_MAX = 10  # in a row, with nobody steady in between
GRACE_SECONDS = 25.0  # of a worker that has not told its own yet
MARGIN_SECONDS = 20.0  # beyond the grace: to cancel, to write, to leave
SILENT_LEASES = 2  # silent for so many leases: it hangs, and its jobs are others'
NEVER = float("inf")
NO_MESSAGE = ProcessMessage(word="beat")


def exit_text(code: int) -> str:
    """An exit code for people."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


@dataclass(slots=True, eq=False)
class SupervisedProcess:
    """One worker process that we started."""

    slot: "ProcessSlot"
    started_at: float
    process: WorkerProcess = field(init=False)
    ready_at: float = NEVER
    last_message_at: float = NEVER  # only of one that is ready
    kill_at: float = NEVER
    is_stop_requested: bool = False  # to stop
    is_drain_commanded: bool = False  # to drain, by somebody else
    grace_seconds: float = GRACE_SECONDS
    lease_seconds: float = NEVER
    last_message: ProcessMessage = NO_MESSAGE
    grace_left_seconds: float = 0.0  # of its grace, by its own word
    error: dict[str, str] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it was ever ready."""
        return self.ready_at < NEVER

    def end_reason(self, code: int) -> str:
        """Why it ended, by its own word or by its exit code."""
        if self.error is not None:
            return self.error.get("what", "")
        return exit_text(code)

    def is_steady(self, now: float) -> bool:
        """Whether it has been ready for a while."""
        return now - self.ready_at >= STEADY_SECONDS

    def is_silent(self, now: float) -> bool:
        """Whether nothing was heard for so long that its jobs are others' by now."""
        return now - self.last_message_at > self.lease_seconds * SILENT_LEASES

    def receive(self, message: ProcessMessage, now: float) -> None:
        """Keep what it told."""
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
    """The place of one worker process, whoever takes it."""

    number: int
    current: SupervisedProcess | None = None
    successor: SupervisedProcess | None = None  # starting; takes over when it is ready
    start_at: float = 0.0
    renew_at: float = 0.0  # not before
    failures: int = 0  # deaths in a row
    is_retired: bool = False  # nobody takes it any more

    def back_off(self, ended: SupervisedProcess, clock: Clock) -> float:
        """Plan the next start after a death; how long that is from now."""
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
