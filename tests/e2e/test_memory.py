"""A worker does not grow with the jobs that went through it."""

import asyncio

from durio import App
from durio.model.job import DONE
from tests.e2e.workers import Place

JOBS, WARM_UP = 50_000, 10_000
ROWS = 5_000
# The first jobs are heavy: SQLite's page cache (8 MB) shall be full before we look.
BALLAST = "x" * 2_000
SECONDS = 100.0
MEGABYTE = 1 << 20
GROWTH_MAX = 4 * MEGABYTE  # over 40,000 jobs: 105 bytes each


def enqueue(url: str, jobs: int) -> None:
    async def ask() -> None:
        async with App(url, name="meter") as app:

            @app.task(name="tick")
            async def tick(number: int, ballast: str = "") -> int:
                return number + len(ballast)

            for first in range(0, jobs, ROWS):
                ballast = BALLAST if first < WARM_UP else ""
                await tick.enqueue_many([(first + n, ballast) for n in range(ROWS)])

    asyncio.run(ask())


def test_memory_is_flat_over_fifty_thousand_jobs(place: Place) -> None:
    enqueue(place.url, JOBS)
    worker = place.run("durio", "worker", "tests.e2e.meter:app", "--burst")
    assert worker.ended(SECONDS) == 0
    assert place.count(DONE) == JOBS
    lines = (place.ledger_folder / "rss").read_text().split()
    seen = dict(zip(map(int, lines[::2]), map(int, lines[1::2]), strict=True))
    for done, rss in seen.items():
        print(f"{done:6} jobs: {rss / MEGABYTE:.1f} MB")
    warm, end = seen[WARM_UP], seen[JOBS]
    assert end - warm < GROWTH_MAX, seen
