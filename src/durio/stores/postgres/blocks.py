"""Tasks' own transactions, known to others by the names of their connections.

A worker that stands still, or whose machine is cut off, leaves such a transaction behind, and
with it locks on rows of the user's: the next attempt would wait for them in vain. Whoever
takes a worker's jobs back ends its transactions too; their commits would be refused anyway.

The name is set for the transaction alone: a pooler gives the connection to others after it.
"""

import hashlib
from collections.abc import Sequence

from durio.stores.postgres.driver import DriverError
from durio.stores.postgres.same import MARK
from durio.stores.postgres.sqlstate import NO_RIGHT
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import Transaction

END_BLOCKS = statement("block_end")
AS_LOGGED_IN = "savepoint durio_end; set local role none"
AS_BEFORE = "rollback to savepoint durio_end"


def block_name(schema: str, worker: int) -> str:
    """What pg_stat_activity shows; schemas with long names would be cut there."""
    return f"durio tx {worker} {sign_of(schema)}"


def sign_of(schema: str) -> str:
    """What all of them have in their names."""
    return hashlib.blake2b(schema.encode(), digest_size=8).hexdigest()


def mark_of(schema: str, worker: int) -> str:
    """What begins such a transaction."""
    return MARK.format(name=block_name(schema, worker))


async def end_blocks(tx: Transaction, schema: str, workers: Sequence[int]) -> None:
    """End the transactions that tasks of these workers have open, if we may.

    Sessions are of whoever has logged in, who may act as somebody else (`set role`).
    """
    await tx.run(AS_LOGGED_IN)
    try:
        await tx.rows(END_BLOCKS, [block_name(schema, worker) for worker in workers])
    except DriverError as error:
        if error.lost or error.state != NO_RIGHT:
            raise  # of a superuser, say: their jobs are taken back all the same
    await tx.run(AS_BEFORE)
