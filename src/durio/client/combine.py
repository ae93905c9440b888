"""Enqueues that come together go together, and none of them waits for another's trouble.

**Together.** While one store call is in flight, others queue up and go as one. Nobody waits
for company: an idle combiner sends at once. Each caller gets its own answer or its own
exception.

**Slow ones.** A batch without an answer after a quarter of a second keeps nobody: the next
goes beside it.

**Apart.** Whether a key is free may hang on a transaction that somebody has open, perhaps
the very one who enqueues next. Stores wait for it on behalf of one caller; several they
refuse at once, and their calls are sent again: those without keys together, the others each
by itself. Whoever needs a key that is being waited for stands behind the first who did,
and hears the same if that one waited in vain.
"""

import asyncio
from collections.abc import Sequence

from durio.client.ask import Asker, is_locked, unknown
from durio.client.full import Answers
from durio.model.errors import StoreError, StoreUnavailable
from durio.model.job import NewJob

BATCH_MAX = 1000
SLOW_SECONDS = 0.25
SLOW_MAX = 16  # batches
APART_MAX = 16  # keys

Call = tuple[Sequence[NewJob], "asyncio.Future[Answers]"]
Place = bytes | str  # what a call may have to wait for: its key, or else its lane


class Combiner:
    """Sends the calls of one event loop, as many at once as are waiting."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._waiting: list[Call] = []
        self._sender: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle  # of the sender
        self._slow: set[asyncio.Task[None] | None] = set()  # senders that were
        self._apart: dict[Place, list[Call]] = {}  # who stands behind the first
        self._leaders: dict[asyncio.Task[None] | None, Place | None] = {}
        self._room = asyncio.Semaphore(APART_MAX)

    def submit(self, jobs: Sequence[NewJob]) -> asyncio.Future[Answers]:
        """Send these jobs as soon as may be, whole."""
        future: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        self._line_up((jobs, future))
        return future

    def _line_up(self, call: Call) -> None:
        if self._apart and self._is_apart(call):
            self._part(call)
            return
        self._waiting.append(call)
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send())

    # --- together

    async def _send(self) -> None:
        me = asyncio.current_task()
        try:
            while self._waiting and self._sender is me:
                batch, self._waiting = taken(self._waiting)
                self._watch(batch)
                error = await self._send_batch(batch)
                if self._sender is me:
                    self._timer.cancel()
                else:
                    await self._follow(error)
        finally:
            if self._sender is me:
                self._timer.cancel()
                self._sender = None
            self._slow.discard(me)
            self._leave()

    async def _send_batch(self, batch: Sequence[Call]) -> Exception | None:
        """Send and answer; what failed is told to its callers, and returned."""
        jobs = [job for some, _ in batch for job in some]
        calls = [len(some) for some, _ in batch]
        try:
            answers = await self._asker.stored(jobs, calls)
        except BaseException as error:
            if is_locked(error) and len(batch) > 1:
                await self._send_apart(batch, is_vague=error.unknown)
                return None
            for _, future in batch:
                if not future.done():
                    future.set_exception(_own(error))
            if not isinstance(error, Exception):
                raise
            return error
        start = 0
        for some, future in batch:
            if not future.done():
                future.set_result(answers[start : start + len(some)])
            start += len(some)
        return None

    async def _send_all(self, calls: Sequence[Call]) -> None:
        """Without delay, so that whoever gives up is known to have done so."""
        while calls:
            batch, calls = taken(calls)
            batch = [call for call in batch if not call[1].done()]
            if batch:
                await self._send_batch(batch)

    # --- slow ones

    def _watch(self, batch: Sequence[Call]) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(SLOW_SECONDS, self._hand_over, batch)

    def _hand_over(self, batch: Sequence[Call]) -> None:
        """The next batch goes beside this one; what it waits for is waited for once."""
        place = place_of(batch[0])
        if len(batch) == 1 and is_key(place) and place not in self._apart:
            self._apart[place] = []
            self._leaders[self._sender] = place
        elif len(self._slow) < SLOW_MAX:
            self._slow.add(self._sender)
        else:
            self._watch(batch)
            return
        self._sender = None
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            self._line_up(call)

    # --- apart

    def _is_apart(self, call: Call) -> bool:
        place = place_of(call)
        return place in self._apart or (is_key(place) and len(self._apart) >= APART_MAX)

    async def _send_apart(self, batch: Sequence[Call], *, is_vague: bool) -> None:
        """Something that one of them needs is locked: a key, if anybody has one."""
        left = [call for call in batch if not call[1].done()]
        if is_vague:
            for jobs, _ in left:
                self._asker.doubt(jobs)
        plain = [call for call in left if not is_key(place_of(call))]
        if len(plain) == len(left):
            plain = []
        for call in left:
            if not plain or is_key(place_of(call)):
                self._part(call)
        await self._send_all(plain)

    def _part(self, call: Call) -> None:
        """Send this call by itself, or behind the one that already waits there."""
        place = place_of(call)
        if place in self._apart:
            self._apart[place].append(call)
            return
        self._apart[place] = []
        leader = asyncio.get_running_loop().create_task(self._lead(call))
        self._leaders[leader] = place

    async def _lead(self, call: Call) -> None:
        error = None
        try:
            async with self._room:
                if not call[1].done():
                    error = await self._send_batch([call])
            await self._follow(error)
        finally:
            self._refuse([call], closed_meanwhile())  # if it was never sent
            self._leave()

    async def _follow(self, error: Exception | None) -> None:
        """Those behind a leader fail with it, or are sent now."""
        me = asyncio.current_task()
        place = self._leaders.get(me)
        if place is None:
            return
        self._leaders[me] = None
        calls = self._apart.pop(place)
        if is_locked(error):
            self._refuse(calls, error)
        else:
            await self._send_all(calls)

    def _refuse(self, calls: Sequence[Call], error: StoreError) -> None:
        for jobs, future in calls:
            if not future.done():
                is_vague = self._asker.is_doubted(jobs) and not error.unknown
                future.set_exception(unknown(error) if is_vague else error)

    def _leave(self) -> None:
        """A leader ends; before its time only when the loop is being closed."""
        place = self._leaders.pop(asyncio.current_task(), None)
        if place is not None:
            self._refuse(self._apart.pop(place), closed_meanwhile())


def taken(calls: Sequence[Call]) -> tuple[list[Call], list[Call]]:
    """Those that fit one store call, and the rest; a key may be there twice."""
    size, count = 0, 0
    for jobs, _ in calls:
        if count and size + len(jobs) > BATCH_MAX:
            break
        size, count = size + len(jobs), count + 1
    return list(calls[:count]), list(calls[count:])


def place_of(call: Call) -> Place:
    """What this call may have to wait for; several jobs at once have no keys."""
    job = call[0][0]
    return job.lane if job.key is None else job.key.key


def is_key(place: Place) -> bool:
    """Whether a call with this place has a key."""
    return isinstance(place, bytes)


def closed_meanwhile() -> StoreUnavailable:
    """A cancelled sender is our business, not the callers'."""
    return StoreUnavailable(
        "the App was closed while the job was being stored", unknown=True
    )


def _own(error: BaseException) -> BaseException:
    return closed_meanwhile() if isinstance(error, asyncio.CancelledError) else error
