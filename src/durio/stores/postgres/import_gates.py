"""Jobs with gates that arrive by a move: all of them enter their gates again.

Places and tokens are not moved, and a job that has passed or stands before a gate arrives as
blocked. It waits for a log of the move, which gets its one entry when the queues open. So the
jobs enter in the order of their ids, and `settle` goes on with those that one transaction
leaves.
"""

from durio.model.settings import DAY
from durio.stores.postgres.context import PostgresContext
from durio.stores.postgres.logs import write_entries
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import LogRow, PostgresTransaction

HAS_WAITS = statement("has_waits")


def gates_log(move: str) -> str:
    """Return the log that blocked jobs of a move wait for."""
    return f"moved-gates:{move}"


async def enter_imported(
    tx: PostgresTransaction, context: PostgresContext, move: str
) -> None:
    if await tx.rows(HAS_WAITS, gates_log(move)):
        tx.entries.append(LogRow(gates_log(move), 0, ttl_seconds=DAY))
        await write_entries(tx, context)
