"""What workers are asked to do through the store, and what they answer.

An order is brought by the worker's next renewal, which a ring makes happen at once. When
its worker is gone, or an hour is over, nobody will answer: then the answer is empty.
"""

from durio.ports.lease import Order
from durio.stores.sqlite.audit import write_down
from durio.stores.sqlite.database import Database
from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.transaction import Transaction

FIND_NAMESPACE = statement("find_namespace")
INSERT_ORDER = statement("insert_order")
FIND_ORDERS = statement("find_orders")
ANSWER_ORDER = statement("answer_order")
CLOSE_ORDERS = statement("close_orders")
READ_ANSWER = statement("read_answer")
PRUNE_ORDERS = statement("prune_orders")

ANSWER_BYTES_MAX = 256 * 1024
CUT = "\n... cut: the answer was {} bytes long"
DONE = "done"  # an answer without words
NEVER = ""
KEPT_SECONDS = 3600.0


def give_order(tx: Transaction, worker: int, verb: str, by: str) -> int | None:
    """Note it, and let the worker know that somebody wants something."""
    number = tx.db.value(INSERT_ORDER, (worker, verb, tx.now))
    if number is not None:
        tx.rung_workers.add(worker)
        namespace = tx.db.value(FIND_NAMESPACE, (worker,))
        write_down(tx, namespace, by, verb, f"worker {worker}")
    return number


def open_orders(tx: Transaction, worker: int) -> list[Order]:
    """What a worker has not answered yet, the oldest first."""
    return [Order(*row) for row in tx.db.rows(FIND_ORDERS, (worker,))]


def answer_order(tx: Transaction, worker: int, order: int, body: str) -> None:
    """The first answer stays."""
    tx.db.rows(ANSWER_ORDER, (order, worker, tx.now, bounded(body) or DONE))


def bounded(body: str) -> str:
    """An answer that a store can keep."""
    raw = body.encode("utf-8", "replace")
    if len(raw) <= ANSWER_BYTES_MAX:
        return raw.decode()
    note = CUT.format(len(raw))
    kept = raw[: ANSWER_BYTES_MAX - len(note)]
    return kept.decode("utf-8", "ignore") + note


def close_orders(tx: Transaction, worker: int) -> None:
    """The worker is gone."""
    tx.db.rows(CLOSE_ORDERS, (worker, tx.now))


def read_answer(db: Database, order: int) -> str | None:
    """None: nothing yet; NEVER: the worker is gone, or the order long over."""
    rows = db.rows(READ_ANSWER, (order,))
    if not rows:
        return NEVER
    answered_at, answer = rows[0]
    return None if answered_at is None else answer


def prune_orders(tx: Transaction, limit: int) -> None:
    """Whoever asked has long seen the answer."""
    tx.db.rows(PRUNE_ORDERS, (tx.now - KEPT_SECONDS, limit))
