"""Two stores on one PostgreSQL, as two processes have them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from durio.host.clock import HostClock
from durio.stores.postgres.store import PostgresStore
from tests.conformance.postgres import ScratchSchema

CLOCK = HostClock()
STORY_SECONDS = 30

Story = Callable[[PostgresStore, PostgresStore], Coroutine[Any, Any, None]]


def run_on_two_stores(scratch_schema: ScratchSchema, story: Story) -> None:
    """What happens between the two of them, and within its time."""

    async def whole() -> None:
        stores = [PostgresStore(scratch_schema.location, CLOCK) for _ in range(2)]
        for store in stores:
            await store.open()
        try:
            async with asyncio.timeout(STORY_SECONDS):
                await story(*stores)
        finally:
            for store in stores:
                await store.close()

    asyncio.run(whole())
