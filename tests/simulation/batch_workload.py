"""The batch task of a simulated world: calls with several jobs, which end one by one."""

from typing import Any, TypedDict

from durio import Context
from durio.limits import Err
from tests.simulation.ledger import Ledger
from tests.simulation.world import Node

BATCH_SIZE, BATCH_WAIT = 5, "300ms"


class BatchItem(TypedDict):
    """What one job of a batch does."""

    n: int
    seconds: float  # of work; a call takes as long as its longest item
    count: int  # so many attempts fail


class BatchTasks:
    """What the batch task does, in one process; it writes to the ledger."""

    def __init__(self, node: Node, ledger: Ledger) -> None:
        self.node = node
        self.ledger = ledger

    def note(self, what: str, n: int, **fields: Any) -> None:
        self.ledger.note(self.node.name, what, n, **fields)

    async def gather(self, ctx: Context, items: list[BatchItem]) -> list[int | Err]:
        """Work on all items; each may fail by itself."""
        jobs = list(zip(items, ctx.jobs, strict=True))
        for item, job in jobs:
            self.note("start", item["n"], attempt=job.attempt)
        await self.node.clock.sleep(max(item["seconds"] for item in items))
        ends: list[int | Err] = []
        for item, job in jobs:
            n = item["n"]
            if job.attempt <= item["count"]:
                ends.append(Err(ValueError(f"attempt {job.attempt} of job {n} fails")))
                continue
            if not job.cancelled:
                self.note("effect", n)
            ends.append(n)
        return ends
