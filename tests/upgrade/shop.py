"""The App of the upgrade tests: the stored fixtures were made with it, and it opens them.

While the shop is not healthy, cards are refused and `hold` never ends. So the fixtures
have dead and running jobs, and the tests can finish the same jobs later.

The fixtures must be usable for many years: nothing in them may expire.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from durio import App, Context, Permanent, Retry

NAME = "shop"
LASTING = "18250d"  # 50 years
LASTING_SECONDS = 18250 * 86400.0
BOUND_IN_CODE = 500

SETTINGS: dict[str, dict[str, Any]] = {
    "retention": {
        "done_seconds": LASTING_SECONDS,
        "dead_seconds": LASTING_SECONDS,
        "result_seconds": LASTING_SECONDS,
    },
    "worker": {
        "unknown_task_seconds": LASTING_SECONDS,
        "lease_seconds": 15,
        "heartbeat_seconds": 1,
        "rescue_seconds": 0.5,
        "leader_seconds": 1,
    },
}

Middleware = Callable[[Context[Any], Callable[[], Awaitable[Any]]], Awaitable[Any]]


class CardRefused(Exception):
    """The bank says no."""


@dataclass(frozen=True)
class Shop:
    """An App and its tasks."""

    app: App
    add: Any
    describe: Any
    charge: Any
    forget: Any
    flaky: Any
    hold: Any
    invoice: Any


def make_shop(
    url: str,
    *,
    is_healthy: bool = True,
    knows_invoices: bool = True,
    middleware: Sequence[Middleware] = (),
) -> Shop:
    app = App(url, name=NAME, settings=SETTINGS, middleware=middleware)
    app.queue("parcels", maxsize=BOUND_IN_CODE, full_wait=0)

    @app.task(name="add")
    async def add(a: int, b: int) -> int:
        return a + b

    @app.task(name="describe", queue="mail", priority=7)
    async def describe(ctx: Context, text: str, *, tags: list[str]) -> dict[str, Any]:
        await ctx.progress(1, 2, message=f"half of {text[:8]}")
        return {"text": text, "tags": tags, "length": len(text), "note": None}

    @app.task(name="charge", retry=Retry(2, delays=(0.05, 0.05)))
    async def charge(order: str, cents: int) -> str:
        if not is_healthy:
            raise CardRefused(f"the card for order {order} is refused")
        return f"{order}: {cents}"

    @app.task(name="forget", queue="mail")
    async def forget(order: str) -> str:
        if not is_healthy:
            raise Permanent(f"there is no order {order}")
        return order

    @app.task(name="flaky", retry=Retry(3, delays=(20, 20, 20), jitter=False))
    async def flaky(order: str) -> str:
        if not is_healthy:
            raise ConnectionError(f"no connection for order {order}")
        return order

    @app.task(name="hold")
    async def hold(ctx: Context, order: str) -> str:
        await ctx.progress(1, 4, message=f"packing {order}", state="packing")
        if not is_healthy:
            await asyncio.Event().wait()
        return order

    async def invoice(order: str) -> str:
        return f"invoice for {order}"

    if knows_invoices:
        invoice = app.task(name="invoice")(invoice)
    return Shop(app, add, describe, charge, forget, flaky, hold, invoice)
