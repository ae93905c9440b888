"""A process that enqueues: each enqueue is told to the ledger before and after.

python -m tests.e2e.producer nothing 5000 50     # 50 at a time
"""

import asyncio
import sys
from collections.abc import Iterator

from tests.e2e.jobs import app
from tests.e2e.ledger import note


async def main(task: str, jobs: int, at_once: int) -> None:
    numbers = iter(range(jobs))
    async with app, asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(ask(task, numbers))


async def ask(task: str, numbers: Iterator[int]) -> None:
    for number in numbers:
        note("enq.invoke", str(number))
        job = await app.enqueue(task)
        note("enq.ok", job.id)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
