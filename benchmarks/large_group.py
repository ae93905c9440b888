"""A group of many jobs on several worker processes, with an old snapshot held if asked.

    .venv/bin/python -m benchmarks.large_group --members 100000 --processes 8
    .venv/bin/python -m benchmarks.large_group --snapshot-seconds 600

Starts a durable PostgreSQL and the workers, and runs the group once. With
`--snapshot-seconds` it then runs groups for that time while another connection keeps a
snapshot open, so that no dead row version can be removed. Prints for each group the seconds
of its enqueue, and from there to its value, and the CPU time of the server per member, which
also says something on a busy machine. Exits with 1 if a member was lost or counted twice, if
the snapshot did not last, or if the server's log names a deadlock.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.postgres_target import SETTINGS, connected, schemas_at
from durio import group
from durio.bench import workload
from durio.bench.server_cpu import postmaster_of, server_cpu_seconds
from tests.servers.postgres import PostgresServer

WAIT_SECONDS = 1800.0


@contextmanager
def working(url: str, processes: int) -> Generator[None]:
    command = [sys.executable, "-m", "durio", "worker", workload.APP_PATH]
    with (
        TemporaryDirectory(prefix="durio-group-") as folder,
        (Path(folder) / "worker.log").open("wb") as log,
        subprocess.Popen(  # noqa: S603 - our own program
            [*command, "--processes", str(processes), "--store", url],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=log,
            stderr=log,
        ) as worker,
    ):
        try:
            yield
        finally:
            worker.send_signal(signal.SIGTERM)


async def run_group(members: int, head: str, postmaster: int) -> None:
    began, before = time.monotonic(), server_cpu_seconds(postmaster) or 0.0
    plan = group(workload.nothing.s(number) for number in range(members))
    handle = await plan.enqueue()
    stored, between = time.monotonic(), server_cpu_seconds(postmaster) or 0.0
    value = await handle.result(WAIT_SECONDS)
    ended, after = time.monotonic(), server_cpu_seconds(postmaster) or 0.0
    if value != list(range(members)):
        sys.exit(f"{members} members, but the value has {len(value)}: {value[:5]} ...")
    took = ended - stored
    print(
        f"{head}: enqueued in {stored - began:.1f} s, value after {took:.1f} s "
        f"({members / took:,.0f} jobs/s); server {(between - before) / members * 1e6:.1f} "
        f"and {(after - between) / members * 1e6:.1f} us per member",
        flush=True,
    )


async def main(options: argparse.Namespace) -> None:
    with PostgresServer(settings=SETTINGS) as server:
        async with schemas_at(server.url()) as schemas:
            url = workload.app.url = await schemas.new_store()
            with working(url, options.processes):
                async with connected(url) as ask:
                    ((backend,),) = await ask("select pg_backend_pid()")
                postmaster = postmaster_of(backend) or 0
                await run_group(options.members, "no old snapshot", postmaster)
                if options.snapshot_seconds:
                    async with connected(url) as ask:
                        await ask("set idle_in_transaction_session_timeout = 0")
                        await ask("begin isolation level repeatable read")
                        await ask("select count(*) from pg_class")
                        until = time.monotonic() + options.snapshot_seconds
                        while (left := until - time.monotonic()) > 0:
                            held = options.snapshot_seconds - left
                            head = f"snapshot held for {held:.0f} s"
                            await run_group(options.members, head, postmaster)
                        await ask("rollback")
        if "deadlock" in server.said():
            sys.exit("the server's log names a deadlock")
    print("no member lost or doubled, no deadlock in the server's log")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--snapshot-seconds", type=float, default=0.0)
    asyncio.run(main(parser.parse_args()))
