"""The App of the tests of batches; its tasks record each job of a call in the ledger."""

import asyncio
import time

from durio import App, Context, Retry
from durio.limits import Batch, Err
from tests.e2e.jobs import LOOK_SECONDS, is_open
from tests.e2e.ledger import note

SIZE = 8
SOON = Batch(SIZE, "300ms")

app = App(name="shop")


def note_each(ctx: Context, event: str) -> None:
    for job in ctx.jobs:
        note(event, job.job_id, job.attempt)


@app.task(batch=SOON)
async def held(ctx: Context, items: list[int]) -> list[int]:
    """Wait until the test opens the gate."""
    note_each(ctx, "start")
    while not is_open():
        await asyncio.sleep(LOOK_SECONDS)
        for job in ctx.jobs:
            if job.cancelled:
                note("cancelled", job.job_id, job.attempt)
    note_each(ctx, "effect")
    return [2 * item for item in items]


@app.task(batch=SOON, retry=Retry(2, delays=("100ms",), jitter=False))
def picky(ctx: Context, items: list[int]) -> list[int | Err]:
    """Refuse item 3 once, in a thread."""
    note_each(ctx, "start")
    pairs = zip(items, ctx.jobs, strict=True)
    return [
        Err(ValueError("not three")) if item == 3 and job.attempt == 1 else 2 * item
        for item, job in pairs
    ]


@app.task(batch=SOON, timeout=(0.5, 1.0), retry=0)
def slow(ctx: Context, items: list[int]) -> list[int]:
    """Run past its time limits, in a thread."""
    note_each(ctx, "start")
    while not is_open():
        time.sleep(LOOK_SECONDS)
    return items
