"""A process that enqueues, each with its own integer, until it is told to stop.

python -m tests.e2e.chaos.producer 1 25      # numbers from 1,000,000 on, 25 a second

Two more words make it die at a point of its n-th commit (see runner.py):

python -m tests.e2e.chaos.producer 1 25 committed 7

What the store answers goes to the ledger: ok, fail (nothing was written), info (nobody
knows). An enqueue that was killed leaves only its `enq.invoke`: nobody knows, either.
"""

import asyncio
import itertools
import os
import random
import sys
from pathlib import Path

from durio.errors import DurioError
from durio.stores.sqlite.write_session import SqliteTransaction, WriteSession
from tests.e2e.chaos.fate import Fate
from tests.e2e.chaos.jobs import app
from tests.e2e.ledger import VARIABLE, note

RANGE = 1_000_000
AT_ONCE = 4
SECONDS_MIN, SECONDS_MAX = 0.02, 0.4


async def main(index: int, per_second: float) -> None:
    numbers = itertools.count(index * RANGE)
    async with app, asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(ask(numbers, AT_ONCE / per_second))


def doom(point: str, times: int) -> None:
    """Die before or after the commit, so that the caller never gets its result."""
    fate, commit = Fate(point, times), WriteSession.commit

    def commit_or_die(scribe: WriteSession, tx: SqliteTransaction) -> None:
        fate.meet("uncommitted")
        commit(scribe, tx)
        fate.meet("committed")

    WriteSession.commit = commit_or_die


async def ask(numbers: "itertools.count[int]", pause: float) -> None:
    stop = Path(os.environ[VARIABLE]) / "stop"
    while not stop.exists():
        await enqueue(next(numbers))
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - a load


async def enqueue(n: int) -> None:
    """Enqueue once; record the result."""
    task = ("work", "in_a_thread", "flaky")[(n % 7 == 0) + (n % 10 == 0)]
    seconds = random.uniform(SECONDS_MIN, SECONDS_MAX)  # noqa: S311 - a load
    note("enq.invoke", "", n=n)
    try:
        job = await app.enqueue(task, n, seconds)
    except DurioError as error:
        unknown = getattr(error, "unknown", True)
        note("enq.info" if unknown else "enq.fail", "", n=n, error=error.code)
    else:
        note("enq.ok", job.id, n=n)


if __name__ == "__main__":
    if sys.argv[3:]:
        doom(sys.argv[3], int(sys.argv[4]))
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
