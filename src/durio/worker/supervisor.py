"""The supervisor: keeps worker processes alive, renews them without a gap, drains them.

Every process has a slot. When a process dies, the supervisor starts another in its slot:
immediately, then with growing pauses. After 10 deaths in a row restarting does not help:
the supervisor reports it and ends. To renew a slot (a reload, a recycling) it starts the
successor first and stops the old process when the successor is ready. So there is always a
worker, and new code that does not start replaces nothing.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from durio.model.errors import StoreMoved
from durio.ports.clock import Clock
from durio.ports.fleet import Fleet, ProcessMessage, ServiceNotifier
from durio.telemetry.emit import Emit
from durio.worker.supervised import (
    DEATHS_MAX,
    MARGIN_SECONDS,
    NEVER,
    ProcessSlot,
    SupervisedProcess,
)
from durio.worker.watchdog import (
    EXIT_BLOCKED,
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    exit_code_for_signal,
)

TURN_SECONDS = 1.0
START_SECONDS = 300.0  # for a successor to become ready
RENEW_AGAIN_SECONDS = 30.0  # after a successor failed
SUPERVISOR_STALL_SECONDS = (
    5.0  # a turn this late: the supervisor stood still, not the workers
)
EXIT_CRASH_LOOP = 9
EXIT_STORE = 3
# Usage, store, import, schema: before any worker was ready a restart cannot help.
UNRECOVERABLE_EXITS = frozenset({2, EXIT_STORE, 4, 5})
# Exits that are no fault of the code: requested, or caused by the store.
EXPECTED_EXITS = frozenset({0, EXIT_STORE, EXIT_INTERRUPTED, EXIT_TERMINATED})


@dataclass(slots=True)
class SupervisorResult:
    exit_code: int = 0
    signal: str | None = None
    restarts: int = 0
    error: dict[str, str] | None = None  # of a worker that could not start
    last_exit: int = 0  # exit code of the last death of a crash loop


@dataclass(slots=True)
class Supervisor:
    """Keeps `processes` workers running until `stop`."""

    processes: int
    fleet: Fleet
    clock: Clock
    emit: Emit
    announce: ServiceNotifier
    show: Callable[[int, float], None]  # while draining: running, seconds left
    is_burst: bool = False
    slots: list[ProcessSlot] = field(init=False)
    supervised: set[SupervisedProcess] = field(default_factory=set[SupervisedProcess])
    result: SupervisorResult = field(default_factory=SupervisorResult)
    is_ending: bool = False
    was_ready: bool = False
    was_cut_short: bool = False
    is_reloading: bool = False
    deaths: int = 0  # in a row, with no steady process in between
    to_renew: deque[ProcessSlot] = field(
        default_factory=deque[ProcessSlot]
    )  # in this order
    turned_at: float = 0.0
    show_at: float = 0.0
    last_status: str = ""
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.slots = [ProcessSlot(number) for number in range(1, self.processes + 1)]

    # --- from outside

    def stop(self, signal: str) -> None:
        """Drain; a second call is passed on to the workers too."""
        is_first = self.result.signal is None
        if is_first:
            self.result.signal = signal
            self.emit("fleet.stopping", signal=signal, processes=len(self.supervised))
        self._end()
        for member in self.supervised:
            # A worker that drains already must not count this as a second signal.
            if not (is_first and member.is_stop_requested):
                self._request_stop(member, signal)
        self.wake.set()

    def reload(self) -> None:
        """Replace every worker, one after another; a second call starts over."""
        if self.is_ending:
            return
        for seat in self.slots:
            successor, seat.successor = seat.successor, None
            if successor is not None:  # it may have loaded code that is old by now
                self._request_stop(successor, "SIGTERM")
        self.to_renew = deque(seat for seat in self.slots if not seat.is_retired)
        self.is_reloading = True
        self.emit("reload.started", processes=len(self.to_renew))
        self.announce.reloading()
        self.wake.set()

    async def run(self) -> SupervisorResult:
        """Supervise until `stop`, or until no process is left."""
        self.emit("fleet.started", processes=self.processes)
        self.turned_at = self.clock.monotonic()
        while not self._is_over():
            self._turn(self.clock.monotonic())
            await self._rest()
        if not self.result.exit_code and self.was_cut_short:
            self.result.exit_code = exit_code_for_signal(self.result.signal)
        code, restarts = self.result.exit_code, self.result.restarts
        self.emit("fleet.stopped", exit_code=code, restarts=restarts)
        return self.result

    def _is_over(self) -> bool:
        if self.supervised:
            return False
        return self.is_ending or all(seat.is_retired for seat in self.slots)

    async def _rest(self) -> None:
        """Wait for an event, or until the next turn or start is due."""
        now = self.clock.monotonic()
        due = [seat.start_at - now for seat in self.slots if self._is_empty(seat)]
        pause = max(0.0, min([TURN_SECONDS, self.announce.every_seconds, *due]))
        if self._is_over():
            return
        try:
            async with asyncio.timeout(pause):
                await self.wake.wait()
        except TimeoutError:
            pass
        self.wake.clear()

    # --- one turn

    def _turn(self, now: float) -> None:
        slept = now - self.turned_at - TURN_SECONDS
        self.turned_at = now
        if slept > SUPERVISOR_STALL_SECONDS:
            # The supervisor stood still: messages sent meanwhile are still unread.
            for member in self.supervised:
                member.last_message_at += slept
        if any(member.is_steady(now) for member in self.supervised):
            self.deaths = 0
        if not self.is_ending:
            self._fill(now)
            self._renew(now)
        self._kill_late(now)
        self._announce_status(now)

    def _is_empty(self, seat: ProcessSlot) -> bool:
        return seat.current is None and not seat.is_retired and not self.is_ending

    def _fill(self, now: float) -> None:
        for seat in self.slots:
            if self._is_empty(seat) and seat.start_at <= now:
                seat.current = self._start(seat)

    def _start(self, seat: ProcessSlot) -> SupervisedProcess | None:
        member = SupervisedProcess(seat, self.clock.monotonic())
        try:
            process = self.fleet.start(
                partial(self._on_message, member), partial(self._ended, member)
            )
        except OSError as error:
            pause = round(seat.back_off(member, self.clock), 1)
            told = str(error)
            self.emit("process.unstarted", seat=seat.number, error=told, pause=pause)
            return None
        member.process = process
        self.supervised.add(member)
        self.emit("process.started", pid=process.pid, seat=seat.number)
        return member

    def _renew(self, now: float) -> None:
        """Renew the next slot, once the one before it is finished."""
        if any(
            member.is_stop_requested or member.slot.successor
            for member in self.supervised
        ):
            return
        while self.to_renew:
            seat = self.to_renew.popleft()
            if seat.current is None:
                seat.start_at = now  # no process to replace: start immediately
                self._fill(now)
            elif not seat.is_retired:
                seat.successor = self._start(seat)
                if seat.successor is None:
                    self._not_renewed(seat, None, 0)
                return
        if self.is_reloading and all(
            not self._is_starting(seat) for seat in self.slots
        ):
            self.is_reloading = False
            self.emit("reload.ended", processes=len(self.supervised))
            self.announce.ready(self._status())

    def _is_starting(self, seat: ProcessSlot) -> bool:
        return seat.current is not None and not seat.current.is_ready

    def _kill_late(self, now: float) -> None:
        for member in self.supervised:
            why = ""
            if member.kill_at <= now:
                why = "it did not end in time"
            elif member.is_silent(now):
                why = "it gives no sign"
            elif member is member.slot.successor and not member.is_ready:
                late = now - member.started_at > START_SECONDS
                why = f"not ready after {START_SECONDS:g} s" if late else ""
            if why:
                self.emit("process.killed", pid=member.process.pid, why=why)
                member.kill_at = member.last_message_at = NEVER
                member.is_stop_requested = True
                member.process.kill()

    def _announce_status(self, now: float) -> None:
        status = self._status()
        if status != self.last_status:
            self.last_status = status
            self.announce.status(status)
        if self.is_ending and self.supervised and now >= self.show_at:
            self.show_at = now + TURN_SECONDS
            left = max(member.grace_left_seconds for member in self.supervised)
            self.show(
                sum(member.last_message.running for member in self.supervised), left
            )
        ready = [member for member in self.supervised if member.is_ready]
        if not ready or any(now - m.last_message_at <= m.lease_seconds for m in ready):
            self.announce.alive()

    def _status(self) -> str:
        ready = [member for member in self.supervised if member.is_ready]
        running = sum(member.last_message.running for member in ready)
        rss = sum(member.last_message.rss_bytes for member in ready) / 2**20
        what = "draining" if self.is_ending else "ready"
        # A process that was replaced no longer counts.
        count = sum(self.is_ending or not member.is_stop_requested for member in ready)
        return (
            f"{count} of {self.processes} workers {what}, "
            f"{running} jobs running, {rss:.0f} MiB"
        )

    # --- messages and exits of processes

    def _on_message(self, member: SupervisedProcess, note: ProcessMessage) -> None:
        now = self.clock.monotonic()
        member.receive(note, now)
        seat = member.slot
        if note.word == "ready":
            self._ready(member, note.tasks)
        elif note.word == "ordered":
            self._retire(seat)
        elif note.wants_recycle and self._may_renew(seat, now):
            self.to_renew.append(seat)
        if note.word != "beat" or self.to_renew:
            self.wake.set()

    def _retire(self, seat: ProcessSlot) -> None:
        """Its process drains by command: no process follows it."""
        seat.is_retired = True
        successor, seat.successor = seat.successor, None
        if successor is not None:
            self._request_stop(successor, "SIGTERM")

    def _may_renew(self, seat: ProcessSlot, now: float) -> bool:
        is_idle = seat not in self.to_renew and seat.successor is None
        return is_idle and now >= seat.renew_at and not self.is_ending

    def _ready(self, member: SupervisedProcess, tasks: int) -> None:
        seat = member.slot
        if seat.successor is member:
            old, seat.current, seat.successor = seat.current, member, None
            if old is not None:
                new_pid, old_pid = member.process.pid, old.process.pid
                self.emit(
                    "process.replaced", pid=new_pid, old_pid=old_pid, seat=seat.number
                )
                self._request_stop(old, "SIGTERM")
        if not self.was_ready:
            self.was_ready = True
            if not tasks:
                self.emit("tasks.missing", cure="give the App imports=(...)")
            if not self.is_ending:
                self.announce.ready(self._status())

    def _ended(self, member: SupervisedProcess, code: int) -> None:
        self.supervised.discard(member)
        seat = member.slot
        if code:
            # Another worker rescues its jobs now, not at the next regular check.
            for other in self.supervised:
                other.process.look_for_deaths()
        if self.is_ending:
            self.was_cut_short |= bool(code) and member.is_ready
            self._leave(seat, member)
        elif member is seat.successor:
            seat.successor = None
            self._not_renewed(seat, member, code)
        elif member is seat.current:
            self._leave(seat, member)
            self._lost(member, code)
        self.wake.set()

    def _leave(self, seat: ProcessSlot, member: SupervisedProcess) -> None:
        if member is seat.current:
            # A starting successor takes the empty slot.
            seat.current, seat.successor = seat.successor, None

    def _lost(self, member: SupervisedProcess, code: int) -> None:
        """The process of a slot ended although the supervisor did not stop it."""
        seat = member.slot
        if member.is_drain_commanded or (self.is_burst and code == 0):
            seat.is_retired = True
            self.emit("process.drained", pid=member.process.pid, exit_code=code)
        elif (
            code in UNRECOVERABLE_EXITS
            and member.error is not None
            and not self.was_ready
        ):
            self._fail(code, member.error)  # it reported the error itself
        elif (member.error or {}).get("code") == StoreMoved.code:
            self._moved(member, code)
        elif code == EXIT_BLOCKED:
            self.result.restarts += 1
            seat.start_at = self.clock.monotonic()
            self.emit("process.blocked", pid=member.process.pid, exit_code=code)
        else:
            self._restart(member, code)

    def _moved(self, member: SupervisedProcess, code: int) -> None:
        """The store has moved: start no worker again, let the others drain."""
        member.slot.is_retired = True
        self.result.exit_code, self.result.error = code, member.error
        self._emit_end(member, code, 0.0)

    def _restart(self, member: SupervisedProcess, code: int) -> None:
        self.result.restarts += 1
        is_start = not member.is_ready and code != EXIT_STORE
        self.deaths += is_start or code not in EXPECTED_EXITS
        pause = member.slot.back_off(member, self.clock)
        self._emit_end(member, code, pause)
        if self.deaths >= DEATHS_MAX:
            self.emit("fleet.crashed", deaths=self.deaths, last_exit=code)
            self.result.last_exit = code
            self._fail(EXIT_CRASH_LOOP, member.error)

    def _not_renewed(
        self, seat: ProcessSlot, member: SupervisedProcess | None, code: int
    ) -> None:
        """A successor did not become ready: the current process keeps the slot."""
        seat.renew_at = self.clock.monotonic() + RENEW_AGAIN_SECONDS
        if member is not None:
            self._emit_end(member, code, RENEW_AGAIN_SECONDS)
        if self.is_reloading:
            self.is_reloading = False
            self.to_renew.clear()
            why = "no process" if member is None else member.end_reason(code)
            self.emit("reload.failed", seat=seat.number, error=why)
            self.announce.ready(f"reload failed: {self._status()}")

    def _emit_end(self, member: SupervisedProcess, code: int, pause: float) -> None:
        self.emit(
            "process.ended",
            pid=member.process.pid,
            seat=member.slot.number,
            exit_code=code,
            pause=round(pause, 1),
            error=member.end_reason(code),
            stack=(member.error or {}).get("traceback", ""),
        )

    # --- ending

    def _fail(self, code: int, error: dict[str, str] | None) -> None:
        self.result.exit_code, self.result.error = code, error
        self._end()
        for member in self.supervised:
            if not member.is_stop_requested:
                self._request_stop(member, "SIGTERM")

    def _end(self) -> None:
        if not self.is_ending:
            self.is_ending = True
            self.to_renew.clear()
            self.announce.stopping()

    def _request_stop(self, member: SupervisedProcess, signal: str) -> None:
        now = self.clock.monotonic()
        grace = 0.0 if member.is_stop_requested else member.grace_seconds
        member.kill_at = min(member.kill_at, now + grace + MARGIN_SECONDS)
        if not member.is_stop_requested:
            member.grace_left_seconds = grace if member.is_ready else 0.0
        member.is_stop_requested = True
        member.process.signal(signal)
