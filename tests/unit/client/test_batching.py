"""One caller waits for what somebody has locked; others go on."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from durio import App, Job
from durio.client.batching import BATCH_BYTES
from durio.errors import StoreUnavailable
from durio.model.job import READY, NewJob
from durio.model.keys import replace
from durio.ports.enqueue import Enqueued, Locked
from tests.faults.faulty_store import FaultyStore, RecordedCall
from tests.unit.app.app_harness import records, virtual
from tests.unit.client.test_enqueue import echo, faulty

PATIENCE_SECONDS = 30.0
TURN_SECONDS = 0.02
LOCKED = Locked(StoreUnavailable("locked"), PATIENCE_SECONDS)


class LockedValues:
    """Answers some enqueues of a store as one does where somebody's transaction is open.

    Calls that carry these values are refused, and so are all that have a key in the same
    batch: which key it was a store cannot tell.
    """

    def __init__(self, store: FaultyStore) -> None:
        self.store = store
        self.values: set[int] = set()
        self.asked: list[list[int]] = []  # the values of each batch
        self._meet, store.execute = store.execute, self.meet

    async def meet(self, call: RecordedCall) -> None:
        """In place of the store's own."""
        if call.method != "enqueue" or not self.values:
            await self._meet(call)
            return
        jobs, sizes = call.args[0], call.options["calls"]
        self.asked.append([value_of(job) for job in jobs])
        refused = self.refused(jobs)
        left = [job for job in jobs if job.id not in refused]
        if refused:
            await self.store.clock.sleep(TURN_SECONDS)
        assert sizes == [1] * len(jobs)
        call.args, call.options = ((left,), {**call.options, "calls": [1] * len(left)})
        call.answer = []
        if left:
            await self._meet(call)
        told = iter(call.answer)
        call.answer = [
            Enqueued(job.id, False, READY, locked=LOCKED)
            if job.id in refused
            else next(told)
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


def repeats(store: FaultyStore) -> list[bool]:
    """Of each enqueue, whether it was said to be one."""
    return [call.options["again"] for call in store.calls if call.method == "enqueue"]


def start(task: Any, value: int, key: str | None = None) -> "asyncio.Task[Job[str]]":
    chosen = task if key is None else task.options(key=key)
    return asyncio.get_running_loop().create_task(chosen.enqueue(value))


@virtual
async def test_a_key_that_is_locked_keeps_no_other_enqueue_waiting(app: App):
    task, locks = app.task(echo), LockedValues(faulty(app))
    locks.values = {1}
    first = start(task, 1, "k")
    await app.clock.sleep(0.1)
    begun = app.clock.now()
    for n in range(2, 20):
        assert (await task.enqueue(n)).created
        assert (await task.options(key=f"k{n}").enqueue(n)).created
    assert app.clock.now() - begun < 1
    assert not first.done()
    locks.values.clear()
    assert (await first).created
    assert len(await records(app)) == 37


@virtual
async def test_mates_of_a_locked_key_do_not_wait_with_it(app: App):
    task, locks = app.task(echo), LockedValues(faulty(app))
    locks.values = {5}
    begun = app.clock.now()
    mates = [start(task, n, f"k{n}" if n % 2 else None) for n in range(100)]
    others = [mate for n, mate in enumerate(mates) if n != 5]
    jobs = await asyncio.gather(*others)
    assert app.clock.now() - begun < 1
    assert all(job.created for job in jobs)
    assert [5] in locks.asked
    assert len(locks.asked) < 20
    with pytest.raises(StoreUnavailable, match="locked") as caught:
        await mates[5]
    assert not caught.value.unknown
    assert PATIENCE_SECONDS <= app.clock.now() - begun < PATIENCE_SECONDS + 1
    assert len(await records(app)) == 99


@virtual
async def test_whoever_asks_for_the_same_key_stands_behind_the_first(app: App):
    task, store = app.task(echo), faulty(app)
    locks = LockedValues(store)
    locks.values = {1}
    first = start(task, 1, "k")
    await app.clock.sleep(1)
    more = [start(task, 1, "k") for _ in range(50)]
    await app.clock.sleep(1)
    assert locks.asked == [[1]] * len(locks.asked)
    more[0].cancel()
    locks.values.clear()
    before = store.times("enqueue")
    jobs = await asyncio.gather(first, *more[1:])
    assert [job.created for job in jobs] == [True] + [False] * 49
    assert {job.id for job in jobs} == {jobs[0].id}
    assert store.times("enqueue") == before + 2, "one, and then all the others"


@virtual
async def test_a_key_that_stays_locked_is_waited_for_once_by_each(app: App):
    task, locks = app.task(echo), LockedValues(faulty(app))
    locks.values = {1}
    begun = app.clock.now()
    asked = [start(task, 1, "k") for _ in range(50)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert app.clock.now() - begun < PATIENCE_SECONDS + 1
    locks.values.clear()
    assert (await task.options(key="k").enqueue(1)).created


@virtual
async def test_many_locked_keys_keep_nobody(app: App):
    task, locks = app.task(echo), LockedValues(faulty(app))
    locks.values = set(range(1000, 1100))
    keyed = [start(task, n, f"k{n}") for n in sorted(locks.values)]
    await app.clock.sleep(1)
    begun = app.clock.now()
    for n in range(100):
        assert (await task.enqueue(n)).created
        assert (await task.options(key=f"free{n}").enqueue(n)).created
    assert app.clock.now() - begun < 1
    told = await asyncio.gather(*keyed, return_exceptions=True)
    assert {type(each) for each in told} == {StoreUnavailable}
    assert app.clock.now() - begun < PATIENCE_SECONDS + 1


@virtual
async def test_callers_without_keys_wait_for_a_locked_queue_one_for_all(app: App):
    task, store = app.task(echo), faulty(app)
    locks = LockedValues(store)
    locks.values = set(range(100))
    asked = [start(task, n) for n in range(50)]
    other = start(task.options(queue="other"), 1000)
    await app.clock.sleep(0.5)
    assert other.done()
    for n in range(50, 100):
        asked.append(start(task, n))
        await app.clock.sleep(0.3)
        assert (await task.options(queue="other").enqueue(1000 + n)).created
    late = set(range(50, 100))
    assert not any(late.intersection(batch) for batch in locks.asked)
    locks.values.clear()
    before = store.times("enqueue")
    assert all(job.created for job in await asyncio.gather(*asked))
    assert store.times("enqueue") == before + 2


@virtual
async def test_a_caller_that_gives_up_a_locked_key_leaves_others_in_peace(app: App):
    task, locks = app.task(echo), LockedValues(faulty(app))
    locks.values = {1}
    first, mate = start(task, 1, "k"), start(task, 2, "other")
    behind = start(task, 1, "k")
    await mate
    first.cancel()
    await app.clock.sleep(1)
    locks.values.clear()
    assert (await behind).created
    assert len(await records(app)) == 2


@virtual
async def test_calls_with_one_key_are_stored_in_their_order(app: App):
    """Also the ones that were locked, and those that came when the lock was gone."""
    task, store = app.task(echo), faulty(app)
    locks = LockedValues(store)
    locks.values = {1}
    chosen = task.options(key="k", unique=replace)
    calls = [start(chosen, 1)]
    for n in range(2, 30):
        await app.clock.sleep(0.01)
        calls.append(start(chosen, n))
        if n == 15:
            locks.values.clear()
    jobs = await asyncio.gather(*calls)
    assert {job.id for job in jobs} == {jobs[0].id}
    (record,) = await records(app)
    assert b":29}" in record.payload


@virtual
async def test_who_may_be_stored_by_an_earlier_try_is_not_told_the_contrary(app: App):
    task, store = app.task(echo), faulty(app)
    locks = LockedValues(store)
    store.lose_reply("enqueue", times=1)
    meet = store.execute

    async def lock_after_the_first(call: RecordedCall) -> None:
        if store.times("enqueue") > 1:
            locks.values = {1}
        await meet(call)

    store.execute = lock_after_the_first
    with pytest.raises(StoreUnavailable, match="may have stored it") as caught:
        await task.options(key="k").enqueue(1)
    assert caught.value.unknown
    locks.values.clear()
    store.execute = meet
    assert (await task.enqueue(3)).created
    assert not repeats(store)[-1], "nothing is doubted any more"


@virtual
async def test_a_batch_has_a_bound_in_bytes(app: App):
    task, store = app.task(echo), faulty(app)
    big = "x" * 900_000
    jobs = await asyncio.gather(*(task.enqueue(1, to=big) for _ in range(20)))
    assert all(job.created for job in jobs)
    sizes = [
        sum(len(job.payload) for job in call.args[0])
        for call in store.calls
        if call.method == "enqueue"
    ]
    assert max(sizes) <= BATCH_BYTES
    assert len(sizes) <= 7


@virtual
async def test_whoever_has_gone_before_its_turn_is_not_sent(app: App):
    task, store = app.task(echo), faulty(app)
    store.slow("enqueue", seconds=20)
    first = start(task, 1)
    await app.clock.sleep(1)
    late = [start(task, n) for n in range(2, 50)]
    await app.clock.sleep(1)
    for each in late:
        each.cancel()
    await first
    store.heal()
    assert (await task.enqueue(50)).created
    assert len(await records(app)) == 2


def cancel_all_others() -> None:
    """As a loop does that is being closed, or Ctrl-C."""
    here = asyncio.current_task()
    for task in asyncio.all_tasks():
        if task is not here:
            task.cancel()


@virtual
@pytest.mark.parametrize("turns", range(4))
async def test_a_loop_whose_tasks_were_all_cancelled_can_enqueue(app: App, turns: int):
    """Also where the task that sends had not even begun."""
    task = app.task(echo)
    await task.enqueue(0)
    calls = [start(task, n, "k" if n else None) for n in range(3)]
    for _ in range(turns):
        await app.clock.sleep(0)
    cancel_all_others()
    await asyncio.gather(*calls, return_exceptions=True)
    async with asyncio.timeout(5):
        assert (await task.enqueue(7)).created
        assert await task.options(key="k", unique=replace).enqueue(8) is not None


@virtual
async def test_locked_calls_outlive_tasks_that_were_cancelled(app: App):
    task, locks = app.task(echo), LockedValues(faulty(app))
    locks.values = {1}
    caller = start(task, 1, "k")
    await app.clock.sleep(1)
    here = asyncio.current_task()
    for each in asyncio.all_tasks() - {here, caller}:
        each.cancel()
    await app.clock.sleep(1)
    locks.values.clear()
    assert (await caller).created


@virtual
async def test_a_key_that_gets_free_is_not_missed_at_the_end(app: App):
    """Many rest, and for long: each tries once more just before its time is over."""
    task, locks = app.task(echo), LockedValues(faulty(app))
    locks.values = set(range(200))
    keyed = [start(task, n, f"k{n}") for n in sorted(locks.values)]
    await app.clock.sleep(PATIENCE_SECONDS - 4.0)
    locks.values.clear()
    assert all(job.created for job in await asyncio.gather(*keyed))


@virtual
async def test_whoever_would_rather_know_is_told_at_once(app: App):
    """In the line of a full queue, behind a key that is waited for elsewhere."""
    app.queue("small", maxsize=1, full_wait=2.0)
    task, locks = app.task(echo), LockedValues(faulty(app))
    small = task.options(queue="small")
    await small.enqueue(0)
    in_line = start(small, 1, "k")
    await app.clock.sleep(0.5)
    locks.values = {1}
    elsewhere = start(task, 1, "k")
    plain = start(small, 2)
    await app.clock.sleep(0.5)
    jobs = [record.id for record in await records(app)]
    await (await app.store()).act(jobs, "cancel")
    assert (await plain).created
    with pytest.raises(StoreUnavailable, match="locked"):
        await in_line
    assert not elsewhere.done()
    locks.values.clear()
    assert (await elsewhere).created
