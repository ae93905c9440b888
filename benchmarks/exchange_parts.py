"""What one exchange costs on PostgreSQL, part by part, by `auto_explain`.

    .venv/bin/python -m benchmarks.exchange_parts --jobs 30000

Runs one worker on a temporary, durable server that explains each statement, and prints for
each part of the exchange its time per job, without the time of other parts that it reads.
Measuring each row makes the statement slower, so the shares count and not the sums; the last lines
show the statement's time per job, and that without the measurement of rows.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from benchmarks.postgres_target import SETTINGS, schemas_at
from durio.bench import workload
from tests.servers.postgres import PostgresServer

EXPLAIN = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_format": "json",
    "auto_explain.log_nested_statements": "off",
}
# Parts that only an exchange has together.
PARTS = {"finished", "taken", "keys_to_free"}
REST = "(the rows that are returned)"
PLANS = re.compile(r"duration: [\d.]+ ms +plan:\n((?:\t.*\n)+)")

Node = dict[str, Any]


def plans(log: str) -> Iterator[Node]:
    """The plan of each exchange in the server's log."""
    for text in PLANS.findall(log):
        plan = json.loads(text.replace("\n\t", "\n"))["Plan"]
        if set(parts_of(plan)) >= PARTS:
            yield plan


def parts_of(plan: Node) -> dict[str, Node]:
    """The parts of a statement by their names; all of them are below its first node."""
    return {part_name(node): node for node in plan.get("Plans", ()) if part_name(node)}


def part_name(node: Node) -> str:
    head, _, name = str(node.get("Subplan Name", "")).partition("CTE ")
    return "" if head else name


def milliseconds(node: Node) -> float:
    return float(node["Actual Total Time"]) * float(node["Actual Loops"])


def own_milliseconds(node: Node) -> float:
    """The time of a part without that of the parts which it reads."""
    return milliseconds(node) - sum(map(milliseconds, readers(node)))


def readers(node: Node) -> Iterator[Node]:
    """Each node below that reads the rows of another part; the first one has it run."""
    for each in node.get("Plans", ()):
        if each["Node Type"] == "CTE Scan":
            yield each
        elif not part_name(each):
            yield from readers(each)


async def drain(server: PostgresServer, jobs: int) -> None:
    async with schemas_at(server.url()) as schemas:
        url = workload.app.url = await schemas.new_store()
        await workload.nothing.enqueue_many([(number,) for number in range(jobs)])
        command = [
            sys.executable,
            "-m",
            "durio",
            "worker",
            workload.APP_PATH,
            "--burst",
        ]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        worker = await asyncio.create_subprocess_exec(
            *command, "--store", url, env=environ, stderr=subprocess.DEVNULL
        )
        if await worker.wait():
            sys.exit(f"the worker ended with {worker.returncode}")


def main(jobs: int) -> None:
    with PostgresServer(settings={**SETTINGS, **EXPLAIN}) as server:
        asyncio.run(drain(server, jobs))
        log = server.said()
    costs: defaultdict[str, float] = defaultdict(float)
    exchanges, whole = 0, 0.0
    for plan in plans(log):
        exchanges += 1
        whole += milliseconds(plan)
        costs[REST] += own_milliseconds(plan)
        for name, part in parts_of(plan).items():
            costs[name] += own_milliseconds(part)
    if not exchanges:
        sys.exit("the server's log has no exchange")
    print(f"{jobs:,} jobs, {exchanges} exchanges with outcomes and claims")
    for name, cost in sorted(costs.items(), key=lambda item: -item[1]):
        print(f"{name:30} {1000 * cost / jobs:6.2f} us per job {cost / whole:5.0%}")
    print(f"{'whole':30} {1000 * whole / jobs:6.2f} us per job")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=30_000)
    main(parser.parse_args().jobs)
