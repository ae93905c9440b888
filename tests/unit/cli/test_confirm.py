"""Bulk actions on the command line: what is shown while they run, and at their end."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import suppress

import pytest

from durio.cli.prompts import BulkSummary, run_steps
from durio.client.bulk import BulkStep


async def steps_of(*sizes: int) -> AsyncGenerator[BulkStep]:
    for size in sizes:
        yield BulkStep(size)


def test_steps_are_added_up() -> None:
    done = asyncio.run(run_steps(steps_of(500, 500, 201), 1201, "retry"))
    assert done == BulkSummary(1201)


def test_no_more_are_held_than_were_not_done() -> None:
    async def steps() -> AsyncGenerator[BulkStep]:
        yield BulkStep(2, held=8)

    assert asyncio.run(run_steps(steps(), 5, "retry")) == BulkSummary(2, held=3)


@pytest.mark.parametrize(("jobs", "is_drawn"), [(1201, True), (500, False)])
def test_bar_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    jobs: int,
    *,
    is_drawn: bool,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    asyncio.run(run_steps(steps_of(jobs), jobs, "retry"))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("retry" in captured.err and "100%" in captured.err) is is_drawn


def test_interrupt_says_how_far_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        first = asyncio.Event()

        async def steps() -> AsyncGenerator[BulkStep]:
            yield BulkStep(500)
            first.set()
            await asyncio.Event().wait()

        async with asyncio.TaskGroup() as group:
            task = group.create_task(run_steps(steps(), 1201, "retry"))
            await first.wait()
            task.cancel()

    with suppress(asyncio.CancelledError):
        asyncio.run(run())
    assert "stopped: 500 of 1201 are done" in capsys.readouterr().err
