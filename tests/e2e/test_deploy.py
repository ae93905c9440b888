"""Rolling deploys, both ways: old and new code side by side on one file, nothing dead.

The new code has one task more, one less, and one whose signature grew by a parameter with
a default. What a worker cannot run it puts aside for one that can.
"""

import asyncio
import signal
import sys
from typing import Any

import pytest

from durio.model.job import DONE, SCHEDULED
from tests.e2e.workers import ROOT, Place, Process, wait_until

SECONDS = 60.0
BEGINNING = """
from durio import App, Context
from tests.e2e.ledger import note

app = App(name="e2e")

def effect(ctx, what):
    note("start", ctx.job_id, ctx.attempt)
    note("effect", ctx.job_id, ctx.attempt)
    return what

@app.task
async def mail(ctx: Context, to: str) -> str:
    return effect(ctx, to)
"""
OLD = f"""{BEGINNING}
@app.task
async def pay(ctx: Context, order: int) -> str:
    return effect(ctx, f"{{order}} euros")

@app.task
async def report(ctx: Context, day: str) -> str:
    return effect(ctx, day)
"""
NEW = f"""{BEGINNING}
@app.task
async def pay(ctx: Context, order: int, currency: str = "euros") -> str:
    return effect(ctx, f"{{order}} {{currency}}")

@app.task(queue="refunds")
def refund(ctx: Context, order: int) -> str:
    return effect(ctx, f"refunded {{order}}")
"""
CODE = {"old": OLD, "new": NEW}
# Which jobs only one of the two can run, and what all give.
ONLY_OLD = [("report", ("monday",), "monday")]
ONLY_NEW = [("refund", (7,), "refunded 7"), ("pay", (7, "francs"), "7 francs")]
BOTH = [("mail", ("a@b.c",), "a@b.c"), ("pay", (7,), "7 euros")]


class Fleet:
    """Workers of both trees on one file, and what was asked of them."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.wanted: dict[str, str] = {}  # job id -> its result
        self.started = 0

    def worker(self, code: str) -> Process:
        """A worker of this code, once it claims."""
        tree = self.place.folder / code
        tree.mkdir(exist_ok=True)
        (tree / "deployed.py").write_text(CODE[code])
        self.started += 1
        # One at a time: both take their share of what there is.
        one_at_a_time = {"concurrency": 1, "prefetch": 0}
        environ = self.place.environ(one_at_a_time) | {"PYTHONPATH": f"{tree}:{ROOT}"}
        command = [sys.executable, "-m", "durio", "worker", "deployed:app"]
        log = self.place.folder / f"{code}-{self.started}.log"
        process = Process(command, log, environ)
        self.place._processes.append(process)
        self.place.started(process)
        return process

    def enqueue(self, code: str, rows: list[tuple[str, tuple[Any, ...], str]]) -> None:
        """As a producer with this code does."""
        module: dict[str, Any] = {"__name__": f"deployed_{code}"}
        exec(CODE[code], module)  # noqa: S102 - the tree of this test
        app = module["app"]
        app.url = self.place.url

        async def ask() -> None:
            async with app:
                for task, arguments, result in rows:
                    job = await module[task].enqueue(*arguments)
                    self.wanted[job.id] = result

        asyncio.run(ask())

    def wait_parked(self, jobs: int) -> None:
        """Until so many jobs are put aside, and nothing else is unfinished."""
        sql = "select state, parked_at is not null from job where state < 4"
        wait_until(
            lambda: self.place.select(sql) == [(SCHEDULED, 1)] * jobs,
            SECONDS,
            f"{jobs} jobs are parked, the others done",
        )

    def check_all_done(self) -> None:
        """Everything is done, with its result, and nothing was charged."""
        rows = self.place.wait_final(list(self.wanted), SECONDS * 2)
        assert {job: row.result for job, row in rows.items()} == self.wanted
        assert {row.state for row in rows.values()} == {DONE}
        assert {(row.retried, row.losses) for row in rows.values()} == {(0, 0)}
        effects = self.place.ledger.by_job("effect")
        assert {job: len(lines) for job, lines in effects.items()} == dict.fromkeys(
            self.wanted, 1
        )


def stop(process: Process) -> None:
    process.send(signal.SIGTERM)
    assert process.ended() == 0


@pytest.fixture
def fleet(place: Place) -> Fleet:
    return Fleet(place)


@pytest.mark.proves("M45")
@pytest.mark.parametrize("order", ["forward", "back"])
def test_old_and_new_code_work_side_by_side(fleet: Fleet, order: str) -> None:
    """Whichever began last: each runs what it knows, and leaves the rest to the other."""
    codes = ["old", "new"] if order == "forward" else ["new", "old"]
    workers = [fleet.worker(code) for code in codes]
    fleet.enqueue("old", ONLY_OLD + BOTH)
    fleet.enqueue("new", ONLY_NEW * 2 + BOTH)
    fleet.check_all_done()
    for worker in workers:
        assert not worker.events("job.dead")
        stop(worker)


@pytest.mark.proves("M45")
def test_a_deploy_and_the_way_back_lose_nothing(fleet: Fleet) -> None:
    """Only old, then both, then only new, then only old: parked and later run."""
    old = fleet.worker("old")
    fleet.enqueue("old", ONLY_OLD + BOTH)
    new = fleet.worker("new")
    stop(old)
    fleet.enqueue("old", ONLY_OLD + BOTH)  # a web process that was not replaced yet
    fleet.enqueue("new", ONLY_NEW + BOTH)
    fleet.wait_parked(len(ONLY_OLD))
    # The way back: the old code comes again, and the new one goes.
    old = fleet.worker("old")
    stop(new)
    fleet.enqueue("new", ONLY_NEW + BOTH)
    fleet.wait_parked(len(ONLY_NEW))
    assert old.events("job.parked")
    assert not old.events("job.dead")
    # ... and forward again.
    fleet.worker("new")
    fleet.check_all_done()
    stop(old)
