"""The App of the soak, and its ledger: one short line for each step of each job.

Workers load it as `tests.soak.work:app`. A line is one write: `letter number job attempt
monotonic-ns`. The number is the workload's own and unique; the ledger shares nothing with
the system under test.

  i  an enqueue is about to be asked     s  an attempt began
  k  the store has answered for it       f  the attempt fails, on purpose
  a  the store took the result           e  the task did what it is for
  d  the store took the job as dead
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from durio import App, Context, Retry

VARIABLE = "SOAK_LEDGER"
WORK_SECONDS = 0.02
FAILS_EVERY = 50  # jobs, at the first attempt

_files: dict[int, int] = {}


def note(letter: str, number: int, job: str, attempt: int = 0) -> None:
    pid = os.getpid()
    if pid not in _files:
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        _files[pid] = os.open(Path(os.environ[VARIABLE]) / str(pid), flags, 0o600)
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    os.write(_files[pid], f"{letter} {number} {job} {attempt} {now}\n".encode())


class FailsOnPurpose(Exception):
    """Raised by the first attempt of every 50th job."""


app = App(name="soak")
app.hooks.after(lambda event: note("a", 0, event.job_id, event.attempt))
app.hooks.dead(lambda event: note("d", 0, event.job_id, event.attempt))


@app.task(retry=Retry(5, delays=(0.2,), jitter=False))
async def work(ctx: Context[Any], number: int) -> int:
    note("s", number, ctx.job_id, ctx.attempt)
    await asyncio.sleep(WORK_SECONDS)
    if number % FAILS_EVERY == 0 and ctx.attempt == 1:
        note("f", number, ctx.job_id, ctx.attempt)
        raise FailsOnPurpose(f"{number} fails once")
    note("e", number, ctx.job_id, ctx.attempt)
    return number
