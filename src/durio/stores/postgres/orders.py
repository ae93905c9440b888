"""What workers are asked to do through the store, and what they answer.

An order is brought by the worker's next renewal, which a ring makes happen at once. When
its worker is gone, or an hour is over, nobody will answer: then the answer is empty.
"""

from collections.abc import Sequence

from durio.ports.lease import Order
from durio.stores.postgres.audit import write_down
from durio.stores.postgres.driver import Row
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import Transaction

INSERT_ORDER = statement("order_insert")
FIND_ORDERS = statement("order_find")
ANSWER_ORDER = statement("order_answer")
CLOSE_ORDERS = statement("order_close")
READ_ANSWER = statement("order_read")
PRUNE_ORDERS = statement("order_prune")

ANSWER_BYTES_MAX = 256 * 1024
CUT = "\n... cut: the answer was {} bytes long"
DONE = "done"  # an answer without words
NEVER = ""
KEPT_SECONDS = 3600.0


async def give_order(tx: Transaction, worker: int, verb: str, by: str) -> int | None:
    """Note it, and let the worker know that somebody wants something."""
    rows = await tx.rows(INSERT_ORDER, worker, verb, await tx.now())
    if not rows:
        return None
    number, namespace = rows[0]
    tx.ring_worker(worker)
    await write_down(tx, namespace, by, verb, f"worker {worker}")
    return number


async def open_orders(tx: Transaction, worker: int) -> list[Order]:
    """What a worker has not answered yet, the oldest first."""
    return [Order(*row) for row in await tx.rows(FIND_ORDERS, worker)]


async def answer_order(tx: Transaction, worker: int, order: int, body: str) -> None:
    """The first answer stays."""
    told = bounded(body) or DONE
    await tx.rows(ANSWER_ORDER, order, worker, await tx.now(), told)


def bounded(body: str) -> str:
    """An answer that a store can keep: not too long, and without NUL."""
    raw = body.encode("utf-8", "replace").replace(b"\0", b"")
    if len(raw) <= ANSWER_BYTES_MAX:
        return raw.decode()
    note = CUT.format(len(raw))
    kept = raw[: ANSWER_BYTES_MAX - len(note)]
    return kept.decode("utf-8", "ignore") + note


async def close_orders(tx: Transaction, workers: Sequence[int]) -> None:
    """These are gone: called after their rows have been deleted."""
    await tx.rows(CLOSE_ORDERS, workers, await tx.now())


def answer_in(rows: Sequence[Row]) -> str | None:
    """None: nothing yet; NEVER: the worker is gone, or the order long over."""
    if not rows:
        return NEVER
    answered_at, answer = rows[0]
    return None if answered_at is None else answer


async def prune_orders(tx: Transaction, limit: int) -> None:
    """Whoever asked has long seen the answer."""
    await tx.rows(PRUNE_ORDERS, await tx.now() - KEPT_SECONDS, limit)
