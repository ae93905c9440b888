"""Slots: which attempts run, which claims wait to start, and how many more are wanted.

Attempts are plain asyncio tasks owned here: an attempt past its hard limit is abandoned,
and a TaskGroup would wait for it. Abandoned attempts are counted, and their number is
limited.

**The last chance runs alone.** A job that lost two workers in a row starts only when
nothing else runs here, after the mark `alone` is in the store. If its worker dies again,
the job is the cause and becomes dead; no other job is charged with it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable

from durio.model.errors import DurioError
from durio.model.job import Claim
from durio.model.outcome import Outcome, OutcomeKind, Reason
from durio.model.transitions import LOST_MAX
from durio.ports.handler import TaskHandlers
from durio.telemetry.emit import Emit, JobEvent
from durio.telemetry.names import JOB_ABANDONED, JOB_RELEASED, JOB_STARTED
from durio.worker.batch_runner import BatchRunner
from durio.worker.batches import Batches
from durio.worker.child_attempt import ChildAttempt, withdraw_waiting
from durio.worker.deadline import Deadlines
from durio.worker.first_steps import FirstSteps, LeaseCheck
from durio.worker.inflight import Attempt, InterruptReason
from durio.worker.lanes import ClaimBuffer, Quotas, Sort
from durio.worker.outcome_buffer import OutcomeBuffer, UnsentOutcome, event_of
from durio.worker.plan_changes import PlanChanges
from durio.worker.plan_inputs import FailedInput
from durio.worker.unrunnable import (
    EndAttempt,
    TaskVersions,
    dead_outcome,
    parked_or_dead,
)

# A job that must run alone delays the others for at most 10 s, then pauses for 60 s.
ALONE_WAIT_SECONDS = 10.0
ALONE_PAUSE_SECONDS = 60.0
SKIP_SECONDS = 60.0
ABANDON_SECONDS = 5.0  # time for a cancelled attempt to end before it is reported
RTT_WEIGHT, DURATION_WEIGHT, PAYLOAD_WEIGHT = 0.2, 0.05, 0.2
PREFETCH_BYTES = 16 << 20  # of arguments, in claims that wait for a slot
# Below this ratio of round trip to job duration, prefetched jobs gain nothing.
SLOW_JOB_RATIO = 0.01
PREFETCH_STALL_SECONDS = 1.0  # without an ended attempt for this long, do not prefetch


class Slots:
    """Runs claims, at most `concurrency` at once."""

    def __init__(  # noqa: PLR0913 - the parts of a worker
        self,
        *,
        runner: BatchRunner,
        lease: LeaseCheck,
        handlers: TaskHandlers,
        outcomes: OutcomeBuffer,
        emit: Emit,
        nudge: Callable[[], None],
        notify_hooks: Callable[[list[JobEvent]], None],
        has_before: bool,
        on_too_many_abandoned: Callable[[int], None],
        versions: TaskVersions,
        plan_changes: PlanChanges,
        quotas: Quotas | None = None,
        sort: Sort | None = None,
        has_time_limits: bool = True,
    ) -> None:
        settings = runner.settings.worker
        self.runner = runner
        self.lease = lease
        self._handlers = handlers
        self._outcomes = outcomes
        self._emit = emit
        self._nudge = nudge
        self._notify_hooks = notify_hooks
        self._on_too_many_abandoned = on_too_many_abandoned
        self._versions = versions
        self._plan_changes = plan_changes
        self._quotas = quotas  # None: no queue has slots or prefetch of its own
        self._has_before = has_before
        self.reports_started = False  # whether anyone listens to starts; see `add`
        self._loop = asyncio.get_running_loop()
        self.concurrency = self.capacity = settings.concurrency
        self._prefetch = settings.prefetch
        self.running: dict[bytes, Attempt] = {}
        self.ended = 0  # number of ended attempts
        self.buffer = ClaimBuffer(quotas, sort)
        self._to_run_alone: deque[tuple[float, Claim]] = deque()
        # The claim whose mark is being sent, or that runs alone.
        self._alone: Claim | None = None
        self._abandoned: set[asyncio.Task[None]] = set()
        self._hanging: set[asyncio.Task[None]] = set()  # abandoned more than 5 s ago
        self.is_closed = False  # starts no more jobs, and claims none
        self._rtt_seconds, self._duration_seconds = 0.002, 1.0
        self._payload_bytes = 0.0  # of recent claims, the mean; rises at once
        self._ended_at = float("-inf")  # when the last attempt ended
        self.target = 0  # how many claims to prefetch, see `round_trip`
        self._skips_until = 0.0
        self._first_steps = FirstSteps(runner, self._begin, self.end_attempt)
        self.deadlines = Deadlines(
            self.running, self._time_out, settings.block_seconds, is_on=has_time_limits
        )
        # Each job that joins the call of another one adds 1 to `capacity`.
        self.batches = Batches(self, runner, versions, quotas)

    # --- how many more to claim

    @property
    def want(self) -> int:
        """How many claims the next exchange should request."""
        if self.is_closed or self._to_run_alone or self._alone is not None:
            return 0
        if len(self._abandoned) >= self.runner.settings.worker.abandoned_max:
            return 0
        free = self.capacity - len(self.running)
        if self._quotas is not None:
            return self._quotas.want(free, self.target, len(self.buffer))
        return max(0, free + self.target - len(self.buffer))

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.buffer and not self._to_run_alone

    def round_trip(self, seconds: float) -> None:
        """Set the prefetch from the duration of the last exchange.

        Prefetch is enough for two round trips, and less for large arguments. It is 0 for
        slow jobs, and while no attempt has ended for 1 s: waiting claims are kept from
        other workers, and from jobs of higher priority.
        """
        self._rtt_seconds += RTT_WEIGHT * (seconds - self._rtt_seconds)
        duration = max(self._duration_seconds, 1e-6)
        if self._rtt_seconds < duration * SLOW_JOB_RATIO or self._is_stuck():
            self.target = 0
        else:
            ahead = -(-2 * self._rtt_seconds * self.concurrency // duration)
            room = PREFETCH_BYTES // max(self._payload_bytes, 1)
            self.target = int(min(self._prefetch, ahead, room))

    # --- starting

    def add(self, claims: Iterable[Claim]) -> None:
        """Start or queue claims from an exchange; a resync may repeat known claims."""
        # Checked once per exchange, because a listener may have been added.
        self.reports_started = self._has_before or self._emit.wants(JOB_STARTED)
        held = {claim.id for claim in self.buffer} | {
            c.id for _, c in self._to_run_alone
        }
        if self._alone is not None:
            held.add(self._alone.id)
        new: list[Claim] = []
        for claim in claims:
            if claim.id in self.running or claim.id in held:
                continue
            if self.is_closed:
                self.release(claim)
            elif claim.lost >= LOST_MAX - 1 and not self._has_own_process(claim):
                self._to_run_alone.append((self._loop.time(), claim))
            else:
                new.append(claim)
        self._measure(new)
        self.buffer.add(new)
        if self._to_run_alone:
            self._isolate()
        self.fill()
        if self.batches.open:
            self.batches.draw()

    def _measure(self, claims: list[Claim]) -> None:
        if not claims:
            return
        size = sum(len(claim.payload) for claim in claims) / len(claims)
        older = PAYLOAD_WEIGHT * (size - self._payload_bytes) + self._payload_bytes
        self._payload_bytes = max(size, older)

    def fill(self) -> None:
        """Start waiting claims while there are free slots."""
        if self._to_run_alone or self._alone is not None:
            return
        running, buffer = self.running, self.buffer
        if buffer and self.lease.is_over:
            self._release_buffer()
            return
        if self._quotas is None:
            while buffer and len(running) < self.capacity:
                self.start(buffer.popleft())
            return
        while len(running) < self.capacity:
            claim = self._quotas.take_next(buffer)
            if claim is None:
                return
            self.start(claim)

    def start(self, claim: Claim) -> None:
        """Start a claim, or let it join a batch."""
        handler = self._handlers.get(claim.task) or self._handlers.find(claim.task)
        if handler is None:
            self._park(claim)
            return
        try:
            if handler.batch is not None:
                self.batches.take(claim, handler, is_alone=claim is self._alone)
                return
            if handler.is_process and self.runner.child_pool is not None:
                attempt = ChildAttempt(claim, handler, self.runner, self)
            else:
                attempt = Attempt(claim, handler, self._loop.time(), self.runner)
        except DurioError as error:
            self._mark_dead(claim, error, Reason.BAD_PAYLOAD)
            return
        self.running[claim.id] = attempt
        if self._quotas is not None:
            self._quotas.starts(claim)
        if isinstance(attempt, ChildAttempt):
            attempt.send()
            return
        self._first_steps.start(attempt)
        if self.reports_started:
            self.report_started(attempt)

    def _begin(self, attempt: Attempt, now: float) -> None:
        """Start the attempt's time: other attempts may have kept the loop until now."""
        attempt.started = now
        attempt.excused_seconds = 0.0
        self.deadlines.watch(attempt)

    # --- attempts in child processes

    def begun(self, attempt: Attempt, *, is_first: bool) -> None:
        """Start the attempt's time limits: a child process has started it."""
        self.deadlines.watch(attempt)
        if self.reports_started and is_first:
            self.report_started(attempt)

    def _has_own_process(self, claim: Claim) -> bool:
        """Whether the claim runs in a child process, where a crash harms no other job."""
        handler = self._handlers.find(claim.task)
        return handler is not None and handler.is_process

    def report_started(self, attempt: Attempt) -> None:
        """Tell hooks and listeners that the attempt begins."""
        event = event_of(attempt, JOB_STARTED)
        self._emit.jobs([event])
        self._notify_hooks([event])

    def end_attempt(
        self, attempt: Attempt, outcome: Outcome, event: JobEvent | None
    ) -> None:
        """Record the end; for a bad payload, first look for other versions of the task."""
        if outcome.change is not None and attempt.recorded is None:
            ends = self.runner.refused, self.record_end
            self._plan_changes.start(attempt, outcome, *ends)
            return
        judge = self._versions.defer_bad_payload
        if event is None or not judge(attempt, outcome, event, self.record_end):
            self.record_end(attempt, outcome, event)

    def record_end(
        self, attempt: Attempt, outcome: Outcome, event: JobEvent | None
    ) -> None:
        """Record the end, and start a waiting claim in the free slot."""
        attempt.is_over = True
        self.ended += 1
        attempt.ended = self._ended_at = now = self._loop.time()
        # Tasks that compute take the loop in turn, so the wait for it counts here.
        self._duration_seconds += DURATION_WEIGHT * (
            now - attempt.slot_taken_at - self._duration_seconds
        )
        claim = attempt.claim
        del self.running[claim.id]
        if self._quotas is not None:
            self._quotas.ends(claim)
        self._outcomes.add(UnsentOutcome(outcome, attempt, event))
        if self._alone is not None and self._alone.id == claim.id:
            self._alone = None
        if self._to_run_alone:
            self._isolate()
        elif self.buffer:
            self.fill()
        self._nudge()

    # --- tasks that this worker does not know

    @property
    def skips_unknown(self) -> bool:
        """Whether to claim known tasks only, which is so for 60 s after an unknown one.

        Then the worker claims all tasks again, because some worker must find the jobs whose
        task no worker has known for too long.
        """
        return self._loop.time() < self._skips_until

    def _park(self, claim: Claim) -> None:
        self._skips_until = self._loop.time() + SKIP_SECONDS
        day = self.runner.settings.worker.unknown_task_seconds
        self._outcomes.add(parked_or_dead(claim, self.runner.clock.now(), day))
        self._nudge()

    def _mark_dead(self, claim: Claim, error: DurioError, reason: str) -> None:
        self._outcomes.add(dead_outcome(claim, error, reason, self.runner.clock.now()))
        self._nudge()

    def fail_input(self, failed: FailedInput) -> None:
        """End a node of a plan whose input cannot be read."""
        self._mark_dead(*failed)

    # --- jobs that run alone

    def _isolate(self) -> None:
        """Give waiting claims back; when nothing runs, send the `alone` mark."""
        self._release_buffer()
        self.batches.begin_open()
        since, claim = self._to_run_alone[0]
        if self.running or self._alone is not None:
            if self._loop.time() - since > ALONE_WAIT_SECONDS and self._alone is None:
                self._to_run_alone.popleft()
                self.release(claim, ALONE_PAUSE_SECONDS)
            return
        self._to_run_alone.popleft()
        self._alone = claim
        mark = Outcome(claim.id, claim.claim_no, OutcomeKind.ALONE)
        self._outcomes.add(UnsentOutcome(mark, None, None))
        self._nudge()

    def apply_mark_answer(self, refused: Iterable[bytes]) -> None:
        """Start the marked job, unless the store has refused its mark."""
        claim = self._alone
        if claim is None or claim.id in self.running:
            return
        if claim.id in refused:
            self._alone = None
            self.fill()
        elif self.lease.is_over:
            self._alone = None
            self.release(claim)
        else:
            self.start(claim)
            if claim.id not in self.running:
                self._alone = None

    @property
    def awaits_mark(self) -> bool:
        """Whether an `alone` mark is on its way to the store."""
        return self._alone is not None and self._alone.id not in self.running

    def check_waiting(self) -> None:
        """Give back claims that wait too long behind slow jobs; called at every poll."""
        if self._to_run_alone:
            self._isolate()
        elif self.buffer and self._is_stuck():
            self.target = 0
            self._release_buffer()

    def _is_stuck(self) -> bool:
        return self._loop.time() - self._ended_at > PREFETCH_STALL_SECONDS

    # --- ending early

    def _time_out(self, attempt: Attempt) -> None:
        """Record the outcome, cancel and abandon the attempt: its hard limit has passed."""
        ends = [(each, *self.runner.timed_out(each)) for each in attempt.together]
        self._abandon(attempt)
        for each, outcome, event in ends:
            self._end_of(each)(each, outcome, event)
        task = attempt.asyncio_task
        if (
            task is not None and attempt.call is None
        ):  # a task with a thread waits for the thread
            task.cancel()

    def _end_of(self, attempt: Attempt) -> EndAttempt:
        return self.batches.end if attempt.is_in_batch else self.end_attempt

    def _abandon(self, attempt: Attempt) -> None:
        """Stop waiting for the attempt; it is counted until its code ends."""
        task = attempt.asyncio_task
        if task is not None:
            self._abandoned.add(task)
            task.add_done_callback(self._abandoned.discard)
            self._loop.call_later(ABANDON_SECONDS, self._report_hanging, task, attempt)
        attempt.abandon()

    def _report_hanging(self, task: "asyncio.Task[None]", attempt: Attempt) -> None:
        """Report and count abandoned code that still runs after 5 s."""
        if task.done():
            return
        self._emit.jobs([event_of(attempt, JOB_ABANDONED)])
        self._hanging = {t for t in self._hanging if not t.done()} | {task}
        if len(self._hanging) >= self.runner.settings.worker.abandoned_max:
            self._on_too_many_abandoned(len(self._hanging))

    @property
    def hangs(self) -> bool:
        """Whether abandoned code still runs, for which the process must not wait."""
        return bool(self._abandoned)

    def cancel(self, job_id: bytes, claim_no: int) -> None:
        """Cancel this attempt, if it still runs under this claim number."""
        attempt = self.running.get(job_id)
        if attempt is not None and attempt.claim.claim_no == claim_no:
            attempt.interrupt(InterruptReason.CANCEL)

    def release(self, claim: Claim, delay_seconds: float = 0.0) -> None:
        """Give back, uncharged, a claim that never started."""
        outcome = Outcome(
            claim.id, claim.claim_no, OutcomeKind.RELEASE, delay_seconds=delay_seconds
        )
        self._outcomes.add(UnsentOutcome(outcome, None, None))
        self._nudge()

    def _release_buffer(self, lanes: Collection[str] | None = None) -> None:
        for claim in self.buffer.take_all(lanes):
            self.release(claim)

    def release_lanes(self, lanes: Collection[str]) -> None:
        """Give back claims of these paused lanes that have not started."""
        self._release_buffer(lanes)
        for waiting in [w for w in self._to_run_alone if w[1].lane in lanes]:
            self._to_run_alone.remove(waiting)
            self.release(waiting[1])
        withdraw_waiting(a for a in self.running.values() if a.claim.lane in lanes)
        self.batches.give_back(lanes)

    def close(self) -> None:
        """Start nothing from now on; give back claims that have not started."""
        self.is_closed = True
        self._release_buffer()
        while self._to_run_alone:
            self.release(self._to_run_alone.popleft()[1])
        if self._alone is not None and self._alone.id not in self.running:
            self.release(self._alone)
            self._alone = None
        withdraw_waiting(self.running.values())
        self.batches.give_back()

    def interrupt_all(self, reason: InterruptReason) -> None:
        for attempt in list(self.running.values()):
            attempt.interrupt(reason)

    def release_all(self) -> None:
        """Give back and abandon attempts that still run after their cancel."""
        for attempt in list(self.running.values()):
            outcome = Outcome(
                attempt.claim.id, attempt.claim.claim_no, OutcomeKind.RELEASE
            )
            self._abandon(attempt)
            self._end_of(attempt)(attempt, outcome, event_of(attempt, JOB_RELEASED))

    def drop_all(self) -> None:
        """Cancel all attempts and forget all claims without writing: the lease is lost."""
        for attempt in list(self.running.values()):
            attempt.interrupt(InterruptReason.FENCED)
            attempt.is_over = True
            self._abandon(attempt)
        self.running.clear()
        self.batches.drop_all()
        self.capacity = self.concurrency
        self.buffer.take_all()
        self._to_run_alone.clear()
        if self._quotas is not None:
            self._quotas.clear()
        self._alone = None
