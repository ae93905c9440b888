"""Where a worker spends its time: a drain in this process under cProfile, per job.

Three passes over the same number of jobs: one without a profiler, for the true cost; one
that profiles the event loop's thread; one that profiles the writer's thread. A profiler
makes Python functions look more expensive than they are: read the order, not the figures.
"""

import argparse
import asyncio
import cProfile
import os
import pstats
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jobs

from durio.app.worker_builder import make_worker
from durio.host.processes import loop_factory
from durio.model.settings import LogSettings
from durio.telemetry.log import configure

TOP = 25


class Cost:
    def __init__(self, wall: float, cpu: float, loop_cpu: float) -> None:
        self.wall = wall
        self.cpu = cpu
        self.loop_cpu = loop_cpu

    def tell(self, count: int) -> None:
        """Print microseconds per job."""
        print(
            f"{count / self.wall:,.0f} jobs/s: {self.wall / count * 1e6:.1f} us per job; "
            f"CPU {self.cpu / count * 1e6:.1f} us, of which the event loop's thread "
            f"{self.loop_cpu / count * 1e6:.1f} us"
        )


async def drain(count: int, folder: Path, *, profile: cProfile.Profile | None) -> Cost:
    """Fill a new file, then drain it in this process."""
    jobs.app.url = f"sqlite:///{folder / f'{time.monotonic_ns()}.db'}"
    async with jobs.app:
        await jobs.nothing.enqueue_many([(n,) for n in range(count)])
        worker = await make_worker(jobs.app, is_burst=True)
        began, cpu = time.perf_counter(), time.process_time()
        own = time.thread_time()
        if profile is not None:
            profile.enable()
        await worker.run()
        if profile is not None:
            profile.disable()
        return Cost(
            time.perf_counter() - began,
            time.process_time() - cpu,
            time.thread_time() - own,
        )


def run(main: Callable[[], Any]) -> Any:
    """Run on the loop that `durio worker` would use."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main())


def show(profile: cProfile.Profile, count: int, what: str) -> None:
    """The functions with the most time of their own, in us per job."""
    stats: Any = pstats.Stats(profile)
    rows = sorted(stats.stats.items(), key=lambda item: item[1][2], reverse=True)
    total = sum(row[2] for _, row in rows)
    print(f"\n{what}: {total / count * 1e6:.1f} us per job under the profiler")
    print(f"{'own us':>8} {'all us':>8} {'calls':>7}  function")
    for (file, line, name), (_, calls, own, cumulative, _) in rows[:TOP]:
        where = name if file == "~" else f"{short(file)}:{line} {name}"
        print(
            f"{own / count * 1e6:8.2f} {cumulative / count * 1e6:8.2f} "
            f"{calls / count:7.2f}  {where}"
        )


def short(file: str) -> str:
    """A path relative to the package."""
    return file.rpartition(f"durio{os.sep}")[2] if "durio" in file else Path(file).name


def main(count: int) -> None:
    with (
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        jobs.place() as folder,
    ):
        configure(LogSettings(), nowhere)
        run(lambda: drain(count, folder, profile=None))  # warm-up
        run(lambda: drain(count, folder, profile=None)).tell(count)
        loop = cProfile.Profile()
        run(lambda: drain(count, folder, profile=loop))
        show(loop, count, "the event loop's thread")
        writer = profiled_writer(
            lambda: run(lambda: drain(count, folder, profile=None))
        )
        show(writer, count, "the store's threads (enqueue included)")


def profiled_writer(work: Callable[[], Any]) -> cProfile.Profile:
    """Profile the writer's thread, which `work` starts."""
    profiles: list[cProfile.Profile] = []
    plain = threading.Thread.run

    def run_profiled(thread: threading.Thread) -> None:
        if "writer" not in thread.name:
            plain(thread)
            return
        profile = cProfile.Profile(time.thread_time)
        profiles.append(profile)
        profile.runcall(plain, thread)

    threading.Thread.run = run_profiled  # type: ignore[method-assign]
    try:
        work()
    finally:
        threading.Thread.run = plain  # type: ignore[method-assign]
    return profiles[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    main(parser.parse_args().jobs)
