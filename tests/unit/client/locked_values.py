"""Makes a store answer as PostgreSQL does while open transactions hold locks."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from durio import Job
from durio.errors import StoreUnavailable
from durio.model.job import READY, NewJob
from durio.ports.enqueue import Enqueued, Locked
from tests.faults.faulty_store import FaultyStore, RecordedCall

WAIT_SECONDS = 30.0
LOCK_SECONDS = 0.1  # that a try waits for a lock
LOCKED = Locked(StoreUnavailable("locked"), WAIT_SECONDS)


class Try(NamedTuple):
    """One enqueue of the store while something was locked."""

    values: list[int]
    apart: bool


class LockedValues:
    """Refuses the jobs with these arguments, and in a batch all other jobs with keys.

    A job without a key is refused by itself, as if its queue were locked.
    """

    def __init__(self, store: FaultyStore, lock_seconds: float = LOCK_SECONDS) -> None:
        self.store = store
        self.values: set[int] = set()
        self.locked = LOCKED  # the answer
        self.tries: list[Try] = []
        self._lock_seconds = lock_seconds
        self._execute, store.execute = store.execute, self.execute

    @property
    def apart(self) -> list[list[int]]:
        """The values of each try of one key by itself."""
        return [each.values for each in self.tries if each.apart]

    async def execute(self, call: RecordedCall) -> None:
        """In place of the store's own."""
        if call.method != "enqueue" or not self.values:
            await self._execute(call)
            return
        jobs, sizes = call.args[0], call.options["calls"]
        assert sizes == [1] * len(jobs)
        apart = call.options["apart"]
        self.tries.append(Try([value_of(job) for job in jobs], apart))
        if apart:
            keys = {job.lane if job.key is None else job.key.key for job in jobs}
            assert len(keys) == 1, "each key is tried by itself"
        if any(value_of(job) in self.values for job in jobs):
            await self.store.clock.sleep(self._lock_seconds)
        refused = self.refused(jobs)
        left = [job for job in jobs if job.id not in refused]
        call.args, call.options = (left,), {**call.options, "calls": [1] * len(left)}
        call.answer = []
        if left:
            await self._execute(call)
        stored = iter(call.answer)
        call.answer = [
            Enqueued(job.id, False, READY, locked=self.locked)
            if job.id in refused
            else next(stored)
            for job in jobs
        ]

    def refused(self, jobs: Sequence[NewJob]) -> set[bytes]:
        held = [job for job in jobs if value_of(job) in self.values]
        if any(job.key is not None for job in held):
            held += [job for job in jobs if job.key is not None]
        return {job.id for job in held}


def value_of(job: NewJob) -> int:
    """The number in [[7],{}]."""
    return int("".join(c for c in job.payload.decode() if c.isdigit()))


def start(task: Any, value: int, key: str | None = None) -> "asyncio.Task[Job[str]]":
    chosen = task if key is None else task.options(key=key)
    return asyncio.get_running_loop().create_task(chosen.enqueue(value))
