"""A small shop for the demo: its tasks, and a ledger of what happened to each job.

Workers load it as `durio.demo.shop:app`. The environment names the ledger's folder; without
it, nothing is written.
"""

import asyncio
import os
from functools import cache
from pathlib import Path
from typing import Any

from durio import App, Context, Retry
from durio.demo.record import Ledger, LedgerLineKind
from durio.host.clock import HostClock
from durio.host.processes import pause
from durio.worker.middleware import CallNext, HookEvent

LEDGER_VARIABLE = "DURIO_DEMO_LEDGER"
APP_PATH = "durio.demo.shop:app"
NAMESPACE = "demo"

IMAGE_PARTS = 8
PART_SECONDS = 0.1
MAIL_SECONDS = 0.15
BANK_SECONDS = 0.1
BANK_FAILS_EVERY = 4  # orders
LETTER_SECONDS = 3600.0
PARCEL_SECONDS = 0.2
PARCELS_MAX = 20  # waiting to be packed
PARCELS_AT_ONCE = 2  # per worker
PARCELS_WAIT_SECONDS = (
    0.3  # how long `enqueue` waits for room before it raises QueueFull
)

QUICK_RETRY = Retry(4, base=0.2, factor=2, max_delay=1)
SHORT_RETRY = Retry(2, delays=(0.2, 0.4), jitter=False)

clock = HostClock()


@cache
def own_ledger() -> Ledger | None:
    """Return the ledger of this process; None if the environment names no folder."""
    folder = os.environ.get(LEDGER_VARIABLE)
    return None if folder is None else Ledger(Path(folder))


def write_line(kind: str, **fields: Any) -> None:
    ledger = own_ledger()
    if ledger is not None:
        ledger.write(kind, **fields)


async def ledger_middleware(ctx: Context[Any], call_next: CallNext) -> Any:
    """Write a line when an attempt begins, and when it fails or has had its effect."""
    facts = attempt_fields(ctx)
    write_line(LedgerLineKind.STARTED, **facts)
    try:
        value = await call_next()
    except (Exception, asyncio.CancelledError):
        write_line(LedgerLineKind.FAILED, **facts)
        raise
    write_line(LedgerLineKind.EFFECT, **facts)
    return value


app = App(name=NAMESPACE, middleware=[ledger_middleware])
app.queue(
    "parcels",
    maxsize=PARCELS_MAX,
    slots=PARCELS_AT_ONCE,
    full_wait=PARCELS_WAIT_SECONDS,
)


def attempt_fields(of: Context[Any] | HookEvent) -> dict[str, Any]:
    """Return the fields of a line about an attempt; the task without the name of its App."""
    return {"job": of.job_id, "task": of.task.partition(".")[2], "attempt": of.attempt}


# --- events that the store has recorded


def write_finished(event: HookEvent, state: str) -> None:
    """Write a line: the store has recorded the end of this job."""
    facts = attempt_fields(event)
    write_line(LedgerLineKind.FINISHED, state=state, reason=event.reason, **facts)


@app.hooks.after
def on_done(event: HookEvent) -> None:
    write_finished(event, "done")


@app.hooks.dead
def on_dead(event: HookEvent) -> None:
    write_finished(event, "dead")


@app.hooks.cancelled
def on_cancelled(event: HookEvent) -> None:
    write_finished(event, "cancelled")


@app.hooks.retry
def on_retry(event: HookEvent) -> None:
    write_line(LedgerLineKind.RETRIED, **attempt_fields(event))


# --- tasks


class BankUnreachable(Exception):
    """The bank does not respond."""


class NoAddress(Exception):
    """The order has no address."""


@app.task
async def send_mail(order: int) -> str:
    """Confirm an order."""
    await clock.sleep(MAIL_SECONDS)
    return f"order {order} confirmed"


@app.task(retry=QUICK_RETRY)
async def charge_card(ctx: Context[Any], order: int) -> str:
    """Charge a card; for every fourth order the bank does not respond to the first attempt."""
    await clock.sleep(BANK_SECONDS)
    if order % BANK_FAILS_EVERY == 0 and ctx.attempt == 1:
        raise BankUnreachable(f"no answer for order {order}")
    return f"order {order} paid"


@app.task(retry=QUICK_RETRY, process=True)
def resize_image(ctx: Context[Any], order: int) -> str:
    """Make a small picture: a plain function in a child process, with progress."""
    for step in range(IMAGE_PARTS):
        pause(PART_SECONDS)
        ctx.progress(step + 1, IMAGE_PARTS, message="resizing")
    return f"order-{order}.webp"


@app.task(retry=QUICK_RETRY, process=True)
def open_bad_image(ctx: Context[Any], order: int) -> str:
    """Open a picture that crashes every library: the process dies each time."""
    write_line(LedgerLineKind.CRASHING, **attempt_fields(ctx))
    os.abort()
    return f"order-{order}.png"


@app.task(queue="parcels")
async def pack_parcel(order: int) -> str:
    """Pack a parcel, in a bounded queue."""
    await clock.sleep(PARCEL_SECONDS)
    return f"order {order} packed"


@app.task(retry=SHORT_RETRY)
async def print_label(order: int) -> str:
    """Print the address of an order that has none: every attempt fails."""
    raise NoAddress(f"order {order} has no address")


@app.task
async def remind(order: int) -> str:
    """Ask the customer for a review, some time later."""
    await clock.sleep(MAIL_SECONDS)
    return f"order {order} reminded"


@app.task(timeout=2 * LETTER_SECONDS)
async def write_letter(order: int) -> str:
    """Write to every customer; takes an hour, so that the demo can cancel it while it runs."""
    await clock.sleep(LETTER_SECONDS)
    return f"letter about order {order}"
