"""A store that fails, loses replies or goes away: nothing lost, nothing counted twice."""

import asyncio
import os
from collections import Counter
from typing import Any

import pytest

from durio import App, HookEvent, State
from durio.app.worker_builder import make_worker
from durio.app.worker_commands import read_answers, send_command
from durio.errors import StoreFull
from durio.ports.clock import Clock
from durio.ports.exchange import Exchanged
from durio.ports.lease import Renewed
from durio.ports.store import Health
from tests.faults.faulty_store import FaultyStore
from tests.job_counts import count_jobs
from tests.simulation.fake_machine import FakeMachine, TaskSideLoop
from tests.unit.app.app_harness import finished, in_state, virtual, working

BRISK = {"worker": {"poll_seconds": 1, "lease_seconds": 30, "heartbeat_seconds": 5}}


async def faulty_store(app: App) -> FaultyStore:
    """From now on the App speaks to its store through faults."""
    faulty = FaultyStore(await app.store(), app.clock)
    app.state.stores[os.getpid()] = faulty
    app.state.by_loop.clear()
    return faulty


class Counted:
    """A task that counts its runs, and a hook that counts accepted ends."""

    def __init__(self, app: App) -> None:
        self.runs: Counter[int] = Counter()
        self.ends: Counter[str] = Counter()

        @app.task(name="count")
        async def count(n: int) -> int:
            self.runs[n] += 1
            await app.clock.sleep(0.1)
            return n

        @app.hooks.after
        def after(event: HookEvent) -> None:
            self.ends[event.job_id] += 1

        self.task = count


@pytest.mark.proves("M109")
@virtual(settings=BRISK)
async def test_an_exchange_that_failed_keeps_its_outcomes(app: App) -> None:
    counted, faulty = Counted(app), await faulty_store(app)
    async with working(app):
        job = await counted.task.enqueue(1)
        await in_state(job, State.RUNNING)
        faulty.fail("exchange", times=3)
        assert await job.result(60) == 1
    assert counted.runs == {1: 1}
    assert counted.ends == {job.id: 1}
    assert (await job.status()).attempt == 1


@virtual(settings=BRISK)
async def test_an_exchange_whose_reply_is_lost_counts_once(app: App) -> None:
    counted, faulty = Counted(app), await faulty_store(app)
    async with working(app):
        job = await counted.task.enqueue(1)
        await in_state(job, State.RUNNING)
        faulty.lose_reply("exchange")
        assert await job.result(60) == 1
    assert counted.runs == {1: 1}
    assert counted.ends == {job.id: 1}, "the repeat landed: told once, not refused"


@virtual(settings=BRISK)
async def test_a_drain_whose_answer_has_no_reply_is_executed(app: App) -> None:
    """The store has the answer, so the command does not come a second time."""
    store = await app.store()
    faulty = await faulty_store(app)
    async with working(app) as worker:
        await worker.started.wait()
        faulty.lose_reply("commit")
        (row,) = await store.workers(None)
        command = await send_command(store, app.clock, row, "drain", by="me")
        await asyncio.wait_for(worker.stop_control.requested.wait(), 60)
        assert (await read_answers(store, {row.id: command}))[row.id]
        assert not worker.was_cut_short


@virtual(settings=BRISK)
async def test_a_drain_that_cannot_be_answered_comes_again(app: App) -> None:
    """The worker works on until then."""
    store = await app.store()
    faulty = await faulty_store(app)
    async with working(app) as worker:
        await worker.started.wait()
        faulty.fail("commit", times=2)
        (row,) = await store.workers(None)
        command = await send_command(store, app.clock, row, "drain", by="me")
        while faulty.counter["commit"] < 2:
            await app.clock.sleep(0.1)
        assert not worker.stop_control.requested.is_set()
        await asyncio.wait_for(worker.stop_control.requested.wait(), 60)
        assert (await read_answers(store, {row.id: command}))[row.id]


@virtual(settings=BRISK)
async def test_a_stop_that_cannot_write_its_outcomes_says_so(app: App) -> None:
    """The store is away to the end: the job ended here, and will be run again."""
    counted, faulty = Counted(app), await faulty_store(app)
    async with working(app) as worker:
        job = await counted.task.enqueue(1)
        await in_state(job, State.RUNNING)
        faulty.fail("exchange", times=1_000)
    assert worker.was_cut_short
    assert (counted.runs[1], counted.ends) == (1, {})


@virtual(settings=BRISK)
async def test_claims_hidden_by_a_lost_reply_are_found_again(app: App) -> None:
    counted, faulty = Counted(app), await faulty_store(app)
    async with working(app):
        # The reply that carries the claim is lost; the next exchange asks again.
        faulty.lose_reply("exchange")
        jobs = await counted.task.enqueue_many([(n,) for n in range(8)])
        assert [await job.result(60) for job in jobs] == list(range(8))
    assert set(counted.runs.values()) == {1}
    assert set(counted.ends.values()) == {1}
    assert {(await job.status()).attempt for job in jobs} == {1}


@virtual(settings=BRISK)
async def test_an_enqueue_whose_reply_is_lost_makes_one_job(app: App) -> None:
    counted, faulty = Counted(app), await faulty_store(app)
    async with working(app):
        faulty.lose_reply("enqueue", times=2)
        job = await counted.task.enqueue(1)
        assert job.created
        assert await job.result(60) == 1
    assert counted.runs == {1: 1}


@virtual(settings=BRISK)
async def test_the_repeat_of_an_enqueue_may_find_its_job_finished(app: App) -> None:
    """The reply is so late that the job is done before it is asked for again."""
    counted, faulty = Counted(app), await faulty_store(app)
    async with working(app):
        faulty.lose_reply("enqueue")
        faulty.slow("enqueue", seconds=5, times=1)
        job = await counted.task.enqueue(1)
        assert await job.result(60) == 1
        await app.clock.sleep(10)
    assert counted.runs == {1: 1}
    assert faulty.times("enqueue") == 2


@virtual(settings=BRISK)
async def test_an_enqueue_that_failed_says_so_and_stores_nothing(app: App) -> None:
    counted, faulty = Counted(app), await faulty_store(app)
    faulty.cut()
    with pytest.raises(Exception, match="store"):
        await counted.task.enqueue(1)
    faulty.heal()
    assert not await count_jobs(await app.store(), app.name)


@pytest.mark.proves("M112")
@virtual(settings=BRISK)
async def test_a_worker_cut_off_for_longer_than_its_lease_starts_anew(app: App) -> None:
    """Its running job is given up before the lease ends, and runs again after it."""
    counted, faulty = Counted(app), await faulty_store(app)
    started: list[int] = []

    @app.task(name="long")
    async def long() -> str:
        started.append(1)
        await app.clock.sleep(40 if len(started) == 1 else 1)
        return "done"

    async with working(app) as worker:
        job = await long.enqueue()
        await in_state(job, State.RUNNING)
        first = worker.identity.id
        faulty.cut()
        await app.clock.sleep(45)
        faulty.heal()
        assert await job.result(120) == "done"
        assert worker.identity.id not in (0, first)
        assert await (await counted.task.enqueue(1)).result(60) == 1
    assert len(started) == 2
    status = await job.status()
    assert status.attempt == 1, "given up by ourselves, and given back uncharged"
    assert counted.ends[job.id] == 1


@pytest.mark.proves("M98")
@virtual(seed=7, settings=BRISK)
async def test_many_jobs_under_constant_faults_all_end_once(app: App) -> None:
    counted, faulty = Counted(app), await faulty_store(app)
    faulty.sometimes("exchange", fail=0.15, lose_reply=0.15)
    faulty.sometimes("enqueue", fail=0.0, lose_reply=0.2)
    faulty.sometimes("renew", fail=0.2, lose_reply=0.1)
    async with working(app), working(app):
        jobs = await asyncio.gather(*(counted.task.enqueue(n) for n in range(300)))
        for job in jobs:
            assert (await finished(job)).state is State.DONE
    assert len({job.id for job in jobs}) == 300
    assert set(counted.runs.values()) == {1}, "no lease was lost, so nothing ran twice"
    assert set(counted.ends.values()) == {1}


@pytest.mark.proves("M110")
@pytest.mark.parametrize("how", ["hangs", "refuses", "refuses, then hangs"])
@pytest.mark.parametrize("pause_seconds", [0.0, 1.5, 7.7])
@virtual(settings=BRISK)
async def test_a_store_that_is_away_keeps_nobody_past_its_lease(
    app: App, pause_seconds: float, how: str
) -> None:
    """The worker lets go before others may take its jobs, however the store fails."""
    ends: list[float] = []

    @app.task(name="long")
    async def long() -> None:
        try:
            await app.clock.sleep(3600)
        finally:
            ends.append(app.clock.monotonic())

    faulty = await faulty_store(app)
    async with working(app) as worker:
        await in_state(await long.enqueue(), State.RUNNING)
        await app.clock.sleep(pause_seconds)
        renewed_at = worker.identity.renewed_at
        if how != "hangs":
            faulty.cut()
            await app.clock.sleep(renewed_at + 24 - app.clock.monotonic())
        if how != "refuses":
            faulty.heal()
            faulty.slow("*", seconds=1_000)
        await app.clock.sleep(60)
        faulty.heal()
    assert renewed_at + 24 < ends[0] < renewed_at + 30


@virtual(settings=BRISK)
async def test_a_heartbeat_that_fails_ends_its_worker(app: App) -> None:
    """Of anything: a worker that went on would run jobs that others have."""

    @app.task(name="long")
    async def long() -> None:
        await app.clock.sleep(3600)

    async def renew(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    faulty = await faulty_store(app)
    faulty.renew = renew
    job = await long.enqueue()
    worker = await make_worker(app, side_loop=TaskSideLoop(), machine=FakeMachine())
    await worker.run()
    assert worker.broken is not None
    assert "heartbeat" in worker.broken.what
    assert "ZeroDivisionError: a bug" in worker.broken.what
    assert (await job.status()).state is State.READY, "given back"


@virtual(settings={"worker": {**BRISK["worker"], "grace_seconds": 3600}})
async def test_without_a_heartbeat_a_grace_ends_before_the_lease(app: App) -> None:
    """Nobody renews it meanwhile: at its end others begin the same job."""
    ends: list[float] = []

    @app.task(name="long", timeout=None)
    async def long() -> None:
        try:
            await app.clock.sleep(7200)
        finally:
            ends.append(app.clock.monotonic())

    def measure() -> None:
        raise ZeroDivisionError("a bug")

    await long.enqueue()
    worker = await make_worker(app, side_loop=TaskSideLoop(), machine=FakeMachine())
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        await worker.started.wait()
        renewed_at, worker.heartbeat._measure = worker.identity.renewed_at, measure
    assert renewed_at + 20 < ends[0] < renewed_at + 30


@virtual(settings=BRISK)
async def test_a_renewal_waits_past_no_deadline_when_others_write_again(app: App):
    """Nobody could write, then all but us: before the lease ends we let go."""
    faulty = await faulty_store(app)
    lost: list[float] = []
    async with working(app) as worker:
        await worker.started.wait()
        renewed_at, hear = worker.identity.renewed_at, worker.heartbeat._on_lost

        def note(me: int) -> None:
            lost.append(app.clock.monotonic())
            hear(me)

        others: list[str] = []

        async def health(_worker: int) -> Health:
            return Health(stalled_by=None, behind_seconds=25.0 if others else 0.0)

        worker.heartbeat._on_lost = note
        faulty.health = health
        faulty.cut()
        await app.clock.sleep(renewed_at + 21 - app.clock.monotonic())
        others.append("write")
        faulty.heal()
        faulty.slow("renew", seconds=1_000)
        await app.clock.sleep(60)
        faulty.heal()
    assert lost[0] < renewed_at + 30


@pytest.mark.parametrize("opens_seconds", [21.0, 26.0, 27.5, 29.0, 33.0])
@virtual(settings=BRISK)
async def test_while_nobody_can_write_a_renewal_is_always_in_line(
    app: App, opens_seconds: float
):
    """So it is the first thing to be written, before anybody judges us by our lease."""
    faulty = await faulty_store(app)
    async with working(app) as worker:
        await worker.started.wait()
        renew, opens = faulty.renew, asyncio.Event()

        async def wait_in_line(*args: Any) -> Renewed:
            await opens.wait()
            return await renew(*args)

        async def health(_worker: int) -> Health:
            return Health(stalled_by=None, behind_seconds=0.0)

        me, renewed_at = worker.identity.id, worker.identity.renewed_at
        faulty.renew, faulty.health = wait_in_line, health
        await app.clock.sleep(renewed_at + opens_seconds - app.clock.monotonic())
        opens.set()
        await app.clock.sleep(0.1)
        assert worker.identity.renewed_at > renewed_at, "it was written at once"
        assert worker.identity.id == me


@pytest.mark.parametrize("answered_seconds", [60.0, 12.0])
@virtual(settings=BRISK)
async def test_a_store_that_sometimes_cannot_tell_ends_no_lease(
    app: App, answered_seconds: float
):
    """Its writer is busy at every second question; at last it does not answer any more."""
    faulty = await faulty_store(app)
    async with working(app) as worker:
        await worker.started.wait()
        began, asked = app.clock.monotonic(), list[float]()

        async def health(_worker: int) -> Health:
            asked.append(app.clock.monotonic())
            if len(asked) % 2 == 0 or asked[-1] - began > answered_seconds:
                raise TimeoutError
            return Health(stalled_by=None, behind_seconds=0.0)

        me, faulty.health = worker.identity.id, health
        full = StoreFull("the disk is full", cure="")
        faulty.fail("renew", times=1_000_000, error=full)
        await app.clock.sleep(40)
        assert (worker.identity.id == me) is (answered_seconds > 40)
        assert len(asked) > 4
        faulty.heal()


@pytest.mark.proves("M110")
@virtual(settings=BRISK)
async def test_nobody_is_alive_but_deaf(app: App) -> None:
    """Its lease is renewed and it can claim nothing: it ends, and says why."""
    faulty = await faulty_store(app)

    @app.task(name="work")
    async def work() -> None: ...

    await work.enqueue()
    faulty.fail("exchange", times=1_000)
    worker = await make_worker(app, side_loop=TaskSideLoop(), machine=FakeMachine())
    await worker.run()
    assert worker.broken is not None
    assert "no claim has worked for" in worker.broken.what
    assert worker.broken.cure


@virtual(settings=BRISK)
async def test_a_store_that_is_away_makes_nobody_deaf(app: App) -> None:
    """Nobody can renew either: the worker waits, however long that takes."""
    faulty = await faulty_store(app)

    @app.task(name="work")
    async def work() -> None: ...

    async with working(app) as worker:
        await worker.started.wait()
        faulty.cut()
        await app.clock.sleep(600)
        faulty.heal()
        await finished(await work.enqueue())
        assert worker.broken is None


class Held:
    """The clock of a loop that is blocked where it would rest."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self.monotonic, self.random = clock.monotonic, clock.random

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds + self._seconds)


@virtual(settings=BRISK)
async def test_who_was_blocked_between_two_failures_is_not_deaf(app: App) -> None:
    """It tried nothing for minutes, and the lease was renewed beside."""
    faulty = await faulty_store(app)

    @app.task(name="work")
    async def work() -> None: ...

    async with working(app) as worker:
        await worker.started.wait()
        worker.claims._clock = Held(app.clock, seconds=300)
        faulty.fail("exchange", times=2)
        await finished(await work.enqueue())
        assert worker.broken is None


@virtual(settings=BRISK)
async def test_who_slept_over_its_deadline_renews_at_once(app: App) -> None:
    """A process that was stopped for less than its lease: the store is well."""
    async with working(app) as worker:
        await worker.started.wait()
        worker.identity.renewed_at = app.clock.monotonic() - 27
        await worker.heartbeat.renew()
        assert worker.identity.renewed_at == app.clock.monotonic()


@virtual(settings=BRISK)
async def test_a_job_is_due_in_less_than_a_step_of_the_clock(app: App) -> None:
    counted, store, times = Counted(app), await app.store(), 0
    await counted.task.options(delay=60).enqueue(1)

    async def exchange(*args: Any, **options: Any) -> Exchanged:
        nonlocal times
        times += 1
        answer = await exchange_of_store(*args, **options)
        return answer._replace(next_due_seconds=2.4e-7 if times < 1_000 else None)

    exchange_of_store = store.exchange
    store.exchange = exchange  # type: ignore[method-assign]
    async with working(app):
        await app.clock.sleep(0.02)
    assert 10 < times < 40
