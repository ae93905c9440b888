"""The program of `test_worker_before.py`, run with the package of an earlier commit.

It makes a store with jobs in many states, and is then a worker on it: one job at a time, so
that those behind `wait_for_file` wait. The test has the same App, with the code of today.
"""

import asyncio
import json
import os
import runpy
import sys
import time
from pathlib import Path

from durio import App
from durio.keys import while_active, while_waiting, window
from tests.upgrade.command_line import durio
from tests.upgrade.shop import LASTING, Shop, make_shop

LOOK_SECONDS = 0.01


def make_app(url: str, *, is_healthy: bool) -> Shop:
    shop = make_shop(url, is_healthy=is_healthy)

    @shop.app.task(name="wait_for_file")
    def wait_for_file(path: str) -> str:
        Path(f"{path}.begun").touch()
        while not Path(path).exists():
            time.sleep(LOOK_SECONDS)
        return "found"

    return shop


def app() -> App:
    return make_app(os.environ["DURIO_URL"], is_healthy=False).app


async def fill(url: str, folder: Path) -> dict[str, str]:
    """Return the ids of the jobs by name."""
    shop = make_app(url, is_healthy=False)
    add, held = shop.add.options, shop.app.named("wait_for_file").options
    async with shop.app:
        jobs = {
            "dead": await shop.forget.options(queue="default").enqueue("A-1"),
            "dead_key": await shop.forget.options(
                queue="default", key="A-2", unique=window(LASTING)
            ).enqueue("A-2"),
            "done_key": await add(key="done", unique=window(LASTING)).enqueue(1, 1),
            "running": await held(key="run", unique=while_active).enqueue(
                str(folder / "go")
            ),
            "ready": await add().enqueue(2, 1),
            "ready_key": await add(key="wait", unique=while_waiting).enqueue(3, 1),
            "scheduled": await add(delay="1d").enqueue(4, 1),
            "unserved": await add(queue="letters").enqueue(5, 1),
        }
    return {name: job.id for name, job in jobs.items()}


if __name__ == "__main__":
    place, address = Path(sys.argv[1]), os.environ["DURIO_URL"]
    names = place / "named.json"
    if not names.exists():
        durio(address, "migrate")
        names.write_text(json.dumps(asyncio.run(fill(address, place))))
    sys.argv = ["durio", "worker", "tests.upgrade.worker_before:app", "-q", "default"]
    runpy.run_module("durio", run_name="__main__", alter_sys=True)
