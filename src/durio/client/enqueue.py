"""A call becomes a stored job: checked, encoded, bounded, combined with its neighbours.

**The combiner.** While one enqueue is in flight, others queue up and go as one store
call. Nobody waits for company: an idle combiner sends at once. Each caller gets its own
answer or its own exception.

**Unknown outcomes.** A reply may be lost after the commit. Ids are made here, before the
write, so asking again is harmless: a stored id is answered as it stands. A caller that is
cancelled meanwhile leaves an enqueue whose outcome it does not know, as with any store.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from durio.model.duration import seconds
from durio.model.errors import (
    InvalidOption,
    KeyConflict,
    PayloadTooLarge,
    StoreError,
    StoreStalled,
    StoreUnavailable,
)
from durio.model.ids import id_text
from durio.model.job import PRIORITY_MAX, KeyClaim, NewJob
from durio.model.keys import key_claim, window
from durio.model.names import lane
from durio.model.options import UNSET, CallOptions, stored_options
from durio.model.settings import PayloadSettings
from durio.ports.clock import Clock
from durio.ports.enqueue import Enqueued
from durio.ports.store import Store
from durio.telemetry.emit import Emit

BATCH_MAX = 1000
TRIES_MAX = 5
PAUSE_SECONDS = 0.05
STALL_SECONDS = 5.0
WAIT_SECONDS_MAX = 60.0


class Recipe(NamedTuple):
    """What is known about the task a job is for."""

    task: str
    queue: str
    priority: int


class Mould:
    """What all jobs of one call have in common: settled once, however many rows."""

    def __init__(
        self,
        recipe: Recipe,
        options: CallOptions,
        *,
        namespace: str,
        clock: Clock,
        bounds: PayloadSettings,
    ) -> None:
        priority = recipe.priority if options.priority is UNSET else options.priority
        queue = recipe.queue if options.queue is UNSET else options.queue
        delay = 0.0 if options.delay is UNSET else seconds(options.delay, "delay")
        self._options = options
        self._new_id = clock.new_id
        self._task = recipe.task
        self._bytes_max = bounds.bytes_max
        self._lane = lane(namespace, queue)
        self._rank = PRIORITY_MAX - priority
        self._run_at = None if options.at is UNSET else options.at.timestamp()
        self._delay_seconds = delay
        self._opts = stored_options(options, recipe.task, bounds.meta_bytes_max)
        self.has_key = has_key(options)

    def job(self, payload: bytes, same: bytes | None = None) -> NewJob:
        """One job; `same` is what its key compares, in place of the payload."""
        if len(payload) > self._bytes_max:
            raise PayloadTooLarge(
                f"{self._task}: the arguments are {len(payload)} bytes, over the bound "
                f"of {self._bytes_max}",
                cure="Store the data and pass its id, or raise payload.bytes_max.",
                bytes=len(payload),
            )
        return NewJob(
            self._new_id(),
            self._lane,
            self._rank,
            self._task,
            payload,
            self._run_at,
            self._delay_seconds,
            self._opts,
            self._key(same or payload) if self.has_key else None,
        )

    def _key(self, same: bytes) -> KeyClaim | None:
        options = self._options
        if options.key is None:
            return None
        policy = window() if options.unique is UNSET else options.unique
        return key_claim(policy, self._task, options.key, same)


def has_key(options: CallOptions) -> bool:
    """Whether these options carry an idempotency key."""
    return options.key is not UNSET and options.key is not None


def refuse_key(options: CallOptions) -> None:
    """Many rows under one key would be one job."""
    if has_key(options):
        raise InvalidOption(
            "enqueue_many with one key would make one job of all rows",
            cure="Enqueue them one by one, each with its own key.",
        )


class Enqueuer:
    """Sends jobs to the store, as many at once as are waiting."""

    def __init__(self, store: Store, clock: Clock, emit: Emit, warn_bytes: int) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._warn_bytes = warn_bytes
        self._waiting: list[
            tuple[Sequence[NewJob], asyncio.Future[list[Enqueued]]]
        ] = []
        self._sender: asyncio.Task[None] | None = None

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store these jobs; returns after the durable write, in the same order."""
        for job in jobs:
            if len(job.payload) > self._warn_bytes:
                self._emit("payload.large", task=job.task, bytes=len(job.payload))
        answers: list[Enqueued] = []
        for start in range(0, len(jobs), BATCH_MAX):
            answers += await self._combined(jobs[start : start + BATCH_MAX])
        for job, answer in zip(jobs, answers, strict=True):
            if answer.conflict:
                raise KeyConflict(
                    f"{job.task}: its key is held by job {id_text(answer.id)} with other "
                    "arguments",
                    cure="Use another key, or the same arguments.",
                    id=id_text(answer.id),
                )
        return answers

    async def _combined(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        future: asyncio.Future[list[Enqueued]] = (
            asyncio.get_running_loop().create_future()
        )
        self._waiting.append((jobs, future))
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send())
        return await future

    async def _send(self) -> None:
        try:
            while self._waiting:
                batch = self._take()
                await self._send_batch(batch)
        finally:
            self._sender = None

    def _take(self) -> list[tuple[Sequence[NewJob], asyncio.Future[list[Enqueued]]]]:
        """The callers that fit one store call; keys twice in one call are no problem."""
        size, count = 0, 0
        for jobs, _ in self._waiting:
            if count and size + len(jobs) > BATCH_MAX:
                break
            size, count = size + len(jobs), count + 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    async def _send_batch(
        self, batch: list[tuple[Sequence[NewJob], asyncio.Future[list[Enqueued]]]]
    ) -> None:
        jobs = [job for some, _ in batch for job in some]
        try:
            answers = await self._stored(jobs)
        except BaseException as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(_own(error))
            if not isinstance(error, Exception):
                raise
            return
        start = 0
        for some, future in batch:
            if not future.done():
                future.set_result(answers[start : start + len(some)])
            start += len(some)

    async def _stored(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Ask until the outcome is known, a bounded number of times."""
        repeated = False
        for tries in range(TRIES_MAX):
            try:
                answers = await self._watched(jobs)
            except StoreError as error:
                is_final = isinstance(error, StoreStalled) or tries == TRIES_MAX - 1
                if not error.unknown or is_final:
                    raise
                repeated = True
                self._emit("store.failed", call="enqueue", error=str(error))
                await self._clock.sleep(PAUSE_SECONDS * 2**tries)
            else:
                return _after_repeat(jobs, answers) if repeated else answers
        raise StoreUnavailable("the store does not answer", unknown=True)

    async def _watched(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Say who holds the writer's lock when an enqueue hangs on it."""
        loop = asyncio.get_running_loop()
        watch = loop.call_later(STALL_SECONDS, self._tell_stall)
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                return await self._store.enqueue(jobs)
        except TimeoutError:
            raise self._stalled() from None
        finally:
            watch.cancel()

    def _stalled(self) -> StoreStalled:
        stall = self._store.stall()
        holder = "" if stall is None else f": process {stall.pid} keeps it locked"
        return StoreStalled(
            f"the store has not answered for {WAIT_SECONDS_MAX:g} s{holder}",
            cure="See what that process does. The job may be stored or not: with an "
            "idempotency key a repeat is harmless.",
            unknown=True,
        )

    def _tell_stall(self) -> None:
        stall = self._store.stall()
        if stall is not None:
            self._emit("store.stalled", pid=stall.pid, seconds=round(stall.seconds, 1))


def _after_repeat(jobs: Sequence[NewJob], answers: list[Enqueued]) -> list[Enqueued]:
    """A repeat finds the first try's jobs: to the caller they are new."""
    return [
        answer._replace(created=True) if answer.id == job.id else answer
        for job, answer in zip(jobs, answers, strict=True)
    ]


def _own(error: BaseException) -> BaseException:
    """A cancelled sender is our business, not the callers'."""
    if isinstance(error, asyncio.CancelledError):
        return StoreUnavailable(
            "the App was closed while the job was being stored", unknown=True
        )
    return error
