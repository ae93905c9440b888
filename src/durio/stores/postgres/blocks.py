"""Tasks' own transactions, known to others by the names of their connections.

A worker that stands still, or whose machine is cut off, leaves such a transaction behind, and
with it locks on rows of the user's: the next attempt would wait for them in vain. Whoever
takes a worker's jobs back ends its transactions too; their commits would be refused anyway.

The name is set for the transaction alone: a pooler gives the connection to others after it.
"""

import hashlib
from collections.abc import Sequence

from durio.stores.postgres.same import MARK
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import Transaction

END_BLOCKS = statement("block_end")


def block_name(schema: str, worker: int) -> str:
    """What pg_stat_activity shows; schemas with long names would be cut there."""
    mark = hashlib.blake2b(schema.encode(), digest_size=8).hexdigest()
    return f"durio tx {worker} {mark}"


def mark_of(schema: str, worker: int) -> str:
    """What begins such a transaction."""
    return MARK.format(name=block_name(schema, worker))


async def end_blocks(tx: Transaction, schema: str, workers: Sequence[int]) -> None:
    """End the transactions that tasks of these workers have open."""
    await tx.rows(END_BLOCKS, [block_name(schema, worker) for worker in workers])
