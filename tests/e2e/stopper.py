"""A process that stops itself inside a write transaction, and ends when it is resumed."""

import asyncio
import signal
import threading
from typing import Any

from tests.e2e.jobs import app


async def main() -> None:
    async with app:
        store: Any = await app.store()
        await store.context.writer.write(stop)


def stop(tx: Any) -> None:
    assert tx.db.in_transaction
    # To this very thread: if it were sent to the process, another thread might take the
    # signal, and this one would run on for a moment and commit.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


if __name__ == "__main__":
    asyncio.run(main())
