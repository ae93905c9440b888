"""Rules of plans in a whole App: what the nodes of a plan share, and what they do not."""

from typing import Any

import pytest

from durio import App, Context, Permanent, Retry
from durio.errors import QueueClosed
from durio.plans import PlanFailure, PlanState, group
from durio.ports.control import AuditNote, QueueChange
from tests.unit.app.app_harness import drained, records, virtual, working
from tests.unit.client.test_plan_job import QUICK, Shop


@pytest.mark.proves("M25")
@virtual(settings=QUICK)
async def test_the_jobs_of_an_order_are_retried_by_themselves(app: App) -> None:
    """An order is a charge, the items and a confirmation: each has its own retries."""
    calls: list[tuple[str, float]] = []
    fails = {"charge": 1, "reserve": 3, "confirm": 2}
    began = app.clock.now()

    def call(name: str) -> None:
        calls.append((name, round(app.clock.now() - began)))
        fails[name] -= 1
        if fails[name] >= 0:
            raise ConnectionError(name)

    @app.task(name="charge", retry=Retry(2, base=10, jitter=False))
    async def charge(order_id: int) -> str:
        call("charge")
        return f"payment-{order_id}"

    @app.task(name="reserve", queue="stock", retry=Retry(5, base=100, jitter=False))
    async def reserve(payment: str, order_id: int) -> str:
        call("reserve")
        return f"{order_id} of {payment}"

    @app.task(name="confirm", queue="mail", retry=0)
    async def confirm(text: str) -> str:
        call("confirm")
        return text

    async with working(app):
        order = await (charge.s(42) | reserve.s(42) | confirm.s()).enqueue()
        assert await order.wait() is PlanState.FAILED
        assert calls == [
            ("charge", 0),
            ("charge", 10),
            ("reserve", 10),
            ("reserve", 110),
            ("reserve", 310),
            ("reserve", 710),
            ("confirm", 710),
        ]
        assert await order.retry() == 1
        assert await order.wait() is PlanState.FAILED
        assert await order.retry() == 1
        assert await order.result() == "42 of payment-42"
    names = [name for name, _ in calls]
    assert names == ["charge"] * 2 + ["reserve"] * 4 + ["confirm"] * 3


# --- what a node gets


@pytest.mark.proves("M144")
@pytest.mark.parametrize("size", [10, 10_000])
@pytest.mark.parametrize("ttl", [0, 1])
@virtual(settings=QUICK)
async def test_an_input_is_read_whatever_the_result_ttl(
    app: App, ttl: int, size: int
) -> None:
    """The job before it ended 30 hours ago, and its result was to live for a second."""

    @app.task(name="text", result_ttl=ttl, retention="1s")
    async def text(size: int) -> str:
        return "x" * size

    @app.task(name="length")
    async def length(value: str) -> int:
        return len(value)

    handle = await (text.s(size) | length.options(delay="30h").s()).enqueue()
    await drained(app)
    await app.clock.sleep(31 * 3600)
    store = await app.store()
    await store.prune(100, dead_count=0)
    await drained(app)
    assert await handle.result(timeout=1) == size


# --- failures, pauses


@virtual(settings=QUICK)
async def test_the_death_of_a_handler_runs_nothing_further(app: App) -> None:
    shop = Shop(app)

    @app.task(name="broken_alert", retry=0)
    async def broken_alert(failure: PlanFailure) -> None:
        raise Permanent(f"no alert for {failure.node}")

    plan = group(shop.boom.s(1).on_error(broken_alert.s())).on_error(shop.alert.s())
    async with working(app):
        handle = await plan.enqueue()
        assert await handle.wait() is PlanState.FAILED
        await app.clock.sleep(60)
    assert [failure.text for failure in shop.failures] == ["no 1"], (
        "the outer one, once"
    )
    tasks = sorted(job.task for job in await records(app))
    assert tasks == ["app.alert", "app.boom", "app.broken_alert", "app.~join"]
    assert await app.jobs(state="dead").count() == 2
    assert (await handle.status()).error == "Permanent: no 1"


@virtual(settings=QUICK)
async def test_a_burst_handles_failures(app: App) -> None:
    """Nothing is ready when the leader has to cancel, and to enqueue a handler."""
    shop = Shop(app)
    plan = (shop.boom.s(1) | shop.add.s()).on_error(shop.alert.s())
    handle = await plan.enqueue()
    await drained(app)
    assert (await handle.status()).state is PlanState.FAILED
    assert [failure.text for failure in shop.failures] == ["no 1"]


@virtual(settings=QUICK)
async def test_a_pause_stops_the_nodes_of_its_queue_only(app: App) -> None:
    shop = Shop(app)
    slow = shop.add.options(queue="slow").s(10)
    plan = group(shop.add.s(1) | slow, shop.add.s(2) | shop.add.s(20))
    handle = await plan.enqueue()
    await app.queue("slow").pause()
    async with working(app):
        await app.clock.sleep(60)
        assert shop.calls == [(1, 1), (2, 1), (3, 20)]
        assert (await handle.status()).state is PlanState.RUNNING
        await app.queue("slow").resume()
        assert await handle.result(timeout=60) == [12, 23]


@virtual(settings=QUICK)
async def test_a_closed_queue_lets_accepted_nodes_go_on(app: App) -> None:
    shop = Shop(app)
    plan = shop.add.s(1) | shop.add.s(10) | group(shop.add.s(1), shop.add.s(2))
    handle = await plan.enqueue()
    store = await app.store()
    await store.set_queue("app:default", QueueChange(closed=True), AuditNote(who="ann"))
    with pytest.raises(QueueClosed):
        await plan.enqueue()
    async with working(app):
        assert await handle.result(timeout=60) == [13, 14]


# --- chunks


@pytest.mark.parametrize("is_async", [True, False])
@virtual(settings=QUICK)
async def test_a_retried_chunk_makes_all_its_calls_again(
    app: App, *, is_async: bool
) -> None:
    calls: list[tuple[int, int]] = []

    def call(attempt: int, n: int) -> int:
        calls.append((attempt, n))
        if attempt == 1 and n == 1:
            raise ConnectionError("no 1")
        return 10 * n

    if is_async:

        @app.task(name="tens", retry=Retry(1))
        async def tens(ctx: Context, n: int) -> int:
            return call(ctx.attempt, n)
    else:

        @app.task(name="tens", retry=Retry(1))
        def tens(ctx: Context, n: int) -> int:
            return call(ctx.attempt, n)

    plan: Any = tens.chunks([(0,), (1,), (2,)], 3)  # type: ignore[misc, arg-type]
    async with working(app):
        handle = await plan.enqueue()
        assert await handle.result(timeout=600) == [[0, 10, 20]]
    assert calls == [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
