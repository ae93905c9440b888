"""The claim loop: exactly one exchange in flight.

Each exchange sends all unsent outcomes, requests as many jobs as there is room for, and
starts the jobs in the reply. The next exchange begins when:

  (a) outcomes wait, and half of the prefetched jobs are used up;
  (b) at least 256 outcomes wait;
  (c) outcomes wait, and nothing runs;
  (d) 5 ms have passed since the first unsent outcome (200 ms since a progress update);
  (e) there is room, and the last reply was full, or a wakeup came, or a job is due.

After a failed exchange the outcomes are kept and sent again, with backoff. The lost reply
may have contained claims, so the next exchange requests all jobs that the store counts as
running here (`resync`).

A worker that renews its lease but cannot exchange for max(60 s, two leases) stops with an
error.
"""

import asyncio
from collections.abc import Callable, Sequence

from durio.model.errors import (
    DurioError,
    OperatingError,
    StoreError,
    StoreFull,
)
from durio.model.outcome import Outcome, OutcomeKind
from durio.model.settings import WorkerSettings
from durio.ports.clock import Clock
from durio.ports.exchange import Exchanged
from durio.ports.store import Store, Wake
from durio.telemetry.emit import Emit
from durio.worker.burst_end import BurstEnd
from durio.worker.claim_request import ExchangeRequests
from durio.worker.inflight import Attempt
from durio.worker.input_fetcher import InputFetcher
from durio.worker.lanes import Lanes
from durio.worker.outcome_buffer import OutcomeBuffer
from durio.worker.plan_inputs import PlanInputs
from durio.worker.register import PERMANENT_ERRORS
from durio.worker.settler import Settler
from durio.worker.slots import Slots
from durio.worker.worker_config import WorkerIdentity

FLUSH_SECONDS = 0.005
FLUSH_OUTCOMES = 256
PROGRESS_SECONDS = 0.2
# Shorter waits may be lost beside the seconds since 1970: the loop would spin.
DUE_SECONDS_MIN = 0.001
BACKOFF_FIRST, BACKOFF_LAST = 0.05, 5.0
FINAL_TRIES = 8
# At least two leases; short network trouble is no reason to stop.
CLAIM_FAILURE_SECONDS = 60.0
CLAIM_FAILURE_SHARE = 4  # a pause between two tries counts up to 1/4 of that time
EMPTY_EXCHANGE = Exchanged([], [], [], more=False, next_due_seconds=None)


class ClaimLoop:
    """Sends outcomes to the store and passes claims to the slots."""

    def __init__(  # noqa: PLR0913 - the parts of a worker, joined in one place
        self,
        *,
        store: Store,
        clock: Clock,
        emit: Emit,
        identity: WorkerIdentity,
        namespace: str,
        lanes: Lanes,
        known: Sequence[str],
        burst_end: BurstEnd | None,
        settings: WorkerSettings,
        input_bytes_max: int,
        on_broken: Callable[[DurioError], None],
        outcomes: OutcomeBuffer,
        make_slots: Callable[["ClaimLoop"], Slots],
    ) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._identity = identity
        self._namespace = namespace
        self._lanes = lanes
        self._paused_meanwhile: frozenset[str] = frozenset()
        self._burst_end = burst_end
        self._settings = settings
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._go = asyncio.Event()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._progress_timer: asyncio.TimerHandle | None = None
        self._due_timer: asyncio.TimerHandle | None = None
        self._in_flight = False
        self._has_loop_turned = False
        self._is_woken = True  # exchange once at the start
        self._resync = False
        self._failures = 0
        self._failing_since = 0.0  # monotonic time of the first failure
        self._failed_at = 0.0  # monotonic time of the last failure
        self._is_ending = False
        # Why this store will never give a lease again.
        self._gone: StoreError | None = None
        self._outcomes = outcomes
        # Slots call `nudge` and `report_progress`; this loop reads and fills them. So the
        # loop creates its slots: they get bound methods, without an indirection for each
        # job.
        self.slots = make_slots(self)
        self.inputs = InputFetcher(
            PlanInputs(store, input_bytes_max),
            self.slots.add,
            self.slots.fail_input,
            self.slots.release,
        )
        self._requests = ExchangeRequests(lanes, self.slots, self.inputs, known)
        self.settler = Settler(store, clock, emit)

    # --- reasons for an exchange

    def nudge(self) -> None:
        """Exchange now, or within 5 ms, because an outcome was added."""
        if self._in_flight or self._go.is_set():
            return
        if self._is_due():
            self._go.set()
        elif self._flush_timer is None:
            self._flush_timer = self._loop.call_later(FLUSH_SECONDS, self._go.set)

    def report_progress(self, attempt: Attempt, progress: bytes) -> None:
        """Keep the newest progress of an attempt for a coming exchange."""
        if attempt.is_over:
            return
        claim, attempt.progress = attempt.claim, progress
        self._outcomes.add_progress(
            Outcome(claim.id, claim.claim_no, OutcomeKind.PROGRESS, progress=progress),
            attempt,
        )
        if attempt.transaction is None:
            self._schedule_progress()

    def _schedule_progress(self) -> None:
        if self._progress_timer is None and not self._in_flight:
            self._progress_timer = self._loop.call_later(PROGRESS_SECONDS, self._go.set)

    def on_wakeup(self, wake: Wake) -> None:
        """Handle a wakeup from the store, or the safety poll."""
        self._lanes.wake(wake.lanes)
        self._wake()

    def _wake(self) -> None:
        self._is_woken = True
        if self._requests.has_room or len(self._outcomes):
            self._go.set()

    def pause(self, lanes: frozenset[str]) -> None:
        """Give back claims of these paused lanes that have not started."""
        if self._in_flight:  # the reply may be older than the pause
            self._paused_meanwhile = lanes
        self.slots.release_lanes(lanes)

    def end(self) -> None:
        """Send the remaining outcomes, then end the loop."""
        self._is_ending = True
        self._go.set()

    def forget(self) -> None:
        """Reset after a new lease: claims of the old one cannot be requested again."""
        self.inputs.drop_all()
        self._resync = False
        self._is_woken = True
        self._go.set()

    def give_up(self, error: StoreError) -> None:
        """Make the loop raise this error: the store will never give a lease again."""
        self._gone = error
        self._go.set()

    # --- the loop

    async def run(self) -> None:
        """Exchange until `end`, or until a burst has nothing left to do."""
        await self._learn_lanes()
        while True:
            answer = await self._exchange()
            if answer is None:
                if self._is_ending and (
                    not self._identity.id or self._failures > FINAL_TRIES
                ):
                    return
                continue
            if self._is_ending and not len(self._outcomes):
                return
            if await self._is_burst_over(answer):
                return
            await self._rest(answer)

    async def _exchange(self) -> Exchanged | None:
        if self._gone is not None:
            raise self._gone
        me = self._identity.id
        if not me:  # fenced, and not registered again yet
            await self._clock.sleep(BACKOFF_FIRST)
            return None
        outcomes = self._outcomes.take()
        request = self._requests.next(resync=self._resync)
        began = self._loop.time()
        self._is_woken = False
        self._stop_timers()
        if not outcomes and not request.lanes and not self._resync:
            return EMPTY_EXCHANGE  # an idle worker does not write
        self._in_flight = True
        self._has_loop_turned = False
        self._loop.call_soon(self._on_loop_turn)
        try:
            answer = await self._store.exchange(
                me,
                outcomes,
                request.lanes,
                request.want,
                known=request.known,
                resync=self._resync,
            )
        except StoreError as error:
            self._in_flight = False
            await self._failed(error, me)
            return None
        except asyncio.CancelledError:
            self._outcomes.keep()  # it may be committed; sending again does no harm
            self._resync = True
            raise
        finally:
            self._in_flight = False
        self._failures = 0
        if me != self._identity.id:
            return None  # fenced meanwhile: the reply belongs to the old lease
        seconds = self._loop.time() - began
        if not request.is_fill:
            self.slots.round_trip(seconds)
        return self._apply_answer(answer, seconds)

    def _on_loop_turn(self) -> None:
        """Note that the exchange has let other code run; a store in memory does not."""
        self._has_loop_turned = True

    def _apply_answer(self, answer: Exchanged, seconds: float) -> Exchanged:
        claims, more = answer.claims, answer.more
        if not self._resync:
            more = self._requests.apply_answer(answer, seconds)
        else:
            self._resync = False
            claims = [claim for claim in claims if not self._outcomes.holds(claim.id)]
        if self.slots.awaits_mark and self._outcomes.has_sent_mark:
            self.slots.apply_mark_answer({refused.id for refused in answer.rejected})
        self._outcomes.apply_answer(answer)
        self._outcomes.end_refused(self.slots.runner.refused, self.nudge)
        if self.slots.reports_started:
            self._outcomes.report()  # the end of an attempt comes before the next start
        else:
            # Log lines take as long as the jobs: write them while the next exchange runs.
            self._loop.call_soon(self._outcomes.report)
        if claims:
            claims = self._lanes.mixed(claims)
            if any(claim.opts for claim in claims):
                claims = self.inputs.without_held(claims)
            self.slots.add(claims)
        if answer.settle_in_seconds is not None:
            self.settler.start(answer.settle_in_seconds)
        if self._paused_meanwhile:
            self.slots.release_lanes(self._paused_meanwhile)
            self._paused_meanwhile = frozenset()
        return answer if more == answer.more else answer._replace(more=more)

    async def _failed(self, error: StoreError, me: int) -> None:
        if isinstance(error, PERMANENT_ERRORS):
            raise error  # this store will not recover: end with its error
        if me == self._identity.id:
            self._outcomes.keep()
            self._resync = True
        if not self._failures:
            self._failing_since = self._failed_at = self._clock.monotonic()
        self._count_failure()
        self._failures += 1
        self._emit(
            "store.failed", call="exchange", tries=self._failures, error=str(error)
        )
        if self._cannot_claim(error):
            self._on_broken(self._cannot_claim_error(error))
        pause = min(BACKOFF_FIRST * 2 ** min(self._failures, 20), BACKOFF_LAST)
        await self._clock.sleep(pause * (0.5 + self._clock.random() / 2))

    def _count_failure(self) -> None:
        """Do not count time in which a blocked loop could not try."""
        now = self._clock.monotonic()
        held_up = (
            now - self._failed_at - self._claim_failure_seconds / CLAIM_FAILURE_SHARE
        )
        self._failing_since += max(held_up, 0.0)
        self._failed_at = now

    @property
    def _claim_failure_seconds(self) -> float:
        return max(CLAIM_FAILURE_SECONDS, 2 * self._settings.lease_seconds)

    def _cannot_claim(self, error: StoreError) -> bool:
        """Whether claims fail while the lease is renewed, so that no rescue frees our jobs."""
        now = self._clock.monotonic()
        # Since `resumed_at` the lease was renewed without a gap.
        since = max(self._failing_since, self._identity.resumed_at)
        # On a full disk a renewal may still fit: wait, and keep the outcomes.
        if now - since < self._claim_failure_seconds or isinstance(error, StoreFull):
            return False
        return self._identity.is_fresh(now, self._settings.heartbeat_seconds)

    def _cannot_claim_error(self, error: StoreError) -> OperatingError:
        seconds = self._clock.monotonic() - self._failing_since
        return OperatingError(
            f"no claim has worked for {seconds:.0f} s, though the lease is renewed: "
            f"{error.what}",
            cure=error.cure or "See the error of the store; a new process tries again.",
        )

    async def _rest(self, answer: Exchanged) -> None:
        """Wait until there is a reason for the next exchange."""
        if answer.more and self._requests.has_room:
            self._is_woken = True
        if self._is_due():
            if len(self._outcomes) < FLUSH_OUTCOMES or not self._has_loop_turned:
                await asyncio.sleep(0)  # noqa: TID251 - lets jobs run; no time passes
            return
        self._go.clear()
        if len(self._outcomes):
            self._flush_timer = self._loop.call_later(FLUSH_SECONDS, self._go.set)
        elif self._outcomes.has_progress:
            self._schedule_progress()
        if answer.next_due_seconds is not None:
            self._due_timer = self._loop.call_later(
                max(answer.next_due_seconds, DUE_SECONDS_MIN), self._wake
            )
        await self._go.wait()

    def _is_due(self) -> bool:
        slots, waiting = self.slots, len(self._outcomes)
        if self._is_ending or (self._is_woken and self._requests.has_room):
            return True
        if not waiting:
            return False
        if waiting >= FLUSH_OUTCOMES or not slots.running:
            return True
        return slots.want >= max(1, slots.target // 2)

    def _stop_timers(self) -> None:
        for timer in (self._flush_timer, self._progress_timer, self._due_timer):
            if timer is not None:
                timer.cancel()
        self._flush_timer = self._progress_timer = self._due_timer = None

    # --- lanes

    async def _learn_lanes(self) -> None:
        """Read which lanes have waiting jobs, if the worker serves patterns or all queues.

        A lane that gets its first job later sends a wakeup. Unused queues cost nothing.
        """
        self._lanes.begin_learning()
        if not self._lanes.is_open:
            return
        try:
            rows = await self._store.queues(self._namespace, busy=True)
        except StoreError as error:
            self._emit("store.failed", call="lanes", error=str(error))
            return
        self._lanes.learn(row.name for row in rows)

    async def keep_learning(self, every_seconds: float) -> None:
        """Repeat `_learn_lanes` in case a wakeup is lost; runs until cancelled."""
        while True:
            await self._clock.sleep(every_seconds)
            await self._learn_lanes()
            self.slots.check_waiting()

    # --- bursts

    async def _is_burst_over(self, answer: Exchanged) -> bool:
        """Whether nothing is left in the served lanes on any worker, nor of plans."""
        end = self._burst_end
        if end is None or answer.claims or answer.more or self._has_own_work:
            return False  # `more`: some lanes have not been tried yet
        await self._learn_lanes()
        left = await end.look(skips_unknown=self.slots.skips_unknown)
        self._is_woken |= left == "plans"  # there may be jobs now
        return left == "nothing"

    @property
    def _has_own_work(self) -> bool:
        is_idle = self.slots.is_idle and not self.slots.awaits_mark
        return bool(not is_idle or len(self._outcomes) or self.inputs.held)
