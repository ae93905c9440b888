"""Breakers in a whole App, in virtual time: what is called when, and what jobs pay."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from durio import App, Job, Retry, SoftTimeLimit, State
from durio.client.breakers import find_breaker, force_breaker
from durio.errors import BreakerOpen, Permanent, StoreUnavailable, UsageError
from durio.limits import Breaker, BreakerEvent
from durio.maintenance.breakers import BreakerKeeper
from durio.model.breaker import (
    BreakerRecord,
    ForcedState,
    breaker_gate,
    breakers_kind,
    half_opened,
    with_probe,
)
from durio.model.breaker_rule import declared_breakers
from durio.model.effects import Effects, Put
from durio.model.job import NewJob
from durio.model.names import lane
from durio.ports.breaker_change import change_breaker, read_breakers
from durio.ports.records import Record
from durio.worker.breakers import FRESH_SECONDS, Breakers
from tests.unit.app.app_harness import (
    finished,
    in_state,
    reached,
    real,
    virtual,
    working,
)

SMTP = Breaker("smtp", failures=3, window="60s", open_for="20s")
OPEN_SECONDS = 20.0
RETRY = Retry(20, base=1, factor=1, jitter=False)


@dataclass
class Service:
    """A mail server that fails while it is broken, and takes its time."""

    app: App
    is_broken: bool = True
    seconds: float = 0.0
    error: Exception = field(default_factory=ConnectionRefusedError)
    calls: list[float] = field(default_factory=list[float])
    running: int = 0
    most: int = 0

    async def call(self) -> None:
        self.calls.append(self.app.clock.now())
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self.seconds:
                await self.app.clock.sleep(self.seconds)
        finally:
            self.running -= 1
        if self.is_broken:
            raise type(self.error)(*self.error.args)


def sending(app: App, **options: Any) -> tuple[Any, Service]:
    service = Service(app)
    options = {"breaker": "smtp", "retry": RETRY, **options}

    @app.task(name="send", **options)
    async def send(_number: int) -> None:
        await service.call()

    return send, service


async def record(app: App) -> BreakerRecord:
    found = await read_breakers(await app.store(), app.name, ["smtp"])
    assert found["smtp"].record is not None
    return found["smtp"].record


async def reaches(app: App, state: str) -> BreakerRecord:
    for _ in range(1000):
        found = await record(app)
        if found.state == state:
            return found
        await app.clock.sleep(0.1)
    raise AssertionError(found)


async def waiting(app: App) -> int:
    store = await app.store()
    rows = await store.gates(breaker_gate(app.name, "smtp"), limit=10)
    return sum(row.waiting for row in rows)


async def force(app: App, verb: str) -> None:
    store = await app.store()
    now = app.clock.now()
    found = await find_breaker(store, app.name, "smtp", app.breakers, now)
    await force_breaker(store, found, verb, ForcedState(by="ann", at=now))


async def attempts(jobs: list[Job[Any]]) -> list[int]:
    return [(await finished(job)).attempt for job in jobs]


# --- closed, open, half open, closed


@virtual(breakers=[SMTP])
async def test_jobs_wait_while_it_is_open_and_use_no_attempt(app: App) -> None:
    send, service = sending(app)
    async with working(app, concurrency=3):
        first = await send.enqueue_many([(n,) for n in range(3)])
        found = await reaches(app, "open")
        opened_at = app.clock.now()
        assert found.changes[-1].why == "3 of 3 calls failed within 60 s"
        assert found.last_error == "ConnectionRefusedError: "
        held = await send.enqueue_many([(n,) for n in range(3, 50)])
        await app.clock.sleep(10)
        assert len(service.calls) == 3
        assert await waiting(app) == 50
        assert {(await job.status()).state for job in held} == {State.BLOCKED}
        service.is_broken = False
        assert await attempts(held) == [1] * 47
        assert await attempts(first) == [2] * 3
    assert service.calls[3] >= opened_at + OPEN_SECONDS - 1
    states = [change.state for change in (await record(app)).changes]
    assert states == ["open", "half_open", "closed"]


@virtual(breakers=[SMTP])
async def test_two_probes_at_most_until_one_decides(app: App) -> None:
    send, service = sending(app)
    service.seconds = 2.0
    async with working(app, concurrency=20):
        jobs = await send.enqueue_many([(n,) for n in range(20)])
        await reaches(app, "open")
        for _ in range(3):
            await app.clock.sleep(5)
            assert service.running == 0
            before, service.most = len(service.calls), 0
            await reaches(app, "half_open")
            await reaches(app, "open")
            assert (len(service.calls) - before, service.most) == (2, 2)
        service.is_broken = False
        await reaches(app, "closed")
        numbers = await attempts(jobs)
    assert sum(numbers) == len(service.calls)
    assert sum(numbers) == 20 + 20 + 6


@virtual(breakers=[Breaker("smtp", failures=3, probes=1, open_for="20s")])
async def test_one_probe_if_that_is_asked_for(app: App) -> None:
    send, service = sending(app)
    service.seconds = 2.0
    async with working(app, concurrency=20):
        await send.enqueue_many([(n,) for n in range(20)])
        await reaches(app, "open")
        await app.clock.sleep(5)
        before = len(service.calls)
        await reaches(app, "half_open")
        await reaches(app, "open")
        assert len(service.calls) - before == 1


@virtual(breakers=[SMTP])
async def test_several_workers_open_it_once(app: App) -> None:
    send, service = sending(app)
    service.seconds = 0.3
    async with working(app), working(app), working(app):
        jobs = await send.enqueue_many([(n,) for n in range(40)])
        found = await reaches(app, "open")
        assert (found.period, len(found.changes)) == (1, 1)
        await app.clock.sleep(FRESH_SECONDS + service.seconds)
        before = len(service.calls)
        await reaches(app, "half_open")
        await reaches(app, "open")
        assert len(service.calls) - before <= 2
        service.is_broken = False
        await attempts(jobs)


@virtual(breakers=[SMTP])
async def test_jobs_that_were_ready_before_are_not_called(app: App) -> None:
    """They have passed the gate while there was none, and have no place."""
    send, service = sending(app)
    service.seconds = 0.3
    jobs = await send.enqueue_many([(n,) for n in range(300)])
    async with working(app, concurrency=2):
        await reaches(app, "open")
        await app.clock.sleep(5)
        assert len(service.calls) < 30
        assert await waiting(app) > 270
        service.is_broken = False
        assert max(await attempts(jobs)) < 30


@virtual(breakers=[SMTP])
async def test_a_job_without_the_gate_waits_for_a_time(app: App) -> None:
    """It was enqueued before its task had a breaker."""
    send, service = sending(app)
    releases: list[str] = []
    service.is_broken = False
    async with working(app) as worker:
        await force(app, "open")
        await app.clock.sleep(FRESH_SECONDS)
        store = await app.store()
        plain = NewJob(
            app.clock.new_id(), lane(app.name, "default"), 4, send.name, b"[[1],{}]"
        )
        worker.emit.jobs = noting(worker.emit.jobs, releases)
        await store.commit(Effects(jobs=[plain]))
        await app.clock.sleep(100)
        assert service.calls == []
        assert 2 <= len(releases) <= 4
        await force(app, "reset")
        await app.clock.sleep(100)
        assert len(service.calls) == 1


def noting(jobs: Any, releases: list[str]) -> Any:
    def report(events: Any) -> None:
        jobs(events)
        releases.extend(e.reason for e in events if e.name == "job.released")

    return report


# --- what counts


@virtual(breakers=[SMTP])
async def test_errors_of_users_open_nothing(app: App) -> None:
    send, service = sending(app)
    service.error = Permanent("bad address")
    async with working(app):
        jobs = await send.enqueue_many([(n,) for n in range(30)])
        assert len(await attempts(jobs)) == 30
        await app.clock.sleep(2)
        assert (await record(app)).state == "closed"


class Quota(Exception): ...


@virtual(breakers=[Breaker("smtp", failures=3, on=Quota)])
async def test_own_classes_count(app: App) -> None:
    send, service = sending(app)
    service.error = Quota("full")
    async with working(app):
        await send.enqueue_many([(n,) for n in range(3)])
        found = await reaches(app, "open")
    assert found.last_error == "test_breakers.Quota: full" or "Quota: full" in (
        found.last_error
    )


@pytest.mark.parametrize("timeout", [(1, 30), 2])
@virtual(breakers=[SMTP])
async def test_a_time_limit_counts(app: App, timeout: Any) -> None:
    @app.task(name="hang", breaker="smtp", retry=RETRY, timeout=timeout)
    async def hang() -> None:
        while True:
            try:
                await app.clock.sleep(1000)
            except SoftTimeLimit:
                if timeout != 2:
                    raise

    async with working(app):
        for _ in range(3):
            await hang.enqueue()
        await reaches(app, "open")


@virtual(breakers=[SMTP])
async def test_a_probe_without_a_result_lets_another_follow(app: App) -> None:
    send, service = sending(app)
    async with working(app):
        await send.enqueue_many([(n,) for n in range(10)])
        await reaches(app, "open")
        service.error = ValueError("says nothing")
        await reaches(app, "half_open")
        await app.clock.sleep(3)
        assert len(service.calls) > 10
        assert (await record(app)).state == "half_open"
        assert service.most <= 10
        service.is_broken = False
        await reaches(app, "closed")


@virtual(breakers=[SMTP])
async def test_a_cancelled_probe_lets_another_follow(app: App) -> None:
    send, service = sending(app)
    async with working(app):
        jobs = await send.enqueue_many([(n,) for n in range(10)])
        await reaches(app, "open")
        service.seconds = 1000.0
        await reaches(app, "half_open")
        await app.clock.sleep(1)
        assert service.running == 2
        for job in jobs:
            if (await job.status()).state == State.RUNNING:
                await job.cancel()
        service.is_broken, service.seconds = False, 0.0
        await reaches(app, "closed")


# --- probes that are lost


@virtual(breakers=[SMTP])
async def test_the_leader_removes_a_lost_probe(app: App) -> None:
    send, service = sending(app)
    service.is_broken = False
    store = await app.store()

    def lost(found: BreakerRecord | None) -> BreakerRecord | None:
        assert found is not None
        now = app.clock.now()
        for number in range(2):
            job = f"01a3185c-5000-7004-88f1-98{number:010x}"
            found = with_probe(
                half_opened(found, now) if not number else found, job, now
            )
            assert found is not None
        return found

    async with working(app):
        await change_breaker(store, app.name, "smtp", lost)
        await app.clock.sleep(FRESH_SECONDS)
        job = await send.enqueue(1)
        assert (await finished(job)).attempt == 1
        await reaches(app, "closed")


@virtual(breakers=[SMTP])
async def test_places_held_in_a_paused_queue_do_not_stop_it(app: App) -> None:
    send, service = sending(app)
    async with working(app):
        jobs = await send.enqueue_many([(n,) for n in range(5)])
        await reaches(app, "open")
        service.is_broken = False
        await app.queue("default").pause()
        other = await send.options(queue="other", delay=1).enqueue(9)
        await reaches(app, "half_open")
        await app.clock.sleep(1)
        assert service.calls[5:] == []
        assert (await finished(other)).state == "done"
        await app.queue("default").resume()
        await attempts(jobs)


# --- by hand


@virtual(breakers=[SMTP])
async def test_opened_and_forced_closed(app: App) -> None:
    send, service = sending(app)
    async with working(app):
        await force(app, "open")
        service.is_broken = False
        await app.clock.sleep(3 * 3600)  # upkeep would delete the gate of an idle hour
        job = await send.enqueue(1)
        await app.clock.sleep(3600)
        assert (await job.status()).state == State.BLOCKED
        await force(app, "close")
        assert (await finished(job)).attempt == 1
        service.is_broken = True
        await send.enqueue_many([(n,) for n in range(5)])
        await app.clock.sleep(10)
        assert (await record(app)).state == "closed"
        await force(app, "reset")
        await reaches(app, "open")


# --- blocks


@virtual(breakers=[SMTP])
async def test_a_block_is_a_call(app: App) -> None:
    service, fell_back = Service(app), list[str]()

    @app.task(name="send", retry=RETRY)
    async def send() -> None:
        async with app.breaker("smtp"):
            await service.call()

    @app.task(name="careful")
    async def careful() -> None:
        try:
            async with app.breaker("smtp"):
                await service.call()
        except BreakerOpen as error:
            fell_back.append(str(error))

    async with working(app):
        jobs = [await send.enqueue() for _ in range(3)]
        await reaches(app, "open")
        late = await send.enqueue()
        assert (await finished(await careful.enqueue())).state == "done"
        assert len(fell_back) == 1
        assert fell_back[0].startswith("breaker smtp is open")
        await in_state(late, State.SCHEDULED)
        assert (await late.status()).attempt == 1
        service.seconds = 1.0
        before = len(service.calls)
        await reaches(app, "half_open")
        await reaches(app, "open")
        assert len(service.calls) - before <= 2
        service.is_broken = False
        assert await attempts([late]) == [1]
        await attempts(jobs)


@virtual(breakers=[SMTP])
async def test_a_block_of_the_tasks_own_breaker_counts_once(app: App) -> None:
    service = Service(app)

    @app.task(name="send", breaker="smtp", retry=RETRY)
    async def send() -> None:
        async with app.breaker("smtp") as block:
            assert block.name == "smtp"
            await service.call()

    async with working(app):
        for _ in range(2):
            await send.enqueue()
        await app.clock.sleep(0.5)
        found = await record(app)
        assert [row[1:] for row in found.counts] == [(2, 2)]


@real(breakers=[SMTP])
async def test_a_sync_task_writes_with(app: App) -> None:
    """Its thread waits for the worker's loop."""
    outcomes = [None, TimeoutError, TimeoutError, TimeoutError]

    @app.task(name="sync", retry=0)
    def sync() -> None:
        with app.breaker("smtp"):
            if error := outcomes.pop(0):
                raise error

    @app.task(name="own", breaker="smtp")
    def own() -> None:
        with app.breaker("smtp"):
            pass

    async with working(app, concurrency=1):
        assert (await finished(await own.enqueue())).state == "done"
        for state in ("done", "dead", "dead", "dead"):
            assert (await finished(await sync.enqueue())).state == state
        await reaches(app, "open")
        late = await sync.enqueue()
        await reached(late, lambda status: status.state == State.SCHEDULED)
        assert (await record(app)).last_error == "TimeoutError: "


@virtual(breakers=[SMTP])
async def test_a_block_outside_a_task_is_refused(app: App) -> None:
    with pytest.raises(UsageError, match="used outside a task"):
        async with app.breaker("smtp"):
            raise AssertionError
    with pytest.raises(UsageError, match="used outside a task"), app.breaker("smtp"):
        raise AssertionError


@virtual(breakers=[SMTP])
async def test_a_sync_block_on_a_loop_is_refused(app: App) -> None:
    @app.task(name="send", retry=0)
    async def send() -> None:
        with app.breaker("smtp"):
            raise AssertionError

    other = App("sqlite:///:memory:", name="other", breakers=[Breaker("sms")])

    @app.task(name="foreign", retry=0)
    async def foreign() -> None:
        async with other.breaker("sms"):
            raise AssertionError

    async with working(app):
        failed = await finished(await send.enqueue())
        assert failed.last_error is not None
        assert "would block" in failed.last_error.message
        failed = await finished(await foreign.enqueue())
        assert failed.last_error is not None
        assert "belongs to another App" in failed.last_error.message


# --- hooks


@virtual(breakers=[SMTP])
async def test_hooks_get_each_change_once(app: App) -> None:
    seen: list[tuple[str, str]] = []

    @app.hooks.breaker_opened
    @app.hooks.breaker_half_open
    @app.hooks.breaker_closed
    async def note(event: BreakerEvent) -> None:
        assert event.breaker == "smtp"
        seen.append((event.before, event.state))

    send, service = sending(app)
    async with working(app), working(app):
        jobs = await send.enqueue_many([(n,) for n in range(5)])
        await reaches(app, "open")
        service.is_broken = False
        await attempts(jobs)
    assert seen == [
        ("closed", "open"),
        ("open", "half_open"),
        ("half_open", "closed"),
    ]


# --- the store fails


class Failing:
    """A store whose commits of records fail while the test says so."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.fails: set[str] = set()
        self.unknown = False
        self.failed = 0

    def __getattr__(self, name: str) -> Any:
        if name in self.fails:
            return self.fail
        return getattr(self.store, name)

    async def fail(self, *_: Any, **__: Any) -> Any:
        self.failed += 1
        raise StoreUnavailable("away", unknown=self.unknown)


def breakers_of(app: App, store: Any) -> tuple[Breakers, list[str]]:
    states: list[str] = []
    made = Breakers(
        store,
        app.clock,
        app.emit,
        app.name,
        app.breakers,
        lambda event: states.append(event.state),
    )
    return made, states


@virtual(breakers=[SMTP])
async def test_without_the_store_no_call_is_made(app: App) -> None:
    store = Failing(await app.store())
    breakers, _ = breakers_of(app, store)
    await breakers.declare()
    await app.clock.sleep(FRESH_SECONDS)
    store.fails = {"records"}
    assert await breakers.enter("smtp", "a") is None
    assert breakers.until_text("smtp") == ""
    store.fails = set()
    assert await breakers.enter("smtp", "a") is not None


@virtual(breakers=[SMTP])
async def test_results_wait_for_the_store(app: App) -> None:
    store = Failing(await app.store())
    breakers, states = breakers_of(app, store)
    await breakers.declare()
    permit = await breakers.enter("smtp", "a")
    assert permit is not None
    for _ in range(3):
        await breakers.leave(permit, failed=True, error="no")
    store.fails = {"commit"}
    with pytest.raises(StoreUnavailable):
        await breakers.turn()
    await breakers.close()
    assert states == []
    store.fails = set()
    await breakers.turn()
    assert states == ["open"]
    # What is counted twice is worse than what is not counted.
    await force(app, "reset")
    await app.clock.sleep(FRESH_SECONDS)
    permit = await breakers.enter("smtp", "a")
    assert permit is not None
    await breakers.leave(permit, failed=True, error="no")
    store.fails, store.unknown = {"commit"}, True
    with pytest.raises(StoreUnavailable):
        await breakers.turn()
    store.fails = set()
    await breakers.turn()
    assert (await record(app)).counts == ()


class ReadTogether:
    """A store whose next two reads of records both come before any write."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.left = 0
        self.both = asyncio.Barrier(2)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def records(self, kind: str, names: Sequence[str]) -> list[Record]:
        found = await self.store.records(kind, names)
        if self.left:
            self.left -= 1
            await self.both.wait()
        return found


@virtual(breakers=[SMTP])
async def test_two_workers_that_write_at_once_lose_no_call(app: App) -> None:
    store = ReadTogether(await app.store())
    workers = [breakers_of(app, store)[0] for _ in range(2)]
    for number, breakers in enumerate(workers):
        await breakers.declare()
        permit = await breakers.enter("smtp", str(number))
        assert permit is not None
        await breakers.leave(permit, failed=True, error="no")
    store.left = 2
    await asyncio.gather(*(breakers.turn() for breakers in workers))
    assert [row[1:] for row in (await record(app)).counts] == [(2, 2)]


@virtual(breakers=[SMTP])
async def test_the_result_of_a_probe_is_written_again(app: App) -> None:
    store = Failing(await app.store())
    breakers, states = breakers_of(app, store)
    await breakers.declare()
    await change_breaker(store, app.name, "smtp", lambda r: r and half_opened(r, 0.0))
    await app.clock.sleep(FRESH_SECONDS)
    permit = await breakers.enter("smtp", "a")
    assert permit is not None
    assert permit.is_probe
    store.fails, store.unknown = {"commit"}, True
    await breakers.leave(permit, failed=False)
    assert store.failed == 3
    store.unknown = False
    await breakers.leave(permit, failed=False)
    assert (store.failed, states) == (4, [])
    store.fails = set()
    await breakers.leave(permit, failed=False)
    assert states == ["closed"]
    await breakers.leave(permit, failed=True)  # of an earlier period by now
    assert states == ["closed"]


@virtual(breakers=[SMTP])
async def test_a_result_of_an_earlier_period_is_not_counted(app: App) -> None:
    breakers, _ = breakers_of(app, await app.store())
    await breakers.declare()
    early = await breakers.enter("smtp", "a")
    await force(app, "open")
    await force(app, "reset")
    await app.clock.sleep(FRESH_SECONDS)
    late = await breakers.enter("smtp", "b")
    assert early is not None
    assert late is not None
    await breakers.leave(late, failed=False)
    await breakers.leave(early, failed=True)
    await breakers.turn()
    assert [row[1:] for row in (await record(app)).counts] == [(1, 0)]


@virtual(breakers=[SMTP])
async def test_a_record_that_cannot_be_read_is_made_anew(app: App) -> None:
    store = await app.store()
    await store.commit(
        Effects(puts=[Put(breakers_kind(app.name), "smtp", b"[1]", due_at=1.0)])
    )
    keeper = BreakerKeeper(store, app.emit, app.name, lambda _: None)
    assert await keeper.turn() == 1.0
    assert await keeper.turn() == 1.0
    breakers, _ = breakers_of(app, store)
    await breakers.declare()
    assert (await record(app)).state == "closed"
    await keeper.turn()


@virtual(breakers=[SMTP])
async def test_numbers_of_a_newer_declaration_count(app: App) -> None:
    store = await app.store()
    breakers, _ = breakers_of(app, store)
    await breakers.declare()
    app.breakers = declared_breakers([Breaker("smtp", failures=7)])
    newer, _ = breakers_of(app, store)
    await newer.declare()
    assert (await record(app)).rule.failures == 7
