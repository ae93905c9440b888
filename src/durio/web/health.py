"""Health for probes and monitors: one word, within 2 s, whatever the store does."""

import asyncio

from durio.model.errors import DurioError
from durio.web.site import Site

HEALTH_PATHS = frozenset({"/livez", "/readyz", "/startupz", "/healthz"})
ANSWER_SECONDS_MAX = 1.5


async def health_answer(site: Site, path: str) -> bool:
    """Whether the process is alive, or can do its work: each path asks more."""
    if path == "/livez":
        return True  # this event loop has just turned
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            store = await site.store()
            if path == "/startupz":
                return True  # open: its schema is right
            await store.records("health", ["x"])
            if path == "/readyz":
                return True
            workers = await store.workers(site.app.name)
            return any(worker.lease_seconds_left > 0 for worker in workers)
    except (TimeoutError, DurioError):
        return False
