"""The App of the browser's tests: a shop on a day on which its bank and mail server fail.

DURIO_URL=sqlite:////tmp/shop.db durio worker tests.browser.shop:app
DURIO_URL=sqlite:////tmp/shop.db python -m tests.browser.shop    # fills the store
"""

import asyncio
import json
from typing import Any

from durio import App, Concurrency, Context, Permanent, Retry, chain, chord, group
from durio.limits import Breaker

HOSTILE = '<img src=x onerror="document.title=1">\u202e\u200b\x1b[31m'
FAST = Retry(1, base=0.1, jitter=False)

app = App(
    name="shop",
    breakers=[
        Breaker("smtp", failures=3, window="60s", open_for="10m"),
        Breaker("carrier", failures=3, window="60s", open_for="10m"),
    ],
)


class CardRefused(Exception):
    """The bank refuses a card."""


@app.cron("30 2 * * *", tz="Europe/Berlin")
@app.task(queue="reports")
async def daily_report() -> str:
    return "sent"


@app.every("1h")
@app.task(queue="reports")
async def sync_stock() -> int:
    return 3


@app.task(priority=7)
async def resize(ctx: Context, path: str, width: int = 200) -> dict[str, Any]:
    await ctx.progress(1, 2, message=f"resizing {path}")
    ctx.log.info("resized %s", path)
    return {"path": path, "width": width, "bytes": 2**60 + 1}


@app.task(queue="payments", retry=FAST)
async def charge(ctx: Context, order_id: int, amount: str) -> str:
    """Refuse every card, once it has been tried."""
    ctx.log.warning("trying card of order %d", order_id)
    try:
        json.loads(amount)
    except ValueError as error:
        raise CardRefused(f"order {order_id}: {HOSTILE}") from error
    return "paid"


@app.task(queue="payments", retry=0)
async def refund(order_id: int) -> None:
    raise Permanent(f"order {order_id} was never paid")


@app.task(queue="mail", breaker="smtp", retry=5)
async def send_mail(to: str) -> None:
    raise ConnectionRefusedError(f"the mail server is down, no mail to {to}")


@app.task(queue="labels", breaker="carrier", retry=0)
async def print_label(order_id: int) -> None:
    raise OSError(f"the printer is out of paper, no label for {order_id}")


@app.task(queue="imports", limits=[Concurrency(1, key="tenant")], timeout=3600)
async def import_orders(ctx: Context, tenant: str) -> None:
    """Run until it is cancelled."""
    while True:
        await ctx.progress(40, 100, message=f"importing for {tenant}", state="READING")
        await asyncio.sleep(0.5)


@app.task()
async def page_of(number: int) -> int:
    return number


@app.task(retry=0)
async def broken_page(number: int) -> int:
    raise RuntimeError(f"page {number} is missing")


@app.task()
async def bind(pages: list[int]) -> int:
    return len(pages)


async def fill(shop: App) -> None:
    """Write jobs that end up in every state, and what else each screen shows."""
    async with shop:
        await resize.enqueue_many([(f"/in/{n}.png",) for n in range(60)])
        await resize.options(meta={"note": HOSTILE}).enqueue(HOSTILE)
        await resize.options(delay="2h", key="nightly").enqueue("/in/later.png")
        await charge.enqueue_many([(n, "not a number") for n in range(12)])
        await refund.enqueue_many([(n,) for n in range(3)])
        await send_mail.enqueue_many([(f"u{n}@example.org",) for n in range(8)])
        await import_orders.enqueue_many([("acme",)] * 4)
        cancelled = await resize.options(delay="1h").enqueue("/in/no.png")
        await cancelled.cancel()
        await page_of.options(queue="newsletter", delay="1s").enqueue(1)
        await shop.queue("newsletter").pause(reason="the provider asked us to wait")
        await chain(page_of.s(1), group(page_of.si(2), page_of.si(3))).enqueue()
        await chord([page_of.s(n) for n in range(60)], bind.s()).enqueue()
        await chord([page_of.s(1), broken_page.s(2)], bind.s()).enqueue()
        await shop.schedules.create(
            "digest", resize, cron="0 9 * * MON-FRI", tz="Europe/Paris", args=("/d",)
        )


if __name__ == "__main__":
    asyncio.run(fill(app))
