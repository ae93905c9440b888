"""Turn a call into stored jobs: build, check, batch, write.

JobBuilder -> Batcher (batching.py) -> ReliableWriter (reliable_write.py) -> store. Calls
that find a lock wait in waiting_list.py, calls that find no room in backpressure.py.

**Unknown outcomes.** A reply may be lost after the commit. Ids are made here, before the
write, so a repeat is harmless. A caller that is cancelled during the write does not know
the outcome, as with any store. When a repeat finds no room, the first try may still be
in progress. While such jobs wait for room, later tries keep `again=True`, and the caller
never gets an error that says they are not stored.

**Full queues.** A call enters its queue as a whole or not at all. Only a call of more than
1,000 jobs, or of more than the queue can ever hold, is stored in pieces.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from durio.client.backpressure import QueueWaiters, queue_closed
from durio.client.batching import Batcher
from durio.client.bounds import Bounds, BoundsDeclarer
from durio.client.calls import BATCH_MAX
from durio.client.job_gates import (
    gates_of_call,
    gates_of_signature,
    with_budgets,
    with_queue_gates,
)
from durio.client.manual_limits import ManualLimits
from durio.client.reliable_write import Answers, ReliableWriter, unknown_outcome
from durio.client.routing import Target
from durio.model.errors import (
    InvalidOption,
    KeyConflict,
    PayloadTooLarge,
    QueueClosed,
    QueueFull,
    StoreError,
    StoreUnavailable,
)
from durio.model.expiry import Expires, checked_expiry, parse_expires
from durio.model.gate import GateSpec
from durio.model.gate_rule import GateRule, JobPlace
from durio.model.ids import id_text
from durio.model.job import PRIORITY_MAX, KeyClaim, NewJob
from durio.model.keys import key_claim, window
from durio.model.logs import OnEnd, Wait
from durio.model.names import lane
from durio.model.option_values import check_unique
from durio.model.options import UNSET, CallOptions, stored_options
from durio.model.plan import SignatureValue
from durio.model.quantities import counted, seconds
from durio.model.settings import PayloadSettings
from durio.ports.clock import Clock
from durio.ports.enqueue import Enqueued, Full
from durio.ports.store import Store
from durio.telemetry.emit import Emit

# A call that cannot enter as a whole is split into pieces of 1/4 of the bound, because room
# for one piece is free long before the queue is empty.
PIECES_OF_BOUND = 4


class TaskDefaults(NamedTuple):
    """The task of a call, with its default queue, priority and expiry."""

    task: str
    queue: str
    priority: int
    expires: Expires = None
    gate_rule: GateRule | None = None


def defaults_of(target: Target) -> TaskDefaults:
    return TaskDefaults(
        target.task, target.queue, target.priority, target.expires, target.gate_rule
    )


class JobBuilder:
    """Builds the jobs of one call; what they have in common is computed once."""

    def __init__(
        self,
        defaults: TaskDefaults,
        options: CallOptions,
        *,
        namespace: str,
        clock: Clock,
        bounds: PayloadSettings,
        limits: ManualLimits,
    ) -> None:
        priority = defaults.priority if options.priority is UNSET else options.priority
        queue = defaults.queue if options.queue is UNSET else options.queue
        delay = 0.0 if options.delay is UNSET else seconds(options.delay, "delay")
        self.options = options
        self._new_id = clock.new_id
        self._task = defaults.task
        self._bytes_max = bounds.bytes_max
        self._lane = lane(namespace, queue)
        self._rank = PRIORITY_MAX - priority
        self._run_at = None if options.at is UNSET else options.at.timestamp()
        self._delay_seconds = delay
        self.expires_at = expiry_of(options, defaults, clock, delay)
        self._opts = stored_options(
            options, defaults.task, bounds.meta_bytes_max, expires_at=self.expires_at
        )
        self.has_key = has_key(options)
        self._rule = defaults.gate_rule
        self.has_gates = self._has_budgets = False
        if self._rule is not None or limits.choices:
            self._prepare_gates(JobPlace(namespace, queue, priority), limits)

    def _prepare_gates(self, place: JobPlace, limits: ManualLimits) -> None:
        if place.namespace == limits.namespace:
            place = place._replace(choices=limits.choices)
        self._place = place
        self._queue_gates = limits.of_queue(place.queue) if place.choices else ()
        self._has_budgets = self._rule is not None and self._rule.has_budgets
        self.has_gates = self._rule is not None or bool(self._queue_gates)
        limits.is_used = limits.is_used or self.has_gates

    def job(
        self,
        payload: bytes,
        key_payload: bytes | None = None,
        *,
        job_id: bytes | None = None,
        opts: bytes | None = None,
        wait: Wait | None = None,
        on_end: tuple[OnEnd, ...] = (),
        gates: tuple[GateSpec, ...] = (),
    ) -> NewJob:
        """Build one job; its key compares `key_payload`, or else the payload.

        A node of a plan also has its own id, stored options, wait and ends.
        """
        if len(payload) > self._bytes_max:
            raise too_large(self._task, len(payload), self._bytes_max)
        opts = self._opts if opts is None else opts
        if self._has_budgets and gates:
            opts = with_budgets(opts, self._rule, gates)
        return NewJob(
            self._new_id() if job_id is None else job_id,
            self._lane,
            self._rank,
            self._task,
            payload,
            self._run_at,
            self._delay_seconds,
            opts,
            self._key(key_payload or payload) if self.has_key else None,
            wait,
            on_end,
            gates,
            self.expires_at,
        )

    def gates(
        self, target: Target, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[GateSpec, ...]:
        """Return the gates of a job with these arguments; see `has_gates`."""
        gates, rule = (), self._rule
        if rule is not None:
            gates = gates_of_call(rule, target, args, kwargs, self._place)
        return self._with_queue_gates(gates)

    def gates_of_signature(
        self, target: Target, signature: SignatureValue, *, is_following: bool
    ) -> tuple[GateSpec, ...]:
        """Return the gates of a job of a plan; see `has_gates`."""
        gates, rule, place = (), self._rule, self._place
        if rule is not None:
            gates = gates_of_signature(
                rule, target, signature, place, is_following=is_following
            )
        return self._with_queue_gates(gates)

    def _with_queue_gates(self, gates: tuple[GateSpec, ...]) -> tuple[GateSpec, ...]:
        if not self._queue_gates:
            return gates
        return with_queue_gates(gates, self._queue_gates, self._task)

    def _key(self, key_payload: bytes) -> KeyClaim | None:
        options = self.options
        if options.key is None:
            return None
        unique = options.unique
        policy = window() if unique is UNSET else check_unique(unique)
        return key_claim(policy, self._task, options.key, key_payload)


def expiry_of(
    options: CallOptions, defaults: TaskDefaults, clock: Clock, delay_seconds: float
) -> float | None:
    """Return when the jobs of this call expire; None without an expiry."""
    expires = defaults.expires
    if options.expires is not UNSET:
        expires = parse_expires(options.expires)
    if expires is None:
        return None
    now = clock.now()
    starts_at = now + delay_seconds
    if options.at is not UNSET:
        starts_at = options.at.timestamp()
    if has_key(options) and options.unique is not UNSET:
        starts_at = max(starts_at, now + check_unique(options.unique).delay_seconds)
    return checked_expiry(expires, task=defaults.task, now=now, starts_at=starts_at)


def too_large(task: str, size: int, bytes_max: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"{task}: the arguments are {size} bytes, over the bound of {bytes_max}",
        cure="Store the data and pass its id, or raise payload.bytes_max.",
        bytes=size,
    )


def has_key(options: CallOptions) -> bool:
    return options.key is not UNSET and options.key is not None


def refuse_key(options: CallOptions) -> None:
    """Refuse a key for many rows, because they would become one job."""
    if has_key(options):
        raise InvalidOption(
            "enqueue_many with one key would make one job of all rows",
            cure="Enqueue them one by one, each with its own key.",
        )


def warn_large(emit: Emit, warn_bytes: int, jobs: Sequence[NewJob]) -> None:
    """Report large arguments: they work, but slow down the whole batch."""
    for job in jobs:
        if len(job.payload) > warn_bytes:
            emit("payload.large", task=job.task, bytes=len(job.payload))


def refuse_conflicts(jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
    """Raise KeyConflict if a job with other arguments holds the key."""
    for job, answer in zip(jobs, answers, strict=True):
        if answer.conflict:
            raise KeyConflict(
                f"{job.task}: its key belongs to job {id_text(answer.id)} with other "
                "arguments",
                cure="Use another key, or the same arguments.",
                id=id_text(answer.id),
            )


class Enqueuer:
    """Stores the jobs of one event loop; waits for room if a queue is full."""

    def __init__(
        self, store: Store, clock: Clock, emit: Emit, warn_bytes: int, bounds: Bounds
    ) -> None:
        self._clock = clock
        self._emit = emit
        self._warn_bytes = warn_bytes
        self._bounds = bounds
        self._declared = BoundsDeclarer(store, bounds)
        self._waiters: dict[str, QueueWaiters] = {}
        self._writer = ReliableWriter(store, clock, emit)
        self._batcher = Batcher(self._writer, clock)

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store these jobs; return after the durable write, in the same order."""
        warn_large(self._emit, self._warn_bytes, jobs)
        if self._declared.is_needed:
            await self._declared.declare({job.lane for job in jobs})
        try:
            answers = await self._entered(jobs)
        except (QueueFull, QueueClosed, StoreError) as error:
            is_unknown = isinstance(error, StoreError) and error.unknown
            if self._writer.is_maybe_stored(jobs) and not is_unknown:
                raise unknown_outcome(error) from error
            raise
        finally:
            self._writer.forget(jobs)
        refuse_conflicts(jobs, answers)
        return answers

    # --- room

    async def _entered(self, jobs: Sequence[NewJob]) -> Answers:
        if not 0 < len(jobs) <= BATCH_MAX or self._waiters:
            return await self._enter_all(jobs)
        answers = await self._batcher.submit(jobs)
        if answers[0].full is not None:
            answers = await self._enter_all(jobs, answers[0].full)
        return answers

    async def _enter_all(
        self, jobs: Sequence[NewJob], full: Full | None = None
    ) -> Answers:
        """Store a call as a whole, or in pieces; `full` is the refusal of the whole call."""
        answers: Answers = []
        size = BATCH_MAX
        try:
            while len(answers) < len(jobs):
                piece = jobs[len(answers) : len(answers) + size]
                is_part = len(jobs) > BATCH_MAX
                outcome = await self._enter(piece, full, is_part=is_part)
                if isinstance(outcome, list):
                    answers += outcome
                else:
                    size = piece_size(outcome)
                full = None
        except (QueueFull, QueueClosed) as error:
            if answers:
                error.stored = len(answers)
                error.what += f"; {stored_before_text(answers, jobs)}"
            raise
        except StoreError as error:
            if answers:
                what = f"{error.what}; {stored_before_text(answers, jobs)}"
                raise partly_stored_error(error, what, len(answers)) from error
            raise
        return answers

    async def _enter(
        self, jobs: Sequence[NewJob], full: Full | None, *, is_part: bool
    ) -> Answers | Full:
        """Store these jobs behind earlier waiters.

        A Full means that smaller pieces are needed.
        """
        full = full or self._full_before(jobs[0])
        if full is None:
            answers = await self._batcher.submit(jobs)
            full = answers[0].full
            if full is None:
                return answers
        if full.is_closed:
            raise queue_closed(full)
        too_many = is_part or len(jobs) > full.limit
        if too_many and not full.is_soft and len(jobs) > piece_size(full):
            return full
        waiters = self._waiters.get(full.lane)
        if waiters is None:
            try_once = self._batcher.try_once
            waiters = QueueWaiters(
                full.lane, try_once, self._clock, self._emit, self._bounds
            )
            self._waiters[full.lane] = waiters
        waiters.observe(full)
        wait_seconds = self._bounds.wait_of(full.lane)
        if wait_seconds <= 0:
            raise waiters.queue_full(len(jobs), 0.0)
        return await waiters.wait(jobs, wait_seconds)

    def _full_before(self, job: NewJob) -> Full | None:
        """Return the refusal of earlier callers who wait for room in this lane.

        None if none wait. It is also None for a job with a key that no waiter has: the key
        may have a holder, and then the job needs no room.
        """
        waiters = self._waiters.get(job.lane)
        if waiters is None or not waiters.is_busy:
            return None
        if job.key is not None and job.key.key not in waiters.keys:
            return None
        return waiters.full


def stored_before_text(answers: Answers, jobs: Sequence[NewJob]) -> str:
    return f"{len(answers)} of {counted(len(jobs), 'job')} stored before"


def partly_stored_error(error: StoreError, what: str, stored: int) -> StoreError:
    """Return a new error: other callers may have got the same error object."""
    values = {**error.values, "stored": stored}
    return StoreUnavailable(what, cure=error.cure, unknown=True, **values)


def piece_size(full: Full) -> int:
    """Return how many jobs of a large call enter a full queue in one transaction."""
    return min(BATCH_MAX, max(1, full.limit // PIECES_OF_BOUND))
