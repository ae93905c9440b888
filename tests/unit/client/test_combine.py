"""One caller waits for what somebody has locked; others go on."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from durio import App, Job
from durio.client.combine import APART_MAX, SLOW_MAX
from durio.errors import StoreUnavailable
from durio.model.job import NewJob
from durio.testing.faulty import Called, FaultyStore
from tests.unit.app.lab import drained, records, virtual
from tests.unit.client.test_enqueue import echo, faulty

CALL_SECONDS, REFUSAL_SECONDS = 30.0, 0.3


class LockedKeys:
    """Makes a store's keyed enqueues wait as for somebody's open transaction.

    One caller is waited for, for as long as a call may last; several are refused soon.
    """

    def __init__(self, store: FaultyStore, *, vague: bool = False) -> None:
        self.store, self.vague = store, vague
        self.locked: set[int] = set()  # the values that such jobs carry
        self.waited: list[int] = []
        self.waits_now = 0
        self.most_waits = 0
        self._meet, store.meet = store.meet, self.meet

    async def meet(self, call: Called) -> None:
        """In place of the store's own."""
        if call.method == "enqueue":
            await self.wait(call.args[0], call.options["calls"])
        await self._meet(call)

    async def wait(self, jobs: Sequence[NewJob], calls: Sequence[int]) -> None:
        is_one = len(calls) == 1
        stop = self.store.clock.now() + (CALL_SECONDS if is_one else REFUSAL_SECONDS)
        self.waits_now += 1
        self.most_waits = max(self.most_waits, self.waits_now)
        try:
            while self.held(jobs):
                if self.store.clock.now() >= stop:
                    self.waited += self.held(jobs)
                    vague = self.vague and not is_one
                    raise StoreUnavailable("locked", unknown=vague, state="55P03")
                await self.store.clock.sleep(0.05)
        finally:
            self.waits_now -= 1

    def held(self, jobs: Sequence[NewJob]) -> list[int]:
        return [value for job in jobs if (value := value_of(job)) in self.locked]


def value_of(job: NewJob) -> int:
    """The number in [[7],{}]."""
    return int("".join(c for c in job.payload.decode() if c.isdigit()))


def repeats(store: FaultyStore) -> list[bool]:
    """Of each enqueue, whether it was said to be one."""
    return [call.options["again"] for call in store.calls if call.method == "enqueue"]


def start(task: Any, value: int, key: str | None = None) -> "asyncio.Task[Job[str]]":
    chosen = task if key is None else task.options(key=key)
    return asyncio.get_running_loop().create_task(chosen.enqueue(value))


@virtual
async def test_a_key_that_is_locked_keeps_no_other_enqueue_waiting(app: App):
    task, locks = app.task(echo), LockedKeys(faulty(app))
    locks.locked = {1}
    first = start(task, 1, "k")
    await app.clock.sleep(0.1)
    begun = app.clock.now()
    for n in range(2, 20):
        assert (await task.enqueue(n)).created
        assert (await task.options(key=f"k{n}").enqueue(n)).created
    assert app.clock.now() - begun < 1
    assert not first.done()
    locks.locked.clear()
    assert (await first).created
    assert len(await records(app)) == 37


@virtual
async def test_mates_of_a_locked_key_do_not_wait_with_it(app: App):
    task, locks = app.task(echo), LockedKeys(faulty(app))
    locks.locked = {5}
    begun = app.clock.now()
    mates = [start(task, n, f"k{n}" if n % 2 else None) for n in range(10)]
    others = [mate for n, mate in enumerate(mates) if n != 5]
    jobs = await asyncio.gather(*others)
    assert app.clock.now() - begun < 1
    assert all(job.created for job in jobs)
    with pytest.raises(StoreUnavailable, match="locked") as caught:
        await mates[5]
    assert not caught.value.unknown
    assert app.clock.now() - begun >= CALL_SECONDS
    assert len(await records(app)) == 9


@virtual
async def test_mates_that_may_be_stored_are_asked_for_as_a_repeat(app: App):
    task, store = app.task(echo), faulty(app)
    locks = LockedKeys(store, vague=True)
    locks.locked = {1}
    keyed, plain = start(task, 1, "k"), start(task, 2)
    assert (await plain).created
    assert repeats(store) == [False, True, True]
    with pytest.raises(StoreUnavailable, match="may have stored it") as caught:
        await keyed
    assert caught.value.unknown
    assert locks.waited == [1, 1], "what was waited for once is not asked for again"
    assert (await task.enqueue(3)).created
    assert not repeats(store)[-1], "nothing is doubted any more"


@virtual
async def test_whoever_asks_for_the_same_key_stands_behind_the_first(app: App):
    task, store = app.task(echo), faulty(app)
    locks = LockedKeys(store)
    locks.locked = {1}
    first = start(task, 1, "k")
    await app.clock.sleep(1)
    more = [start(task, 1, "k") for _ in range(50)]
    await app.clock.sleep(1)
    assert store.times("enqueue") == 1
    more[0].cancel()
    locks.locked.clear()
    jobs = await asyncio.gather(first, *more[1:])
    assert [job.created for job in jobs] == [True] + [False] * 49
    assert {job.id for job in jobs} == {jobs[0].id}
    assert store.times("enqueue") == 2


@virtual
async def test_those_behind_a_key_that_stays_locked_are_told_with_the_first(app: App):
    task, locks = app.task(echo), LockedKeys(faulty(app))
    locks.locked = {1}
    begun = app.clock.now()
    asked = [start(task, 1, "k") for _ in range(50)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert app.clock.now() - begun < CALL_SECONDS + 2
    locks.locked.clear()
    assert (await task.options(key="k").enqueue(1)).created


@virtual
async def test_many_locked_keys_are_waited_for_a_few_at_a_time(app: App):
    task, locks = app.task(echo), LockedKeys(faulty(app))
    locks.locked = set(range(1000, 1100))
    begun = app.clock.now()
    keyed: list[asyncio.Task[Job[str]]] = []
    for n in sorted(locks.locked):
        keyed.append(start(task, n, f"k{n}"))
        await app.clock.sleep(0.3)
        assert (await task.enqueue(n - 1000)).created
    assert app.clock.now() - begun < 100
    assert locks.most_waits <= 2 * APART_MAX + 2
    locks.locked.clear()
    await asyncio.gather(*keyed, return_exceptions=True)
    assert (await task.options(key="k1099").enqueue(1099)) is not None
    assert locks.waits_now == 0


@virtual
async def test_callers_without_keys_wait_for_a_locked_queue_one_for_all(app: App):
    task, store = app.task(echo), faulty(app)
    locks = LockedKeys(store)
    locks.locked = set(range(100))
    asked = [start(task, n) for n in range(100)]
    other = start(task.options(queue="other"), 1000)
    await app.clock.sleep(2)
    assert other.done()
    assert locks.waits_now == 1
    locks.locked.clear()
    assert all(job.created for job in await asyncio.gather(*asked))
    assert store.times("enqueue") < 6


@virtual
async def test_slow_batches_go_beside_each_other_and_not_without_end(app: App):
    task, store = app.task(echo), faulty(app)
    store.slow("enqueue", seconds=20)
    asked: list[asyncio.Task[Job[str]]] = []
    for n in range(40):
        asked.append(start(task, n))
        await app.clock.sleep(0.3)
    assert store.times("enqueue") == SLOW_MAX + 1
    store.heal()
    jobs = await asyncio.gather(*asked)
    assert all(job.created for job in jobs)
    assert (await task.enqueue(1)).created
    await drained(app)
    assert len(await records(app)) == 41


@virtual
async def test_a_caller_that_gives_up_a_locked_key_leaves_others_in_peace(app: App):
    task, locks = app.task(echo), LockedKeys(faulty(app))
    locks.locked = {1}
    first, mate = start(task, 1, "k"), start(task, 2, "other")
    behind = start(task, 1, "k")
    await mate
    first.cancel()
    await app.clock.sleep(1)
    locks.locked.clear()
    assert not (await behind).created, "the one that was on its way is stored"
    assert len(await records(app)) == 2
