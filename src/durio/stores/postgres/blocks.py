"""Connections of tasks' own transactions, known to others by their names.

A worker that stands still, or whose machine is cut off, leaves such a connection behind, and
with it locks on rows of the user's: the next attempt would wait for them in vain. Whoever
takes a worker's jobs back ends its transactions too; their commits would be refused anyway.
"""

from collections.abc import Sequence
from dataclasses import replace

from durio.stores.postgres.driver import Place
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import Transaction

END_BLOCKS = statement("block_end")
NAME_MAX = 63  # bytes that PostgreSQL keeps of a name


def block_name(schema: str, worker: int) -> str:
    """What pg_stat_activity shows of such a connection."""
    return f"durio tx {worker} {schema}"[:NAME_MAX]


def named(place: Place, worker: int) -> Place:
    """The place for a connection of this worker's tasks."""
    name = block_name(place.schema, worker)
    return replace(place, settings={**place.settings, "application_name": name})


async def end_blocks(tx: Transaction, schema: str, workers: Sequence[int]) -> None:
    """End the transactions that tasks of these workers have open."""
    await tx.rows(END_BLOCKS, [block_name(schema, worker) for worker in workers])
