"""Where final jobs are, and how they leave.

`hist` has the jobs that are done and stay as long as all do: they leave by whole days
(days.py), or by the row where days cannot be dropped. `kept` has every other one: dead,
cancelled, done with a retention of its own, and done with a key whose window is longer.
"""

from durio.model.settings import DAY
from durio.stores.postgres.audit import prune_audit
from durio.stores.postgres.day_names import name_of
from durio.stores.postgres.orders import prune_orders
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import Transaction

PRUNE_AGED = statement("hist_prune_aged")
PRUNE_DEAD = statement("hist_prune_dead")
NEXT_BUCKET = statement("hist_next_bucket")
PRUNE_BUCKET = statement("hist_prune_bucket")
PRUNE_DONE = statement("hist_prune_done")
PRUNE_DEFAULT = statement("hist_prune_default")
DAY_SIZE = statement("hist_day_size")
PRUNE_KEYS = statement("hist_prune_keys")
PRUNE_REPEATED = statement("hist_prune_repeated")

ID_TIME_BYTES = 6
SMALL_BYTES = 8 * 1024 * 1024


async def prune(
    tx: Transaction, limit: int, dead_count: int, *, drops_days: bool
) -> int:
    """By age, by count, and keys whose window is over: `limit` rows in all.

    Old orders, lines of the audit and notes of repeated enqueues go too; nobody counts
    them.
    """
    now = await tx.now()
    await prune_orders(tx, limit)
    await prune_audit(tx, limit)
    await tx.rows(PRUNE_REPEATED, now, limit)
    went = await count(tx, PRUNE_AGED, now, limit)
    went += await count(tx, PRUNE_DEAD, now, limit - went, dead_count)
    bucket = await tx.value(NEXT_BUCKET, "")
    while bucket is not None and went < limit:
        went += await count(tx, PRUNE_BUCKET, bucket, limit - went, now)
        bucket = await tx.value(NEXT_BUCKET, bucket)
    went += await prune_done(tx, limit - went, drops_days=drops_days)
    return went + await count(tx, PRUNE_KEYS, now, limit - went)


async def prune_done(tx: Transaction, limit: int, *, drops_days: bool) -> int:
    """Jobs that are done, row by row.

    Where days are dropped whole, a large one waits for that, up to a day longer; jobs of a
    small one, and those outside of any day, go when they are due.
    """
    old = await tx.now() - tx.retention.done_seconds
    by_row = PRUNE_DONE
    if drops_days:
        size = await tx.value(DAY_SIZE, name_of(int(old // DAY)))
        by_row = PRUNE_DONE if (size or 0) < SMALL_BYTES else PRUNE_DEFAULT
    return await count(tx, by_row, old, limit, last_id_of(old))


async def count(tx: Transaction, sql: str, *values: object) -> int:
    """How many rows a delete took."""
    return len(await tx.rows(sql, *values))


def last_id_of(moment: float) -> bytes:
    """The last id of a moment: ids begin with their time in milliseconds.

    A job ends after it was made, so only ids up to here are worth a look.
    """
    at = min(max(int(moment * 1000), 0), (1 << 8 * ID_TIME_BYTES) - 1)
    return at.to_bytes(ID_TIME_BYTES) + b"\xff" * (16 - ID_TIME_BYTES)
