"""A process that enqueues at a steady pace until SIGTERM.

python -m tests.soak.producer 1000000 100    # numbers from here on, 100 a second
"""

import asyncio
import signal
import sys
import time

from tests.soak.work import app, note, work

AT_ONCE = 50  # enqueues in flight; more are not started


async def main(number: int, rate: float) -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    room = asyncio.Semaphore(AT_ONCE)
    due = time.monotonic()
    async with app, asyncio.TaskGroup() as group:
        while not over.is_set():
            await room.acquire()
            number += 1
            group.create_task(ask(number, room))
            # A missed pace is not made up for: the load never exceeds its rate.
            due = max(due + 1 / rate, time.monotonic() - 1 / rate)
            await asyncio.sleep(max(0.0, due - time.monotonic()))


async def ask(number: int, room: asyncio.Semaphore) -> None:
    try:
        note("i", number, "-")
        job = await work.enqueue(number)
        note("k", number, job.id)
    finally:
        room.release()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
