"""Doorbells: a commit that made work for somebody rings them, and nobody has to poll.

Workers of this process are rung directly; all others by NOTIFY (ringing.py), which the ear
of their process hears (ear.py). Whether it really does is proved again and again
(proof.py). While it is not, a wait looks by itself, for work and for acts on its worker:
after 10 ms where there was work of late, and up to 250 ms where there was none.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from durio.model.errors import StoreError
from durio.model.queues import serves
from durio.ports.clock import Clock
from durio.ports.store import Wake
from durio.stores.postgres.ear import Ear
from durio.stores.postgres.lines import Lines
from durio.stores.postgres.proof import Proof, settle
from durio.stores.postgres.ringing import (
    CONTROL,
    PROOF,
    WORK,
    Ringer,
    channel_of,
    inside,
    rung_in,
    words_of,
)
from durio.stores.postgres.statements import statement

LOOK_AROUND = statement("look_around")

POLL_FIRST_SECONDS, POLL_LAST_SECONDS = 0.010, 0.250
LOOKS_SHARE = 10  # pauses are so many times as long as looks
PROVE_SECONDS = 30.0
ATTEND_SECONDS = 10.0
PAUSE_FIRST_SECONDS, PAUSE_LAST_SECONDS = 0.25, 5.0

DEAF = (
    "Wakeups do not arrive (PgBouncer in transaction mode, or a lost connection): workers "
    "look for work by themselves, every 10 to 250 ms, until they do."
)
HEARS = "Wakeups arrive again."

QUIET: Final = Wake(rung=False, lanes=frozenset(), control=False)
LOOK: Final = Wake(rung=True, lanes=frozenset(), control=False)


class HungBell:
    """One worker's bell: rung from any thread, waited for on any loop."""

    def __init__(
        self, worker: int, namespace: str, queues: Collection[str] | None
    ) -> None:
        self.worker = worker
        self._prefix = f"{namespace}:"
        self._queues = None if queues is None else tuple(queues)
        self._rings: dict[str, None] = {}
        self._waiters: list[Callable[[], None]] = []
        self._poll_seconds = POLL_FIRST_SECONDS
        self._took_seconds = 0.0  # the last look
        self._seen: tuple[Any, ...] = (None, 0, ())

    def serves(self, lane: str) -> bool:
        """Whether its worker may claim from this lane."""
        prefix = self._prefix
        return lane.startswith(prefix) and serves(self._queues, lane[len(prefix) :])

    # --- ringing

    def ring(self, word: str) -> None:
        """Note it, and wake whoever waits; a word that is noted has woken them."""
        if word not in self._rings:
            self._rings[word] = None
            self.stir()

    def stir(self) -> None:
        """Let whoever waits look around."""
        for wake in list(self._waiters):
            wake()

    @property
    def is_rung(self) -> bool:
        """Whether there is something to take."""
        return bool(self._rings)

    def take(self) -> Wake | None:
        """What was rung since the last time."""
        words: list[str] = []
        with suppress(KeyError):  # empty: rings of other threads may come meanwhile
            while True:
                words.append(self._rings.popitem()[0])
        if not words:
            return None
        lanes = frozenset(word[1:] for word in words if word.startswith(WORK))
        return Wake(rung=True, lanes=lanes, control=CONTROL in words)

    async def heard(self, seconds: float) -> None:
        """Until something is rung or stirred, or the time is over."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            with suppress(RuntimeError):  # that loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, ended)

        # First listen, then look: a ring in between is seen twice, never missed.
        self._waiters.append(wake)
        timer = loop.call_later(seconds, settle, ended)
        try:
            if not self._rings:
                await ended
        finally:
            timer.cancel()
            self._waiters.remove(wake)

    # --- polling

    def reset_poll(self) -> None:
        """There was work: there may be more of it soon."""
        self._poll_seconds = POLL_FIRST_SECONDS

    def next_poll(self, chance: float) -> float:
        """How long until the next look; longer each time."""
        seconds = max(self._poll_seconds, LOOKS_SHARE * self._took_seconds)
        self._poll_seconds = min(2 * self._poll_seconds, POLL_LAST_SECONDS)
        return seconds * (0.75 + chance / 2)

    async def look(self, lines: Lines, clock: Clock) -> Wake | None:
        """In place of a ring: is there work, or an act on this worker, since last time?"""
        began = clock.monotonic()
        span = self._prefix, f"{self._prefix[:-1]};"  # the sign behind the colon
        rows = await lines.read(LOOK_AROUND, self.worker, *span)
        self._took_seconds = min(clock.monotonic() - began, 1.0)
        order, cancels, paused, busy = rows[0]
        before, self._seen = self._seen, (order, cancels, tuple(paused))
        lanes = frozenset(lane for lane in busy if self.serves(lane)) - {*paused}
        has_changed = self._seen != before
        if not lanes and not has_changed:
            return None
        return Wake(rung=True, lanes=lanes, control=has_changed)


class Bell:
    """Rings after commits, and lets workers wait until they are rung."""

    def __init__(
        self,
        lines: Lines,
        clock: Clock,
        schema: str,
        *,
        notify: bool = True,
        changed: Callable[[bool], None] | None = None,
    ) -> None:
        """`notify=False`: no NOTIFY, no LISTEN; whoever is elsewhere polls.

        `changed` is told when rings no longer reach us (False), and when they do again.
        """
        self._lines = lines
        self._clock = clock
        self._notify = notify
        self._changed = changed
        self.channel = channel_of(schema, "rings")
        self.ear = Ear(lines, self._missed)
        self._ringer = Ringer(lines, clock, self.channel)
        self._proof = Proof(clock)
        self._hung: dict[int, HungBell] = {}
        self._hearing: bool | None = None  # None: nobody knows yet, so we hope
        self._waiting: set[asyncio.AbstractEventLoop] = set()
        self._errand: asyncio.Task[None] | None = None
        self._prove_at = self._retry_at = float("-inf")
        self._pause_seconds = PAUSE_FIRST_SECONDS
        if notify:
            self.ear.tune(self.channel, self._hear)

    @property
    def name(self) -> str:
        """Who this process is on the channels."""
        return self._ringer.name

    @property
    def is_notifying(self) -> bool:
        """Whether NOTIFY is used at all."""
        return self._notify

    @property
    def has_workers(self) -> bool:
        """Whether workers of this process wait for rings."""
        return bool(self._hung)

    @property
    def is_deaf(self) -> bool:
        """Whether rings of other processes are known not to reach us."""
        if not self._notify or self._hearing is False:
            return True
        return self._hearing is True and not self.ear.is_up

    # --- workers

    async def hang(
        self, worker: int, namespace: str, queues: Collection[str] | None
    ) -> None:
        """A worker of this process has its lease: remember its rings from now on."""
        self._hung[worker] = HungBell(worker, namespace, queues)
        self._note_waiting_loop()
        if self._notify and not self.ear.is_settled:
            with suppress(StoreError, TimeoutError):  # its waits try again
                async with asyncio.timeout(ATTEND_SECONDS):
                    await self.ear.settle()

    def remove(self, worker: int) -> None:
        """A worker is gone; whoever still waits for its rings is let go."""
        bell = self._hung.pop(worker, None)
        if bell is not None:
            bell.ring(CONTROL)

    def renewed(self) -> None:
        """A renewal came from this loop: where no job runs, the ear is best at home."""
        loop = asyncio.get_running_loop()
        if loop not in self._waiting:
            self.ear.offer(loop)

    def found(self, worker: int) -> None:
        """A claim of this worker found jobs: if it has to poll, then soon again."""
        bell = self._hung.get(worker)
        if bell is not None:
            bell.reset_poll()

    # --- ringing

    def ring(self, lanes: Mapping[str, int], workers: Collection[int]) -> None:
        """After the commit: lanes with work (-> whom not to tell), workers to renew."""
        self._ring_here(lanes, workers)
        elsewhere = [worker for worker in workers if worker not in self._hung]
        if self._notify and (lanes or elsewhere):
            self._ringer.ring(words_of(lanes, elsewhere))

    def _ring_here(self, lanes: Mapping[str, int], workers: Collection[int]) -> None:
        for bell in list(self._hung.values()):
            for lane, but in lanes.items():
                if bell.worker != but and bell.serves(lane):
                    bell.ring(WORK + lane)
            if bell.worker in workers:
                bell.ring(CONTROL)

    def payloads_inside(self, lanes: Mapping[str, int]) -> list[str]:
        """For `sql/ring_inside.sql` in a user's transaction; empty: they poll."""
        return inside(lanes) if self._notify else []

    # --- hearing, in the thread of the ear's home

    def _hear(self, payload: str) -> None:
        who, sign, word = rung_in(payload)
        if sign == PROOF:
            # Behind a pooler an answer may bring it along: that proves nothing.
            if who == self.name and not (self._lines.is_pooled and self.ear.is_asking):
                self._proof.hear(word)
        elif who == self.name:
            return  # rung directly, long ago
        elif sign == WORK:
            self._ring_here({word: 0}, ())
        elif sign == CONTROL and word.isdecimal():
            self._ring_here({}, (int(word),))

    def _missed(self) -> None:
        """The connection is a new one: look, and prove that it hears."""
        self._prove_at = float("-inf")
        for bell in list(self._hung.values()):
            bell.ring(CONTROL)

    # --- waiting

    async def wait(self, worker: int, timeout_seconds: float) -> Wake:
        """Until somebody rings this worker, or the time is over, or it should look."""
        loop = asyncio.get_running_loop()
        self._note_waiting_loop()
        bell = self._hung.get(worker)
        if bell is None:  # of another process, or gone
            await self._clock.sleep(min(timeout_seconds, POLL_LAST_SECONDS))
            return LOOK
        end = loop.time() + timeout_seconds
        while True:
            wake = bell.take()
            if wake is not None:
                bell.reset_poll()
                return wake
            left = end - loop.time()
            if left <= 0:
                return QUIET
            self.attend()
            if not self.is_deaf:
                await bell.heard(left)
                continue
            poll = bell.next_poll(self._clock.random())
            await bell.heard(min(left, poll))
            if poll < left and not bell.is_rung:
                wake = await bell.look(self._lines, self._clock)
                if wake is not None:
                    return wake

    def _note_waiting_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if loop not in self._waiting:
            self._waiting = {each for each in self._waiting if not each.is_closed()}
            self._waiting.add(loop)

    # --- keeping the ear in order

    def attend(self) -> None:
        """See to it that the ear listens, and now and then that it hears; never waits."""
        if not self._notify:
            return
        errand = self._errand
        if errand is not None and not (errand.done() or errand.get_loop().is_closed()):
            return
        now = self._clock.monotonic()
        if now >= self._prove_at or (now >= self._retry_at and not self.ear.is_settled):
            self._errand = asyncio.get_running_loop().create_task(self._attend())

    async def _attend(self) -> None:
        try:
            async with asyncio.timeout(ATTEND_SECONDS):
                if not self.ear.is_settled:
                    await self.ear.settle()
                is_hearing = await self._prove()
        except (StoreError, TimeoutError):
            is_hearing = False
            self._prove_at = self._retry_at = self._clock.monotonic() + self._pause()
        else:
            self._pause_seconds = PAUSE_FIRST_SECONDS
            self._prove_at = self._clock.monotonic() + PROVE_SECONDS
            self._retry_at = self._clock.monotonic() + PAUSE_FIRST_SECONDS
        self._note(is_hearing)

    def _pause(self) -> float:
        """Before the next try; longer each time, and jittered."""
        seconds = self._pause_seconds
        self._pause_seconds = min(2 * seconds, PAUSE_LAST_SECONDS)
        return seconds * (0.75 + self._clock.random() / 2)

    async def _prove(self) -> bool:
        if self._lines.is_pooled and self.ear.is_here:
            return False  # one line cannot prove anything about itself there
        return await self._proof.give(lambda nonce: self._ringer.say([PROOF + nonce]))

    def _note(self, is_hearing: bool) -> None:  # noqa: FBT001 - the one thing to note
        before, self._hearing = self._hearing, is_hearing
        if before is is_hearing:
            return
        for bell in list(self._hung.values()):
            bell.stir()
        if self._changed is not None and (before is False or not is_hearing):
            self._changed(is_hearing)

    # --- ends

    async def close(self) -> None:
        """Say what is still to be said, and let every waiter go."""
        for worker in list(self._hung):
            self.remove(worker)
        errand, self._errand = self._errand, None
        if errand is not None and errand.get_loop() is asyncio.get_running_loop():
            errand.cancel()
            await asyncio.wait((errand,))
        await self._ringer.close()
        self.ear.forget()

    def forget(self) -> None:
        """In a forked child: workers and ear are the parent's."""
        self._hung.clear()
        self._waiting.clear()
        self._errand = None
        self._hearing = None
        self._prove_at = self._retry_at = float("-inf")
        self._ringer.forget()
        self.ear.forget()
