"""Jobs per second against worker processes, and against prefetch.

.venv/bin/python -m benchmarks.postgres_scaling --jobs 200000 --svg docs/reports/postgres.svg

The queue is paused while it is filled and while the workers start. The time goes from the
first claim to the last finish, by the server's clock. Every job must be done once.
"""

import argparse
import asyncio
import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import postgres_target
from benchmarks.postgres_plot import svg
from durio.bench import workload
from durio.bench.targets import PostgresBenchTarget
from durio.host.processes import Subprocesses, durio_command, loop_factory

PROCESSES = (1, 2, 4)
PREFETCH = (0, 8, 32, 64, 128, 256)
READY_SECONDS_MAX = 60.0
DRAIN_SECONDS_MAX = 1800.0
SPAN = """
select count(*), count(distinct id), min(started_at), max(finished_at)
from {schema}.hist where state = 4
"""
IS_LEFT = "select exists (select 1 from {schema}.job)"  # asked often: it must be cheap
LOOK_SECONDS = 0.25


async def main(options: argparse.Namespace) -> dict[str, Any]:
    """Every point, the best of some passes."""
    async with postgres_target.target(options.store) as ground:
        by_processes = {
            count: await best(ground, options, processes=count, prefetch=256)
            for count in PROCESSES
        }
        by_prefetch = {
            ahead: await best(ground, options, processes=1, prefetch=ahead)
            for ahead in PREFETCH
        }
        facts = await ground.engine_facts()
    return {
        "jobs": options.jobs,
        "passes": options.passes,
        "by_processes": by_processes,
        "by_prefetch": by_prefetch,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "loop": "asyncio" if loop_factory() is None else "uvloop",
        "postgresql": facts["postgresql"],
        "settings": facts["settings"],
    }


async def best(
    target: PostgresBenchTarget,
    options: argparse.Namespace,
    *,
    processes: int,
    prefetch: int,
) -> int:
    """Jobs per second, the best of some passes."""
    found = [
        await drained(target, options.jobs, processes, prefetch)
        for _ in range(options.passes)
    ]
    per_s = round(max(found))
    print(f"{processes} processes, prefetch {prefetch}: {per_s:,} jobs/s", flush=True)
    return per_s


async def drained(
    target: PostgresBenchTarget, jobs: int, processes: int, prefetch: int
) -> float:
    """One pass: fill, start workers, resume the queue, wait."""
    await workload.app.close()
    workload.app.url = url = await target.new_store()
    await postgres_target.fill(jobs)
    environ = {"DURIO_URL": url, "DURIO_WORKER__PREFETCH": str(prefetch)}
    with tempfile.TemporaryDirectory() as name, Subprocesses() as children:
        for number in range(processes):
            children.start(
                [*durio_command(), "worker", workload.APP_PATH],
                log=Path(name) / f"{number}.log",
                environ=environ,
            )
        await postgres_target.workers_ready(processes, READY_SECONDS_MAX)
        await postgres_target.resume()
        async with asyncio.timeout(DRAIN_SECONDS_MAX):
            await empty(url, children)
    done, ids, first, last = (await postgres_target.rows(url, SPAN))[0]
    if not done == ids == jobs:
        raise SystemExit(f"BROKEN: {done} done, {ids} different ones, of {jobs}")
    return jobs / (last - first)


async def empty(url: str, children: Subprocesses) -> None:
    """Wait until no job waits or runs."""
    async with postgres_target.connected(url) as ask:
        while (await ask(IS_LEFT))[0][0]:
            for child in children.started:
                if not child.is_running:
                    raise SystemExit(f"BROKEN: a worker ended:\n{child.tail()}")
            await asyncio.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", help="default: a PostgreSQL of its own")
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--svg", type=Path, help="draw it there")
    parser.add_argument("--json", type=Path, help="keep the figures there")
    given = parser.parse_args()
    figures = asyncio.run(main(given))
    text = json.dumps(figures, indent=1)
    print(text)
    if given.json:
        given.json.write_text(text + "\n", encoding="utf-8")
    if given.svg:
        given.svg.write_text(svg(figures), encoding="utf-8")
