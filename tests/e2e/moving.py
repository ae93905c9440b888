"""A mover that can be made to die at any of its steps, in this process or in its own.

python -m tests.e2e.moving SOURCE TARGET 7     # SIGKILL before the seventh step
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from durio import App
from durio.app import move
from durio.app.connect import connect, masked
from durio.app.move import Mover, export_jobs_from, import_jobs_into
from durio.errors import StoreError
from durio.stores.postgres.driver import DriverError

BATCH = 50
DRAIN_SECONDS = 30.0


class Died(BaseException):
    """The mover has died: nothing after this happens."""


@dataclass
class Steps:
    """Counts the calls of a mover to both stores, and dies before one of these."""

    fatal: int
    die: Callable[[], None]
    count: int = 0

    def of(self, store: Any) -> Any:
        """Return the same store, with its calls counted."""
        return Counted(store, self)

    def next(self) -> None:
        self.count += 1
        if self.count == self.fatal:
            self.die()


class Counted:
    def __init__(self, store: Any, steps: Steps) -> None:
        self._store = store
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not callable(found):
            return found

        async def called(*args: Any, **named: Any) -> Any:
            self._steps.next()
            return await found(*args, **named)

        return called


def die_here() -> None:
    raise Died


def die_for_good() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@asynccontextmanager
async def mover(
    source: str, target: str, steps: Steps | None = None
) -> AsyncIterator[Mover]:
    """Yield a mover with both stores open, as the command has them."""
    steps = steps or Steps(0, die_here)
    async with App(source, name="mover") as app:
        leaving = await app.store()
        arriving = connect(target, app.clock, app.settings)
        await arriving.open()
        try:
            yield Mover(
                steps.of(export_jobs_from(leaving)),
                steps.of(import_jobs_into(arriving)),
                masked(target),
                leaving,
                arriving,
                app.clock,
                lambda *_: None,
            )
        finally:
            await arriving.close()


async def with_fault(moving: Any, nth: int) -> bool:
    """Let the nth statement that is written there fail; True: it came to its end."""
    lines, left = moving.target.connections, nth

    def look(statement: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise DriverError(f"planted at: {statement[:60]}", state="53100")

    lines.on_statement = look
    try:
        await moving.move(drain_seconds=20, by="test")
    except StoreError:
        return False
    finally:
        lines.on_statement = None
    return True


async def main(source: str, target: str, fatal: int) -> None:
    move.BATCH = BATCH
    async with mover(source, target, Steps(fatal, die_for_good)) as moving:
        await moving.move(drain_seconds=DRAIN_SECONDS, by="test")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
