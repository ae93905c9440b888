"""The App under chaos: every task carries a unique integer and tells the ledger its steps.

start, effect     an attempt began; it did what it is for
raised            it failed on purpose, and will be made again
nemesis.begin     a task that is itself the fault says so before it strikes
accepted, dead    the store took that end, as the hooks are told
"""

import asyncio
import ctypes
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from durio import App, Context, Retry
from tests.e2e.jobs import live_on
from tests.e2e.ledger import VARIABLE, note

GROUP = "CHAOS_MEMORY_GROUP"
# If it is set, tasks that run in children are left out: every worker would start some.
CHILDLESS = "CHAOS_CHILDLESS"
# A file with the seconds by which the wall clock of every process is wrong.
CLOCK = "CHAOS_CLOCK"
BLOCK_BYTES = 1 << 20
LIMIT_SECONDS = 1.0
SOON = Retry(5, delays=(0.1,), jitter=False)
OFTEN = Retry(100, delays=(0.2,), jitter=False)


def wear_wrong_clock(path: Path) -> None:
    """Make this process see another wall clock; the monotonic one does not change.

    libfaketime would do the same to C code, but breaks Python's own sleep and locks.
    """
    true_ns = time.time_ns

    def wrong_ns() -> int:
        return true_ns() + int(path.read_text()) * 10**9

    time.time_ns = wrong_ns
    time.time = lambda: wrong_ns() / 1e9


if VARIABLE in os.environ:
    note("up", "")  # opens the ledger while descriptors are left
if os.environ.get(CLOCK):
    wear_wrong_clock(Path(os.environ[CLOCK]))

app = App(name="chaos")
app.hooks.after(lambda event: note("accepted", event.job_id, event.attempt))
app.hooks.dead(
    lambda event: note("dead", event.job_id, event.attempt, reason=event.reason)
)


def child_task(**options: Any) -> Callable[[Any], Any]:
    """Return a task that runs in a child, if there are children."""
    if os.environ.get(CHILDLESS):
        return lambda function: function
    return app.task(process=True, **options)


def begin(ctx: Context, n: int) -> None:
    note("start", ctx.job_id, ctx.attempt, n=n, parent=os.getppid())


def effect(ctx: Context, n: int) -> dict[str, int]:
    """Record the effect of the task; return which attempt it was."""
    note("effect", ctx.job_id, ctx.attempt, n=n)
    return {"n": n, "attempt": ctx.attempt}


def strike(fault: str, **facts: Any) -> None:
    """Record that this process is about to be disturbed by its own task."""
    note("nemesis.begin", "", fault=fault, pids=[os.getpid()], lasting=True, **facts)


# --- the ordinary load


@app.task()
async def work(ctx: Context, n: int, seconds: float) -> dict[str, int]:
    """On the loop."""
    begin(ctx, n)
    await asyncio.sleep(seconds)
    return effect(ctx, n)


@app.task()
def in_a_thread(ctx: Context, n: int, seconds: float) -> dict[str, int]:
    begin(ctx, n)
    time.sleep(seconds)
    return effect(ctx, n)


@app.task(retry=SOON)
async def flaky(ctx: Context, n: int, seconds: float) -> dict[str, int]:
    """Fail at the first attempt."""
    begin(ctx, n)
    await asyncio.sleep(seconds)
    if ctx.attempt == 1:
        note("raised", ctx.job_id, ctx.attempt, n=n)
        raise ValueError(f"not yet: {n}")
    return effect(ctx, n)


@app.task(retry=OFTEN)
def open_a_file(ctx: Context, n: int) -> dict[str, int]:
    """Fail if no file descriptor is left."""
    begin(ctx, n)
    try:
        Path(__file__).read_bytes()
    except OSError:
        note("raised", ctx.job_id, ctx.attempt, n=n)
        raise
    return effect(ctx, n)


@child_task()
def in_a_child(ctx: Context, n: int, seconds: float) -> dict[str, int]:
    begin(ctx, n)
    time.sleep(seconds)
    return effect(ctx, n)


# --- tasks that are the fault: at the first attempt, or always


@app.task()
async def die_once(ctx: Context, n: int) -> dict[str, int]:
    """Kill the worker in the middle of the first attempt."""
    begin(ctx, n)
    if ctx.attempt == 1:
        strike("mid-task")
        os.kill(os.getpid(), signal.SIGKILL)
    return effect(ctx, n)


@app.task()
async def fork_and_die(ctx: Context, n: int) -> dict[str, int]:
    """Fork without exec; the child survives, the worker is killed."""
    begin(ctx, n)
    if ctx.attempt == 1:
        strike("fork-then-kill")
        if os.fork() == 0:
            live_on()
        os.kill(os.getpid(), signal.SIGKILL)
    return effect(ctx, n)


@app.task(timeout=LIMIT_SECONDS, retry=SOON)
async def block_once(ctx: Context, n: int) -> dict[str, int]:
    """Block the loop of the worker past the hard limit."""
    begin(ctx, n)
    if ctx.attempt == 1:
        strike("blocked-loop")
        time.sleep(60)  # noqa: ASYNC251 - the fault
    return effect(ctx, n)


@app.task(timeout=60)
async def block_within_limit(ctx: Context, n: int, seconds: float) -> dict[str, int]:
    """Block the loop for longer than a lease; the heartbeat must continue."""
    begin(ctx, n)
    time.sleep(seconds)  # noqa: ASYNC251 - the fault
    return effect(ctx, n)


@child_task(timeout=LIMIT_SECONDS, retry=SOON)
def hold_gil_once(ctx: Context, n: int) -> dict[str, int]:
    """Hold the interpreter of a child past the hard limit."""
    begin(ctx, n)
    if ctx.attempt == 1:
        strike("gil-held")
        re.match(r"(a+)+$", "a" * 64 + "b")
    return effect(ctx, n)


@app.task()
async def poison(ctx: Context, n: int, how: str) -> dict[str, int]:
    """Kill its process, every time."""
    begin(ctx, n)
    strike(f"poison-{how}")
    crash(how)
    return effect(ctx, n)


def crash(how: str) -> None:
    if how == "exit":
        os._exit(1)
    if how == "segfault":
        ctypes.string_at(0)
    Path(os.environ[GROUP], "cgroup.procs").write_text(str(os.getpid()))
    hoard: list[bytearray] = []
    while True:
        hoard.append(bytearray(b"x") * BLOCK_BYTES)
