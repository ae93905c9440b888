"""What people did by hand, written down in the transaction that does it."""

from durio.stores.sqlite.statements import statement
from durio.stores.sqlite.write_session import SqliteTransaction

INSERT_AUDIT = statement("insert_audit")
ADD_TO_AUDIT = statement("add_to_audit")
PRUNE_AUDIT = statement("prune_audit")

AUDIT_LINES_MAX = 10_000
WHO_CHARS_MAX = 200
TARGET_CHARS_MAX = 1000


def write_audit_line(
    tx: SqliteTransaction,
    namespace: str,
    who: str,
    verb: str,
    target: str,
    jobs: int = 0,
    *,
    add_to_line: int | None = None,
) -> int:
    """One line; `step_of` is the line of the act that this is one more step of."""
    if add_to_line is not None:
        rows = tx.db.rows(ADD_TO_AUDIT, (add_to_line, tx.now, jobs))
        if rows:
            return add_to_line
    line = (namespace, who[:WHO_CHARS_MAX], verb, target[:TARGET_CHARS_MAX], jobs)
    return tx.db.value(INSERT_AUDIT, (tx.now, *line))


def prune_audit(tx: SqliteTransaction, limit: int) -> None:
    """Only the newest lines stay."""
    tx.db.rows(PRUNE_AUDIT, (AUDIT_LINES_MAX, limit))
