"""`app.jobs(query="...")`: read, count and change jobs by the query language."""

import pytest

from durio import App
from durio.client import bulk
from durio.client.job_query import BulkResult
from durio.errors import InvalidQuery, UnknownQueue, UnknownTask, UsageError
from durio.model.query_language import parse_query
from tests.unit.app.app_harness import drained, virtual


async def pay(order: int, tag: str = "") -> None:
    del tag
    raise ValueError(f"no such order: {order}")


async def dead_orders(app: App, count: int) -> list[str]:
    task = app.task(name="pay", retry=0)(pay)
    jobs = [
        await task.enqueue(n, tag="even" if n % 2 == 0 else "odd") for n in range(count)
    ]
    await drained(app)
    return [job.id for job in jobs]


@virtual(name="shop")
async def test_reads_and_counts_by_the_language(app: App):
    ids = await dead_orders(app, 5)
    jobs = app.jobs(query="state:dead args.tag:even")
    assert [job.id async for job in jobs] == [ids[4], ids[2], ids[0]]
    assert await jobs.count() == 3
    assert [job.id async for job in jobs.limit(2)] == [ids[4], ids[2]]
    assert await jobs.limit(2).count() == 2
    assert await app.jobs(query="args.order:>2", state="dead").count() == 2
    assert await app.jobs(query="args.order:>2", error="order: 4").count() == 1
    assert await app.jobs(query="state:done").count() == 0
    assert await app.jobs(query="").count() == 5
    assert "args.tag:even" in repr(jobs)


@virtual(name="shop")
async def test_a_mistake_is_raised_at_once(app: App):
    with pytest.raises(InvalidQuery, match="there is no key 'stat'"):
        app.jobs(query="stat:dead")


@virtual(name="shop")
async def test_names_that_nothing_has_are_refused(app: App):
    await dead_orders(app, 1)
    with pytest.raises(UnknownTask, match=r"no task 'shop\.pya'"):
        await app.jobs(query="task:pya").count()
    with pytest.raises(UnknownQueue, match="no queue 'mial'"):
        [job async for job in app.jobs(query="queue:mial args.order:1")]
    assert await app.jobs(query="task:pa* -task:pya").count() == 1


@virtual(name="shop")
async def test_changes_only_what_matches(app: App, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bulk, "STEP_JOBS", 2)
    monkeypatch.setattr(bulk, "PAGE_JOBS", 2)
    ids = await dead_orders(app, 7)
    odd = app.jobs(query="args.tag:odd")
    assert await odd.discard() == BulkResult(3, 3, 0)
    left = [job.id async for job in app.jobs()]
    assert left == [ids[6], ids[4], ids[2], ids[0]]
    assert await app.jobs(query="args.tag:even").limit(1).retry() == BulkResult(4, 1, 0)
    assert await app.jobs(query="state:ready").count() == 1
    assert await odd.discard() == BulkResult(0, 0, 0)


@virtual(name="shop")
async def test_the_audit_has_the_query_without_arguments(app: App):
    await dead_orders(app, 2)
    await app.jobs(query='args.tag:"even" meta.x:* -error:x').count()
    await app.jobs(query='args.tag:"even" -priority:1').discard()
    (line,) = await (await app.store()).audit("shop", limit=5)
    assert line.target == "dead jobs of shop:* matching args.tag:... -priority:1"
    assert line.jobs == 1


def test_values_of_arguments_can_be_masked():
    query = parse_query("state:dead args.card:4711,4712 -meta.user:>5 ann")
    assert query.masked() == "state:dead args.card:... -meta.user:... ann"


@virtual(name="shop")
async def test_an_empty_query_is_no_filter_for_a_change(app: App):
    await dead_orders(app, 1)
    for text in ("", "  "):
        with pytest.raises(UsageError, match="without a filter"):
            await app.jobs(query=text).discard()
    assert await app.jobs(query="").discard(everything=True) == BulkResult(1, 1, 0)
