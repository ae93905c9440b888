"""Context variables that a job sets stay in that job."""

import asyncio
from contextvars import ContextVar

from durio import App
from tests.unit.app.app_harness import drained, real

JOBS = 500  # enough that jobs start as others end
trace: ContextVar[str | None] = ContextVar("trace", default=None)


@real
async def test_context_variables_do_not_reach_the_next_job(app: App) -> None:
    trace.set("of the worker")

    @app.task(name="mark")
    async def mark(number: int) -> str | None:
        before = trace.get()
        trace.set(f"job {number}")
        if number % 7 == 3:
            await asyncio.sleep(0.01)  # noqa: TID251 - what tasks of users call
        return before if trace.get() == f"job {number}" else "lost"

    jobs = await mark.enqueue_many([(number,) for number in range(JOBS)])
    await drained(app)
    assert {await job.result() for job in jobs} == {"of the worker"}
    assert trace.get() == "of the worker"
