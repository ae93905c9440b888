"""The supervisor: keeps worker processes alive, renews them without a gap, drains them.

Every process has a slot. When a process dies, the supervisor starts another in its slot:
first immediately, then after growing pauses. After 10 deaths in a row restarting does not
help: the supervisor reports it and ends. To renew a slot (a reload, a recycling) it starts
the successor first and stops the old process when the successor is ready. So there is
always a worker, and new code that does not start replaces nothing.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from durio.model.errors import StoreMoved
from durio.model.quantities import counted
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
START_SECONDS = 300.0  # time for a successor to become ready
RENEW_AGAIN_SECONDS = 30.0  # pause after a successor failed
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
        for worker in self.supervised:
            # A worker that drains already must not count this as a second signal.
            if not (is_first and worker.is_stop_requested):
                self._request_stop(worker, signal)
        self.wake.set()

    def reload(self) -> None:
        """Replace every worker, one after another; a second call starts over."""
        if self.is_ending:
            return
        for slot in self.slots:
            successor, slot.successor = slot.successor, None
            if successor is not None:  # it may have loaded code that is old by now
                self._request_stop(successor, "SIGTERM")
        self.to_renew = deque(slot for slot in self.slots if not slot.is_retired)
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
        return self.is_ending or all(slot.is_retired for slot in self.slots)

    async def _rest(self) -> None:
        """Wait for an event, or until the next turn or start is due."""
        now = self.clock.monotonic()
        due = [slot.start_at - now for slot in self.slots if self._is_empty(slot)]
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
            for worker in self.supervised:
                worker.last_message_at += slept
        if any(worker.is_steady(now) for worker in self.supervised):
            self.deaths = 0
        if not self.is_ending:
            self._fill(now)
            self._renew(now)
        self._kill_late(now)
        self._announce_status(now)

    def _is_empty(self, slot: ProcessSlot) -> bool:
        return slot.current is None and not slot.is_retired and not self.is_ending

    def _fill(self, now: float) -> None:
        for slot in self.slots:
            if self._is_empty(slot) and slot.start_at <= now:
                slot.current = self._start(slot)

    def _start(self, slot: ProcessSlot) -> SupervisedProcess | None:
        worker = SupervisedProcess(slot, self.clock.monotonic())
        try:
            process = self.fleet.start(
                partial(self._on_message, worker), partial(self._ended, worker)
            )
        except OSError as error:
            pause = round(slot.back_off(worker, self.clock), 1)
            text = str(error)
            self.emit("process.unstarted", seat=slot.number, error=text, pause=pause)
            return None
        worker.process = process
        self.supervised.add(worker)
        self.emit("process.started", pid=process.pid, seat=slot.number)
        return worker

    def _renew(self, now: float) -> None:
        """Renew the next slot, once the slot before it is finished."""
        if any(
            worker.is_stop_requested or worker.slot.successor
            for worker in self.supervised
        ):
            return
        while self.to_renew:
            slot = self.to_renew.popleft()
            if slot.current is None:
                slot.start_at = now  # no process to replace: start immediately
                self._fill(now)
            elif not slot.is_retired:
                slot.successor = self._start(slot)
                if slot.successor is None:
                    self._not_renewed(slot, None, 0)
                return
        if self.is_reloading and all(
            not self._is_starting(slot) for slot in self.slots
        ):
            self.is_reloading = False
            self.emit("reload.ended", processes=len(self.supervised))
            self.announce.ready(self._status())

    def _is_starting(self, slot: ProcessSlot) -> bool:
        return slot.current is not None and not slot.current.is_ready

    def _kill_late(self, now: float) -> None:
        for worker in self.supervised:
            why = ""
            if worker.kill_at <= now:
                why = "it did not end in time"
            elif worker.is_silent(now):
                why = "no sign of life"
            elif worker is worker.slot.successor and not worker.is_ready:
                late = now - worker.started_at > START_SECONDS
                why = f"not ready after {START_SECONDS:g} s" if late else ""
            if why:
                self.emit("process.killed", pid=worker.process.pid, why=why)
                worker.kill_at = worker.last_message_at = NEVER
                worker.is_stop_requested = True
                worker.process.kill()

    def _announce_status(self, now: float) -> None:
        status = self._status()
        if status != self.last_status:
            self.last_status = status
            self.announce.status(status)
        if self.is_ending and self.supervised and now >= self.show_at:
            self.show_at = now + TURN_SECONDS
            left = max(worker.grace_left_seconds for worker in self.supervised)
            self.show(
                sum(worker.last_message.running for worker in self.supervised), left
            )
        ready = [worker for worker in self.supervised if worker.is_ready]
        if not ready or any(now - m.last_message_at <= m.lease_seconds for m in ready):
            self.announce.alive()

    def _status(self) -> str:
        ready = [worker for worker in self.supervised if worker.is_ready]
        running = sum(worker.last_message.running for worker in ready)
        rss = sum(worker.last_message.rss_bytes for worker in ready) / 2**20
        what = "draining" if self.is_ending else "ready"
        # A process that was replaced no longer counts.
        count = sum(self.is_ending or not worker.is_stop_requested for worker in ready)
        return (
            f"{count} of {self.processes} workers {what}, "
            f"{counted(running, 'job')} running, {rss:.0f} MiB"
        )

    # --- messages and exits of processes

    def _on_message(self, worker: SupervisedProcess, message: ProcessMessage) -> None:
        now = self.clock.monotonic()
        worker.receive(message, now)
        slot = worker.slot
        if message.word == "ready":
            self._ready(worker, message.tasks)
        elif message.word == "ordered":
            self._retire(slot)
        elif message.wants_recycle and self._may_renew(slot, now):
            self.to_renew.append(slot)
        if message.word != "beat" or self.to_renew:
            self.wake.set()

    def _retire(self, slot: ProcessSlot) -> None:
        """Retire a slot whose process drains by command: no process follows it."""
        slot.is_retired = True
        successor, slot.successor = slot.successor, None
        if successor is not None:
            self._request_stop(successor, "SIGTERM")

    def _may_renew(self, slot: ProcessSlot, now: float) -> bool:
        is_idle = slot not in self.to_renew and slot.successor is None
        return is_idle and now >= slot.renew_at and not self.is_ending

    def _ready(self, worker: SupervisedProcess, tasks: int) -> None:
        slot = worker.slot
        if slot.successor is worker:
            old, slot.current, slot.successor = slot.current, worker, None
            if old is not None:
                new_pid, old_pid = worker.process.pid, old.process.pid
                self.emit(
                    "process.replaced", pid=new_pid, old_pid=old_pid, seat=slot.number
                )
                self._request_stop(old, "SIGTERM")
        if not self.was_ready:
            self.was_ready = True
            if not tasks:
                self.emit("tasks.missing", cure="give the App imports=(...)")
            if not self.is_ending:
                self.announce.ready(self._status())

    def _ended(self, worker: SupervisedProcess, code: int) -> None:
        self.supervised.discard(worker)
        slot = worker.slot
        if code:
            # Another worker rescues its jobs now, not at the next regular check.
            for other in self.supervised:
                other.process.look_for_deaths()
        if self.is_ending:
            self.was_cut_short |= bool(code) and worker.is_ready
            self._leave(slot, worker)
        elif worker is slot.successor:
            slot.successor = None
            self._not_renewed(slot, worker, code)
        elif worker is slot.current:
            self._leave(slot, worker)
            self._lost(worker, code)
        self.wake.set()

    def _leave(self, slot: ProcessSlot, worker: SupervisedProcess) -> None:
        if worker is slot.current:
            # A starting successor takes the empty slot.
            slot.current, slot.successor = slot.successor, None

    def _lost(self, worker: SupervisedProcess, code: int) -> None:
        """Handle the end of a process that the supervisor did not stop."""
        slot = worker.slot
        if worker.is_drain_commanded or (self.is_burst and code == 0):
            slot.is_retired = True
            self.emit("process.drained", pid=worker.process.pid, exit_code=code)
        elif (
            code in UNRECOVERABLE_EXITS
            and worker.error is not None
            and not self.was_ready
        ):
            self._fail(code, worker.error)  # it reported the error itself
        elif (worker.error or {}).get("code") == StoreMoved.code:
            self._moved(worker, code)
        elif code == EXIT_BLOCKED:
            self.result.restarts += 1
            slot.start_at = self.clock.monotonic()
            self.emit("process.blocked", pid=worker.process.pid, exit_code=code)
        else:
            self._restart(worker, code)

    def _moved(self, worker: SupervisedProcess, code: int) -> None:
        """Start no more workers and let the others drain: the store has moved."""
        worker.slot.is_retired = True
        self.result.exit_code, self.result.error = code, worker.error
        self._emit_end(worker, code, 0.0)

    def _restart(self, worker: SupervisedProcess, code: int) -> None:
        self.result.restarts += 1
        is_start = not worker.is_ready and code != EXIT_STORE
        self.deaths += is_start or code not in EXPECTED_EXITS
        pause = worker.slot.back_off(worker, self.clock)
        self._emit_end(worker, code, pause)
        if self.deaths >= DEATHS_MAX:
            self.emit("fleet.crashed", deaths=self.deaths, last_exit=code)
            self.result.last_exit = code
            self._fail(EXIT_CRASH_LOOP, worker.error)

    def _not_renewed(
        self, slot: ProcessSlot, worker: SupervisedProcess | None, code: int
    ) -> None:
        """Keep the current process in the slot: its successor did not become ready."""
        slot.renew_at = self.clock.monotonic() + RENEW_AGAIN_SECONDS
        if worker is not None:
            self._emit_end(worker, code, RENEW_AGAIN_SECONDS)
        if self.is_reloading:
            self.is_reloading = False
            self.to_renew.clear()
            why = "no process" if worker is None else worker.end_reason(code)
            self.emit("reload.failed", seat=slot.number, error=why)
            self.announce.ready(f"reload failed: {self._status()}")

    def _emit_end(self, worker: SupervisedProcess, code: int, pause: float) -> None:
        self.emit(
            "process.ended",
            pid=worker.process.pid,
            seat=worker.slot.number,
            exit_code=code,
            pause=round(pause, 1),
            error=worker.end_reason(code),
            stack=(worker.error or {}).get("traceback", ""),
        )

    # --- ending

    def _fail(self, code: int, error: dict[str, str] | None) -> None:
        self.result.exit_code, self.result.error = code, error
        self._end()
        for worker in self.supervised:
            if not worker.is_stop_requested:
                self._request_stop(worker, "SIGTERM")

    def _end(self) -> None:
        if not self.is_ending:
            self.is_ending = True
            self.to_renew.clear()
            self.announce.stopping()

    def _request_stop(self, worker: SupervisedProcess, signal: str) -> None:
        now = self.clock.monotonic()
        grace = 0.0 if worker.is_stop_requested else worker.grace_seconds
        worker.kill_at = min(worker.kill_at, now + grace + MARGIN_SECONDS)
        if not worker.is_stop_requested:
            worker.grace_left_seconds = grace if worker.is_ready else 0.0
        worker.is_stop_requested = True
        worker.process.signal(signal)
