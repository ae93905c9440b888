"""Write jobs, and repeat a write until its outcome is known.

A reply may be lost after the commit. Ids are made before the write, so a repeat is
harmless: for an id that is stored, the store returns its current state. If a later try
is refused, the first may still have been stored. So the writer remembers jobs whose first
try has an unknown outcome, until their caller has its result or is cancelled.
"""

import asyncio
from collections.abc import Sequence

from durio.model.errors import DurioError, StoreError, StoreStalled, StoreUnavailable
from durio.model.job import NewJob
from durio.ports.clock import Clock
from durio.ports.enqueue import Enqueued
from durio.ports.store import Stall, Store
from durio.telemetry.emit import Emit

TRIES_MAX = 5
PAUSE_SECONDS = 0.05
STALL_SECONDS = 5.0
WAIT_SECONDS_MAX = 60.0

Answers = list[Enqueued]


class ReliableWriter:
    """Writes jobs to one store, and remembers which outcomes are unknown."""

    def __init__(self, store: Store, clock: Clock, emit: Emit) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        # Ids of jobs that the last try did not store, but an earlier one may have
        # stored.
        self._maybe_stored: set[bytes] = set()
        self._reporting: asyncio.Task[None] | None = None

    def is_maybe_stored(self, jobs: Sequence[NewJob]) -> bool:
        """Whether an earlier try with an unknown outcome may have stored any job."""
        return bool(self._maybe_stored) and any(
            job.id in self._maybe_stored for job in jobs
        )

    def forget(self, jobs: Sequence[NewJob]) -> None:
        """Forget jobs whose caller has its result or was cancelled."""
        if self._maybe_stored:
            self._maybe_stored.difference_update(job.id for job in jobs)

    async def write(
        self, jobs: Sequence[NewJob], calls: Sequence[int], *, apart: bool = False
    ) -> Answers:
        """Write until the outcome is known, at most TRIES_MAX times.

        `calls` and `apart` are those of the store's `enqueue`.
        """
        repeated, doubted = False, self.is_maybe_stored(jobs)
        for tries in range(TRIES_MAX):
            again = repeated or doubted
            try:
                answers = await self._watched(jobs, calls, again=again, apart=apart)
            except StoreError as error:
                if not error.unknown and not again:
                    raise  # certainly not stored
                if isinstance(error, StoreStalled) or tries == TRIES_MAX - 1:
                    if error.unknown:
                        raise
                    raise unknown_outcome(error) from error
                repeated = True
                self._emit("store.failed", call="enqueue", error=str(error))
                await self._clock.sleep(PAUSE_SECONDS * 2**tries)
            else:
                if repeated:
                    self._remember_refused(jobs, answers)
                return _after_repeat(jobs, answers) if again else answers
        raise StoreUnavailable("the store does not answer", unknown=True)

    def _remember_refused(self, jobs: Sequence[NewJob], answers: Answers) -> None:
        """Remember refused jobs, because an earlier try may still be stored."""
        pairs = zip(jobs, answers, strict=True)
        self._maybe_stored.update(job.id for job, answer in pairs if is_refused(answer))

    async def _watched(
        self, jobs: Sequence[NewJob], calls: Sequence[int], *, again: bool, apart: bool
    ) -> Answers:
        """Write once; after STALL_SECONDS report which process holds the writer's lock."""
        loop = asyncio.get_running_loop()
        watch = loop.call_later(STALL_SECONDS, self._start_report)
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                return await self._store.enqueue(
                    jobs, calls=calls, again=again, apart=apart
                )
        except TimeoutError:
            raise await self._stalled() from None
        finally:
            watch.cancel()

    async def _stalled(self) -> StoreStalled:
        stall = await self._stalled_by()
        holder = "" if stall is None else f": process {stall.pid} keeps it locked"
        return StoreStalled(
            f"the store has not answered for {WAIT_SECONDS_MAX:g} s{holder}",
            cure="Check what that process does. The job may or may not be stored: "
            "with an idempotency key it is safe to repeat the call.",
            unknown=True,
        )

    def _start_report(self) -> None:
        loop = asyncio.get_running_loop()
        self._reporting = loop.create_task(self._report_stall())

    async def _report_stall(self) -> None:
        stall = await self._stalled_by()
        if stall is not None:
            self._emit("store.stalled", pid=stall.pid, seconds=round(stall.seconds, 1))

    async def _stalled_by(self) -> Stall | None:
        try:
            return (await self._store.health()).stalled_by
        except StoreError:
            return None


def is_refused(answer: Enqueued) -> bool:
    """Whether this try did not store the job."""
    return answer.full is not None or answer.locked is not None


def _after_repeat(jobs: Sequence[NewJob], answers: Answers) -> Answers:
    """Mark jobs that a repeat found as created: for the caller they are new."""
    return [
        answer._replace(created=True)
        if answer.id == job.id and not is_refused(answer)
        else answer
        for job, answer in zip(jobs, answers, strict=True)
    ]


def unknown_outcome(error: DurioError) -> StoreError:
    """Return the error of a later try if the first try may have been stored."""
    return StoreUnavailable(
        f"an earlier try may have stored it: {error.what}",
        cure=error.cure,
        unknown=True,
        **error.values,
    )


def closed_before_stored() -> StoreUnavailable:
    """Return the error for a call whose write was cancelled."""
    return StoreUnavailable(
        "the App was closed before the job was known to be stored", unknown=True
    )
