"""Real files, a real clock, and other processes where a promise is about them."""

import asyncio
import os
import subprocess  # noqa: TID251 - several processes share one file: that is the point
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from durio.host.clock import HostClock
from durio.model.job import NewJob
from durio.ports.lease import WorkerInfo
from durio.stores.sqlite.store import SqliteStore

ROOT = Path(__file__).parents[3]
LANE = "shop:default"
INFO = WorkerInfo("shop", "h/1", "h", 1, None, 10, "0")
CLOCK = HostClock()

Story = Callable[[SqliteStore], Coroutine[Any, Any, None]]


def new_job(**fields: Any) -> NewJob:
    given = {"lane": LANE, "rank": 4, "task": "shop.pay", "payload": b"[[],{}]"}
    return NewJob(**{"id": CLOCK.new_id(), **given, **fields})


def run_on_store(path: Path | None, story: Story, **options: Any) -> None:
    """Run a story with an open store."""

    async def whole() -> None:
        store = SqliteStore(path and str(path), CLOCK, **options)
        await store.open()
        try:
            await story(store)
        finally:
            await store.close()

    asyncio.run(whole())


def start(script: str, *arguments: object) -> "subprocess.Popen[str]":
    """A process of its own; the script's `tell`, `LANE` and so on are those of here."""
    prelude = "import sys\nfrom pathlib import Path\nfrom tests.unit.stores.sqlite_harness import *\n"
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", prelude + script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
    )


def lines_of(process: "subprocess.Popen[str]") -> list[str]:
    """Everything it says until it ends, which must be well."""
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    return said.splitlines()
