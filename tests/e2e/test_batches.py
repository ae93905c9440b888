"""Batches in real workers: killed in the middle, retried, cancelled, out of time.

On SQLite and on PostgreSQL.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from durio import App, Job, JobStatus, State
from tests.e2e.batch_program import SIZE
from tests.e2e.workers import ELSEWHERE, Place, Process, wait_until
from tests.servers.postgres import PostgresServer

END_SECONDS = 60.0
JOBS = 2 * SIZE + 4

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=["sqlite", "postgres"])
def batches(request: pytest.FixtureRequest, place: Place) -> "Batches":
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("shop")
        place.url = server.url(application_name=request.node.name[:60])
    place.settings = ELSEWHERE
    return Batches(place)


class Batches:
    """The jobs and processes of a test."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.ids: list[str] = []

    def worker(self, **settings: Any) -> Process:
        program = "tests.e2e.batch_program:app"
        worker = self.place.run("durio", "worker", program, **settings)
        self.place.started(worker)
        return worker

    def ask(self, story: Callable[[App], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            async with App(self.place.url, name="shop") as app:
                return await story(app)

        return asyncio.run(main())

    def enqueue(self, task: str, count: int) -> None:
        async def story(app: App) -> list[str]:
            return [(await app.enqueue(task, n)).id for n in range(count)]

        self.ids = self.ask(story)

    def statuses(self) -> list[JobStatus]:
        async def story(app: App) -> list[JobStatus]:
            return [await (await app.job(one)).status() for one in self.ids]

        return self.ask(story)

    def ended(self) -> list[JobStatus]:
        """Return how the jobs ended, once they all have."""
        found: list[JobStatus] = []

        def have_ended() -> bool:
            found[:] = self.statuses()
            return all(status.state.is_final for status in found)

        wait_until(have_ended, END_SECONDS, "all jobs have ended", look_seconds=0.2)
        return found

    def results(self) -> list[int]:
        async def story(app: App) -> list[int]:
            jobs: list[Job[Any]] = [await app.job(one) for one in self.ids]
            return [await job.result(timeout=END_SECONDS) for job in jobs]

        return self.ask(story)

    def attempts(self, event: str) -> dict[str, list[int]]:
        """Return the attempts of each job that are in the ledger."""
        lines = self.place.ledger.by_job(event)
        return {job: [line.attempt for line in lines.get(job, ())] for job in self.ids}


@pytest.mark.proves("M98", "M110")
def test_killed_in_the_middle_of_a_batch(batches: Batches) -> None:
    batches.enqueue("held", JOBS)
    victim = batches.worker(concurrency=1)
    batches.place.wait_for("start", SIZE)
    victim.kill()
    held = batches.place.ledger.jobs("start")
    assert len(held) == SIZE, "one slot, one call"
    batches.place.open_gate()
    batches.worker()
    assert batches.results() == [2 * n for n in range(JOBS)]
    starts, effects = batches.attempts("start"), batches.attempts("effect")
    for job in batches.ids:
        again = job in held
        assert starts[job] == ([1, 2] if again else [1])
        assert effects[job] == [2 if again else 1]


def test_one_item_is_retried_alone(batches: Batches) -> None:
    batches.enqueue("picky", JOBS)
    batches.worker(concurrency=2)
    assert batches.results() == [2 * n for n in range(JOBS)]
    attempts = [len(made) for made in batches.attempts("start").values()]
    assert attempts == [2 if n == 3 else 1 for n in range(JOBS)]


def test_a_call_out_of_time_ends_its_jobs_alone(batches: Batches) -> None:
    batches.enqueue("slow", SIZE)
    worker = batches.worker(concurrency=2)
    for status in batches.ended():
        assert (status.state, status.reason) == (State.DEAD, "exhausted")
        assert status.last_error is not None
        assert status.last_error.type in ("SoftTimeLimit", "HardTimeLimit")
    batches.place.open_gate()
    batches.enqueue("picky", SIZE)
    assert batches.results() == [2 * n for n in range(SIZE)]
    assert worker.exit_code is None


def test_a_cancelled_item_ends_with_its_call(batches: Batches) -> None:
    batches.enqueue("held", SIZE)
    batches.worker()
    batches.place.wait_for("start", SIZE)

    async def cancel(app: App) -> None:
        await (await app.job(batches.ids[2])).cancel()

    batches.ask(cancel)
    batches.place.wait_for("cancelled", 1)
    batches.place.open_gate()
    states = [status.state for status in batches.ended()]
    assert states == [State.CANCELLED if n == 2 else State.DONE for n in range(SIZE)]
    assert all(made == [1] for made in batches.attempts("effect").values())
