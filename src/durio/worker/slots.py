"""Slots: who runs, who waits claimed but unstarted, and how many more are wanted.

Attempts are plain asyncio tasks owned here: one past its hard limit is abandoned, and a
TaskGroup would wait for it. Abandoned ones are counted and bounded.

**The last chance runs alone.** A job that lost two workers in a row starts only when
nothing else runs here, after the mark `alone` is in the store. If it kills its worker
again it is convicted, and no innocent neighbour with it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping

from durio.model.errors import DurioError
from durio.model.job import Claim
from durio.model.outcome import Kind, Outcome, Reason
from durio.model.transitions import LOST_MAX
from durio.ports.handler import Handler
from durio.telemetry.emit import Emit, JobEvent
from durio.telemetry.names import JOB_ABANDONED, JOB_RELEASED, JOB_STARTED
from durio.worker.attempt import Bench
from durio.worker.buffer import Buffer, Sort
from durio.worker.deadline import Deadlines
from durio.worker.errand import ChildAttempt, withdraw_waiting
from durio.worker.finish import Ended, Outbox, event_of
from durio.worker.inflight import Attempt, Why
from durio.worker.quotas import Quotas
from durio.worker.unrunnable import buried, parked
from durio.worker.versions import Versions

# A job that must run alone may hold its neighbours up for so long, and so rarely.
LONELY_WAIT_SECONDS = 10.0
LONELY_PAUSE_SECONDS = 60.0
SKIP_SECONDS = 60.0
ABANDON_SECONDS = 5.0  # for a cancelled attempt to end, before it is told about
RTT_WEIGHT, DURATION_WEIGHT = 0.2, 0.05
# Below this ratio of round trip to job length, holding jobs ahead gains nothing.
SLOW_JOB_RATIO = 0.01
HOARD_SECONDS = 1.0  # nothing has ended for so long: hold nothing ahead


class Slots:
    """Runs claims, at most `concurrency` at once."""

    def __init__(  # noqa: PLR0913 - the parts of a worker, joined in one place
        self,
        *,
        bench: Bench,
        handlers: Mapping[str, Handler],
        outbox: Outbox,
        emit: Emit,
        nudge: Callable[[], None],
        tell_hooks: Callable[[list[JobEvent]], None],
        has_before: bool,
        overwhelmed: Callable[[int], None],
        versions: Versions,
        quotas: Quotas | None = None,
        sort: Sort | None = None,
    ) -> None:
        settings = bench.settings.worker
        self._bench = bench
        self._handlers = handlers
        self._outbox = outbox
        self._emit = emit
        self._nudge = nudge
        self._tell_hooks = tell_hooks
        self._overwhelmed = overwhelmed
        self._versions = versions
        self._quotas = quotas  # None: no queue has slots or prefetch of its own
        self._has_before = has_before
        self._tells_started = False  # see `add`
        self._loop = asyncio.get_running_loop()
        self.concurrency = settings.concurrency
        self._prefetch = settings.prefetch
        self.running: dict[bytes, Attempt] = {}
        self.ended = 0  # attempts
        self.buffer = Buffer(quotas, sort)
        self._lonely: deque[tuple[float, Claim]] = deque()
        self._alone: Claim | None = None  # its mark is on the way, or it runs
        self._abandoned: set[asyncio.Task[None]] = set()
        self._hanging: set[asyncio.Task[None]] = set()  # longer than it takes to tidy
        self._is_closed = False
        self._rtt_seconds, self._duration_seconds = 0.002, 1.0
        self._ended_at = float("-inf")  # the last end of an attempt
        self.target = 0  # how many to hold ahead, see `round_trip`
        self._skips_until = 0.0
        self.deadlines = Deadlines(self.running, self._give_up, settings.block_seconds)

    # --- how many more

    @property
    def want(self) -> int:
        """How many claims the next exchange should ask for."""
        if self._is_closed or self._lonely or self._alone is not None:
            return 0
        if len(self._abandoned) >= self._bench.settings.worker.abandoned_max:
            return 0
        free = self.concurrency - len(self.running)
        if self._quotas is not None:
            return self._quotas.want(free, self.target, len(self.buffer))
        return max(0, free + self.target - len(self.buffer))

    @property
    def is_idle(self) -> bool:
        """Nothing runs and nothing waits to run."""
        return not self.running and not self.buffer and not self._lonely

    def round_trip(self, seconds: float) -> None:
        """How long the last exchange took; so much is held ahead from now on.

        Enough for two round trips, and nothing for slow jobs, or while nobody knows
        how slow they are: who hoards them takes them from others and blurs priorities.
        """
        self._rtt_seconds += RTT_WEIGHT * (seconds - self._rtt_seconds)
        duration = max(self._duration_seconds, 1e-6)
        if self._rtt_seconds < duration * SLOW_JOB_RATIO or self._is_stuck():
            self.target = 0
        else:
            ahead = -(-2 * self._rtt_seconds * self.concurrency // duration)
            self.target = min(self._prefetch, int(ahead))

    # --- starting

    def add(self, claims: Iterable[Claim]) -> None:
        """Claims from an exchange; those already in our hands are known (a resync)."""
        # Asked once for all of them: somebody may have begun to listen.
        self._tells_started = self._has_before or self._emit.wants(JOB_STARTED)
        held = {claim.id for claim in self.buffer} | {c.id for _, c in self._lonely}
        if self._alone is not None:
            held.add(self._alone.id)
        new: list[Claim] = []
        for claim in claims:
            if claim.id in self.running or claim.id in held:
                continue
            if self._is_closed:
                self.give_back(claim)
            elif claim.lost >= LOST_MAX - 1 and not self._has_own_process(claim):
                self._lonely.append((self._loop.time(), claim))
            else:
                new.append(claim)
        self.buffer.add(new)
        if self._lonely:
            self._isolate()
        self.fill()

    def fill(self) -> None:
        """Start what waits, as far as there are slots."""
        if self._lonely or self._alone is not None:
            return
        running, buffer = self.running, self.buffer
        if self._quotas is None:
            while buffer and len(running) < self.concurrency:
                self._start(buffer.popleft())
            return
        while len(running) < self.concurrency:
            claim = self._quotas.take_next(buffer)
            if claim is None:
                return
            self._start(claim)

    def _start(self, claim: Claim) -> None:
        handler = self._handlers.get(claim.task)
        if handler is None:
            self._park(claim)
            return
        try:
            if handler.is_process:
                attempt = ChildAttempt(claim, handler, self._bench, self)
            else:
                attempt = Attempt(claim, handler, self._loop.time(), self._bench)
        except DurioError as error:
            self._bury(claim, error, Reason.BAD_PAYLOAD)
            return
        self.running[claim.id] = attempt
        if self._quotas is not None:
            self._quotas.starts(claim)
        if isinstance(attempt, ChildAttempt):
            attempt.send()
            return
        self.deadlines.watch(attempt)
        attempt.task_of_loop = asyncio.Task(self._run(attempt), loop=self._loop)
        if self._tells_started:
            self._tell_started(attempt)

    # --- attempts in child processes

    def begun(self, attempt: Attempt, *, is_first: bool) -> None:
        """A child has it: its time counts from now on."""
        self.deadlines.watch(attempt)
        if self._tells_started and is_first:
            self._tell_started(attempt)

    def _has_own_process(self, claim: Claim) -> bool:
        """Whether a crash would be its own, and nobody else's."""
        handler = self._handlers.get(claim.task)
        return handler is not None and handler.is_process

    def _tell_started(self, attempt: Attempt) -> None:
        event = event_of(attempt, JOB_STARTED)
        self._emit.jobs([event])
        self._tell_hooks([event])

    async def _run(self, attempt: Attempt) -> None:
        outcome, event = await self._bench.make(attempt)
        if attempt.is_over:
            return  # abandoned or fenced meanwhile: its word no longer counts
        settle = self._settle if event is None else self.over
        settle(attempt, outcome, event)

    def over(self, attempt: Attempt, outcome: Outcome, event: JobEvent | None) -> None:
        """It has ended; arguments that did not fit wait for what the store knows."""
        judge = self._versions.judge
        if event is None or not judge(attempt, outcome, event, self._settle):
            self._settle(attempt, outcome, event)

    def _settle(
        self, attempt: Attempt, outcome: Outcome, event: JobEvent | None
    ) -> None:
        attempt.is_over = True
        self.ended += 1
        attempt.ended = self._ended_at = now = self._loop.time()
        self._duration_seconds += DURATION_WEIGHT * (
            now - attempt.started - self._duration_seconds
        )
        claim = attempt.claim
        del self.running[claim.id]
        if self._quotas is not None:
            self._quotas.ends(claim)
        self._outbox.add(Ended(outcome, attempt, event))
        if self._alone is not None and self._alone.id == claim.id:
            self._alone = None
        if self._lonely:
            self._isolate()
        elif self.buffer:
            self.fill()
        self._nudge()

    # --- jobs that this worker does not know

    @property
    def skips_unknown(self) -> bool:
        """For a while after meeting one it claims known tasks only.

        Then it looks at all of them again: somebody must find those that nobody knew
        for too long.
        """
        return self._loop.time() < self._skips_until

    def _park(self, claim: Claim) -> None:
        self._skips_until = self._loop.time() + SKIP_SECONDS
        day = self._bench.settings.worker.unknown_task_seconds
        self._outbox.add(parked(claim, self._bench.clock.now(), day))
        self._nudge()

    def _bury(self, claim: Claim, error: DurioError, reason: str) -> None:
        self._outbox.add(buried(claim, error, reason, self._bench.clock.now()))
        self._nudge()

    # --- jobs that run alone

    def _isolate(self) -> None:
        """Hold everything else back; when nothing runs, ask for the mark."""
        self._empty_buffer()
        since, claim = self._lonely[0]
        if self.running or self._alone is not None:
            if self._loop.time() - since > LONELY_WAIT_SECONDS and self._alone is None:
                self._lonely.popleft()
                self.give_back(claim, LONELY_PAUSE_SECONDS)
            return
        self._lonely.popleft()
        self._alone = claim
        mark = Outcome(claim.id, claim.claim_no, Kind.ALONE)
        self._outbox.add(Ended(mark, None, None))
        self._nudge()

    def settle_alone(self, refused: Iterable[bytes]) -> None:
        """The store has answered: start the job whose mark is written."""
        claim = self._alone
        if claim is None or claim.id in self.running:
            return
        if claim.id in refused:
            self._alone = None
            self.fill()
        else:
            self._start(claim)
            if claim.id not in self.running:
                self._alone = None

    @property
    def awaits_mark(self) -> bool:
        """Whether an `alone` mark is on its way to the store."""
        return self._alone is not None and self._alone.id not in self.running

    def check_waiting(self) -> None:
        """Let go of what waits too long behind slow jobs; called now and then."""
        if self._lonely:
            self._isolate()
        elif self.buffer and self._is_stuck():
            self.target = 0
            self._empty_buffer()

    def _is_stuck(self) -> bool:
        return self._loop.time() - self._ended_at > HOARD_SECONDS

    # --- ending early

    def _give_up(self, attempt: Attempt) -> None:
        """The hard limit: record it, cancel, abandon."""
        outcome, event = self._bench.timed_out(attempt)
        self._abandon(attempt)
        self.over(attempt, outcome, event)
        task = attempt.task_of_loop
        if task is not None and attempt.call is None:  # a thread's task waits on
            task.cancel()

    def _abandon(self, attempt: Attempt) -> None:
        """Nobody waits for it any more; it is counted until it really ends."""
        task = attempt.task_of_loop
        if task is not None:
            self._abandoned.add(task)
            task.add_done_callback(self._abandoned.discard)
            self._loop.call_later(ABANDON_SECONDS, self._hangs_on, task, attempt)
        attempt.abandon()

    def _hangs_on(self, task: "asyncio.Task[None]", attempt: Attempt) -> None:
        """It had its time to clean up: code that ignores its end is told, and counts."""
        if task.done():
            return
        self._emit.jobs([event_of(attempt, JOB_ABANDONED)])
        self._hanging = {t for t in self._hanging if not t.done()} | {task}
        if len(self._hanging) >= self._bench.settings.worker.abandoned_max:
            self._overwhelmed(len(self._hanging))

    @property
    def hangs(self) -> bool:
        """Whether abandoned code still runs: a process must not wait for it."""
        return bool(self._abandoned)

    def cancel(self, job_id: bytes, claim_no: int) -> None:
        """Somebody asked to cancel this running job."""
        attempt = self.running.get(job_id)
        if attempt is not None and attempt.claim.claim_no == claim_no:
            attempt.interrupt(Why.CANCEL)

    def give_back(self, claim: Claim, delay_seconds: float = 0.0) -> None:
        """A claim that never started goes back, uncharged."""
        outcome = Outcome(
            claim.id, claim.claim_no, Kind.RELEASE, delay_seconds=delay_seconds
        )
        self._outbox.add(Ended(outcome, None, None))
        self._nudge()

    def _empty_buffer(self, lanes: Collection[str] | None = None) -> None:
        for claim in self.buffer.take_all(lanes):
            self.give_back(claim)

    def hold_back(self, lanes: Collection[str]) -> None:
        """These lanes are paused: what waits for a slot goes back."""
        self._empty_buffer(lanes)
        for waiting in [w for w in self._lonely if w[1].lane in lanes]:
            self._lonely.remove(waiting)
            self.give_back(waiting[1])
        withdraw_waiting(a for a in self.running.values() if a.claim.lane in lanes)

    def close(self) -> None:
        """Start nothing more; what was not started goes back."""
        self._is_closed = True
        self._empty_buffer()
        while self._lonely:
            self.give_back(self._lonely.popleft()[1])
        if self._alone is not None and self._alone.id not in self.running:
            self.give_back(self._alone)
            self._alone = None
        withdraw_waiting(self.running.values())

    def interrupt_all(self, why: Why) -> None:
        """Cancel everything that runs."""
        for attempt in list(self.running.values()):
            attempt.interrupt(why)

    def release_all(self) -> None:
        """What still hangs on after a cancel is given back and abandoned."""
        for attempt in list(self.running.values()):
            outcome = Outcome(attempt.claim.id, attempt.claim.claim_no, Kind.RELEASE)
            self._abandon(attempt)
            self.over(attempt, outcome, event_of(attempt, JOB_RELEASED))

    def lose_all(self) -> None:
        """The lease is lost: cancel what runs, forget everything, write nothing."""
        for attempt in list(self.running.values()):
            attempt.interrupt(Why.FENCED)
            attempt.is_over = True
            self._abandon(attempt)
        self.running.clear()
        self.buffer.take_all()
        self._lonely.clear()
        if self._quotas is not None:
            self._quotas.clear()
        self._alone = None
