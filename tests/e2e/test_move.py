"""`durio move`: the same ids in the same states, none lost, none run twice."""

import asyncio
import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import apsw
import pytest

from durio import App, Context, Permanent, Retry
from durio.app import move
from durio.app.move import MoveFailed
from durio.app.move_verify import Comparison
from durio.client.task_by_name import published_tasks
from durio.errors import (
    OperatingError,
    QueueClosed,
    QueueFull,
    StoreMoved,
    UsageError,
)
from durio.keys import while_active, window
from durio.model.effects import Effects, Put
from durio.model.ids import id_bytes
from durio.model.job import CANCELLED, DEAD, DONE, READY, SCHEDULED, StoredJob
from durio.ports.browse import Query
from durio.ports.control import AuditNote, DiscardJobs, QueueChange, RetryJobs
from durio.ports.move import ImportStage
from durio.stores.postgres import import_jobs
from tests.bulk_actions import run_bulk
from tests.conformance.postgres import ScratchSchema
from tests.e2e.moving import Died, Steps, die_here, mover, with_fault
from tests.e2e.workers import Place, seeded, wait_until
from tests.job_counts import count_jobs
from tests.servers.postgres import PostgresServer

KILLS = 6
HALF_WAY = 30  # a step at which jobs have been copied, and nothing is open
STATES = {SCHEDULED, READY, DONE, DEAD, CANCELLED}
LATE_SECONDS = 40.0
FINE: WeakKeyDictionary[App, Any] = WeakKeyDictionary()  # the task `fine` of an App


@pytest.fixture
def target(grounds: ScratchSchema) -> str:
    return grounds.url


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A file with jobs in every state, of two Apps."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    asyncio.run(fill(url))
    return url


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move, "BATCH", 25)


# --- a file full of jobs


async def fine(ctx: Context, n: int) -> dict[str, int]:
    await ctx.progress(1, 2)
    return {"n": n}


async def kept(n: int) -> str:
    return "x" * n


async def bad(n: int) -> None:
    raise Permanent(f"no {n} \0 é")


async def flaky(n: int) -> None:
    raise ValueError(f"not now {n}")


def shop(url: str) -> App:
    app = App(url, name="shop", settings={"log": {"level": "error"}})
    FINE[app] = app.task()(fine)
    app.task(retention="30d")(kept)
    app.task()(bad)
    app.task(retry=Retry(5, base=3600))(flaky)
    app.queue("mail", maxsize=8, full_wait=0.05)
    return app


RECORDS = [
    Put("test:shop", "due", b"\0\xff", due_at=12.5),
    Put("test:shop", "lasting", b"1", ttl_seconds=9e5),
    Put("test:shop", "over", b"1", ttl_seconds=0.0),
]


async def fill(url: str) -> None:
    async with shop(url) as app:
        for name in ("fine", "kept", "bad", "flaky"):
            for n in range(30 if name == "fine" else 7):
                await app.enqueue(name, n)
        fine = FINE[app]
        await fine.options(key="done", unique=window("24h")).enqueue(1)
        async with app.worker() as worker:
            await worker.drained(30)
        for n in range(5):
            await fine.options(queue="mail", key=f"m{n}", unique=while_active).enqueue(
                n
            )
            await fine.options(delay="2h").enqueue(n)
            await fine.options(priority=9).enqueue(n)
            await (await fine.options(queue="stopped").enqueue(n)).cancel()
            await fine.options(queue="stopped").enqueue(n)
        store = await app.store()
        await store.set_queue(
            "shop:stopped", QueueChange(paused=True), AuditNote(who="me")
        )
        await store.set_queue("shop:mail", QueueChange(maxsize=6), AuditNote(who="me"))
        await store.act(
            [(await some(store, DEAD))[0].id], RetryJobs(), note=AuditNote(who="me")
        )
        await store.commit(Effects(puts=RECORDS))
    async with App(url, name="other") as app:
        await app.enqueue("other.unknown", 1)


async def some(store: Any, *states: int) -> list[StoredJob]:
    """All jobs, or those in these states."""
    found, cursor = [], None
    while True:
        query = Query(states=states or None)
        page = await store.find(query, limit=200, cursor=cursor)
        found += page.jobs
        cursor = page.cursor
        if cursor is None:
            return sorted(found)


def whole(record: StoredJob) -> StoredJob:
    """A job without what a store forgets when it begins to wait again."""
    waits = record.state in (SCHEDULED, READY)
    return record._replace(started_at=None) if waits else record


async def contents(url: str) -> dict[str, Any]:
    """All that a store says of two Apps."""
    async with shop(url) as app:
        store = await app.store()
        lanes = [await store.queues(name) for name in ("shop", "other")]
        return {
            "jobs": [whole(record) for record in await some(store)],
            "lanes": [sorted(rows) for rows in lanes],
            "counts": await count_jobs(store, "shop"),
            "tallies": sorted(await store.tallies(None)),
            "audit": [line[1:] for line in await store.audit("shop", limit=50)],
            "tasks": await published_tasks(store, "shop"),
            "records": [
                record[:4]
                for kind in ("task:shop", "signature:shop", "test:shop")
                for record in await store.list_records(kind)
            ],
        }


async def moved(source: str, target: str, **parts: Any) -> Comparison | None:
    async with mover(source, target, **parts) as moving:
        return await moving.move(drain_seconds=20, by="test")


async def taken_back(source: str, target: str, **parts: Any) -> int:
    async with mover(source, target, **parts) as moving:
        return await moving.back_out(by="test")


# --- what arrives


async def judge(source: str, target: str, before: dict[str, Any]) -> None:
    """What was there is there, and the file still says all of it."""
    there = await contents(target)
    assert {record.state for record in there["jobs"]} == STATES
    for part in ("jobs", "lanes", "counts", "tallies", "tasks", "records"):
        assert there[part] == before[part], part
    assert there["audit"][1:] == before["audit"]
    assert there["audit"][0][0:2] == ("test", "move away")
    assert (await contents(source))["jobs"] == before["jobs"]


def test_every_job_arrives_as_it_was(source: str, target: str) -> None:
    async def main() -> None:
        before = await contents(source)
        verdict = await moved(source, target)
        assert verdict is not None
        assert (verdict.jobs, verdict.differences) == (len(before["jobs"]), [])
        assert (verdict.pruned, verdict.other_jobs) == (0, 0)
        await judge(source, target, before)
        assert await moved(source, target) is None, "it is over"
        await check_life(target)

    asyncio.run(main())


async def check_life(target: str) -> None:
    """Keys, bounds and numbers of deaths hold on the other side."""
    async with shop(target) as app:
        fine, store = FINE[app], await app.store()
        again = await fine.options(key="done", unique=window("24h")).enqueue(1)
        assert (again.created, await again.result(5)) == (False, {"n": 1})
        held = fine.options(queue="mail", key="m1", unique=while_active)
        assert not (await held.enqueue(1)).created
        mail = fine.options(queue="mail")
        await mail.enqueue(1)
        with pytest.raises(QueueFull):  # five came, one is new, six is the bound
            await mail.enqueue(2)
        dead = Query(namespace="shop", states=(DEAD,))
        counted = await store.count(dead)
        assert counted.jobs == 6
        await app.enqueue("bad", 100)
        async with app.worker(queues=["default", "mail"]) as worker:
            await worker.drained(30)
        done = await run_bulk(store, dead, DiscardJobs(), counted.mark)
        assert done.jobs == 6, "who died later is left alone"
        counts = (await count_jobs(store, "shop"))["shop:default"]
        assert counts == {SCHEDULED: 12, DEAD: 2}


def test_the_other_driver_does_the_same(source: str, target: str) -> None:
    async def main() -> None:
        steps = Steps(HALF_WAY, die_here)
        with pytest.raises(Died):
            await moved(source, f"{target}&driver=psycopg", steps=steps)
        assert (await contents(target))["jobs"]
        await taken_back(source, f"{target}&driver=psycopg&split=on")
        assert not (await contents(target))["jobs"]
        before = await contents(source)
        await moved(source, f"{target}&driver=psycopg")
        await judge(source, target, before)

    asyncio.run(main())


def test_first_in_first_out_goes_on(target: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"

    async def main() -> None:
        async with shop(url) as app:
            ids = [(await app.enqueue("fine", n)).id for n in range(60)]
        await moved(url, target)
        async with shop(target) as app:
            rows = await some(await app.store(), READY)
        assert [row.id for row in rows] == [id_bytes(job_id) for job_id in ids]

    asyncio.run(main())


# --- dying on the way


def test_whoever_comes_after_a_death_goes_on(source: str, target: str) -> None:
    """Before each step in turn, and every mover gets one step further."""

    async def main() -> None:
        before = await contents(source)
        deaths, fatal = 0, 1
        while True:
            try:
                steps = Steps(fatal, die_here)
                await moved(source, target, steps=steps)
                break
            except Died:
                deaths, fatal = deaths + 1, fatal + 1
                await check_shut(source, target)
        assert deaths > 20
        await judge(source, target, before)

    asyncio.run(main())


async def check_shut(source: str, target: str) -> None:
    """While the one side takes no jobs, the other does not take them ahead of the rest."""
    async with mover(source, target) as moving:
        mark = await moving.source.mark()
    if mark is None or mark.stage != "frozen" or await is_open(source, target):
        return
    async with shop(target) as app:
        with pytest.raises(QueueClosed):
            await app.enqueue("fine", 1)


def test_a_move_dies_at_each_step_and_is_taken_back(source: str, target: str) -> None:
    async def main() -> None:
        before = await contents(source)
        fatal = 2
        while True:
            fatal += 3
            with suppress(Died):
                await moved(source, target, steps=Steps(fatal, die_here))
            if await is_open(source, target):
                break
            await back_out_dying(source, target, fatal)
            after = await contents(source)
            assert after["jobs"] == before["jobs"]
            assert not (await contents(target))["jobs"]
        assert fatal > HALF_WAY
        await moved(source, target)
        there = await contents(target)
        assert there["jobs"] == before["jobs"]
        assert there["tallies"] == before["tallies"]
        verbs = Counter(line[1] for line in there["audit"])
        assert verbs["pause"] == 1, "no line of the audit came twice"

    asyncio.run(main())


def test_a_move_that_is_taken_back_leaves_no_records(source: str, target: str) -> None:
    """Nor do they replace those of the next move."""

    async def main() -> None:
        with pytest.raises(Died):
            await moved(source, target, steps=Steps(HALF_WAY, die_here))
        assert (await contents(target))["jobs"]
        await taken_back(source, target)
        assert (await contents(target))["records"] == []
        puts = [Put("test:shop", "due", b"2", due_at=99.5)]
        puts += [Put("test:shop", "lasting", None)]
        async with shop(source) as app:
            await (await app.store()).commit(Effects(puts=puts))
        before = await contents(source)
        assert before["records"][-1:] == [("test:shop", "due", b"2", 99.5)]
        await moved(source, target)
        await judge(source, target, before)

    asyncio.run(main())


async def back_out_dying(source: str, target: str, fatal: int) -> None:
    """Die once on the way back, then go on; a move that had not begun is no matter."""
    try:
        await taken_back(source, target, steps=Steps(fatal % 17 + 3, die_here))
    except Died:
        with_rest = await has_mark(source)
        if with_rest:
            await taken_back(source, target)
    except UsageError:
        assert not await has_mark(source)


async def is_open(source: str, target: str) -> bool:
    async with mover(source, target) as moving:
        arriving = (await moving.status()).import_progress
    return arriving is not None and arriving.stage == "open"


async def has_mark(source: str) -> bool:
    async with App(source, name="shop") as app:
        return await move.export_jobs_from(await app.store()).mark() is not None


def test_several_movers_at_once_do_no_harm(source: str, target: str) -> None:
    async def main() -> None:
        before = await contents(source)
        movers = [moved(source, target) for _ in range(3)]
        told = await asyncio.gather(*movers, return_exceptions=True)
        harmless = (Comparison, OperatingError, type(None))
        assert all(isinstance(each, harmless) for each in told), told
        await moved(source, target)
        await judge(source, target, before)

    asyncio.run(main())


@pytest.mark.parametrize("late_seconds", [0.02, 0.06, 0.1, 0.15, 0.2])
def test_one_moves_and_another_takes_it_back(
    source: str, target: str, late_seconds: float
) -> None:
    async def main() -> None:
        before = await contents(source)

        async def back() -> int:
            await asyncio.sleep(late_seconds)
            return await taken_back(source, target)

        both = moved(source, target), back()
        await asyncio.gather(*both, return_exceptions=True)
        if await has_mark(source):
            with suppress(MoveFailed):  # taken back half-way, or not at all
                await taken_back(source, target)
        if not await has_mark(source):  # it is back: nothing of it is there
            assert not (await contents(target))["jobs"]
        await moved(source, target)
        there = await contents(target)
        assert there["jobs"] == before["jobs"]
        assert there["tallies"] == before["tallies"]

    asyncio.run(main())


def test_a_statement_that_fails_leaves_nothing_behind(source: str, target: str) -> None:
    async def main() -> None:
        before = await contents(source)
        failed, nth, is_over = 0, 0, False
        while not is_over:
            nth += 1
            async with mover(source, target) as moving:
                is_over = await with_fault(moving, nth)
                failed += not is_over
        assert failed > 5
        await judge(source, target, before)

    asyncio.run(main())


# --- a file that has moved


def test_a_moved_file_takes_nothing_and_says_where_to_go(
    source: str, target: str
) -> None:
    async def main() -> None:
        await moved(source, target)
        async with shop(source) as app:
            store = await app.store()
            dead = (await some(store, DEAD))[0]
            fine = FINE[app]
            replaced = fine.options(queue="brand-new")
            for attempt in (
                fine.enqueue(1),
                replaced.enqueue(1),
                fine.enqueue_many([(n,) for n in range(3)]),
                store.act([dead.id], RetryJobs(), note=AuditNote(who="me")),
                store.act([dead.id], DiscardJobs(), note=AuditNote(who="me")),
                store.set_queue(
                    "shop:mail", QueueChange(paused=True), AuditNote(who="me")
                ),
                enter(app.worker()),
                in_own_transaction(app, source),
            ):
                with pytest.raises(StoreMoved, match="postgresql://") as caught:
                    await attempt
                assert "DURIO_URL=postgresql://" in caught.value.cure
            # What is stored already is still answered for.
            keyed = fine.options(queue="mail", key="m1", unique=while_active)
            assert not (await keyed.enqueue(1)).created

    asyncio.run(main())


async def enter(worker: Any) -> None:
    async with worker:
        pass


async def in_own_transaction(app: App, source: str) -> None:
    connection = apsw.Connection(source.removeprefix("sqlite:///"))
    try:
        with connection:
            await FINE[app].options(tx=connection).enqueue(1)
    finally:
        connection.close()


def test_an_opened_move_is_not_taken_back(source: str, target: str) -> None:
    """Also when no job has run there; and the refusal changes nothing."""

    async def main() -> None:
        await moved(source, target)
        here, there = await contents(source), await contents(target)
        with pytest.raises(MoveFailed, match="cannot be undone") as caught:
            await taken_back(source, target)
        assert "DURIO_URL=postgresql://" in caught.value.cure
        assert caught.value.values["to"].startswith("postgresql://")
        assert (await contents(source), await contents(target)) == (here, there)
        async with shop(target) as app:
            assert (await app.enqueue("fine", 1)).created, "it is open"
        with pytest.raises(StoreMoved):
            async with shop(source) as app:
                await app.enqueue("fine", 1)

    asyncio.run(main())


@pytest.mark.parametrize("stage", ["open", "shut"])
def test_a_move_that_is_open_on_one_side_only_is_finished(
    source: str, target: str, stage: ImportStage
) -> None:
    """The mover died before it wrote `moved`; earlier versions also left `shut`."""

    async def main() -> None:
        before = await contents(source)
        await moved(source, target)
        async with mover(source, target) as moving:
            mark = (await moving.status()).mark
            assert mark is not None
            await moving.source.set_stage(mark.id, "frozen")
            await plant_stage(moving.target, mark.id, stage)
        with pytest.raises(MoveFailed, match="cannot be undone") as caught:
            await taken_back(source, target)
        assert "without --back-out" in caught.value.cure
        await moved(source, target)
        assert await is_open(source, target)
        await judge(source, target, before)

    asyncio.run(main())


async def plant_stage(target: Any, move: str, stage: ImportStage) -> None:
    async def work(tx: Any) -> None:
        _, mark = await import_jobs.lock_mark(tx, move)
        await import_jobs.write_mark(tx, move, mark._replace(stage=stage), "a file")
        if stage == "shut":
            await tx.rows(import_jobs.SET_QUEUES, ["shop:default"], [True], [True])

    await target.connections.write(work)


def test_jobs_of_the_same_app_are_not_mixed(source: str, target: str) -> None:
    async def main() -> None:
        async with shop(target) as app:
            await app.enqueue("fine", 1)
        with pytest.raises(MoveFailed, match="1 job of shop"):
            await moved(source, target)
        async with shop(source) as app:
            await app.enqueue("fine", 1)  # nothing has happened to it

    asyncio.run(main())


def test_jobs_go_one_way(source: str, target: str, postgres: PostgresServer) -> None:
    elsewhere = postgres.url(schema="elsewhere")
    ScratchSchema(elsewhere).clear()

    async def main() -> None:
        with pytest.raises(Died):  # before the other side knows of it
            await moved(source, target, steps=Steps(8, die_here))
        with pytest.raises(MoveFailed, match="already"):
            await moved(source, elsewhere)
        await moved(source, target)

    asyncio.run(main())


# --- the command


def command(place: Place, *args: str) -> tuple[int, Any]:
    """`durio move ... --json`: its exit code and answer."""
    process = place.run("durio", "move", *args, "--json")
    code = process.ended(LATE_SECONDS)
    return code, json.loads(process.log.splitlines()[-1])


def test_the_command_moves_and_says_so(place: Place, target: str) -> None:
    asyncio.run(fill(place.url))
    place.url, url = target, place.url
    code, told = command(place, url, target, "--dry-run")
    assert (code, told["stage"], told["dry_run"]) == (0, None, True)
    code, told = command(place, url, target)
    assert (code, told["error"]["code"]) == (2, "not_confirmed")
    code, told = command(place, url, target, "--yes")
    assert (code, told["stage"]) == (0, "moved")
    assert told["jobs"]["shop"]["dead"] == 6
    assert len(told["digest"]) == 64
    code, told = command(place, url, target, "--yes", "--back-out")
    assert (code, told["error"]["code"]) == (1, "move_failed")
    code, told = command(place, target, url, "--yes")
    assert (code, told["error"]["code"]) == (2, "usage")
    code, told = command(place, "sqlite:///:memory:", target, "--yes")
    assert (code, told["error"]["code"]) == (2, "usage")
    code, told = command(place, url, f"{target}&schema=missing", "--yes")
    assert (code, told["error"]["code"]) == (5, "schema_mismatch")


def test_a_worker_that_does_not_end_is_waited_for_so_long(
    place: Place, target: str
) -> None:
    place.enqueue("held", ())
    worker = place.worker()
    place.wait_for("start", 1)
    worker.stop()
    code, told = command(place, place.url, target, "--yes", "--timeout", "1s")
    assert (code, told["error"]["code"]) == (7, "timeout")
    code, told = command(place, place.url, target, "--yes", "--back-out")
    assert (code, told["backed_out"]) == (0, True)
    worker.go_on()
    place.enqueue("nothing", ())


# --- under load


def test_a_live_installation_moves(place: Place, target: str) -> None:
    """Workers and producers on both sides, and a mover that is killed again and again."""
    chance = seeded()
    url, late = place.url, place.enqueue("nap", *[(0.5,)] * 40)
    place.enqueue("refused", *[()] * 20)
    place.enqueue_many("nothing", 400)
    workers = [place.worker(), place.worker()]
    producers = [place.run("tests.e2e.move_producer", target) for _ in range(2)]
    place.url = target
    there = [place.worker()]
    place.wait_for("enq.ok", 100)
    for _ in range(KILLS):
        fatal = chance.randrange(3, 40)
        place.run("tests.e2e.moving", url, target, str(fatal)).ended(LATE_SECONDS)
    code, told = command(place, url, target, "--yes")
    assert code == 0, told
    assert [worker.ended(LATE_SECONDS) for worker in workers] == [0, 0]
    wait_until(
        lambda: place.ledger.of("moved"), LATE_SECONDS, "a producer has followed"
    )
    (place.ledger_folder / "enough").touch()
    assert [each.ended(LATE_SECONDS) for each in producers] == [0, 0]
    check_account(place, url, target, late)
    del there


def check_account(place: Place, url: str, target: str, late: list[str]) -> None:
    """Every job that was accepted is there, over, and had its effect once."""

    def all_over() -> dict[bytes, int]:
        states = asyncio.run(states_in(target))
        return states if set(states.values()) <= {DONE, DEAD} else {}

    states = wait_until(all_over, LATE_SECONDS, "every job is over", look_seconds=0.2)
    ledger = place.ledger
    accepted = {id_bytes(job) for job in ledger.jobs("enq.ok") | set(late)}
    assert accepted <= set(states), "lost"
    assert set(asyncio.run(states_in(url))) <= set(states), "lost"
    ran = Counter(line.job for line in ledger.of("start"))
    assert set(ran.values()) == {1}, "run twice"
    assert {id_bytes(job) for job in ran} == set(states), "never run"
    ends = Counter(line.job for line in [*ledger.of("accepted"), *ledger.of("dead")])
    assert set(ends.values()) == {1}, "counted twice"
    assert Counter(states.values())[DEAD] == 20


async def states_in(url: str) -> dict[bytes, int]:
    async with App(url, name="e2e") as app:
        return {row.id: row.state for row in await some(await app.store())}
