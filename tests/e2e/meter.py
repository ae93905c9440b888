"""An App whose worker records its own memory, every few jobs."""

import os
from pathlib import Path

from durio import App
from durio.host.processes import own_rss_bytes
from tests.e2e.ledger import VARIABLE

EVERY = 5_000
app = App(name="meter")
done = 0


@app.task
async def tick(number: int, ballast: str = "") -> int:
    global done  # noqa: PLW0603 - one counter for the life of this process
    done += 1
    if done % EVERY == 0:
        with (Path(os.environ[VARIABLE]) / "rss").open("a") as file:
            file.write(f"{done} {own_rss_bytes()}\n")
    return number + len(ballast)
