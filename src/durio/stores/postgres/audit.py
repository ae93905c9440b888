"""What people did by hand, written down in the transaction that does it."""

from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import PostgresTransaction

INSERT_AUDIT = statement("insert_audit")
ADD_TO_AUDIT = statement("add_to_audit")
PRUNE_AUDIT = statement("prune_audit")

AUDIT_LINES_MAX = 10_000
WHO_CHARS_MAX = 200
TARGET_CHARS_MAX = 1000


async def write_audit_line(
    tx: PostgresTransaction,
    namespace: str,
    who: str,
    verb: str,
    target: str,
    jobs: int = 0,
    *,
    add_to_line: int | None = None,
) -> int:
    """One line; `step_of` is the line of the act that this is one more step of."""
    now = await tx.now()
    if add_to_line is not None and await tx.rows(ADD_TO_AUDIT, add_to_line, now, jobs):
        return add_to_line
    who, target = storable(who)[:WHO_CHARS_MAX], storable(target)[:TARGET_CHARS_MAX]
    return await tx.value(INSERT_AUDIT, now, namespace, who, verb, target, jobs)


def storable(text: str) -> str:
    """Text as the database takes it: no NUL, no half characters."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


async def prune_audit(tx: PostgresTransaction, limit: int) -> None:
    """Only the newest lines stay."""
    await tx.rows(PRUNE_AUDIT, AUDIT_LINES_MAX, limit)
