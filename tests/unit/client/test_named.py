"""Enqueueing by name: from the registry at hand, from what workers published, from nothing."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from apsw import Connection

from durio import App, State
from durio.errors import InvalidArguments, InvalidName, JobNotFound, UnknownTask
from durio.model.options import NO_OPTIONS
from tests.unit.app.app_harness import (
    MEMORY,
    drained,
    record_of,
    records,
    virtual,
    working,
)
from tests.unit.app.test_ends import Listener


@dataclass
class Line:
    sku: str


SEEN: list[Any] = []


async def send_receipt(
    order_id: int,
    lines: list[Line] | None = None,
    /,
    note: str = "",
    *rest: int,
    to: str,
    at: datetime | None = None,
    data: bytes = b"",
    id: UUID | None = None,  # noqa: A002
) -> int:
    SEEN.append((order_id, lines, note, rest, to, at, data, id))
    return order_id


async def plain(order_id: int, *, to: str = "", share: float = 0.5) -> int:
    SEEN.append((order_id, to, share))
    return order_id


def producer(app: App, name: str = "web") -> App:
    """An App without any task code, on the same store."""
    other = App(MEMORY, name=name, clock=app.clock)
    other.state.stores = app.state.stores
    return other


@pytest.mark.proves("M27", "M3")
@virtual(name="shop")
async def test_a_name_at_hand_with_and_without_its_namespace(app: App):
    SEEN.clear()
    app.task(queue="mail", priority=7)(plain)
    jobs = [
        await app.enqueue("plain", 1, to="a"),
        await app.enqueue("shop.plain", order_id=1, to="a"),
    ]
    assert len({(await record_of(app, job)).payload for job in jobs}) == 1
    status = await jobs[0].status()
    assert (status.task, status.queue, status.priority) == ("shop.plain", "mail", 7)
    await drained(app)
    assert SEEN == [(1, "a", 0.5)] * 2
    assert await jobs[0].result() == 1


@pytest.mark.proves("M3")
@virtual(name="shop")
async def test_a_producer_without_code_learns_from_what_workers_published(app: App):
    SEEN.clear()
    app.task(queue="mail", priority=7)(send_receipt)
    web = producer(app)
    noon, some = datetime(2026, 1, 1, tzinfo=UTC), UUID(int=5)
    async with working(app):
        await app.clock.sleep(1)
        job = await web.enqueue(
            "shop.send_receipt",
            42,
            [Line("x")],
            "hello",
            7,
            8,
            to="a@b.c",
            at=noon,
            data=b"\0\xff",
            id=some,
        )
        status = await job.status()
        assert (status.queue, status.priority) == ("mail", 7)
        assert await job.result() == 42
    assert [(42, [Line("x")], "hello", (7, 8), "a@b.c", noon, b"\0\xff", some)] == SEEN


@pytest.mark.proves("M3", "M33")
@virtual(name="shop")
async def test_both_ways_to_write_arguments_are_the_same_to_a_key(app: App):
    app.task(plain)
    web = producer(app)
    async with working(app):
        await app.clock.sleep(1)
        keyed = NO_OPTIONS.with_changes({"key": "k"})
        one = await web.enqueue_named("shop.plain", (42,), {"to": "a"}, keyed)
        two = await web.enqueue_named(
            "shop.plain", (), {"to": "a", "order_id": 42}, keyed
        )
        own = await app.enqueue_named("plain", (42,), {"to": "a"}, keyed)
    assert one == two == own
    assert (two.created, own.created) == (False, False)


@pytest.mark.proves("M3")
@virtual(name="shop")
async def test_a_name_that_no_worker_knows_is_refused_with_a_suggestion(app: App):
    app.task(plain)
    web = producer(app)
    async with working(app):
        await app.clock.sleep(1)
        with pytest.raises(UnknownTask, match=r"Did you mean 'shop\.plain'\?"):
            await web.enqueue("shop.plian", 42)
    assert await records(app) == []


@pytest.mark.proves("M27", "M3")
@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((), {}, "order_id"),
        ((1, 2), {}, "positional"),
        ((1,), {"order_id": 2}, "twice"),
        ((1,), {"too": "x"}, "Did you mean 'to'"),
        (("x",), {}, "must be int, not"),
        ((True,), {}, "must be int, not"),
        ((1,), {"to": 5}, "must be str, not int"),
        ((1,), {"share": "x"}, "must be float, not str"),
    ],
    ids=str,
)
@virtual(name="shop")
async def test_published_signatures_are_held(
    app: App, args: tuple[Any, ...], kwargs: dict[str, Any], words: str
):
    app.task(plain)
    web = producer(app)
    async with working(app):
        await app.clock.sleep(1)
        with pytest.raises(InvalidArguments, match=words):
            await web.enqueue("shop.plain", *args, **kwargs)
    assert await records(app) == []


@pytest.mark.proves("M3")
@virtual(name="shop")
async def test_an_unknown_namespace_is_a_warning_and_its_job_runs_later(app: App):
    SEEN.clear()
    web = producer(app)
    listener = Listener(web)
    job = await web.enqueue("shop.plain", 42, to="a")
    assert listener.heard == [("namespace.unknown", {"task": "shop.plain"})]
    status = await job.status()
    assert (status.queue, status.priority, status.state) == ("default", 5, State.READY)
    app.task(plain)
    await drained(app)
    assert SEEN == [(42, "a", 0.5)]
    assert await job.result() == 42


@pytest.mark.proves("M3")
@virtual(name="shop")
async def test_an_app_with_tasks_knows_its_own_namespace(app: App):
    app.task(plain)
    listener = Listener(app)
    with pytest.raises(UnknownTask):
        await app.enqueue("plane", 1)
    assert listener.heard == []


# --- tasks that are known by name only


@pytest.mark.proves("M3", "M27")
@virtual(name="shop")
async def test_a_named_task_has_options_and_many_rows(app: App):
    SEEN.clear()
    app.task(queue="mail", priority=7)(plain)
    web = producer(app)
    named = web.named("shop.plain")
    async with working(app):
        await app.clock.sleep(1)
        later = await named.options(delay="5m", meta={"a": 1}).enqueue(1, to="x")
        status = await later.status()
        assert (status.queue, status.priority, status.state) == ("mail", 7, "scheduled")
        keyed = named.options(key="k")
        first, again = await keyed.enqueue(2), await keyed.enqueue(order_id=2)
        assert (again, again.created) == (first, False)
        rows = [(3,), {"order_id": 4, "to": "y"}, named.s(5, share=0.25)]
        jobs = await named.options(priority=9).enqueue_many(rows)
        assert [await job.result() for job in jobs] == [3, 4, 5]
        assert {(await job.status()).priority for job in jobs} == {9}
        assert await named.job(first.id) == first
        with pytest.raises(InvalidArguments, match=r"row 2: .* must be int, not str"):
            await named.enqueue_many([(1,), ("x",)])
        with pytest.raises(UnknownTask, match=r"Did you mean 'shop\.plain'\?"):
            await web.named("shop.plian").enqueue(1)
        with pytest.raises(JobNotFound):
            await named.job("01980000-0000-7000-8000-000000000000")


@virtual(name="shop")
async def test_a_named_task_with_code_at_hand_is_that_task(app: App):
    task = app.task(queue="mail")(plain)
    named = app.named("plain")
    assert named.name == task.name == "shop.plain"
    jobs = await named.enqueue_many([task.s(1), (2,)])
    assert {(await job.status()).queue for job in jobs} == {"mail"}
    with pytest.raises(InvalidArguments, match="row 1: "):
        await named.enqueue_many([{"order": 1}])


def test_a_named_task_without_a_loop_and_in_a_transaction(tmp_path: Path):
    path = tmp_path / "shop.db"
    web = App(f"sqlite:///{path}", name="web")
    named = web.named("shop.plain")
    job = named.enqueue_sync(1)
    jobs = [job, *named.enqueue_many_sync([(2,), (3,)])]
    db = Connection(str(path))
    with suppress(ZeroDivisionError), db:
        named.options(tx=db).enqueue_sync(4)
        raise ZeroDivisionError
    with db:
        jobs += named.options(tx=db).enqueue_many_sync([(5,)])
    assert {row.id for row in web.run_sync(records(web))} == {j._raw_id for j in jobs}
    web.run_sync(web.close())
    db.close()


@pytest.mark.parametrize("name", ["", "a b", 5], ids=repr)
def test_a_named_task_needs_a_name(name: Any):
    with pytest.raises(InvalidName):
        App(MEMORY).named(name)
