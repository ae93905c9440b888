"""Wait for jobs to end: all waiters of a loop share one poller."""

import asyncio
from functools import partial

from durio.model.errors import JobNotFound, StoreError, StoreUnavailable
from durio.model.ids import id_text
from durio.model.job import DONE, STATE_BY_CODE
from durio.model.names import namespace_of, queue_of
from durio.ports.clock import Clock
from durio.ports.control import Acted, Verb
from durio.ports.store import Store

FIRST_SECONDS = 0.002
LONGEST_SECONDS = 0.25
GROWTH = 1.5
IDS_MAX = 500  # per query


class Waiters:
    """Polls the states of awaited jobs, quickly at first, then less often."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._futures: dict[bytes, list[asyncio.Future[int]]] = {}
        self._poller: asyncio.Task[None] | None = None
        self._pause_seconds = FIRST_SECONDS

    async def wait_final(self, job_id: bytes) -> int:
        """Wait for the end of the job and return its final state."""
        return await self.final(job_id)

    def final(self, job_id: bytes) -> "asyncio.Future[int]":
        """Return a future of the final state; cancel it to stop waiting."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        self._futures.setdefault(job_id, []).append(future)
        # Poll often again, because there is a new waiter.
        self._pause_seconds = FIRST_SECONDS
        if self._poller is None:
            self._poller = loop.create_task(self._poll())
        future.add_done_callback(partial(self._forget, job_id))
        return future

    def _forget(self, job_id: bytes, future: "asyncio.Future[int]") -> None:
        waiting = self._futures.get(job_id)
        if waiting is not None and future in waiting:
            waiting.remove(future)
            if not waiting:
                del self._futures[job_id]

    async def _poll(self) -> None:
        try:
            while self._futures:
                await self._poll_once(list(self._futures)[:IDS_MAX])
                await self._clock.sleep(self._pause_seconds)
                self._pause_seconds = min(self._pause_seconds * GROWTH, LONGEST_SECONDS)
        finally:
            self._poller = None

    async def _poll_once(self, ids: list[bytes]) -> None:
        try:
            states = await self._store.states(ids, waiting=True)
        except StoreError as error:
            for job_id in ids:
                self._answer(job_id, error)
            return
        for job_id in ids:
            state = states.get(job_id)
            if state is None:
                self._answer(job_id, not_found(job_id))
            elif state >= DONE:
                self._answer(job_id, state)
            elif job_id in self._futures:
                # Move the job to the end, so that of more than IDS_MAX jobs each gets its
                # turn.
                self._futures[job_id] = self._futures.pop(job_id)

    def _answer(self, job_id: bytes, answer: int | Exception) -> None:
        for future in self._futures.pop(job_id, ()):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)


PAST_TENSE: dict[Verb, str] = {
    "cancel": "cancelled",
    "retry": "retried",
    "discard": "discarded",
    "run_now": "made ready",
}


def held_by_transaction(acted: Acted, verb: Verb) -> StoreUnavailable:
    """Return the error for a job that an open transaction has locked until the timeout."""
    state = "gone" if acted.before is None else STATE_BY_CODE[acted.before].value
    what = "it or its key" if verb == "retry" else "it"
    return StoreUnavailable(
        f"job {id_text(acted.id)} was not {PAST_TENSE[verb]}: it is {state}, and an open "
        f"transaction holds {what}",
        cure="Try again when that transaction has ended.",
    )


def not_found(job_id: bytes) -> JobNotFound:
    return JobNotFound(
        f"there is no job {id_text(job_id)}",
        cure="It was never stored here, retention has removed it, or its transaction is "
        "not committed yet.",
        id=id_text(job_id),
    )


async def describe_wait(store: Store, job_id: bytes) -> str:
    """Return why a job may not have ended: ` (state: ready; no worker serves ...)`."""
    stored = next(iter(await store.get([job_id])), None)
    if stored is None:
        return ""
    queue, state = queue_of(stored.lane), STATE_BY_CODE[stored.state]
    workers = await store.workers(namespace_of(stored.lane))
    serving = sum(worker.serves(queue) for worker in workers)
    number = (
        f"{serving} worker{'' if serving == 1 else 's'}" if serving else "no worker"
    )
    verb = "serve" if serving > 1 else "serves"
    return f' (state: {state.value}; {number} {verb} queue "{queue}")'
