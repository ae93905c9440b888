"""What 200 viewers of the dashboard's stream cost a worker at full load, on SQLite.

    .venv/bin/python -m benchmarks.dashboard_viewers
    .venv/bin/python -m benchmarks.dashboard_viewers --viewers 200 --runs 6 --jobs 200000

Drains jobs with one worker, by turns alone and beside a dashboard with this many open
streams, and prints the median of the ratios of jobs per second. Then it counts the
instructions of the worker for each job by valgrind, which do not depend on what else the
machine does. Exits with 1 if a ratio is below its aim, or if a viewer got no message.
"""

import argparse
import asyncio
import contextlib
import json
import re
import signal
import statistics
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.dashboard_server import (
    HOST,
    free_port,
    process,
    server_command,
    wait_until_ready,
)
from benchmarks.dashboard_workload import make_token
from durio.bench import workload
from durio.bench.measure import Benchmark, scratch_folder
from durio.bench.targets import SqliteBenchTarget

RATE_AIM, INSTRUCTIONS_AIM = 0.9, 0.97
# What the screens of viewers watch: the overview, queues, lists of jobs, workers.
TOPICS = ("overview,queues", "queues,jobs", "jobs,dead", "workers,limits", "overview")
COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")
VALGRIND = [
    *("valgrind", "--tool=cachegrind", "--cache-sim=no"),
    "--cachegrind-out-file=/dev/null",
]


# --- viewers, in a process of their own


async def watch(address: str, token: str, viewers: int) -> None:
    """Open streams and count their messages until SIGTERM; print the counts."""
    found = [0] * viewers
    is_open = [asyncio.Event() for _ in range(viewers)]
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    watching = [
        asyncio.create_task(view(address, token, number, found, is_open[number]))
        for number in range(viewers)
    ]
    await asyncio.gather(*(each.wait() for each in is_open))
    print("open", flush=True)
    await ended.wait()
    for each in watching:
        each.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    print(json.dumps({"messages": sum(found), "without": found.count(0)}), flush=True)


async def view(
    address: str, token: str, number: int, found: list[int], is_open: asyncio.Event
) -> None:
    """Read one stream for ever, and begin again when it ends, as a page does."""
    where, topics = urlsplit(address), TOPICS[number % len(TOPICS)]
    request = (
        f"GET /admin/stream?topics={topics} HTTP/1.1\r\nHost: {where.netloc}\r\n"
        f"Authorization: Bearer {token}\r\nAccept: text/event-stream\r\n\r\n"
    )
    while True:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        try:
            writer.write(request.encode())
            async for line in reader:
                is_open.set()
                found[number] += line.startswith(b"data:")
        finally:
            writer.close()


@asynccontextmanager
async def viewed(
    url: str, viewers: int, folder: Path
) -> AsyncGenerator[dict[str, int]]:
    """A dashboard with viewers for the length of the block; then what they got."""
    port, told = free_port(), dict[str, int]()
    address = f"http://{HOST}:{port}"
    token = await make_token(workload.app)
    command = server_command(url, port, workload.NAMESPACE)
    with process(command, folder / "dashboard.log"):
        await wait_until_ready(address)
        client = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.dashboard_viewers"),
            *("--watch", address, token, "--viewers", str(viewers)),
            stdout=subprocess.PIPE,
        )
        assert client.stdout is not None  # noqa: S101 - asked for
        await client.stdout.readline()
        try:
            yield told
        finally:
            with contextlib.suppress(ProcessLookupError):
                client.terminate()
            told |= json.loads(await client.stdout.readline())
            await client.wait()


# --- measuring


class Viewers:
    """Runs of one worker, alone and beside viewers."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.bench = Benchmark(
            folder, SqliteBenchTarget(folder, None), options.jobs, 0, 0.0, print
        )
        self.messages: list[dict[str, int]] = []

    @asynccontextmanager
    async def filled(self, jobs: int, *, is_viewed: bool) -> AsyncGenerator[str]:
        """A new store with jobs that wait, viewed or not."""
        url = await self.bench.open_new_store()
        await workload.nothing.enqueue_many([(number,) for number in range(jobs)])
        if not is_viewed:
            yield url
            return
        async with viewed(url, self.options.viewers, self.folder) as told:
            yield url
        self.messages.append(told)

    async def rate(self, *, is_viewed: bool) -> tuple[float, float]:
        """Return jobs per second, and the worker's CPU time per job in microseconds."""
        async with self.filled(self.options.jobs, is_viewed=is_viewed) as url:
            drain = await self.bench.measure_drain(url)
        return drain.per_s, drain.cpu_us_per_job

    async def rates(self) -> dict[str, Any]:
        """Alternate runs without and with viewers."""
        ratios: list[float] = []
        costs: list[float] = []
        for number in range(self.options.runs):
            alone, alone_cpu = await self.rate(is_viewed=False)
            beside, beside_cpu = await self.rate(is_viewed=True)
            ratios.append(beside / alone)
            costs.append(alone_cpu / beside_cpu)
            print(
                f"run {number + 1}: {alone:,.0f} jobs/s alone, {beside:,.0f} viewed; "
                f"CPU {alone_cpu:.1f} and {beside_cpu:.1f} us per job; "
                f"{self.messages[-1]['messages']:,} messages",
                flush=True,
            )
        return {
            "rate_ratio": round(statistics.median(ratios), 3),
            "cpu_ratio": round(statistics.median(costs), 3),
            "rate_ratios": [round(each, 3) for each in ratios],
        }

    async def instructions(self, jobs: int, *, is_viewed: bool) -> int:
        """Return the instructions of a worker that drains this many jobs."""
        async with self.filled(jobs, is_viewed=is_viewed) as url:
            command = [*VALGRIND, sys.executable, "-m", "durio", "worker"]
            command += [workload.APP_PATH, "--burst", "--store", url]
            worker = await asyncio.create_subprocess_exec(
                *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            said, _ = await worker.communicate()
        counted = COUNTED.search(said.decode())
        if worker.returncode or counted is None:
            sys.exit(f"valgrind failed:\n{said.decode()[-2000:]}")
        return int(counted[1].replace(",", ""))

    async def instruction_ratio(self) -> dict[str, Any]:
        """Compare the instructions per job; those of a worker without jobs are left out."""
        jobs = self.options.counted_jobs
        start = await self.instructions(0, is_viewed=False)
        pairs = [
            (
                (await self.instructions(jobs, is_viewed=False) - start) / jobs,
                (await self.instructions(jobs, is_viewed=True) - start) / jobs,
            )
            for _ in range(self.options.counted_runs)
        ]
        for alone, beside in pairs:
            print(f"{alone:,.0f} instructions per job alone, {beside:,.0f} viewed")
        ratio = statistics.median(alone / beside for alone, beside in pairs)
        return {"instruction_ratio": round(ratio, 3), "instructions": pairs}


async def main(options: argparse.Namespace) -> dict[str, Any]:
    with scratch_folder() as folder:
        viewers = Viewers(options, folder)
        with viewers.bench.children:
            figures = await viewers.rates()
            if options.counted_jobs:
                figures |= await viewers.instruction_ratio()
            await workload.app.close()
    figures["silent_viewers"] = max(each["without"] for each in viewers.messages)
    return figures


def missed(figures: dict[str, Any]) -> list[str]:
    """Return what is not as it should be."""
    found: list[str] = []
    if figures["rate_ratio"] < RATE_AIM:
        found.append(f"the rate is below {RATE_AIM}")
    if figures.get("instruction_ratio", 1.0) < INSTRUCTIONS_AIM:
        found.append(f"the ratio of instructions is below {INSTRUCTIONS_AIM}")
    if figures["silent_viewers"]:
        found.append(f"{figures['silent_viewers']} viewers got no message")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=200_000, help="of each run")
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument(
        "--counted-jobs", type=int, default=3_000, help="0: no valgrind"
    )
    parser.add_argument("--counted-runs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="keep the figures there")
    parser.add_argument("--watch", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.watch:
        asyncio.run(watch(given.watch[0], given.watch[1], given.viewers))
        sys.exit()
    result = asyncio.run(main(given))
    print(json.dumps(result, indent=1))
    if given.json:
        given.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if problems := missed(result):
        sys.exit("; ".join(problems))
