"""Bulk acts in steps: how many at a time, when they end, what is told."""

import asyncio
import sys
from contextlib import suppress

import pytest

from durio.cli.prompts import BulkSummary, RunBatch, in_batches
from durio.ports.control import BulkStep


def worker_off(jobs: int) -> tuple[RunBatch, list[int]]:
    """A step over so many jobs, and the sizes it was asked for."""
    asked: list[int] = []

    async def step(limit: int) -> BulkStep:
        done = min(limit, jobs - sum(asked))
        asked.append(done)
        return BulkStep(done, sum(asked) < jobs)

    return step, asked


@pytest.mark.parametrize(
    ("there", "counted", "sizes"),
    [
        (1201, 1201, [500, 500, 201]),
        (700, 1201, [500, 200]),  # some are gone by now
        (5000, 600, [500, 100]),  # others have come: they were not counted
        (0, 600, [0]),
    ],
)
def test_steps_end_with_what_was_counted(
    there: int, counted: int, sizes: list[int]
) -> None:
    step, asked = worker_off(there)
    assert asyncio.run(in_batches(step, counted, "retry")) == BulkSummary(sum(sizes))
    assert asked == sizes


def test_no_more_are_held_than_were_not_done() -> None:
    async def step(_limit: int) -> BulkStep:
        return BulkStep(2, more=False, held=8)

    assert asyncio.run(in_batches(step, 5, "retry")) == BulkSummary(2, held=3)


@pytest.mark.parametrize(("jobs", "is_drawn"), [(1201, True), (500, False)])
def test_bar_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    jobs: int,
    *,
    is_drawn: bool,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    step, _ = worker_off(jobs)
    asyncio.run(in_batches(step, jobs, "retry"))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("retry" in captured.err and "100%" in captured.err) is is_drawn


def test_interrupt_says_how_far_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        first = asyncio.Event()

        async def step(limit: int) -> BulkStep:
            if first.is_set():
                await asyncio.Event().wait()
            first.set()
            return BulkStep(limit, more=True)

        async with asyncio.TaskGroup() as group:
            task = group.create_task(in_batches(step, 1201, "retry"))
            await first.wait()
            task.cancel()

    with suppress(asyncio.CancelledError):
        asyncio.run(run())
    assert "stopped: 500 of 1201 are done" in capsys.readouterr().err
