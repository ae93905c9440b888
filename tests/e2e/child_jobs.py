"""The App of the tests about child processes: tasks that behave badly, in three places.

`in_a_child`, `in_a_thread` and `on_the_loop` do the same thing where their name says.
"""

import asyncio
import ctypes
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx

from durio import App, Context, Retry, SoftTimeLimit
from tests.e2e.jobs import LOOK_SECONDS, is_open
from tests.e2e.ledger import VARIABLE, Ledger, note

GROUP = "MEMORY_GROUP"
BLOCK_BYTES = 1 << 20
ONCE_MORE = Retry(1, delays=(0.05,), jitter=False)
log = logging.getLogger("shop")


@asynccontextmanager
async def resources() -> AsyncIterator[str]:
    """Provide dependencies, which every process enters and leaves once."""
    note("deps", "entered")
    yield f"desk of {os.getpid()}"
    note("deps", "left")


app = App(name="e2e", deps=resources)
app.hooks.after(lambda event: note("accepted", event.job_id, event.attempt))
app.hooks.dead(lambda event: note("dead", event.job_id, event.attempt))
app.hooks.cancelled(lambda event: note("cancelled", event.job_id, event.attempt))


# --- good ones


@app.task()
async def nap(ctx: Context, seconds: float) -> int:
    """Sleep on the loop."""
    note("start", ctx.job_id, ctx.attempt)
    await asyncio.sleep(seconds)
    note("effect", ctx.job_id, ctx.attempt)
    return os.getpid()


@app.task(process=True, aliases=("work_before",))
def work(ctx: Context[str], seconds: float) -> str:
    """Work in a child; return its dependency."""
    note("start", ctx.job_id, ctx.attempt)
    time.sleep(seconds)
    note("effect", ctx.job_id, ctx.attempt)
    return ctx.deps


@app.task(process=True)
async def where(ctx: Context) -> tuple[int, int, int]:
    """Return the process, its group, and its parent."""
    note("start", ctx.job_id, ctx.attempt)
    return os.getpid(), os.getpgrp(), os.getppid()


@app.task(process=True, retry=0)
def wait_for_more() -> None:
    """Wait for a job inside a task, which is not allowed."""
    nap.enqueue_sync(60.0).result_sync(timeout=5)


@app.task(process=True)
async def ask_for_more(ctx: Context, jobs: int) -> list[str]:
    """Enqueue from a child."""
    return [(await nap.options(meta={"by": ctx.job_id}).enqueue(0)).id] * jobs


@app.task(process=True)
def call(ctx: Context, status: int) -> str:
    """Call a service that answers 404, or 429 and then well."""
    note("start", ctx.job_id, ctx.attempt)
    starts = Ledger(Path(os.environ[VARIABLE])).by_job("start")[ctx.job_id]
    if status == 429 and len(starts) > 1:
        return "done"
    request = httpx.Request("GET", "https://example.org")
    headers = {"Retry-After": "1"} if status == 429 else {}
    httpx.Response(status, headers=headers, request=request).raise_for_status()
    return "not reached"


@app.task(process=True, retry=0)
def tell(lines: int) -> None:
    """Log many lines, then fail."""
    for number in range(lines):
        log.info("line %d", number, extra={"shelf": 7})
    try:
        {}["shelf"]
    except KeyError:
        log.exception("no such shelf")
    raise ValueError("told everything")


@app.task(process=True, retry=0)
def swell(ctx: Context, megabytes: int) -> int:
    """Keep some memory."""
    note("start", ctx.job_id, ctx.attempt)
    KEPT.append(bytearray(os.urandom(16)) * (megabytes << 16))
    return os.getpid()


KEPT: list[bytearray] = []


# --- tasks that must be stopped


@app.task(process=True, timeout=(0.3, 20), retry=0)
async def tidy_async() -> str:
    try:
        await asyncio.sleep(600)
    except SoftTimeLimit:
        return "tidied"
    return "too late"


@app.task(process=True, timeout=(0.3, 20), retry=0)
def tidy_sync() -> str:
    try:
        while True:
            time.sleep(LOOK_SECONDS)
    except SoftTimeLimit:
        return "tidied"


@app.task(process=True, timeout=(0.2, 0.6), retry=0)
def spin(ctx: Context) -> None:
    note("start", ctx.job_id, ctx.attempt)
    with suppress(BaseException):
        while True:
            pass
    while True:
        pass


@app.task(process=True, timeout=(0.2, 0.6), retry=0)
async def spin_on_its_loop(ctx: Context) -> None:
    note("start", ctx.job_id, ctx.attempt)
    while True:
        pass


@app.task(process=True, timeout=(0.2, 0.6), retry=0)
def hold_the_interpreter(ctx: Context) -> None:
    note("start", ctx.job_id, ctx.attempt)
    endless()


@app.task(process=True)
def hold_on(ctx: Context) -> None:
    """Run C code that lets no other thread run, without an effective limit."""
    helper = subprocess.Popen(["sleep", "1000"])
    note("helper", str(helper.pid))
    note("start", ctx.job_id, ctx.attempt)
    endless()


def endless() -> None:
    re.match(r"(a+)+$", "a" * 64 + "b")


@app.task(process=True, timeout=(0.3, 0.8), retry=0)
def with_helpers(ctx: Context) -> None:
    """Start a program from a task, and fork another without exec."""
    helper = subprocess.Popen(["sleep", "1000"])
    note("helper", str(helper.pid))
    forked = os.fork()
    if forked == 0:
        while True:
            time.sleep(1)
    note("helper", str(forked))
    note("start", ctx.job_id, ctx.attempt)
    with suppress(SoftTimeLimit):
        helper.wait()
    while True:
        time.sleep(1)


@app.task(process=True)
def deaf(ctx: Context) -> None:
    """Ignore every message and every signal that can be ignored."""
    note("start", ctx.job_id, ctx.attempt)
    while True:
        with suppress(BaseException):
            time.sleep(LOOK_SECONDS)


@app.task(process=True)
async def hear_cancel(ctx: Context) -> None:
    note("start", ctx.job_id, ctx.attempt)
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        note("heard", ctx.job_id, ctx.attempt)
        raise


@app.task(process=True)
def see_cancel(ctx: Context) -> None:
    note("start", ctx.job_id, ctx.attempt)
    while not ctx.cancelled:
        time.sleep(LOOK_SECONDS)
    note("heard", ctx.job_id, ctx.attempt)
    raise RuntimeError("cancelled, I hear")


@app.task(process=True)
def held_child(ctx: Context) -> int:
    """Run until the test opens the gate."""
    note("start", ctx.job_id, ctx.attempt)
    ctx.progress(3, 7, message="on the way")
    while not is_open():
        time.sleep(LOOK_SECONDS)
    ctx.progress(7, 7)
    note("effect", ctx.job_id, ctx.attempt)
    return os.getpid()


# --- tasks that break their child, and leave it running


@app.task(process=True, retry=0)
async def break_child(ctx: Context, how: str) -> None:
    """Break the loop, or the tasks, of its child."""
    note("start", ctx.job_id, ctx.attempt)
    if how == "cancel all":
        for task in asyncio.all_tasks():
            task.cancel()
    else:
        asyncio.get_running_loop().stop()
    if how != "stop and return":
        await asyncio.sleep(600)


@app.task(process=True)
async def leave_a_trap() -> None:
    """Leave code behind that stops the loop during a later job."""
    TRAPS.append(asyncio.get_running_loop().stop)


@app.task(process=True, retry=0)
async def meet_the_trap() -> int:
    for trap in TRAPS:
        asyncio.get_running_loop().call_soon(trap)
        await asyncio.sleep(600)
    return os.getpid()


TRAPS: list[Callable[[], None]] = []


@app.task(process=True, retry=0)
def shut_all_lines(ctx: Context) -> None:
    """Close sockets that are not its own, among them the one to the worker."""
    note("start", ctx.job_id, ctx.attempt)
    for fd in range(3, 64):
        with suppress(OSError), socket.socket(fileno=os.dup(fd)) as line:
            line.shutdown(socket.SHUT_RDWR)
    time.sleep(600)


# --- crashes


def crash(how: str) -> None:
    """Crash, in one of several ways."""
    match how:
        case "exit":
            os._exit(1)
        case "null":
            ctypes.string_at(0)
        case "oom":
            Path(os.environ[GROUP], "cgroup.procs").write_text(str(os.getpid()))
            hoard: list[bytearray] = []
            while True:
                hoard.append(bytearray(b"x") * BLOCK_BYTES)
        case "sys.exit":
            sys.exit(3)
        case "KeyboardInterrupt":
            raise KeyboardInterrupt
        case _:
            raise asyncio.CancelledError


@app.task(process=True, retry=ONCE_MORE)
def in_a_child(ctx: Context, how: str) -> None:
    note("start", ctx.job_id, ctx.attempt)
    log.warning("about to end by %s", how)
    crash(how)


@app.task(process=True, retry=ONCE_MORE)
async def on_the_loop_of_a_child(ctx: Context, how: str) -> None:
    note("start", ctx.job_id, ctx.attempt)
    crash(how)


@app.task(retry=ONCE_MORE)
def in_a_thread(ctx: Context, how: str) -> None:
    note("start", ctx.job_id, ctx.attempt)
    assert threading.current_thread() is not threading.main_thread()
    crash(how)


@app.task(retry=ONCE_MORE)
async def on_the_loop(ctx: Context, how: str) -> None:
    note("start", ctx.job_id, ctx.attempt)
    crash(how)


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
