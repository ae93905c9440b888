"""A process that enqueues without an end, and follows the jobs when they move.

python -m tests.e2e.move_producer TARGET     # until there is a file `enough`
"""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from durio import App
from durio.errors import QueueClosed, StoreMoved
from tests.e2e.jobs import make_app
from tests.e2e.ledger import VARIABLE, note

PAUSE_SECONDS = 0.02


async def main(target: str) -> None:
    enough = Path(os.environ[VARIABLE]) / "enough"
    number = 0
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(make_app())
        while not enough.exists():
            number += 1
            note("enq.invoke", str(number))
            try:
                job = await ask(app)
            except StoreMoved:
                note("moved", str(number))
                app = await stack.enter_async_context(make_app(target))
                job = await ask(app)
            note("enq.ok", job)
            await asyncio.sleep(PAUSE_SECONDS)


async def ask(app: App) -> str:
    """Enqueue, as often as needed: until the move is over the new queues are closed."""
    while True:
        try:
            return (await app.enqueue("nothing")).id
        except QueueClosed:
            await asyncio.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
