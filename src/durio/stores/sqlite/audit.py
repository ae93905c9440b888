"""What people did by hand, written down in the transaction that does it."""

from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.transaction import Transaction

INSERT_AUDIT = statement("insert_audit")
ADD_TO_AUDIT = statement("add_to_audit")
PRUNE_AUDIT = statement("prune_audit")

KEPT_MAX = 10_000
WHO_CHARS_MAX = 200
TARGET_CHARS_MAX = 1000


def write_down(
    tx: Transaction,
    namespace: str,
    who: str,
    verb: str,
    target: str,
    jobs: int = 0,
    *,
    step_of: int | None = None,
) -> int:
    """One line; `step_of` is the line of the act that this is one more step of."""
    if step_of is not None:
        rows = tx.db.rows(ADD_TO_AUDIT, (step_of, tx.now, jobs))
        if rows:
            return step_of
    line = (namespace, who[:WHO_CHARS_MAX], verb, target[:TARGET_CHARS_MAX], jobs)
    return tx.db.value(INSERT_AUDIT, (tx.now, *line))


def prune_audit(tx: Transaction, limit: int) -> None:
    """Only the newest lines stay."""
    tx.db.rows(PRUNE_AUDIT, (KEPT_MAX, limit))
