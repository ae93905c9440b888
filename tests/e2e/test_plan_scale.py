"""Large plans, deep plans, many plans: values, sizes in the store, and what is left."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from durio import chain, chord, group
from durio.maintenance.plans import PlanKeeper
from durio.model.error_groups import errors_kind
from durio.model.plan_names import ended_log, failed_log
from durio.model.plan_record import plan_kind
from durio.model.published_tasks import signatures_kind, tasks_kind
from durio.plans import PlanJob
from durio.ports.plan_reader import position_kind
from durio.testing import testing
from tests.e2e.plan_jobs import (
    add,
    adds,
    app,
    boom,
    enqueue_failing,
    fading,
    first,
    replaces,
    total,
)
from tests.e2e.plan_tables import TableSize, distinct, table_sizes
from tests.servers.postgres import PostgresServer

SECONDS_MAX = 60
SIZES = (100, 1000, 10_000)
DEEP = 50
NO_SIZE = TableSize(0, 0)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url()


def wide(nodes: int) -> Any:
    return chord([add.si(n) for n in range(nodes - 1)], total.s())


@pytest.mark.proves("M78", "M148")
def test_a_group_of_2000_on_four_processes(postgres: PostgresServer) -> None:
    async def story() -> None:
        async with app:
            handle = await group(add.s(n) for n in range(2000)).enqueue()
            assert await handle.result(SECONDS_MAX) == [n + 1 for n in range(2000)]
            assert await handle.counts() == {"done": 2001}

    app.url = postgres.url()
    with working(postgres.url(), processes=4):
        asyncio.run(story())
    assert "deadlock" not in postgres.said()


@contextmanager
def working(url: str, processes: int) -> Iterator[None]:
    command = [sys.executable, "-m", "durio", "worker", "tests.e2e.plan_jobs:app"]
    worker = subprocess.Popen(
        [*command, "--processes", str(processes)],
        env={**os.environ, "DURIO_URL": url, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(SECONDS_MAX)


@pytest.mark.proves("M144", "M148")
def test_a_chord_of_10000_and_sizes_in_the_store(url: str) -> None:
    """The cost of a node does not depend on the number of nodes."""
    per_node: list[tuple[float, float]] = []

    async def measure(url: str, nodes: int) -> None:
        await wide(2).enqueue()
        await box.drain()  # the records of the App's tasks are there
        empty = await table_sizes(url)
        handle = await wide(nodes).enqueue()
        await box.drain()
        assert await handle.result(SECONDS_MAX) == sum(range(1, nodes))
        per_node.append(growth(empty, await table_sizes(url), nodes))

    for nodes in SIZES:
        with testing(app, url=url.replace("jobs.db", f"{nodes}.db")) as box:
            asyncio.run(measure(box.url, nodes))
    for least, most in ((min(f), max(f)) for f in zip(*per_node, strict=True)):
        assert most <= 1.1 * least, per_node


def growth(
    before: dict[str, TableSize], after: dict[str, TableSize], nodes: int
) -> tuple[float, float]:
    """Return rows and bytes per node."""
    old, new = before.values(), after.values()
    rows = sum(size.rows for size in new) - sum(size.rows for size in old)
    size = sum(size.bytes for size in new) - sum(size.bytes for size in old)
    return rows / nodes, size / nodes


@pytest.mark.proves("M144")
def test_long_and_deep_plans() -> None:
    async def story() -> None:
        long = await chain(add.s(0), *(add.s() for _ in range(199))).enqueue()
        deep: Any = add.s(0)
        for _ in range(DEEP):
            deep = chain(group(deep, add.s(0)), total.s(), add.s())
        nested = await deep.enqueue()
        await box.drain()
        assert await long.result(SECONDS_MAX) == 200
        assert await nested.result(SECONDS_MAX) == 1 + 2 * DEEP

    with testing(app) as box:
        asyncio.run(story())


# --- what is left


async def enqueue_all_kinds(number: int) -> list[PlanJob[Any]]:
    """Enqueue plans that end in each way, and plans that have more to be deleted."""
    cancelled: PlanJob[Any] = await chain(add.s(1), add.s()).enqueue()
    await cancelled.cancel()
    collected = group(add.s(1), boom.s(1), on_error="collect")
    large = chord([fading.si(n, 5000) for n in range(2)], first.s())
    return [
        cancelled,
        await enqueue_failing(),
        await chain(add.s(1), add.s(), add.s()).enqueue(),
        await wide(10).enqueue(),
        await collected.enqueue(),
        await chain(fading.s(1, 10), first.s()).enqueue(),
        await large.enqueue(),
        await (add.s(1) | group(add.s() for _ in range(5))).enqueue(),
        await (add.s(1) | add.s()).options(key=f"order:{number}").enqueue(),
        await (replaces.s(1) | add.s()).enqueue(),
        await (group(adds.s(1), add.s(2)) | total.s()).enqueue(),
    ]


@pytest.mark.proves("M39")
def test_nothing_is_left_of_500_plans(url: str) -> None:
    async def story() -> None:
        found = await asyncio.gather(*(enqueue_all_kinds(n) for n in range(46)))
        handles = [handle for some in found for handle in some]
        assert len(handles) >= 500
        await box.drain(errors="keep")
        states = {(await handle.status()).state.value for handle in handles[:11]}
        assert states == {"done", "failed", "cancelled"}
        store = await app.store()
        keeper = PlanKeeper(store, app.clock, app.emit, app.name, 30 * 86400.0)
        box.clock.advance("1h")
        await store.prune(100_000, dead_count=0)
        fading_jobs = [job async for job in app.jobs(task=fading)]
        assert fading_jobs == [], "their plans are done, and their own retention is 0 s"
        box.clock.advance("31d")
        for _ in range(10):
            await keeper.turn()
            keeper.deletes_at = 0.0
        await store.prune(100_000, dead_count=0)  # expired keys of plans
        sizes = await table_sizes(box.url)
        assert await store.list_records(plan_kind(app.name)) == []
        for table in ("entry", "waits", "deferred"):
            assert sizes.get(table, NO_SIZE).rows == 0, table
        # Two logs that all plans of the App share: who failed, and who is done. They are
        # empty, and stay because the leader's positions count from their first entry: a
        # log that begins again would be shorter than the position in it.
        logs = {ended_log(app.name), failed_log(app.name)}
        assert await distinct(box.url, "log", "name") == logs
        # What is left is no part of a plan: positions, published tasks, error groups.
        ours = (position_kind, tasks_kind, signatures_kind, errors_kind)
        kinds = await distinct(box.url, "record", "kind")
        assert kinds <= {kind_of(app.name) for kind_of in ours}
        lanes = await store.queues(app.name, counts=True)
        assert not any(lane.jobs(0, 1, 2, 3) for lane in lanes)

    with testing(app, url=url) as box:
        asyncio.run(story())
