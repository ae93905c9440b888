"""A program: which files does one job run through? `python -m tests.docs.traced_job URL`

A warm job first, then an idle time, then jobs, each traced by itself, from `enqueue` to
the result. A file belongs to the path of a job when every traced job runs through it. So a
check that is made once a second does not count. Files that run while the worker is idle
are named apart: loops such as the watchdog's run beside every job. Prints one JSON object:
the files in the order of first use with their executed lines, the idle ones, the hops.
"""

import asyncio
import json
import sys
import threading
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import durio
from durio import App
from durio.app.worker_builder import make_worker

HOME = f"{Path(durio.__file__).parent}/"
JOBS = 4
IDLE_SECONDS = 2.0
PAUSE_SECONDS = 0.2  # the worker is idle again
TASK_SECONDS = 0.02  # the caller asks for the result at least once while the task runs


class Trace:
    """Files and lines of the package that run while one job is on its way."""

    def __init__(self) -> None:
        self.lines: dict[str, set[int]] = defaultdict(set)
        self.hops = 0
        self._last = ""

    def on_call(self, file: str) -> None:
        self.lines[file]  # a defaultdict keeps the order of first use
        self.hops += file != self._last
        self._last = file


current: list[Trace] = []  # empty: nothing is traced


def trace_line(frame: FrameType, event: str, _: Any) -> Any:
    if event == "line" and current:
        file = frame.f_code.co_filename.removeprefix(HOME)
        current[0].lines[file].add(frame.f_lineno)
    return trace_line


def trace_call(frame: FrameType, event: str, _: Any) -> Any:
    file = frame.f_code.co_filename
    if not file.startswith(HOME):
        return None
    if event == "call" and current:
        current[0].on_call(file.removeprefix(HOME))
    return trace_line


async def add(a: int, b: int) -> int:
    await asyncio.sleep(TASK_SECONDS)
    return a + b


async def run_jobs(url: str) -> tuple[Trace, list[Trace]]:
    """The trace of the idle worker, and one of each job."""
    app = App(url, name="shop")
    task = app.task(add)
    idle = Trace()
    traces: list[Trace] = []
    async with app:
        worker = await make_worker(app)
        running = asyncio.create_task(worker.run())
        await worker.started.wait()
        await (await task.enqueue(1, 1)).result(timeout=20)
        await asyncio.sleep(PAUSE_SECONDS)
        current[:] = [idle]
        await asyncio.sleep(IDLE_SECONDS)
        current.clear()
        for _ in range(JOBS):
            await asyncio.sleep(PAUSE_SECONDS)
            traces.append(Trace())
            current[:] = traces[-1:]
            await (await task.enqueue(1, 2)).result(timeout=20)
            current.clear()
        worker.stop()
        await running
    return idle, traces


def report(idle: Trace, traces: list[Trace]) -> dict[str, Any]:
    common = set.intersection(*(set(trace.lines) for trace in traces))
    files = {
        file: max(len(trace.lines[file]) for trace in traces)
        for file in traces[0].lines
        if file in common
    }
    hops = min(trace.hops for trace in traces)
    return {"files": files, "idle": sorted(idle.lines), "hops": hops}


if __name__ == "__main__":
    threading.settrace(trace_call)
    sys.settrace(trace_call)
    traced = asyncio.run(run_jobs(sys.argv[1]))
    sys.settrace(None)
    print(json.dumps(report(*traced)))
