"""A dashboard in a process of its own, and the worker beside it."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx

from benchmarks.dashboard_workload import APP_NAME, APP_PATH

HOST = "127.0.0.1"
START_SECONDS = 60.0
END_SECONDS = 20.0


def free_port() -> int:
    with socket.create_server((HOST, 0)) as taken:
        return taken.getsockname()[1]


@contextmanager
def process(command: list[str], log: Path) -> Generator[subprocess.Popen[bytes]]:
    """A process of ours; its output goes to a file."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with log.open("wb") as out:
        running = subprocess.Popen(  # noqa: S603 - our own program
            command, env=environ, stdout=out, stderr=out
        )
        try:
            yield running
        finally:
            running.terminate()
            try:
                running.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


def worker_command(url: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "durio", "worker", APP_PATH, "--store", url, *options]


def server_command(url: str, port: int, name: str = APP_NAME) -> list[str]:
    """Return the command of the dashboard of an App, whose code it does not need."""
    where = ["--store", url, "--name", name, "--port", str(port)]
    return [sys.executable, "-m", "durio", "dashboard", *where]


async def wait_until_ready(address: str) -> None:
    """Wait until the dashboard answers."""
    async with httpx.AsyncClient() as client, asyncio.timeout(START_SECONDS):
        while True:
            try:
                answer = await client.get(f"{address}/livez")
            except httpx.TransportError:
                pass
            else:
                if answer.is_success:
                    return
            await asyncio.sleep(0.05)
