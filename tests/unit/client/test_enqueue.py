"""Enqueueing many at once, and what becomes of callers when the store is in trouble."""

import asyncio
import os
from types import MappingProxyType

import pytest

from durio import App, Job
from durio.client.calls import BATCH_MAX
from durio.client.reliable_write import TRIES_MAX
from durio.errors import PayloadTooLarge, StoreFull, StoreUnavailable
from tests.faults.faulty_store import FaultyStore
from tests.unit.app.app_harness import drained, records, virtual


async def echo(value: int = 0, *, to: str = "") -> str:
    return f"{value}{to}"


def faulty(app: App) -> FaultyStore:
    """The App's own store, and what a test adds to it."""
    store = FaultyStore(app.state.stores[os.getpid()], app.clock)
    app.state.stores[os.getpid()] = store
    return store


def sizes(store: FaultyStore) -> list[int]:
    """How many jobs each write had."""
    return [len(call.args[0]) for call in store.calls if call.method == "enqueue"]


@virtual
async def test_rows_are_signatures_tuples_and_mappings(app: App):
    task = app.task(echo)
    jobs = await task.enqueue_many(
        [(1,), task.s(2, to="x"), {"value": 3, "to": "y"}, (), MappingProxyType({})]
    )
    await drained(app)
    assert [await job.result() for job in jobs] == ["1", "2x", "3y", "0", "0"]


@virtual
async def test_a_row_of_a_signature_has_its_options(app: App):
    task = app.task(queue="mail")(echo)
    rows = [task.s(1), task.options(priority=9).s(2), task.options(delay=5).s(3), (4,)]
    jobs = await task.options(priority=7).enqueue_many(rows)
    seen = [await job.status() for job in jobs]
    assert [status.priority for status in seen] == [7, 9, 7, 7]
    assert [status.state for status in seen] == ["ready", "ready", "scheduled", "ready"]
    assert {status.queue for status in seen} == {"mail"}
    # What the rows and the call have in common may be said twice.
    high = task.options(queue="high")
    (job,) = await high.enqueue_many([high.s(1)])
    assert (await job.status()).queue == "high"


@virtual
async def test_a_dict_at_the_end_of_a_tuple_is_an_argument(app: App):
    seen: list[object] = []

    @app.task(name="keep")
    async def keep(number: int, labels: dict[str, int]) -> None:
        seen.append((number, labels))

    await keep.enqueue_many([(1, {"number": 2})])
    await drained(app)
    assert seen == [(1, {"number": 2})]


@virtual
async def test_rows_may_come_from_a_generator_and_may_be_none(app: App):
    task = app.task(echo)
    assert await task.enqueue_many([]) == []
    jobs = await task.enqueue_many((n,) for n in range(3))
    assert len(jobs) == len(await records(app)) == 3


@virtual(settings={"queue": {"embedded_max": 0}})
async def test_many_rows_go_in_chunks_of_a_thousand(app: App):
    task = app.task(echo)
    store = faulty(app)
    jobs = await task.enqueue_many([(n,) for n in range(2 * BATCH_MAX + 5)])
    assert sizes(store) == [BATCH_MAX, BATCH_MAX, 5]
    assert len({job.id for job in jobs}) == 2 * BATCH_MAX + 5


@virtual
async def test_callers_of_one_loop_share_a_write(app: App):
    task = app.task(echo)
    store = faulty(app)
    jobs: list[Job[str]] = await asyncio.gather(*(task.enqueue(n) for n in range(100)))
    assert sum(sizes(store)) == 100
    assert len(sizes(store)) <= 2
    await drained(app)
    assert [await job.result() for job in jobs] == [str(n) for n in range(100)]


@virtual
async def test_a_caller_alone_does_not_wait_for_company(app: App):
    task, start = app.task(echo), app.clock.now()
    store = faulty(app)
    for n in range(3):
        await task.enqueue(n)
    assert sizes(store) == [1, 1, 1]
    assert app.clock.now() == start


@virtual
async def test_a_bad_neighbour_spoils_nobodys_write(app: App):
    task = app.task(echo)
    faulty(app)
    answers = await asyncio.gather(
        task.enqueue(1),
        task.enqueue("x" * 2_000_000),
        task.enqueue(2),
        return_exceptions=True,
    )
    kinds = [type(answer).__name__ for answer in answers]
    assert kinds[0] == kinds[2] == "Job"
    assert kinds[1] in {"InvalidArguments", PayloadTooLarge.__name__}
    assert len(await records(app)) == 2


@pytest.mark.parametrize("when", ["before", "after"])
@virtual
async def test_a_lost_reply_is_asked_for_again_and_makes_no_second_job(
    app: App, when: str
):
    task = app.task(echo)
    store = faulty(app)
    if when == "before":
        unknown = StoreUnavailable("lost on the way", unknown=True)
        store.fail("enqueue", times=2, error=unknown)
    else:
        store.lose_reply("enqueue", times=2)
    job = await task.enqueue(5)
    assert job.created
    assert sizes(store) == [1, 1, 1]
    said = [call.options["again"] for call in store.calls if call.method == "enqueue"]
    assert said == [False, True, True], "a repeat says that it is one"
    assert len(await records(app)) == 1
    keyed = await task.options(key="k").enqueue(6)
    assert keyed.created


@virtual
async def test_a_store_that_stays_away_is_told_as_unknown(app: App):
    task = app.task(echo)
    store = faulty(app)
    store.lose_reply("enqueue", times=100)
    with pytest.raises(StoreUnavailable) as caught:
        await task.enqueue(5)
    assert caught.value.unknown
    assert caught.value.__cause__ is None
    assert len(sizes(store)) == TRIES_MAX  # bounded
    assert len(await records(app)) == 1  # it was stored, once


@virtual
async def test_what_may_have_been_stored_stays_unknown(app: App):
    """The reply is lost, then the store is away: that it refuses now proves nothing."""
    task, store = app.task(echo), faulty(app)
    store.lose_reply("enqueue")
    store.fail("enqueue", times=100)
    with pytest.raises(StoreUnavailable, match="may have stored it") as caught:
        await task.enqueue(5)
    assert caught.value.unknown
    assert len(await records(app)) == 1
    store.heal()
    store.lose_reply("enqueue")
    store.fail("enqueue")
    assert (await task.enqueue(6)).created, "the third try finds it"
    assert len(await records(app)) == 2


@virtual
async def test_what_may_have_been_stored_is_told_in_one_text_with_one_cure(app: App):
    task, store = app.task(echo), faulty(app)
    store.lose_reply("enqueue")
    full = StoreFull("jobs.db is full", cure="Free space on this disk.")
    store.fail("enqueue", times=100, error=full)
    with pytest.raises(StoreUnavailable) as caught:
        await task.enqueue(5)
    assert str(caught.value) == (
        "an earlier try may have stored it: jobs.db is full [store_unavailable]\n"
        "  Free space on this disk."
    )
    assert caught.value.__cause__ is full


@virtual
async def test_a_store_that_is_away_is_told_at_once(app: App):
    task, store = app.task(echo), faulty(app)
    store.fail("enqueue")
    with pytest.raises(StoreUnavailable) as caught:
        await task.enqueue(5)
    assert not caught.value.unknown
    assert (sizes(store), await records(app)) == ([1], [])
    assert (await task.enqueue(5)).created


@virtual
async def test_a_cancelled_caller_does_not_take_others_with_it(app: App):
    task = app.task(echo)
    faulty(app)
    async with asyncio.TaskGroup() as group:
        doomed = group.create_task(task.enqueue(1))
        fine = group.create_task(task.enqueue(2))
        await asyncio.sleep(0)  # noqa: TID251 - until both wait for the write
        doomed.cancel()
    assert fine.result().created
