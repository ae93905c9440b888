"""Keys that their holders left behind, because somebody asked for them at that moment.

They do no harm: a holder that is over does not answer for a key, and the next who asks takes
it. But most keys are never asked for again, so the leader walks over all of them, a few at
a time.
"""

from durio.stores.postgres.desk import Desk
from durio.stores.postgres.statements import statement
from durio.stores.postgres.transaction import Transaction

NEXT = statement("key_next")
SWEEP = statement("key_sweep")

REST_SECONDS = 60.0
STEP_MAX = 1000


async def sweep_keys(desk: Desk) -> None:
    """The next few, about once a minute."""
    walk, now = desk.local.keys, desk.clock.monotonic()
    if now < walk.next_at:
        return
    walk.next_at = now + REST_SECONDS
    walk.after = await desk.lines.write(lambda tx: free_strays(tx, walk.after))


async def free_strays(tx: Transaction, after: bytes) -> bytes:
    """Those among the keys behind `after`; the last one of all that were looked at.

    They are looked at after they are locked: one may have got a new holder before.
    """
    ((keys, last),) = await tx.rows(NEXT, after, STEP_MAX)
    if keys:
        await tx.rows(SWEEP, keys)
    return last
