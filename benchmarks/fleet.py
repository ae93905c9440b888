"""`durio worker --processes N`: memory of N processes, and recovery after a kill.

RSS counts shared pages in full for each process; PSS divides them between processes. So
the sum of PSS is what N processes really use.
"""

import argparse
import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import jobs

from durio.demo.record import LedgerLine, LedgerLineKind, read_ledger
from durio.host.processes import Subprocess, Subprocesses

WAIT_SECONDS = 120.0
WARM_JOBS = 2_000
HELD = 20  # jobs held by the workers when one is killed
HELD_SECONDS = 60.0
AIM_SECONDS = 2.0
MIB = 2**20


async def until(condition: Callable[[], object], what: str) -> None:
    """Poll until it holds."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        jobs.check(time.monotonic() < deadline, what)
        await asyncio.sleep(0.01)


def worker_pids(supervisor: Subprocess) -> list[int]:
    path = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children")
    return [int(pid) for pid in path.read_text().split()]


def memory(pid: int) -> tuple[float, float]:
    """RSS and PSS of a process, in MiB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    rows = dict(line.split(":", 1) for line in text.splitlines()[1:])
    return tuple(int(rows[name].split()[0]) * 1024 / MIB for name in ("Rss", "Pss"))  # pyright: ignore[reportReturnType]


async def ready(supervisor: Subprocess, processes: int) -> None:
    """Wait until this many workers are registered."""
    store = await jobs.app.store()
    deadline = time.monotonic() + WAIT_SECONDS
    while len(await store.workers(jobs.app.name)) < processes:
        jobs.check(supervisor.is_running, supervisor.tail())
        jobs.check(time.monotonic() < deadline, f"{processes} workers are ready")
        await asyncio.sleep(0.02)


async def measure_memory(processes: int) -> None:
    """Start this many, let each do some work, and measure them."""
    with jobs.place() as folder, Subprocesses() as children:
        url = jobs.app.url = jobs.url_in(folder)
        flags = () if processes == 0 else ("--processes", str(processes))
        async with jobs.app:
            top = jobs.start_worker(children, folder, url, *flags)
            await ready(top, max(processes, 1))
            await jobs.nothing.enqueue_many([(n,) for n in range(WARM_JOBS)])
            await jobs.drained(WAIT_SECONDS)
            workers = worker_pids(top) if processes else []
            weights = [memory(pid) for pid in (top.pid, *workers)]
            top.terminate()
            jobs.wait(top, WAIT_SECONDS)
    rss, pss = (sum(column) for column in zip(*weights, strict=True))
    print(
        f"{processes or 'no'} processes: RSS {rss:6.1f} MiB, PSS {pss:6.1f} MiB in all; "
        f"the first process {weights[0][0]:.1f} RSS, {weights[0][1]:.1f} PSS"
        + "".join(f"; worker {w[0]:.1f} RSS, {w[1]:.1f} PSS" for w in weights[1:2])
    )


async def measure_restart(processes: int, rounds: int) -> None:
    """Kill one worker while it runs jobs, and measure when each job starts again."""
    seen = sorted([await seconds_to_restart(processes) for _ in range(rounds)])
    told = ", ".join(f"{seconds:.2f}" for seconds in seen)
    print(f"{processes} processes, one killed: its jobs start again after {told} s")
    jobs.check(seen[-1] < 3 * AIM_SECONDS, f"the aim is {AIM_SECONDS:g} s")


async def seconds_to_restart(processes: int) -> float:
    """From the kill to the last restart of a job that the killed worker held."""
    with jobs.place() as folder, Subprocesses() as children:
        url = jobs.app.url = jobs.url_in(folder)
        async with jobs.app:
            flags = ("--processes", str(processes), "-c", str(HELD), "--grace", "0")
            top = jobs.start_worker(children, folder, url, *flags)
            await ready(top, processes)
            await jobs.sleep.enqueue_many([(n, HELD_SECONDS) for n in range(HELD)])
            await until(lambda: len(starts(folder)) >= HELD, "all have started")
            victim = starts(folder)[0].pid
            held = {entry.job for entry in starts(folder) if entry.pid == victim}
            killed_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            os.kill(victim, signal.SIGKILL)
            await until(lambda: held <= {*again(folder, victim)}, "they start again")
            top.terminate()
            top.wait(WAIT_SECONDS)
            moments = again(folder, victim)
    return (max(moments[job] for job in held) - killed_ns) / 1e9


def starts(folder: Path) -> list[LedgerLine]:
    """Every start so far."""
    entries = read_ledger(folder / "ledger")
    return [entry for entry in entries if entry.ev == LedgerLineKind.STARTED]


def again(folder: Path, victim: int) -> dict[str, int]:
    """When jobs of the killed worker started in another process."""
    found = starts(folder)
    return {entry.job: entry.mono_ns for entry in found if entry.pid != victim}


async def main(rounds: int) -> None:
    for processes in (0, 1, 2, 4):
        await measure_memory(processes)
    for processes in (1, 2, 4):
        await measure_restart(processes, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    asyncio.run(main(parser.parse_args().rounds))
