"""Limits of code and by hand: which numbers hold, for gates that exist and for new ones."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from durio import App, Concurrency, Rate
from durio.client.limit_store import (
    find_limit,
    parse_choice,
    read_limits,
    reset_limit,
    set_limit,
)
from durio.errors import InvalidName, InvalidOption, UsageError
from durio.limits import Budget
from durio.model.effects import Effects
from durio.model.gate import GateChange
from durio.model.gate_rule import GateChoice
from durio.model.limit_records import KnownLimit
from durio.ports.control import AuditNote
from durio.testing.clock import VirtualClock, run_virtual
from tests.bad_input.refusals import declined
from tests.faults.faulty_store import FaultyStore
from tests.unit.app.app_harness import MEMORY, drained, virtual, working

NOTE = AuditNote("app", "ann", "set limit", "x")


def shop(clock: Any, state: Any = None, **options: Any) -> tuple[App, Any]:
    """An App of one release of the code, on the store of the first one."""
    app = App(MEMORY, name="app", clock=clock)
    app.queue("default", maxsize=5_000)
    if state is not None:
        app.state = state

    @app.task(name="send", **options)
    async def send(tenant: str) -> None: ...

    return app, send


async def caps(app: App) -> dict[str, int | None]:
    rows = await (await app.store()).gates("", limit=5000)
    return {row.name: row.cap for row in rows}


async def set_by_hand(app: App, name: str, *values: str, burst: Any = None) -> None:
    store = await app.store()
    limit = await find_limit(store, app.name, name)
    choice = parse_choice(limit, values, burst) if values else GateChoice()
    await set_limit(store, app.name, limit, choice, NOTE)


async def reset(app: App, name: str) -> GateChoice:
    store = await app.store()
    limit = await find_limit(store, app.name, name)
    return await reset_limit(store, app.name, limit, NOTE)


def in_virtual_time(story: Any) -> None:
    run_virtual(story)


# --- the newest declaration


@pytest.mark.proves("L18")
def test_a_worker_of_new_code_changes_the_gates_that_exist() -> None:
    async def story(clock: VirtualClock) -> None:
        app, send = shop(clock, limits=[Concurrency(1, key="tenant")])
        async with app:
            await send.enqueue_many([("a",), ("a",), ("b",)])
            await drained(app)
            newer, _ = shop(clock, app.state, limits=[Concurrency(3, key="tenant")])
            await send.enqueue_many([("a",)] * 4)
            async with working(newer):
                await clock.sleep(2.0)
                assert await caps(app) == {"1k:app/send/a": 3, "1k:app/send/b": 3}
                # A producer of the old code makes a gate with the old number.
                await send.enqueue("c")
                assert (await caps(app))["1k:app/send/c"] == 1
                await clock.sleep(130.0)
                assert (await caps(app))["1k:app/send/c"] == 3
            (limit,) = await read_limits(await app.store(), "app")
            assert (limit.name, limit.kind, limit.choice) == (
                "send",
                "concurrency",
                GateChoice(3),
            )
            assert limit.code is not None
            assert (limit.code.key, limit.code.tasks) == ("tenant", ("app.send",))

    in_virtual_time(story)


def test_more_gates_than_one_commit_changes() -> None:
    async def story(clock: VirtualClock) -> None:
        app, send = shop(clock, limits=[Concurrency(1, key="tenant")])
        async with app:
            await send.enqueue_many([(f"t{n}",) for n in range(1500)])
            newer, _ = shop(clock, app.state, limits=[Concurrency(2, key="tenant")])
            await newer.declare_limits()
            assert set((await caps(app)).values()) == {2}
            store = await app.store()
            change = GateChange("1k:app/send/", is_prefix=True, cap=1)
            await store.commit(Effects(gates=[change]))
            await store.commit(Effects(gates=[change]))
            async with working(newer):
                await clock.sleep(65.0)
            assert set((await caps(app)).values()) <= {2}

    in_virtual_time(story)


def test_a_worker_that_declares_the_same_writes_nothing() -> None:
    async def story(clock: VirtualClock) -> None:
        app, send = shop(clock, limits=[Concurrency(1, key="tenant")])
        async with app:
            await send.enqueue("a")
            await app.declare_limits()
            store = await app.store()
            before = await store.list_records("code_limit:app")
            await app.declare_limits()
            assert await store.list_records("code_limit:app") == before

    in_virtual_time(story)


# --- by hand


def test_what_was_set_by_hand_comes_before_the_code() -> None:
    async def story(clock: VirtualClock) -> None:
        app, send = shop(clock, limits=[Concurrency(1, key="tenant")])
        async with app:
            await app.declare_limits()
            await send.enqueue("a")
            await set_by_hand(app, "send", "5")
            assert await caps(app) == {"1k:app/send/a": 5}
            newer, _ = shop(clock, app.state, limits=[Concurrency(2, key="tenant")])
            await newer.declare_limits()
            assert await caps(app) == {"1k:app/send/a": 5}
            async with working(newer):
                await clock.sleep(70.0)
                assert set((await caps(app)).values()) <= {5}
            await send.enqueue("b")  # reads what is set beside this call
            await clock.sleep(1.5)
            await send.enqueue("c")
            await clock.sleep(0.5)
            await send.enqueue("d")
            assert (await caps(app))["1k:app/send/d"] == 5
            assert await reset(app, "send") == GateChoice(2)
            assert set((await caps(app)).values()) == {2}

    in_virtual_time(story)


def test_a_process_reads_what_is_set_before_its_first_enqueue() -> None:
    async def story(clock: VirtualClock) -> None:
        app, send = shop(clock, limits=[Concurrency(1, key="tenant")])
        async with app:
            await app.declare_limits()
            await set_by_hand(app, "send", "7")
            await send.enqueue("a")
            assert await caps(app) == {"1k:app/send/a": 7}

    in_virtual_time(story)


@virtual
async def test_a_limit_that_is_off(app: App) -> None:
    @app.task(name="send", limits=[Concurrency(1)])
    async def send() -> None: ...

    await app.declare_limits()
    await send.enqueue_many([()] * 3)
    await set_by_hand(app, "send")
    assert set((await caps(app)).values()) <= {None}
    await app.clock.sleep(1.5)
    await send.enqueue()  # reads what is set beside this call
    await app.clock.sleep(0.5)
    async with working(app):
        await app.clock.sleep(65.0)  # the leader drops the gate that this call made
    jobs = await send.enqueue_many([()] * 3)
    assert {(await job.status()).state for job in jobs} == {"ready"}
    assert await reset(app, "send") == GateChoice(1)


@virtual
async def test_a_limit_for_a_queue(app: App) -> None:
    @app.task(name="send", queue="mail", limits=[Rate("100/s", burst=9)])
    async def send() -> None: ...

    await set_by_hand(app, "queue:mail", "2", "50/s", burst=5)
    jobs = await send.enqueue_many([()] * 3)
    (row,) = await (await app.store()).gates("4w:", limit=5)
    assert (row.name, row.cap, row.used, row.rate) == ("4w:app/queue:mail/", 2, 2, 50)
    assert [(await job.status()).state for job in jobs] == ["ready", "ready", "blocked"]
    await drained(app)
    assert await reset(app, "queue:mail") == GateChoice()
    assert [x.name for x in await read_limits(await app.store(), "app")] == ["send"]


@virtual
async def test_a_queue_whose_limit_would_be_a_fifth_gate(app: App) -> None:
    limits = [Rate(f"{n}/s") for n in range(1, 5)]

    @app.task(name="send", limits=limits)
    async def send() -> None: ...

    await set_by_hand(app, "queue:default", "2")
    with declined(UsageError, "would pass 5 limits", "durio limits reset"):
        await send.enqueue()


@virtual
async def test_the_width_of_turns(app: App) -> None:
    @app.task(name="work", fair_by="tenant")
    async def work(tenant: str) -> None: ...

    await work.enqueue_many([("a",)] * 20)
    await set_by_hand(app, "fair:default", "18")
    assert await caps(app) == {"3f:app/fair:default/5/a": 18}
    assert await reset(app, "fair:default") == GateChoice(16)
    assert await caps(app) == {"3f:app/fair:default/5/a": 16}


# --- bad input


def known(kind: str) -> KnownLimit:
    names = {"queue": "queue:a", "fairness": "fair:a"}
    return KnownLimit(names.get(kind, "send"), "4w:app/send/", None, None)


@virtual
async def test_a_limit_that_is_not_there(app: App) -> None:
    @app.task(name="send", limits=[Concurrency(1), Budget("tokens", 50)])
    async def send() -> None: ...

    await app.declare_limits()
    for name in ("sned", "queue:", "fair:", ""):
        with declined(InvalidName, "App app has no limit", "Known: send, tokens"):
            await set_by_hand(app, name, "5")
    with declined(InvalidOption, "send is a concurrency, and needs a number"):
        await set_by_hand(app, "send", "5/m")
    with declined(InvalidOption, "tokens is a budget, and needs a rate"):
        await set_by_hand(app, "tokens", "5")
    await set_by_hand(app, "tokens", "60/m")
    limit = await find_limit(await app.store(), "app", "tokens")
    assert limit.choice == GateChoice(None, 1.0, 60.0)


@pytest.mark.parametrize("text", ["0", "-1", "many", "", "1.5", "9" * 30])
def test_a_number_that_limits_nothing(text: str) -> None:
    with declined(InvalidOption, "limit queue:a cannot be", "durio queues pause"):
        parse_choice(known("queue"), [text], None)


def test_values_that_contradict_each_other() -> None:
    for values in (["5", "6"], ["5/m", "6/m"]):
        with declined(UsageError, "two values"):
            parse_choice(known("queue"), values, None)
    for burst in (0.0, float("inf")):
        with declined(InvalidOption, "cannot have the burst"):
            parse_choice(known("queue"), ["5/m"], burst)
    with declined(InvalidOption, "cannot have the burst 5"):
        parse_choice(known("queue"), ["5"], 5.0)
    with declined(InvalidOption, "Rate cannot take"):
        parse_choice(known("queue"), ["5/x"], None)
    with declined(InvalidOption, "is a fairness"):
        parse_choice(known("fairness"), ["5/m"], None)


@virtual
async def test_a_store_that_does_not_answer_refuses_no_enqueue(app: App) -> None:
    @app.task(name="send", limits=[Concurrency(1)])
    async def send() -> None: ...

    await set_by_hand(app, "queue:default", "5")
    real = await app.store()
    faulty = FaultyStore(real, app.clock)
    faulty.fail("list_records")
    app.state.stores[os.getpid()] = faulty
    await send.enqueue()
    assert await caps(app) == {"4w:app/send/": 1}
    await send.enqueue()  # now they are read
    assert await caps(app) == {"4w:app/queue:default/": 5, "4w:app/send/": 1}
    await app.clock.sleep(2.0)
    faulty.fail("list_records")
    await send.enqueue()  # this one reads beside the call, and fails
    await app.clock.sleep(2.0)
    assert app.manual_limits.choices == {"queue:default": GateChoice(5)}


def test_a_read_that_is_late_does_not_open_a_closed_store(tmp_path: Path) -> None:
    async def main() -> None:
        app = App(f"sqlite:///{tmp_path}/jobs.db", name="shop")

        @app.task(name="send")
        async def send() -> None: ...

        await send.enqueue()
        app.manual_limits._read_again_at = 0.1  # due again
        await send.enqueue()
        await app.close()
        await asyncio.gather(*app.manual_limits._reading)
        assert app.state.open_store is None

    asyncio.run(main())


@virtual
async def test_calls_that_come_first_together_all_know_what_was_set(app: App) -> None:
    @app.task(name="send")
    async def send() -> None: ...

    await set_by_hand(app, "queue:default", "1")
    jobs = await asyncio.gather(*(send.enqueue() for _ in range(5)))
    states = [(await job.status()).state for job in jobs]
    assert sorted(states) == ["blocked"] * 4 + ["ready"]
