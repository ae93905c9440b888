"""The supervisor: keeps worker processes alive, renews them without a gap, drains them.

Every process has a seat. A seat whose process died is filled again: at once, then with
growing pauses; when all of them keep dying, restarting does not help, and the supervisor
says so and ends. To renew a seat (a reload, a recycling) its successor is started first
and must be ready before the old one is asked to drain: there is no moment without a
worker, and new code that does not come up replaces nobody.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from durio.model.errors import StoreMoved
from durio.ports.clock import Clock
from durio.ports.fleet import Announce, Fleet, Note
from durio.telemetry.emit import Emit
from durio.worker.members import DEATHS_MAX, MARGIN_SECONDS, NEVER, Member, Seat
from durio.worker.watchdog import (
    EXIT_BLOCKED,
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    exit_by,
)

TURN_SECONDS = 1.0
START_SECONDS = 300.0  # for a successor to be ready
RENEW_AGAIN_SECONDS = 30.0  # after a successor failed
OWN_SLEEP_SECONDS = 5.0  # a turn that comes so late: we stood still, not the others
EXIT_CRASH_LOOP = 9
EXIT_STORE = 3
# Usage, store, import, schema: before anybody was ready a restart cannot help.
HOPELESS = frozenset({2, EXIT_STORE, 4, 5})
# Ends that say nothing about the code: somebody asked for them, or waits for the store.
HARMLESS = frozenset({0, EXIT_STORE, EXIT_INTERRUPTED, EXIT_TERMINATED})


@dataclass(slots=True)
class Verdict:
    """How it all ended."""

    exit_code: int = 0
    signal: str | None = None
    restarts: int = 0
    error: dict[str, str] | None = None  # of a worker that could not start
    last_exit: int = 0  # the latest death, where they were too many


@dataclass(slots=True)
class Supervisor:
    """Keeps `processes` workers running until told to stop."""

    processes: int
    fleet: Fleet
    clock: Clock
    emit: Emit
    announce: Announce
    show: Callable[[int, float], None]  # while draining: running, seconds left
    is_burst: bool = False
    seats: list[Seat] = field(init=False)
    members: set[Member] = field(default_factory=set[Member])
    verdict: Verdict = field(default_factory=Verdict)
    is_ending: bool = False
    was_ready: bool = False
    was_cut_short: bool = False
    is_reloading: bool = False
    deaths: int = 0  # in a row, nobody being steady
    round: deque[Seat] = field(default_factory=deque[Seat])  # to be renewed, in order
    turned_at: float = 0.0
    show_at: float = 0.0
    told: str = ""
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.seats = [Seat(number) for number in range(1, self.processes + 1)]

    # --- from outside

    def stop(self, signal: str) -> None:
        """Drain; asked again, pass that on too."""
        is_first = self.verdict.signal is None
        if is_first:
            self.verdict.signal = signal
            self.emit("fleet.stopping", signal=signal, processes=len(self.members))
        self._end()
        for member in self.members:
            # One that drains already must not take the first signal for a second one.
            if not (is_first and member.is_asked):
                self._ask(member, signal)
        self.wake.set()

    def reload(self) -> None:
        """Replace every worker, one after another; asked again, begin again."""
        if self.is_ending:
            return
        for seat in self.seats:
            successor, seat.successor = seat.successor, None
            if successor is not None:  # it may have loaded what is old by now
                self._ask(successor, "SIGTERM")
        self.round = deque(seat for seat in self.seats if not seat.is_retired)
        self.is_reloading = True
        self.emit("reload.started", processes=len(self.round))
        self.announce.reloading()
        self.wake.set()

    async def run(self) -> Verdict:
        """Supervise until told to stop, or until nobody is left to supervise."""
        self.emit("fleet.started", processes=self.processes)
        self.turned_at = self.clock.monotonic()
        while not self._is_over():
            self._turn(self.clock.monotonic())
            await self._rest()
        if not self.verdict.exit_code and self.was_cut_short:
            self.verdict.exit_code = exit_by(self.verdict.signal)
        code, restarts = self.verdict.exit_code, self.verdict.restarts
        self.emit("fleet.stopped", exit_code=code, restarts=restarts)
        return self.verdict

    def _is_over(self) -> bool:
        if self.members:
            return False
        return self.is_ending or all(seat.is_retired for seat in self.seats)

    async def _rest(self) -> None:
        """Until something happens, or it is time for something."""
        now = self.clock.monotonic()
        due = [seat.start_at - now for seat in self.seats if self._is_empty(seat)]
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
        if slept > OWN_SLEEP_SECONDS:
            # We stood still; what they told meanwhile is still to be read.
            for member in self.members:
                member.heard_at += slept
        if any(member.is_steady(now) for member in self.members):
            self.deaths = 0
        if not self.is_ending:
            self._fill(now)
            self._renew(now)
        self._kill_late(now)
        self._tell(now)

    def _is_empty(self, seat: Seat) -> bool:
        return seat.member is None and not seat.is_retired and not self.is_ending

    def _fill(self, now: float) -> None:
        for seat in self.seats:
            if self._is_empty(seat) and seat.start_at <= now:
                seat.member = self._start(seat)

    def _start(self, seat: Seat) -> Member | None:
        member = Member(seat, self.clock.monotonic())
        try:
            process = self.fleet.start(
                partial(self._hear, member), partial(self._ended, member)
            )
        except OSError as error:
            pause = round(seat.back_off(member, self.clock), 1)
            told = str(error)
            self.emit("process.unstarted", seat=seat.number, error=told, pause=pause)
            return None
        member.process = process
        self.members.add(member)
        self.emit("process.started", pid=process.pid, seat=seat.number)
        return member

    def _renew(self, now: float) -> None:
        """The next seat of the round, when the one before is settled."""
        if any(member.is_asked or member.seat.successor for member in self.members):
            return
        while self.round:
            seat = self.round.popleft()
            if seat.member is None:
                seat.start_at = now  # nobody to replace: no reason to wait
                self._fill(now)
            elif not seat.is_retired:
                seat.successor = self._start(seat)
                if seat.successor is None:
                    self._not_renewed(seat, None, 0)
                return
        if self.is_reloading and all(
            not self._is_starting(seat) for seat in self.seats
        ):
            self.is_reloading = False
            self.emit("reload.ended", processes=len(self.members))
            self.announce.ready(self._status())

    def _is_starting(self, seat: Seat) -> bool:
        return seat.member is not None and not seat.member.is_ready

    def _kill_late(self, now: float) -> None:
        for member in self.members:
            why = ""
            if member.kill_at <= now:
                why = "it did not end in time"
            elif member.is_silent(now):
                why = "it gives no sign"
            elif member is member.seat.successor and not member.is_ready:
                late = now - member.started_at > START_SECONDS
                why = f"not ready after {START_SECONDS:g} s" if late else ""
            if why:
                self.emit("process.killed", pid=member.process.pid, why=why)
                member.kill_at = member.heard_at = NEVER
                member.is_asked = True
                member.process.kill()

    def _tell(self, now: float) -> None:
        status = self._status()
        if status != self.told:
            self.told = status
            self.announce.status(status)
        if self.is_ending and self.members and now >= self.show_at:
            self.show_at = now + TURN_SECONDS
            left = max(member.left_seconds for member in self.members)
            self.show(sum(member.last.running for member in self.members), left)
        ready = [member for member in self.members if member.is_ready]
        if not ready or any(now - m.heard_at <= m.lease_seconds for m in ready):
            self.announce.alive()

    def _status(self) -> str:
        ready = [member for member in self.members if member.is_ready]
        running = sum(member.last.running for member in ready)
        rss = sum(member.last.rss_bytes for member in ready) / 2**20
        what = "draining" if self.is_ending else "ready"
        # One that leaves because another has its seat is no longer one of them.
        count = sum(self.is_ending or not member.is_asked for member in ready)
        return (
            f"{count} of {self.processes} workers {what}, "
            f"{running} jobs running, {rss:.0f} MiB"
        )

    # --- what members say and do

    def _hear(self, member: Member, note: Note) -> None:
        now = self.clock.monotonic()
        member.hear(note, now)
        seat = member.seat
        if note.word == "ready":
            self._ready(member, note.tasks)
        elif note.word == "ordered":
            self._retire(seat)
        elif note.wants_recycle and self._may_renew(seat, now):
            self.round.append(seat)
        if note.word != "beat" or self.round:
            self.wake.set()

    def _retire(self, seat: Seat) -> None:
        """Somebody drains the one who sits here: nobody comes after it."""
        seat.is_retired = True
        successor, seat.successor = seat.successor, None
        if successor is not None:
            self._ask(successor, "SIGTERM")

    def _may_renew(self, seat: Seat, now: float) -> bool:
        is_idle = seat not in self.round and seat.successor is None
        return is_idle and now >= seat.renew_at and not self.is_ending

    def _ready(self, member: Member, tasks: int) -> None:
        seat = member.seat
        if seat.successor is member:
            old, seat.member, seat.successor = seat.member, member, None
            if old is not None:
                new_pid, old_pid = member.process.pid, old.process.pid
                self.emit(
                    "process.replaced", pid=new_pid, old_pid=old_pid, seat=seat.number
                )
                self._ask(old, "SIGTERM")
        if not self.was_ready:
            self.was_ready = True
            if not tasks:
                self.emit("tasks.missing", cure="give the App imports=(...)")
            if not self.is_ending:
                self.announce.ready(self._status())

    def _ended(self, member: Member, code: int) -> None:
        self.members.discard(member)
        seat = member.seat
        if code:
            # What it held goes back now, not when somebody happens to look.
            for other in self.members:
                other.process.look()
        if self.is_ending:
            self.was_cut_short |= bool(code) and member.is_ready
            self._leave(seat, member)
        elif member is seat.successor:
            seat.successor = None
            self._not_renewed(seat, member, code)
        elif member is seat.member:
            self._leave(seat, member)
            self._lost(member, code)
        self.wake.set()

    def _leave(self, seat: Seat, member: Member) -> None:
        if member is seat.member:
            # A successor that is on its way simply takes the empty seat.
            seat.member, seat.successor = seat.successor, None

    def _lost(self, member: Member, code: int) -> None:
        """A process ended that should not have, or not yet."""
        seat = member.seat
        if member.is_ordered or (self.is_burst and code == 0):
            seat.is_retired = True
            self.emit("process.drained", pid=member.process.pid, exit_code=code)
        elif code in HOPELESS and member.error is not None and not self.was_ready:
            self._fail(code, member.error)  # by its own word, not by chance
        elif (member.error or {}).get("code") == StoreMoved.code:
            self._moved(member, code)
        elif code == EXIT_BLOCKED:
            self.verdict.restarts += 1
            seat.start_at = self.clock.monotonic()
            self.emit("process.blocked", pid=member.process.pid, exit_code=code)
        else:
            self._restart(member, code)

    def _moved(self, member: Member, code: int) -> None:
        """No worker will begin there again; those that still drain do so in peace."""
        member.seat.is_retired = True
        self.verdict.exit_code, self.verdict.error = code, member.error
        self._tell_end(member, code, 0.0)

    def _restart(self, member: Member, code: int) -> None:
        self.verdict.restarts += 1
        is_start = not member.is_ready and code != EXIT_STORE
        self.deaths += is_start or code not in HARMLESS
        pause = member.seat.back_off(member, self.clock)
        self._tell_end(member, code, pause)
        if self.deaths >= DEATHS_MAX:
            self.emit("fleet.crashed", deaths=self.deaths, last_exit=code)
            self.verdict.last_exit = code
            self._fail(EXIT_CRASH_LOOP, member.error)

    def _not_renewed(self, seat: Seat, member: Member | None, code: int) -> None:
        """A successor did not come up: whoever has the seat keeps it."""
        seat.renew_at = self.clock.monotonic() + RENEW_AGAIN_SECONDS
        if member is not None:
            self._tell_end(member, code, RENEW_AGAIN_SECONDS)
        if self.is_reloading:
            self.is_reloading = False
            self.round.clear()
            why = "no process" if member is None else member.why(code)
            self.emit("reload.failed", seat=seat.number, error=why)
            self.announce.ready(f"reload failed: {self._status()}")

    def _tell_end(self, member: Member, code: int, pause: float) -> None:
        self.emit(
            "process.ended",
            pid=member.process.pid,
            seat=member.seat.number,
            exit_code=code,
            pause=round(pause, 1),
            error=member.why(code),
            stack=(member.error or {}).get("traceback", ""),
        )

    # --- ending

    def _fail(self, code: int, error: dict[str, str] | None) -> None:
        self.verdict.exit_code, self.verdict.error = code, error
        self._end()
        for member in self.members:
            if not member.is_asked:
                self._ask(member, "SIGTERM")

    def _end(self) -> None:
        if not self.is_ending:
            self.is_ending = True
            self.round.clear()
            self.announce.stopping()

    def _ask(self, member: Member, signal: str) -> None:
        now = self.clock.monotonic()
        grace = 0.0 if member.is_asked else member.grace_seconds
        member.kill_at = min(member.kill_at, now + grace + MARGIN_SECONDS)
        if not member.is_asked:
            member.left_seconds = grace if member.is_ready else 0.0
        member.is_asked = True
        member.process.signal(signal)
