"""Calls that meet a lock wait for their own key, and other calls go on."""

import asyncio

import pytest

from durio import App
from durio.client.waiting_list import TURN_SECONDS
from durio.errors import QueueFull, StoreUnavailable
from durio.model.keys import replace
from durio.ports.control import CancelJobs
from durio.ports.enqueue import Locked
from tests.faults.faulty_store import FaultyStore, RecordedCall
from tests.unit.app.app_harness import records, virtual
from tests.unit.client.locked_values import (
    LOCK_SECONDS,
    WAIT_SECONDS,
    LockedValues,
    start,
)
from tests.unit.client.test_enqueue import echo, faulty


def repeats(store: FaultyStore) -> list[bool]:
    """The `again` of each enqueue."""
    return [call.options["again"] for call in store.calls if call.method == "enqueue"]


@virtual
async def test_a_locked_key_delays_no_other_call(app: App):
    task, locks = app.task(echo), LockedValues(faulty(app))
    locks.values = {1}
    first = start(task, 1, "k")
    await app.clock.sleep(0.5)
    begun = app.clock.now()
    for n in range(2, 20):
        assert (await task.enqueue(n)).created
        assert (await task.options(key=f"k{n}").enqueue(n)).created
    assert app.clock.now() == begun
    assert not first.done()
    locks.values.clear()
    assert (await first).created
    assert len(await records(app)) == 37


@virtual
async def test_calls_of_the_same_batch_do_not_wait_for_a_locked_key(app: App):
    """The store refuses all calls with keys; each key is then tried by itself."""
    task, locks = app.task(echo), LockedValues(faulty(app))
    locks.values = {5}
    begun = app.clock.monotonic()
    calls = [start(task, n, f"k{n}" if n % 2 else None) for n in range(100)]
    plain = await asyncio.gather(*calls[::2])
    assert app.clock.monotonic() - begun < 2 * LOCK_SECONDS
    keyed = await asyncio.gather(*calls[1:5:2], *calls[7::2])
    assert app.clock.monotonic() - begun < 3 * LOCK_SECONDS, (
        "one wait for the batch, one for k5"
    )
    assert all(job.created for job in [*plain, *keyed])
    assert sorted(locks.apart[:50]) == [[n] for n in range(1, 100, 2)]
    with pytest.raises(StoreUnavailable, match="locked") as caught:
        await calls[5]
    assert not caught.value.unknown
    assert WAIT_SECONDS <= app.clock.monotonic() - begun < WAIT_SECONDS + 1
    assert len(await records(app)) == 99


@virtual
async def test_a_free_key_waits_100_ms_for_each_locked_key(app: App):
    """20 keys stay locked; the one beside them gets in after one round at most."""
    task, locks = app.task(echo), LockedValues(faulty(app))
    locks.values = set(range(21))
    calls = [start(task, n, f"k{n}") for n in range(21)]
    await app.clock.sleep(1.0)
    locks.values.discard(20)
    freed_at = app.clock.now()
    assert (await calls[20]).created
    assert app.clock.now() - freed_at <= 20 * LOCK_SECONDS
    assert not any(call.done() for call in calls[:20])
    locks.values.clear()
    assert all(job.created for job in await asyncio.gather(*calls))


@virtual
async def test_keys_are_tried_in_turn(app: App):
    task, locks = app.task(echo), LockedValues(faulty(app))
    locks.values = {1, 2, 3}
    calls = [start(task, n, f"k{n}") for n in (1, 2, 3)]
    await app.clock.sleep(2.0)
    assert locks.apart[:9] == [[1], [2], [3]] * 3
    locks.values.clear()
    await asyncio.gather(*calls)


@virtual
async def test_a_store_that_cannot_wait_is_not_asked_more_often(app: App):
    """Where there is no spare connection it answers after 5 ms."""
    task, locks = app.task(echo), LockedValues(faulty(app), lock_seconds=0.005)
    locks.values = {1}
    call = start(task, 1, "k")
    await app.clock.sleep(1.0)
    assert len(locks.tries) <= 1.0 / TURN_SECONDS + 1
    locks.values.clear()
    assert (await call).created


@virtual
async def test_later_calls_with_the_same_key_stand_behind_the_first(app: App):
    task, store = app.task(echo), faulty(app)
    locks = LockedValues(store)
    locks.values = {1}
    first = start(task, 1, "k")
    await app.clock.sleep(1)
    more = [start(task, 1, "k") for _ in range(50)]
    await app.clock.sleep(1)
    assert [each.apart for each in locks.tries] == [False] + [True] * (
        len(locks.tries) - 1
    ), "only the first call was sent in a batch"
    more[0].cancel()
    locks.values.clear()
    before = store.times("enqueue")
    jobs = await asyncio.gather(first, *more[1:])
    assert [job.created for job in jobs] == [True] + [False] * 49
    assert {job.id for job in jobs} == {jobs[0].id}
    assert store.times("enqueue") <= before + 1, "all of them in one transaction"


@virtual
async def test_each_call_waits_as_long_as_a_call_may_last(app: App):
    task, locks = app.task(echo), LockedValues(faulty(app))
    locks.values = {1}
    begun = app.clock.now()
    early = [start(task, 1, "k") for _ in range(50)]
    await app.clock.sleep(10)
    late = start(task, 1, "k")
    answers = await asyncio.gather(*early, return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert WAIT_SECONDS <= app.clock.now() - begun < WAIT_SECONDS + 1
    assert not late.done()
    locks.values.clear()
    assert (await late).created
    assert (await task.options(key="k2").enqueue(1)).created


@virtual
async def test_many_locked_keys_delay_no_other_call(app: App):
    task, locks = app.task(echo), LockedValues(faulty(app))
    locks.values = set(range(1000, 1100))
    keyed = [start(task, n, f"k{n}") for n in sorted(locks.values)]
    await app.clock.sleep(1)
    begun = app.clock.now()
    for n in range(100):
        assert (await task.enqueue(n)).created
        assert (await task.options(key=f"free{n}").enqueue(n)).created
    assert app.clock.now() == begun
    errors = await asyncio.gather(*keyed, return_exceptions=True)
    assert {type(each) for each in errors} == {StoreUnavailable}
    assert app.clock.now() - begun < WAIT_SECONDS + 1


@virtual
async def test_a_key_that_becomes_free_is_not_missed_at_the_end(app: App):
    """One round of 200 locked keys takes 20 s."""
    task, locks = app.task(echo), LockedValues(faulty(app))
    locks.values = set(range(200))
    keyed = [start(task, n, f"k{n}") for n in sorted(locks.values)]
    await app.clock.sleep(WAIT_SECONDS - 4.0)
    locks.values.clear()
    assert all(job.created for job in await asyncio.gather(*keyed))


@virtual
async def test_calls_without_keys_wait_for_a_locked_queue_together(app: App):
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
    batches = [each.values for each in locks.tries if not each.apart]
    assert not any(late.intersection(batch) for batch in batches)
    locks.values.clear()
    before = store.times("enqueue")
    assert all(job.created for job in await asyncio.gather(*asked))
    assert store.times("enqueue") == before + 1


@virtual
async def test_a_cancelled_call_does_not_hold_up_those_behind_it(app: App):
    task, locks = app.task(echo), LockedValues(faulty(app))
    locks.values = {1}
    first, other = start(task, 1, "k"), start(task, 2, "other")
    behind = start(task, 1, "k")
    await other
    first.cancel()
    await app.clock.sleep(1)
    locks.values.clear()
    assert (await behind).created
    assert len(await records(app)) == 2


@virtual
async def test_calls_with_one_key_are_stored_in_their_order(app: App):
    """Also those that waited, and those that came when the lock was gone."""
    task, store = app.task(echo), faulty(app)
    locks = LockedValues(store)
    locks.values = {1}
    chosen = task.options(key="k", unique=replace)
    calls = [start(chosen, 1)]
    for n in range(2, 40):
        await app.clock.sleep(0.01)
        calls.append(start(chosen, n))
        if n == 25:
            locks.values.clear()
    jobs = await asyncio.gather(*calls)
    assert {job.id for job in jobs} == {jobs[0].id}
    (record,) = await records(app)
    assert b":39}" in record.payload


@virtual
async def test_an_order_is_kept_when_calls_leave_the_list(app: App):
    """Calls that stood behind go before a call that the batcher has not sent yet."""
    task, store = app.task(echo), faulty(app)
    locks = LockedValues(store)
    locks.values = {1}
    chosen = task.options(key="k", unique=replace)
    first = start(chosen, 1)
    await app.clock.sleep(1.0)
    locks.values = {1, 1000}
    blocker = start(task, 1000, "other")  # occupies the batcher for 100 ms
    await app.clock.sleep(0.01)
    later = [start(chosen, n) for n in (2, 3)]
    locks.values = {1000}
    await asyncio.gather(first, *later)
    (record,) = [r for r in await records(app) if r.lane == "app:default"]
    assert b":3}" in record.payload
    locks.values.clear()
    await blocker


@virtual
async def test_a_call_that_may_be_stored_gets_no_error_that_denies_it(app: App):
    task, store = app.task(echo), faulty(app)
    locks = LockedValues(store)
    store.lose_reply("enqueue", times=1)
    execute = store.execute

    async def lock_after_the_first(call: RecordedCall) -> None:
        if store.times("enqueue") > 1:
            locks.values = {1}
        await execute(call)

    store.execute = lock_after_the_first
    with pytest.raises(StoreUnavailable, match="may have stored it") as caught:
        await task.options(key="k").enqueue(1)
    assert caught.value.unknown
    assert repeats(store)[:1] == [False]
    assert all(repeats(store)[1:])
    locks.values.clear()
    store.execute = execute
    assert (await task.enqueue(3)).created
    assert not repeats(store)[-1], "the writer has forgotten the first call"


@virtual
async def test_a_call_gets_the_last_error_of_the_store(app: App):
    """The server has become unreachable while the call waited for a lock."""
    task, locks = app.task(echo), LockedValues(faulty(app), lock_seconds=0.0)
    locks.values = {1}
    begun = app.clock.monotonic()
    call = start(task, 1, "k")
    await app.clock.sleep(10)
    locks.locked = Locked(StoreUnavailable("unreachable"), WAIT_SECONDS)
    with pytest.raises(StoreUnavailable, match="unreachable"):
        await call
    waited = app.clock.monotonic() - begun
    assert waited == pytest.approx(WAIT_SECONDS, abs=1e-6)


@virtual
async def test_waiting_calls_survive_that_all_other_tasks_are_cancelled(app: App):
    task, locks = app.task(echo), LockedValues(faulty(app), lock_seconds=0.0)
    locks.values = {1}
    caller = start(task, 1, "k")
    await app.clock.sleep(1.05)  # in a pause: nothing is being written
    here = asyncio.current_task()
    for each in asyncio.all_tasks() - {here, caller}:
        each.cancel()
    await app.clock.sleep(1)
    locks.values.clear()
    assert (await caller).created


@virtual
async def test_a_waiter_for_room_is_answered_locked_at_once(app: App):
    """Its key is on the list for another call, and is known to be locked."""
    app.queue("small", maxsize=1, full_wait=2.0)
    task, locks = app.task(echo), LockedValues(faulty(app))
    small = task.options(queue="small")
    await small.enqueue(0)
    waiter = start(small, 1, "k")
    await app.clock.sleep(0.5)
    locks.values = {1}
    elsewhere = start(task, 1, "k")
    plain = start(small, 2)
    await app.clock.sleep(0.5)
    jobs = [record.id for record in await records(app)]
    await (await app.store()).act(jobs, CancelJobs())
    assert (await plain).created
    with pytest.raises(StoreUnavailable, match="locked"):
        await waiter
    assert not elsewhere.done()
    locks.values.clear()
    assert (await elsewhere).created


@virtual
async def test_a_waiter_for_room_with_a_locked_key_is_tried_apart(app: App):
    """After its first refusal no batch of other calls waits for its key."""
    app.queue("small", maxsize=1, full_wait=5.0)
    task, locks = app.task(echo), LockedValues(faulty(app))
    small = task.options(queue="small")
    await small.enqueue(0)
    waiter = start(small, 1, "k")
    await app.clock.sleep(0.5)
    locks.values = {1}
    await app.clock.sleep(3.0)
    batches = [each.values for each in locks.tries if not each.apart]
    assert batches == [[1]]
    assert len(locks.apart) > 3
    locks.values.clear()
    await (await app.store()).act([r.id for r in await records(app)], CancelJobs())
    assert (await waiter).created


@virtual
async def test_waiters_for_room_do_not_wait_for_the_turn_of_a_locked_one(app: App):
    """Its key has its turn on the list every 2 s; the others wait for 1 s at most."""
    app.queue("small", maxsize=1, full_wait=1.0)
    task, locks = app.task(echo), LockedValues(faulty(app))
    small = task.options(queue="small")
    await small.enqueue(0)
    locks.values = set(range(100, 120))
    elsewhere = [start(task, n, f"k{n}") for n in range(100, 120)]
    await app.clock.sleep(5.0)
    waiter = start(small, 1, "k")
    await app.clock.sleep(0.5)
    locks.values.add(1)
    begun = app.clock.monotonic()
    plain = [start(small, n) for n in (2, 3)]
    answers = await asyncio.gather(*plain, return_exceptions=True)
    assert [type(answer) for answer in answers] == [QueueFull, QueueFull]
    assert app.clock.monotonic() - begun <= 1.0 + LOCK_SECONDS
    assert waiter.done(), "its time is over too"
    with pytest.raises(StoreUnavailable, match="locked"):
        await waiter
    locks.values.clear()
    assert all(job.created for job in await asyncio.gather(*elsewhere))


@virtual
async def test_a_waiter_for_room_that_goes_leaves_the_waiting_list(app: App):
    app.queue("small", maxsize=1, full_wait=20.0)
    task, locks = app.task(echo), LockedValues(faulty(app))
    small = task.options(queue="small")
    await small.enqueue(0)
    waiter, other = start(small, 1, "k"), start(small, 2)
    await app.clock.sleep(0.5)
    locks.values = {1}
    await app.clock.sleep(2.0)
    waiter.cancel()
    await app.clock.sleep(0.5)
    locks.values.clear()
    await (await app.store()).act([r.id for r in await records(app)], CancelJobs())
    assert (await other).created
    assert len(await records(app)) == 2
