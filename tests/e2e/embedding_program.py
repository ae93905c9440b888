"""A program with a worker inside: what a web server does with a lifespan, in small.

`python -m tests.e2e.embedding_program [asyncio|uvloop]`: serves until SIGTERM; SIGINT is Python's own.
"""

import asyncio
import signal
import sys

import uvloop

from durio.telemetry.log import configure
from tests.e2e.jobs import app

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


async def serve() -> None:
    """Enter the lifespan, serve until told to stop, leave."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with app.lifespan(embed_worker=True)("the ASGI app"):
        await stop.wait()


if __name__ == "__main__":
    configure(app.settings.log)
    factory = LOOPS[sys.argv[1] if len(sys.argv) > 1 else "asyncio"]
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve())
