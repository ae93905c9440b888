"""Turns in a queue: a small customer beside a large one that was first."""

from durio import App
from durio.model.limits import FAIR_WIDTH
from tests.unit.app.app_harness import virtual, working

LARGE, SMALL, SLOTS = 10_000, 20, 4


@virtual(settings={"worker": {"prefetch": 0}})  # a claimed job has had its turn
async def test_the_kth_job_of_a_small_tenant_starts_within_20_k_starts(
    app: App,
) -> None:
    app.queue("default", maxsize=2 * LARGE)
    started: list[str] = []

    @app.task(name="work", fair_by="tenant")
    async def work(tenant: str) -> None:
        started.append(tenant)
        await app.clock.sleep(1.0)

    await work.enqueue_many([("large",)] * LARGE)
    async with working(app, concurrency=SLOTS) as worker:
        while len(started) < 10 * FAIR_WIDTH:
            await app.clock.sleep(1.0)
        await app.clock.sleep(0.5)  # between two claims
        before = len(started)
        await work.enqueue_many([("small",)] * SMALL)
        while started.count("small") < SMALL:
            await app.clock.sleep(1.0)
        worker.stop()
    after = started[before:]
    places = [n for n, tenant in enumerate(after, 1) if tenant == "small"]
    assert len(places) == SMALL
    assert all(place <= 20 * k for k, place in enumerate(places, 1)), places
