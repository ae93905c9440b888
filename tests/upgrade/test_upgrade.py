"""A store of the release before is opened by this code: every job is there and goes on.

`stores/` has a SQLite file and a PostgreSQL dump; `make_stores.py` says how they are made.
The file is upgraded by opening it, the dump by `durio migrate`.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

import apsw
import psycopg
import pytest

from durio import App, Context, Job, JobCancelled, KeyConflict, QueueFull
from durio.client.task_by_name import published_tasks
from durio.errors import InvalidArguments, JobNotFound, QueueClosed, UnknownTask
from durio.keys import debounce, replace, while_active, while_waiting, window
from durio.worker.unrunnable import published_digests
from tests.upgrade.command_line import all_answers, durio
from tests.upgrade.restore import ROLE, OldStore
from tests.upgrade.shop import LASTING, NAME, Shop, make_shop

END_SECONDS = 15.0

# What jobs return when they are run after the upgrade.
WAITING = {f"ready_{priority}": priority + 1 for priority in (0, 2, 5, 7, 9)} | {
    "ready_mail": 21,
    "ready_rich": {"text": "naïve", "tags": ["c"], "length": 5, "note": None},
    "ready_options": 22,
    "due": 23,
    "key_waiting": 25,
    "key_active": 26,
    "key_replace": 27,
    "key_window": 29,
    "key_day": 30,
    "parcel_1": 33,
    "parcel_2": 34,
    "parked": "invoice for I-1",
    "retrying": "F-1",
}
CUT_SHORT = {"running_plain": "R-1", "running_active": "R-2", "running_window": "R-4"}
DONE = {
    "done_plain": 3,
    "done_rich": {
        "text": "Grüße, 世界 \U0001f4e6",
        "tags": ["a", "b"],
        "length": 11,
        "note": None,
    },
    "done_kept": 7,
    "done_window": 11,
    "done_returns": 15,
}
DEAD = {
    "dead_exhausted": "A-1: 100",
    "dead_permanent": "A-2",
    "dead_window": "A-3: 300",
    "dead_twice": "A-4: 400",
}
PAUSED = {"paused_1": 31, "paused_2": 32}
NOT_DUE = ("far", "key_debounce")


class Runs:
    """Counts the attempts that begin, by job: a middleware."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    async def __call__(
        self, ctx: Context[Any], call_next: Callable[[], Awaitable[Any]]
    ) -> Any:
        self.count[ctx.job_id] += 1
        return await call_next()


@asynccontextmanager
async def working(store: OldStore, runs: Runs):
    shop = make_shop(store.url, middleware=[runs])
    async with shop.app.worker():
        yield shop


async def results(shop: Shop, store: OldStore, names: Any) -> dict[str, Any]:
    async with asyncio.TaskGroup() as group:
        asked = {name: group.create_task(result(shop, store, name)) for name in names}
    return {name: task.result() for name, task in asked.items()}


async def result(shop: Shop, store: OldStore, name: str) -> Any:
    job = await shop.app.job(store.named[name])
    return await job.result(timeout=END_SECONDS)


# --- nothing is lost


def test_the_command_line_gives_the_same_answers(old_store: OldStore) -> None:
    """Every job with its state, arguments, options, result and errors; queues, audit."""
    assert all_answers(old_store.url) == old_store.answers
    assert durio(old_store.url, "migrate", "--check")["up_to_date"]


def test_handles_of_old_jobs_work(old_store: OldStore) -> None:
    async def story() -> None:
        shop = make_shop(old_store.url)
        async with shop.app:
            assert await results(shop, old_store, DONE) == DONE
            for name, job_id in old_store.named.items():
                if name != "discarded":
                    status = await (await shop.app.job(job_id)).status()
                    assert status.state == old_store.job(name)["state"]
                    assert status.priority == old_store.job(name)["priority"]
            dead = await (await shop.app.job(old_store.named["dead_twice"])).status()
            assert dead.last_error is not None
            assert dead.last_error.message == "the card for order A-4 is refused"
            with pytest.raises(JobNotFound):
                await (await shop.app.job(old_store.named["discarded"])).status()

    asyncio.run(story())


# --- keys


def test_the_same_key_answers_with_the_same_job(old_store: OldStore) -> None:
    async def story() -> None:
        shop = make_shop(old_store.url)
        async with shop.app:
            for name, job in (await repeated(shop)).items():
                assert job.id == old_store.named[name], name
                assert not job.created, name
            assert await result(shop, old_store, "done_window") == 11
            other = shop.add.options(key="sum-56", unique=window(LASTING))
            with pytest.raises(KeyConflict):
                await other.enqueue(5, 7)
            rewritten = await shop.add.options(key="r", unique=replace).enqueue(50, 1)
            assert rewritten.id == old_store.named["key_replace"]
            assert rewritten.replaced

    asyncio.run(story())
    changed = durio(old_store.url, "jobs", "show", old_store.named["key_replace"])
    assert changed["kwargs"] == {"a": 50, "b": 1}


async def repeated(shop: Shop) -> dict[str, Job[Any]]:
    """Every call with a key, as the release before has made it."""
    add, hold = shop.add.options, shop.hold.options
    pay_once = shop.charge.options(key="A-3", unique=window(LASTING))
    return {
        "done_window": await add(key="sum-56", unique=window(LASTING)).enqueue(5, 6),
        "dead_window": await pay_once.enqueue("A-3", 300),
        "running_active": await hold(key="R-2", unique=while_active).enqueue("R-2"),
        "running_window": await hold(key="R-4", unique=window(LASTING)).enqueue("R-4"),
        "key_waiting": await add(key="w", unique=while_waiting).enqueue(24, 1),
        "key_active": await add(key="a", unique=while_active).enqueue(25, 1),
        "key_replace": await add(key="r", unique=replace).enqueue(26, 1),
        "key_debounce": await add(key="d", unique=debounce(LASTING)).enqueue(27, 1),
        "key_window": await add(key="t", unique=window(LASTING)).enqueue(28, 1),
        "key_day": await add(key="day").enqueue(29, 1),
    }


# --- work goes on


def test_a_worker_runs_every_job_that_waits_once(old_store: OldStore) -> None:
    """Jobs of the worker that is gone run again, except one that was to be cancelled."""
    runs = Runs()
    wanted = WAITING | CUT_SHORT

    async def story() -> None:
        async with working(old_store, runs) as shop:
            assert await results(shop, old_store, wanted) == wanted
            with pytest.raises(JobCancelled):
                await result(shop, old_store, "running_cancel")

    asyncio.run(story())
    assert runs.count == {old_store.named[name]: 1 for name in wanted}

    after = all_answers(old_store.url)
    assert after["jobs"].keys() == old_store.answers["jobs"].keys()
    for name in (*DONE, "done_large", *DEAD, "cancelled", *NOT_DUE, *PAUSED):
        now, before = after["jobs"][old_store.named[name]], old_store.job(name)
        # Known since a worker of this release has published its tasks.
        assert {**now, "max_attempts": before["max_attempts"]} == before, name
    for name in CUT_SHORT:
        assert after["jobs"][old_store.named[name]]["losses"] == 1
    again = after["jobs"][old_store.named["retrying"]]
    assert again["attempts"] == old_store.job("retrying")["attempts"]
    assert again["attempt"] == 2
    assert all(worker["running"] == 0 for worker in after["workers"])
    assert after["totals"] == old_store.answers["totals"]


def test_dead_jobs_can_be_retried(old_store: OldStore) -> None:
    runs = Runs()
    by_hand = [old_store.named[name] for name in ("dead_exhausted", "dead_window")]
    durio(old_store.url, "dead", "retry", *by_hand, "--yes")

    async def story() -> None:
        async with working(old_store, runs) as shop:
            for name in ("dead_permanent", "dead_twice"):
                await (await shop.app.job(old_store.named[name])).retry()
            assert await results(shop, old_store, DEAD) == DEAD

    asyncio.run(story())
    assert all(runs.count[old_store.named[name]] == 1 for name in DEAD)
    assert durio(old_store.url, "dead", "ls")["jobs"] == []
    totals = durio(old_store.url, "dead", "totals")
    assert totals == old_store.answers["totals"]


def test_later_deaths_are_counted_on(old_store: OldStore) -> None:
    async def story() -> None:
        shop = make_shop(old_store.url, is_healthy=False)
        async with shop.app.worker(queues=["mail"]):
            job = await shop.forget.enqueue("A-9")
            with pytest.raises(Exception, match="there is no order A-9"):
                await job.result(timeout=END_SECONDS)

    asyncio.run(story())
    newest = durio(old_store.url, "dead", "ls")["jobs"][0]
    assert newest["kwargs"] == {"order": "A-9"}
    before, after = old_store.answers["totals"], durio(old_store.url, "dead", "totals")
    assert deaths(after) == deaths(before) + Counter({"shop.forget": 1})


def deaths(totals: dict[str, Any]) -> Counter[str]:
    rows = totals["jobs_dead_lettered_total"]
    return Counter({row["labels"]["task"]: row["value"] for row in rows})


# --- queues and the published tasks


def test_settings_of_queues_still_hold(old_store: OldStore) -> None:
    runs = Runs()

    async def story() -> None:
        shop = make_shop(old_store.url)
        async with shop.app:
            await shop.add.options(queue="parcels").enqueue(40, 1)
            with pytest.raises(QueueFull) as full:
                await shop.add.options(queue="parcels").enqueue(41, 1)
            assert full.value.limit == 3
            with pytest.raises(QueueClosed):
                await shop.add.options(queue="returns").enqueue(42, 1)

    async def work() -> None:
        async with working(old_store, runs) as shop:
            assert await results(shop, old_store, PAUSED) == PAUSED

    asyncio.run(story())
    durio(old_store.url, "queues", "resume", "letters")
    asyncio.run(work())
    assert all(runs.count[old_store.named[name]] == 1 for name in PAUSED)


def test_a_producer_without_code_finds_the_tasks(old_store: OldStore) -> None:
    """What the old worker has published is enough to check a call by name."""

    async def ask() -> str:
        async with App(old_store.url, name=NAME) as app:
            with pytest.raises(UnknownTask):
                await app.enqueue("refund", "A-1")
            with pytest.raises(InvalidArguments):
                await app.enqueue("charge", "A-7")
            return (await app.enqueue("charge", "A-7", cents=700)).id

    async def work() -> None:
        async with working(old_store, Runs()) as shop:
            job = await shop.app.job(asked)
            assert await job.result(timeout=END_SECONDS) == "A-7: 700"

    asked = asyncio.run(ask())
    asyncio.run(work())


# --- what workers publish

PUBLISH = (
    "insert into {doc} as d (kind, name, body) values ({values}) on conflict (kind, name) "
    "do update set body = excluded.body where d.body <> excluded.body"
)


def publish_as_before(url: str, *documents: tuple[str, str, str]) -> None:
    """What a worker of the release before does when it registers, with its rights of then."""
    if url.startswith("sqlite"):
        text = PUBLISH.format(doc="doc", values="?, ?, ?")
        with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as db, db:
            db.executemany(text, documents)  # pyright: ignore[reportArgumentType]
    else:
        text = PUBLISH.format(doc="durio.doc", values="%s, %s, %s")
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute(f"set role {ROLE}".encode())
            cursor.executemany(text.encode(), documents)


def test_published_tasks_are_found(old_store: OldStore) -> None:
    """Those from before, and those of an old worker that registers after the upgrade."""
    today = int(time.time() // 86400)
    kept, gone = f"{NAME}.late {'a' * 8}", f"{NAME}.late {'b' * 8}"

    async def story() -> None:
        async with App(old_store.url, name=NAME) as app:
            store = await app.store()
            before = await published_tasks(store, NAME) or {}
            assert len(before) >= 5
            assert len(await store.list_records(f"signature:{NAME}")) >= len(before)
            known = min(before)
            for queue in ("mail", "post"):
                told = json.dumps({"queue": queue, "priority": 5, "parameters": None})
                tasks = [(f"task:{NAME}", name, told) for name in (known, LATE)]
                publish_as_before(
                    old_store.url,
                    *tasks,
                    (f"signature:{NAME}", kept, str(today)),
                    (f"signature:{NAME}", gone, str(today - 40)),
                )
                after = await published_tasks(store, NAME) or {}
                assert after.keys() == before.keys() | {LATE}
                assert after[known]["queue"] == after[LATE]["queue"] == queue
            assert await published_digests(store, LATE) == {"a" * 8}

    asyncio.run(story())


LATE = f"{NAME}.late"
