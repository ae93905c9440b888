"""Plans on PostgreSQL, with a worker in this process: values, failures, a resume."""

import asyncio
from typing import Any

import pytest

from durio import App, Permanent, chain, chord, group
from durio.errors import JobDead
from durio.plans import Collected, PlanFailure, PlanState
from durio.testing import testing
from tests.servers.postgres import PostgresServer

app = App("postgresql://never-opened.invalid/shop", name="shop")
LONG = 10_000  # characters; more than an entry of a log holds
seen: dict[str, Any] = {"fails": True, "failures": []}


@app.task
async def add(a: int, b: int = 1) -> int:
    return a + b


@app.task
async def total(values: list[int]) -> int:
    return sum(values)


@app.task
async def text(size: int) -> str:
    return "x" * size


@app.task
async def length(values: list[str]) -> int:
    return len("".join(values))


@app.task(retry=0)
async def boom(x: int) -> int:
    if seen["fails"]:
        raise Permanent(f"no {x}")
    return x


@app.task
async def alert(failure: PlanFailure) -> None:
    seen["failures"].append(failure)


@app.task
async def report(ends: Collected[int]) -> tuple[int, int]:
    return ends.succeeded, ends.failed


PLANS: list[tuple[Any, Any]] = [
    (chain(add.s(1, 2), add.s(10), add.s(b=100)), 113),
    (group(add.s(n, n) for n in range(5)), [0, 2, 4, 6, 8]),
    (group([]) | total.s(), 0),
    (add.s(1) | group(add.s(1), add.s(2) | group(add.s(3))), [3, [7]]),
    (chord([add.si(n, 0) for n in range(300)], total.s()), sum(range(300))),
    (group(text.s(LONG), text.s(3)) | length.s(), LONG + 3),
    (add.chunks([(n,) for n in range(5)], 2), [[1, 2], [3, 4], [5]]),
    (group(add.s(1), boom.s(3), on_error="collect") | report.s(), (1, 1)),
]


@pytest.mark.proves("M144", "M145", "M146", "M148", "M150")
def test_plans_give_their_values(postgres: PostgresServer) -> None:
    async def story() -> None:
        async with app.worker():
            handles = [await plan.enqueue() for plan, _ in PLANS]
            found = [await handle.result(timeout=60) for handle in handles]
            wanted = [value for _, value in PLANS]
            assert [*map(plain, found)] == [*map(plain, wanted)]

    with testing(app, url=postgres.url()):
        asyncio.run(story())


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.proves("M78", "M149")
def test_a_plan_fails_once_and_is_resumed(postgres: PostgresServer) -> None:
    async def story() -> None:
        seen.update(fails=True, failures=[])
        async with app.worker() as worker:
            plan = add.s(1) | boom.s() | add.s(5)
            handle = await plan.on_error(alert.s()).enqueue()
            with pytest.raises(JobDead, match="no 2"):
                await handle.result(timeout=60)
            while not (await handle.status()).ready:
                await app.clock.sleep(0.05)
            await worker.drained()
            assert [failure.text for failure in seen["failures"]] == ["no 2"]
            seen["fails"] = False
            assert await handle.retry() == 2
            assert await handle.result(timeout=60) == 7
            assert (await handle.status()).state is PlanState.DONE

    with testing(app, url=postgres.url()):
        asyncio.run(story())


def test_a_large_plan_is_stored_in_several_commits(postgres: PostgresServer) -> None:
    async def story() -> None:
        plan = chord([add.si(n, 0) for n in range(1500)], total.s())
        async with app.worker():
            assert await (await plan.enqueue()).result(timeout=60) == sum(range(1500))

    with testing(app, url=postgres.url()):
        asyncio.run(story())
