"""What the shop has besides for the tests of actions: each acts on things of its own.

DURIO_URL=sqlite:////tmp/shop.db python -m tests.browser.action_scene
"""

import asyncio

from durio import App, chain
from tests.browser.shop import app, charge, page_of, print_label, refund

# Jobs that are due in 2 h, by queue.
LATER = {"letters": 3, "drafts": 3, "moving": 3, "pickups": 3}
# Keys of dead jobs, and of jobs that are due in 2 h.
DEAD = ("to-retry", "to-edit", "to-discard", "to-review", "to-forget")
DUE = ("to-cancel", "to-run")
RETURNS = 120  # dead jobs: more than one may act on without typing the number


async def fill(shop: App) -> None:
    """Write what the actions act on."""
    async with shop:
        for queue, jobs in LATER.items():
            later = page_of.options(queue=queue, delay="2h")
            await later.enqueue_many([(number,) for number in range(jobs)])
        for key in DUE:
            await page_of.options(key=key, delay="2h").enqueue(1)
        for key in DEAD:
            await charge.options(key=key).enqueue(1, "not a number")
        await refund.options(queue="returns").enqueue_many(
            [(number,) for number in range(RETURNS)]
        )
        await print_label.enqueue_many([(number,) for number in range(3)])
        held = page_of.options(queue="newsletter")  # which is paused
        await chain(held.s(1), page_of.si(2)).enqueue()


if __name__ == "__main__":
    asyncio.run(fill(app))
