"""CPU-bound jobs in two child processes, against two bare processes in the same run.

Each round does the same work three times: in one bare process, in two, and as jobs of a
worker with two children. The best round of each counts: a busy machine disturbs all three.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jobs

from durio import App
from durio.host.processes import Subprocess, Subprocesses, durio_command

GAIN_SHARE_MIN = 0.85
WAIT_SECONDS = 300.0
LOOK_SECONDS = 0.01
WATCH_SECONDS = 0.25  # polling takes time from two busy cores

app = App(name="children", settings={"worker": {"children": 2}})


@app.task(process=True)
def compute(turns: int) -> int:
    total = 0
    for number in range(turns):
        total = (total * 31 + number) % 1_000_003
    return total


def bare(processes: int, count: int, turns: int) -> float:
    """Seconds for `count` calls in processes that have started already."""
    shares = [count // processes] * processes
    started = [
        subprocess.Popen(  # noqa: S603 - this very file
            [sys.executable, __file__, "--bare", str(share), "--turns", str(turns)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for share in shares
    ]
    for process in started:
        _say(process, None)
    began = time.perf_counter()
    for process in started:
        _say(process, b"go\n")
    for process in started:
        process.wait(WAIT_SECONDS)
    took = time.perf_counter() - began
    for process in started:
        process.communicate()
    return took


def _say(process: "subprocess.Popen[bytes]", word: bytes | None) -> None:
    """Wait until it is ready (None), or send it a line."""
    if process.stdin is None or process.stdout is None:
        raise SystemExit("BROKEN: no pipe")
    if word is None:
        process.stdout.readline()
    else:
        process.stdin.write(word)
        process.stdin.flush()


def be_bare(count: int, turns: int) -> None:
    """The program of one bare process."""
    print("up", flush=True)
    sys.stdin.readline()
    for _ in range(count):
        compute(turns)
    os._exit(0)


async def as_jobs(count: int, turns: int) -> float:
    """Seconds from the first claim to the last finish."""
    before = {record.id for record in await records()}
    await compute.enqueue_many([(turns,)] * count)
    store = await app.store()
    while any(row.counts for row in await store.queues(app.name, counts=True)):
        await app.clock.sleep(WATCH_SECONDS)
    found = [record for record in await records() if record.id not in before]
    jobs.check(jobs.states(found) == {"done": count}, "every job is done")
    return jobs.span_seconds(found)


async def records() -> list[jobs.StoredJob]:
    jobs.app = app
    return await jobs.records()


def start_worker(children: Subprocesses, folder: Path) -> Subprocess:
    """A worker with two children, both ready."""
    command = (*durio_command(), "worker", "children:app", "-c", "4")
    worker = jobs.start(children, folder, app.url, *command)
    deadline = time.monotonic() + WAIT_SECONDS
    while worker.log.read_text().count("child.started") < 2:  # noqa: PLR2004
        jobs.check(worker.is_running and time.monotonic() < deadline, worker.tail())
        time.sleep(LOOK_SECONDS)
    return worker


async def main(count: int, turns: int, rounds: int, *, is_json: bool) -> None:
    best = {"one": float("inf"), "two": float("inf"), "children": float("inf")}
    with jobs.place() as folder, Subprocesses() as children:
        app.url = jobs.url_in(folder)
        async with app:
            worker = start_worker(children, folder)
            for _ in range(rounds):
                best["one"] = min(best["one"], bare(1, count, turns))
                best["two"] = min(best["two"], bare(2, count, turns))
                best["children"] = min(best["children"], await as_jobs(count, turns))
            worker.terminate()
            jobs.wait(worker, WAIT_SECONDS)
    tell(best, count, is_json=is_json)


def tell(best: dict[str, float], count: int, *, is_json: bool) -> None:
    """Print the figures, and check that they are good enough."""
    gain_two, gain_children = best["one"] / best["two"], best["one"] / best["children"]
    told: dict[str, Any] = {
        "jobs": count,
        "one_bare_seconds": round(best["one"], 3),
        "two_bare_seconds": round(best["two"], 3),
        "children_seconds": round(best["children"], 3),
        "gain_two_bare": round(gain_two, 3),
        "gain_children": round(gain_children, 3),
        "share_of_gain": round(gain_children / gain_two, 3),
        "share_wanted": GAIN_SHARE_MIN,
    }
    if is_json:
        print(json.dumps(told))
    else:
        print("\n".join(f"{name:>18}  {value}" for name, value in told.items()))
    if gain_children < GAIN_SHARE_MIN * gain_two:
        raise SystemExit(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=80)
    parser.add_argument("--turns", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--bare", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        be_bare(options.bare, options.turns)
    asyncio.run(main(options.jobs, options.turns, options.rounds, is_json=options.json))
