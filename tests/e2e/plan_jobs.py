"""An App with plans, for workers of other processes and of this one."""

from typing import Any

from durio import App, Context, Permanent, group
from durio.plans import PlanFailure, PlanJob

app = App(name="plans")


@app.task
async def add(a: int) -> int:
    return a + 1


@app.task
async def total(values: list[int]) -> int:
    return sum(values)


@app.task(retention="0s")
async def fading(n: int, size: int) -> str:
    """Return a text; the job is not kept after its end."""
    return str(n) * size


@app.task
async def first(values: list[str] | str) -> str:
    return values[0]


@app.task(retry=0)
async def boom(x: int) -> int:
    raise Permanent(f"no {x}")


@app.task
async def alert(failure: PlanFailure) -> str:
    return failure.text


@app.task
async def text(size: int) -> str:
    return "x" * size


@app.task
async def replaces(ctx: Context, a: int) -> int:
    """Put a plan in the place of the job."""
    return ctx.replace(add.s(a) | add.s())


@app.task
async def adds(ctx: Context, a: int) -> int:
    """Add a member to the group of the job."""
    ctx.add(add.s(a))
    return a


async def enqueue_failing() -> PlanJob[Any]:
    """Enqueue a plan whose second job fails: one that depends on it, and a handler."""
    plan = add.s(1) | boom.s() | add.s()
    return await plan.on_error(alert.s()).enqueue()


async def enqueue_wide(members: int) -> PlanJob[int]:
    """Enqueue a plan with more members than one transaction lets go."""
    plan = add.s(1) | group(add.s() for _ in range(members)) | total.s()
    return await plan.enqueue()
