"""A burst, `drained()` and `box.drain()` run plans to their ends, failures included."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from durio.plans import PlanJob
from durio.testing import testing
from tests.e2e.plan_jobs import add, alert, app, enqueue_failing, enqueue_wide
from tests.servers.postgres import PostgresServer

MEMBERS = 1500  # more than one transaction lets go
SECONDS_MAX = 60


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url()


async def check_ended(failed: PlanJob[Any], wide: PlanJob[int]) -> None:
    """Look without waiting: nothing works on them any more."""
    assert (await failed.status()).state == "failed"
    counts = await failed.counts()
    assert (counts["done"], counts["dead"], counts["cancelled"]) == (1, 1, 1)
    assert (await wide.status()).state == "done"
    assert await wide.result(timeout=10) == 3 * MEMBERS
    [handled] = [job.id async for job in app.jobs(task=alert)]
    assert await (await alert.job(handled)).result(timeout=10) == "no 2"


def test_a_drain_of_a_box(url: str) -> None:
    async def story() -> None:
        failed, wide = await enqueue_failing(), await enqueue_wide(MEMBERS)
        await box.drain(errors="keep")
        await check_ended(failed, wide)
        # Cancelled by hand: no job is ready, and a handler has to run.
        later = await enqueue_failing()
        [first] = [job async for job in app.jobs(task=add, state="ready")]
        await (await add.job(first.id)).cancel()
        await box.drain(errors="keep")
        assert (await later.status()).state == "failed"

    with testing(app, url=url) as box:
        asyncio.run(story())


def test_a_drained_worker(url: str) -> None:
    async def story() -> None:
        async with app.worker() as worker:
            failed, wide = await enqueue_failing(), await enqueue_wide(MEMBERS)
            await worker.drained(timeout=SECONDS_MAX)
            await check_ended(failed, wide)

    with testing(app, url=url):
        asyncio.run(story())


def test_a_worker_with_burst(url: str) -> None:
    async def story() -> None:
        async with app:
            failed, wide = await enqueue_failing(), await enqueue_wide(MEMBERS)
            # In a thread, because the store of this process has calls to answer.
            answer = await asyncio.to_thread(run_burst, url)
            assert answer.returncode == 0, answer.stderr
            await check_ended(failed, wide)

    app.url = url
    asyncio.run(story())


def run_burst(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "durio", "worker", "tests.e2e.plan_jobs:app", "--burst"],
        env={**os.environ, "DURIO_URL": url, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
